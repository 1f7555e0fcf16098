import { useEffect, useState, type FormEvent } from "react";
import { Button, Field, Input, Segmented, Select } from "../kit/controls.js";
import { Command, Notice } from "../kit/show.js";
import { gateway, router } from "../state/page.js";
import type { Remember } from "../state/gateway.js";
import { useStore } from "../state/store.js";

const hints: Record<Remember, string> = {
  no: "Kept in memory: a reload asks for it again.",
  tab: "Kept until this tab is closed; a reload stays connected.",
  browser: "Kept in this browser. Whoever uses it can use the gateway.",
};

/** Where the page is when it has no connection, or at `#/connect`. */
export function Connect() {
  const state = useStore(gateway);
  const route = useStore(router);
  const given = route.area === "connect" ? route.query : {}; // at other addresses it is about something else
  const [endpoint, setEndpoint] = useState(given.endpoint ?? state.endpoint);
  const [agent, setAgent] = useState(given.agent ?? state.agent ?? "");
  const [token, setToken] = useState("");
  const [remember, setRemember] = useState<Remember>(state.remember);
  const [aimed, setAimed] = useState(state.endpoint);
  if (aimed !== state.endpoint) { // a link with a token leads to the page's own gateway
    setAimed(state.endpoint);
    setEndpoint(state.endpoint);
  }
  const { phase, problem } = state;
  const there = phase === "open" || phase === "reconnecting";

  // The page's own gateway is tried at once; another one, or an agent that a link names, only when a person says so.
  const [first, setFirst] = useState(phase === "idle" && state.generation === 0 && given.endpoint === undefined);
  useEffect(() => {
    if (first) void gateway.connect().finally(() => setFirst(false));
  }, []);
  const [asked, setAsked] = useState(false);

  const connect = async (event: FormEvent) => {
    event.preventDefault();
    setAsked(true);
    const { endpoint: old } = gateway.get();
    gateway.aim({ endpoint: endpoint.trim().replace(/\/(ui\/?)?$/, ""), agent: agent || undefined });
    if (token !== "") gateway.setToken(token.trim(), remember);
    else if (remember !== gateway.get().remember) gateway.setToken(gateway.token, remember);
    await gateway.connect({ install: true });
    if (gateway.get().phase === "open") {
      setToken("");
      if (router.now().area !== "connect") return;
      const from = gateway.get().endpoint === old ? router.before : undefined; // another token for the same place
      if (from) router.go(from.area, from.parts, { query: from.query, replace: true });
      else router.go(gateway.get().hub ? "nodes" : "sessions");
    }
  };

  if (first && !asked && (phase === "idle" || (phase === "connecting" && !state.hasToken))) return <div className="connect-wait" role="status">Connecting…</div>;
  return (
    <main className="connect" id="main">
      <div className="connect-card">
        <div className="brand big"><img src="./icon.svg" alt="" width="32" height="32" /> <h1>Sandbox Agent</h1></div>
        <p className="soft">Connect to a gateway, or to a hub of many, to see and drive coding agents.</p>
        {problem && phase === "failed" && (
          <Notice tone={problem.kind === "token" && !state.hasToken ? "info" : "bad"} title={problem.title}>
            <p>{problem.detail}</p>
            {problem.command && <Command text={problem.command} />}
          </Notice>
        )}
        {phase === "open" && <Notice tone="good" title="Connected">{state.version && <p>Version {state.version.version} on {state.version.os}/{state.version.arch}.</p>}</Notice>}
        <form onSubmit={(event) => void connect(event)}>
          <Field label="Endpoint" hint="The address of the gateway or the hub.">
            {(props) => <Input {...props} type="url" inputMode="url" required value={endpoint} onChange={(e) => setEndpoint(e.target.value)} placeholder="http://127.0.0.1:2468" />}
          </Field>
          <Field label="Token" optional={problem?.kind !== "token"} hint={hints[remember]}>
            {(props) => <Input {...props} type="password" value={token} autoFocus={problem?.kind === "token"} onChange={(e) => setToken(e.target.value)} placeholder={state.hasToken ? "as before" : ""} />}
          </Field>
          <Segmented<Remember>
            label="Keep the token" small value={remember} onChange={setRemember}
            options={[{ value: "no", label: "Do not keep" }, { value: "tab", label: "This tab" }, { value: "browser", label: "This browser" }]}
          />
          {!state.hub && <Field label="Agent of the connection" hint="Sessions can have another one.">
            {(props) => (
              <Select {...props} value={agent} onChange={(e) => setAgent(e.target.value)}>
                <option value="">The gateway’s default</option>
                {agent !== "" && !state.agents.some((a) => a.id === agent) && <option value={agent}>{agent}</option>}
                {state.agents.map((a) => <option key={a.id} value={a.id}>{a.name}</option>)}
              </Select>
            )}
          </Field>}
          <div className="row">
            <Button type="submit" tone="primary" busy={phase === "connecting"}>Connect</Button>
            {state.generation > 0 && there && <Button tone="quiet" onClick={() => history.length > 1 ? history.back() : router.go("sessions")}>Back</Button>}
            {there && <Button tone="quiet" onClick={() => void gateway.leave()}>Disconnect</Button>}
          </div>
        </form>
        <details className="start">
          <summary>Start a gateway</summary>
          <p>On the machine where the agents should work:</p>
          <Command text="sandbox-agent server --new-token" />
          <p>It prints its address and its token. In a container or on another machine, listen on all addresses and tell it the name that you use for it:</p>
          <Command text="sandbox-agent server --host 0.0.0.0 --token-file token.txt --allowed-host sandbox.example.com" />
          <p>A page from another place than the gateway needs its permission:</p>
          <Command text={`sandbox-agent server --new-token --cors-allow-origin ${location.origin}`} />
        </details>
      </div>
    </main>
  );
}
