import { useState } from "react";
import { AcpRpcError } from "sandbox-agent";
import { useWork } from "../app/work.js";
import { Button, Field, Input, TextArea } from "../kit/controls.js";
import { Dialog } from "../kit/dialog.js";
import { Json } from "../kit/json.js";
import { Notice } from "../kit/show.js";
import { messageOf } from "../state/explain.js";
import { gateway, traffic } from "../state/page.js";
import { draftOf, methodsOf, paramsAgain, parseParams, replayOf } from "./methods.js";
import { objectOf, type Row } from "./rows.js";

/** The newest session and folder that went over the wire: what a person most likely means. */
function newest(): { session: string; cwd: string } {
  let session = "";
  let cwd = "";
  for (const entry of traffic.entries()) {
    if (entry.kind !== "frame") continue;
    const { params, result } = entry.envelope.message as { params?: { sessionId?: unknown; cwd?: unknown }; result?: { sessionId?: unknown } };
    for (const id of [params?.sessionId, result?.sessionId]) if (typeof id === "string") session = id;
    if (typeof params?.cwd === "string") cwd = params.cwd;
  }
  return { session, cwd };
}

/** Sends any request over the page's connection; `again` is a recorded one to begin with. */
export function Send({ again, onClose }: { again?: Row | undefined; onClose: () => void }) {
  const [method, setMethod] = useState(again?.title ?? "");
  const [text, setText] = useState(() => (again?.entry.kind === "frame" ? paramsAgain(objectOf(again.entry.envelope.message).params) : "{}"));
  const [touched, setTouched] = useState(again !== undefined);
  const [state, setState] = useState<{ result?: { value: unknown }; error?: unknown }>({});
  const work = useWork();
  const [{ session, cwd }] = useState(newest);
  const version: number = gateway.client.acpVersion;
  const knownMethods = methodsOf(version);
  const parsed = parseParams(text);
  const known = knownMethods.find((m) => m.name === method);
  const replay = again && again.title === method ? replayOf(again.kind, method, version) : undefined;
  const removed = text.includes('"(removed)"'); // credentials are kept nowhere
  const choose = (name: string) => {
    setMethod(name);
    if (!touched && knownMethods.some((m) => m.name === name)) setText(draftOf(name, session, cwd || "/", version));
  };
  const send = () => {
    if (!("params" in parsed) || method === "" || removed) return;
    void work.run("It did not work", async () => {
      setState({});
      try {
        if (known?.notification) await gateway.client.cancel((parsed.params as { sessionId: string }).sessionId);
        setState({ result: { value: known?.notification ? "A notification has no answer." : await gateway.client.request(method, parsed.params) } });
      } catch (error) {
        setState({ error }); // where nobody waits for it any more, it is in the list of what went over the wire
      }
    });
  };
  return (
    <Dialog
      title={again ? "Send a request again" : "Send a request"} onClose={onClose} wide
      footer={<><Button onClick={onClose}>Close</Button><Button tone="primary" icon="send" busy={work.busy} disabled={method === "" || "error" in parsed || removed} onClick={send}>Send</Button></>}
    >
      {replay && "does" in replay && <Notice tone={known?.again === undefined ? "info" : "warn"}><p>{replay.does}</p></Notice>}
      <Field label="Method" hint={known?.about ?? `One of version ${version} of ACP, of an extension, or of the agent.`}>
        {(p) => <Input {...p} list="wire-methods" value={method} onChange={(event) => choose(event.target.value)} placeholder="session/list" autoFocus />}
      </Field>
      <datalist id="wire-methods">{knownMethods.map((m) => <option key={m.name} value={m.name}>{m.about}</option>)}</datalist>
      <Field label="Params" {...("error" in parsed ? { error: parsed.error } : removed ? { error: "Credentials are not recorded: put them in the place of (removed), or take them out." } : {})}>
        {(p) => (
          <TextArea
            {...p} className="mono" rows={9} value={text} spellCheck={false}
            onChange={(event) => { setTouched(true); setText(event.target.value); }}
            onKeyDown={(event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send(); }}
          />
        )}
      </Field>
      {state.error !== undefined && (
        <Notice tone="bad" title={state.error instanceof AcpRpcError ? `Error ${state.error.code}` : "It did not work"}>
          <p>{messageOf(state.error)}</p>
          {state.error instanceof AcpRpcError && state.error.data !== undefined && <Json value={state.error.data} label="Data of the error" />}
        </Notice>
      )}
      {state.result && <Json value={state.result.value} label="Result" />}
    </Dialog>
  );
}
