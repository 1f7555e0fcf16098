import { useVirtualizer } from "@tanstack/react-virtual";
import { useMemo, useRef, useState } from "react";
import type { AreaProps } from "../areas.js";
import { Button, Input, LinkButton } from "../kit/controls.js";
import { Confirm } from "../kit/dialog.js";
import { useLoad } from "../kit/load.js";
import { AreaHead, Badge, Command, Dot, Empty, Notice, type Tone } from "../kit/show.js";
import { age, plural } from "../kit/text.js";
import { stateTone } from "../sessions/states.js";
import type { Node } from "../state/fleet.js";
import { fleet, gateway, leave, toasts } from "../state/page.js";
import { hrefOf } from "../state/router.js";
import { useStore } from "../state/store.js";
import { nodeUrl } from "./hub.js";
import "./nodes.css";

const rowHeight = 66;

const toneOf = (n: Node): Tone => (n.state === "online" ? ((n.sessions.waiting ?? 0) > 0 ? "warn" : "good") : "plain");
const labelsOf = (n: Node): string[] => Object.entries(n.labels).map(([name, value]) => `${name}=${value}`).sort();

/** What a node's sessions do, in words. */
function workOf(n: Node): string {
  const { running = 0, waiting = 0, idle = 0, offline = 0, ...rest } = n.sessions;
  const others = Object.values(rest).reduce((sum, count) => sum + count, 0);
  const words = [running > 0 && `${running} running`, waiting > 0 && (waiting === 1 ? "1 asks" : `${waiting} ask`), idle > 0 && `${idle} idle`, offline > 0 && plural(offline, "session"), others > 0 && `${others} at rest`].filter(Boolean);
  return words.length === 0 ? "no sessions" : words.join(" · ");
}

/** `#/nodes`, `#/nodes/NAME`: the gateways that have joined the hub. */
export default function Nodes({ route }: AreaProps) {
  const { nodes, loaded, problem } = useStore(fleet);
  const [search, setSearch] = useState("");
  const [name] = route.parts;
  const chosen = nodes.find((n) => n.name === name);
  const fits = useMemo(() => {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (n: Node) => `${n.name} ${n.state} ${labelsOf(n).join(" ")} ${n.version} ${n.agents.join(" ")}`.toLowerCase();
    return nodes.filter((n) => words.every((w) => text(n).includes(w)));
  }, [nodes, search]);
  const online = nodes.filter((n) => n.state === "online").length;
  const asks = nodes.reduce((sum, n) => sum + (n.sessions.waiting ?? 0), 0);
  return (
    <div className="area nodes">
      <AreaHead
        title="Nodes" lead={nodes.length === 0 ? "Gateways that have joined this hub." : `${online} of ${nodes.length} online.`}
        actions={<>
          {asks > 0 && <LinkButton href={hrefOf("sessions", [], { state: "waiting" })} icon="inbox">{asks === 1 ? "1 session waits" : `${asks} sessions wait`} for an answer</LinkButton>}
          <LinkButton href="#/sessions" icon="sessions">All sessions</LinkButton>
        </>}
      />
      {problem && <Notice tone="warn" title="The list is not up to date">{problem}</Notice>}
      {!loaded && !problem && <p className="area-wait" role="status">Asking for the nodes…</p>}
      {loaded && nodes.length === 0 ? <None /> : (
        <div className={`nodes-split ${name ? "chosen" : ""}`}>
          <div className="nodes-side">
            <Input type="search" aria-label="Search the nodes" placeholder="Name, label, agent" value={search} onChange={(event) => setSearch(event.target.value)} />
            <NodeRows nodes={fits} current={name} />
            {loaded && fits.length === 0 && <p className="soft">No node fits the search.</p>}
          </div>
          {chosen ? <Detail key={chosen.name} node={chosen} />
            : name && loaded ? <Empty icon="nodes" title={`There is no node ${name}`} action={<a className="button" href="#/nodes">All nodes</a>}><p>It was forgotten, or your token is not for it.</p></Empty>
            : loaded && <Empty icon="nodes" title="Choose a node"><p>What it has, and what is going on there.</p></Empty>}
        </div>
      )}
    </div>
  );
}

function None() {
  return (
    <Empty icon="nodes" title="No node has joined yet">
      <p>A gateway joins by itself, with a token of the kind join:</p>
      <Command text={`sandbox-hub token create --endpoint ${gateway.get().endpoint} --kind join >join-token`} />
      <Command text={`sandbox-agent server --join ${gateway.get().endpoint} --join-token-file join-token`} />
    </Empty>
  );
}

function NodeRows({ nodes, current }: { nodes: readonly Node[]; current: string | undefined }) {
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({ count: nodes.length, getScrollElement: () => scroller.current, overscan: 8, estimateSize: () => rowHeight, getItemKey: (i) => nodes[i]?.name ?? i });
  return (
    <div ref={scroller} className="node-rows" tabIndex={-1}>
      <ul aria-label="Nodes" style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => {
          const n = nodes[item.index];
          if (!n) return null;
          return (
            <li key={item.key} style={{ transform: `translateY(${item.start}px)`, height: item.size }} aria-setsize={nodes.length} aria-posinset={item.index + 1}>
              <a href={hrefOf("nodes", [n.name])} aria-current={n.name === current ? "true" : undefined}>
                <span className="row nowrap"><Dot tone={toneOf(n)} /> <strong className="clip grow">{n.name}</strong> <span className="soft small">{n.state === "online" ? "online" : "away"} {n.since && age(n.since)}</span></span>
                <span className="soft small clip">{workOf(n)}</span>
                <span className="soft small clip">{[n.version, ...labelsOf(n)].join(" · ")}</span>
              </a>
            </li>
          );
        })}
      </ul>
    </div>
  );
}

function Detail({ node: n }: { node: Node }) {
  const { hub, endpoint } = useStore(gateway);
  const [forgetting, setForgetting] = useState(false);
  const online = n.state === "online";
  const at = (area: string) => hrefOf(area, [], { node: n.name });
  const labels = labelsOf(n);
  const states = Object.entries(n.sessions).filter(([, count]) => count > 0);
  return (
    <section className="node-detail stack" aria-label={n.name}>
      <header className="row">
        <h2 className="grow clip">{n.name}</h2>
        <Badge tone={online ? "good" : "plain"}>{online ? "online" : "away"}</Badge>
        <a className="button small back" href="#/nodes">All nodes</a>
      </header>
      {!online && <Notice tone="warn" title={n.since ? `It was last here ${new Date(n.since).toLocaleString()}` : "It has been away since its hub ended"}>It joins again by itself when its gateway runs and reaches the hub. Its sessions can be read meanwhile.</Notice>}
      <div className="row">
        {online && hub?.scope !== "read" && <LinkButton href={hrefOf("sessions", ["new"], { node: n.name })} tone="primary" icon="plus">New session</LinkButton>}
        <LinkButton href={at("sessions")} icon="sessions">Its sessions</LinkButton>
        {online && <>
          <LinkButton href={at("agents")} icon="agents">Agents</LinkButton>
          {hub?.scope !== "read" && <LinkButton href={at("files")} icon="files">Files</LinkButton>}
          <LinkButton href={at("processes")} icon="processes">Processes</LinkButton>
          {hub?.scope !== "read" && <LinkButton href={at("terminal")} icon="terminal">Terminal</LinkButton>}
          <LinkButton href={`${nodeUrl(endpoint, n.name)}/ui/`} icon="external" tone="quiet">Its own page</LinkButton>
        </>}
        {!online && hub?.scope === "admin" && <Button tone="danger" icon="trash" onClick={() => setForgetting(true)}>Forget</Button>}
      </div>
      <dl className="facts-list">
        <div><dt>{online ? "Online since" : "Last here"}</dt><dd>{n.since ? new Date(n.since).toLocaleString() : "before its hub ended"}</dd></div>
        <div><dt>First joined</dt><dd>{new Date(n.joined).toLocaleString()}</dd></div>
        <div><dt>Version</dt><dd>{n.version}</dd></div>
        <div><dt>Labels</dt><dd className="row tight">{labels.length === 0 ? "none" : labels.map((l) => <a key={l} className="badge" href={hrefOf("sessions", [], { label: l })} title="Sessions of all nodes with this label">{l}</a>)}</dd></div>
        <div><dt>Sessions</dt><dd className="row tight">{states.length === 0 ? "none" : states.map(([state, count]) => <a key={state} className={`badge ${stateTone(state)}`} href={hrefOf("sessions", [], { node: n.name, state })}>{count} {state}</a>)}</dd></div>
        <div><dt>Load</dt><dd>{plural((n.sessions.running ?? 0) + (n.sessions.waiting ?? 0), "session")} at work</dd></div>
        <div><dt>Copies</dt><dd>{n.lag === 0 ? "the hub has all events" : `${plural(n.lag, "event")} not copied yet, at most`}</dd></div>
        <div><dt>Hub</dt><dd className="mono">{n.hub}</dd></div>
      </dl>
      <h3>Agents</h3>
      {online ? <ReadyAgents node={n.name} /> : <p className="soft">{n.agents.join(", ") || "It has not said which."}</p>}
      {forgetting && (
        <Confirm
          title={`Forget ${n.name}?`} action="Forget" onClose={() => setForgetting(false)}
          onConfirm={() => toasts.attempt("It is not forgotten", async () => {
            await gateway.api.fetch("DELETE", `v2/nodes/${encodeURIComponent(n.name)}`);
            await fleet.refresh();
            leave("nodes", n.name);
          })}
        >
          <p>The hub keeps the copies of its sessions; they count as gone. A gateway that joins by this name is a new node.</p>
        </Confirm>
      )}
    </section>
  );
}

/** The agents of a node that can be used now. */
function ReadyAgents({ node }: { node: string }) {
  const { value, error } = useLoad((signal) => gateway.fleet!.hub.at(node).agents({ signal }), [node], 10_000);
  if (error && !value) return <p className="bad-text" role="alert">{error.message}</p>;
  if (!value) return <p className="soft" role="status">Asking the node…</p>;
  const ready = value.filter((a) => a.installed);
  return (
    <>
      <ul className="plain-list ready-agents">
        {ready.map((a) => (
          <li key={a.id} className="row tight">
            <Dot tone={a.authState === "required" ? "warn" : "good"} /> <a href={hrefOf("agents", [a.id], { node })}>{a.name}</a>
            <span className="soft small">{[a.version, a.authState === "required" && "needs a login", a.processes.length > 0 && plural(a.processes.length, "process", "processes")].filter(Boolean).join(" · ")}</span>
          </li>
        ))}
      </ul>
      <p className="soft small">{ready.length} of {value.length} are ready. The others are installed when they are first used.</p>
    </>
  );
}
