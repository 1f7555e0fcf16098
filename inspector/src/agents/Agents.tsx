import { useEffect, useState } from "react";
import type { Agent } from "sandbox-agent";
import type { AreaProps } from "../areas.js";
import { Button, Segmented, Spinner } from "../kit/controls.js";
import { AreaHead, Badge, Dot, Empty } from "../kit/show.js";
import { useLoad } from "../kit/load.js";
import { plural } from "../kit/text.js";
import { gateway, installs, router } from "../state/page.js";
import { useSelected, useStore } from "../state/store.js";
import { AgentDetail, Checks } from "./Detail.js";
import { featuresOf, levels, type Support } from "./features.js";
import "./agents.css";

const views = [{ value: "list", label: "Agents" }, { value: "matrix", label: "Features" }, { value: "doctor", label: "Doctor" }] as const;

/** `#/agents`, `#/agents/ID`, `#/agents?view=matrix`, `#/agents?view=doctor`. */
export default function Agents({ route }: AreaProps) {
  const agents = useSelected(gateway, (g) => g.agents);
  const running = useStore(installs);
  const placeOf = (agent: string) => `${gateway.machineUrl} ${agent}`;
  const [id] = route.parts;
  const view = route.query.view === "matrix" || route.query.view === "doctor" ? route.query.view : "list";
  const chosen = agents.find((a) => a.id === id);
  const settled = Object.values(running).filter((i) => i.state !== "running").length;
  useEffect(() => void gateway.refreshAgents().catch(() => {}), [settled]);
  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === "visible" && void gateway.refreshAgents().catch(() => {}), 10_000);
    return () => clearInterval(timer);
  }, []);
  return (
    <div className="area agents">
      <AreaHead
        title="Agents" lead="What can work at this gateway, and what each can do."
        actions={<Segmented label="View" value={view} onChange={(v) => router.go("agents", [], v === "list" ? {} : { query: { view: v } })} options={views} />}
      />
      {view === "matrix" ? <Matrix agents={agents} />
        : view === "doctor" ? <Doctor />
        : (
          <div className={`agents-split ${chosen || id ? "chosen" : ""}`}>
            <ul className="agents-list" aria-label="Agents">
              {agents.map((a) => (
                <li key={a.id}>
                  <a href={`#/agents/${encodeURIComponent(a.id)}`} aria-current={a.id === id ? "true" : undefined}>
                    <span className="grow">
                      <strong>{a.name}</strong> {a.default && <Badge>default</Badge>}
                      <span className="soft small clip">{stateOf(a)}</span>
                    </span>
                    {running[placeOf(a.id)]?.state === "running" ? <Spinner /> : <Dot tone={toneOf(a)} />}
                  </a>
                </li>
              ))}
            </ul>
            {chosen ? <AgentDetail key={chosen.id} agent={chosen} place={placeOf(chosen.id)} install={running[placeOf(chosen.id)]} />
              : id ? <Empty icon="agents" title={`There is no agent ${id}`} action={<a className="button" href="#/agents">All agents</a>} />
              : <Empty icon="agents" title="Choose an agent">{plural(agents.filter((a) => a.installed).length, "agent")} of {agents.length} can be used now. The others are installed when they are first used, or here.</Empty>}
          </div>
        )}
    </div>
  );
}

function stateOf(a: Agent): string {
  if (!a.installed) return "not installed";
  const words = [a.version ?? "installed"];
  if (a.authState === "required") words.push("needs a login");
  else if (a.authState === "authenticated") words.push("logged in");
  if (a.processes.length > 0) words.push(plural(a.processes.length, "process", "processes"));
  return words.join(" · ");
}

const toneOf = (a: Agent) => (!a.installed ? "plain" : a.authState === "required" ? "warn" : a.processes.length > 0 ? "good" : "info");

function Matrix({ agents }: { agents: readonly Agent[] }) {
  const shown = agents.filter((a) => a.capabilities);
  const [only, setOnly] = useState<"all" | "installed">("all");
  const columns = only === "installed" ? shown.filter((a) => a.installed) : shown;
  return (
    <div className="stack">
      <div className="row">
        <Segmented small label="Agents" value={only} onChange={setOnly} options={[{ value: "all", label: "All" }, { value: "installed", label: "Installed" }]} />
        <span className="soft small">{Object.values(levels).map((l) => `${l.word}: ${l.about}`).join(" ")} Point at a cell for the details.</span>
      </div>
      <div className="matrix" tabIndex={0} role="region" aria-label="Features of agents">
        <table>
          <thead><tr><th scope="col">Feature</th>{columns.map((a) => <th key={a.id} scope="col"><a href={`#/agents/${encodeURIComponent(a.id)}`}>{a.name}</a></th>)}</tr></thead>
          <tbody>
            {featuresOf(columns).map(([id, name]) => (
              <tr key={id}>
                <th scope="row">{name}</th>
                {columns.map((a) => <Cell key={a.id} support={a.capabilities?.[id]} />)}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </div>
  );
}

function Cell({ support }: { support: Support | undefined }) {
  if (!support) return <td className="soft">unknown</td>;
  const level = levels[support.level];
  return <td title={support.reason ?? level.about}><Badge tone={level.tone}>{level.word}</Badge>{support.reason && <span className="matrix-more" aria-label={support.reason}>*</span>}</td>;
}

function Doctor() {
  const { value, error, busy, reload } = useLoad((signal) => gateway.machine.api.doctor(undefined, { signal }), []);
  return (
    <div className="stack">
      <div className="row"><Button icon="refresh" busy={busy} onClick={reload}>Look again</Button>{value && <span className="soft">{value.platform}</span>}</div>
      {error && <p className="bad-text" role="alert">{error.message}</p>}
      {!value && busy && <p className="soft" role="status">Looking at the machine, its network and the agents. This may take a while.</p>}
      {value && <Checks checks={value.checks} />}
    </div>
  );
}
