import { useEffect, useMemo } from "react";
import type { SessionInfo } from "sandbox-agent";
import { CopyButton } from "../kit/controls.js";
import { Dialog } from "../kit/dialog.js";
import { count, duration, money, plural } from "../kit/text.js";
import { gateway } from "../state/page.js";
import { hrefOf, hrefOfFile } from "../state/router.js";
import { useSelected, useStore } from "../state/store.js";
import type { HubSession } from "../nodes/hub.js";
import type { Conversation } from "./conversation.js";
import { Allowed } from "./Allowed.js";
import { Given } from "./Given.js";
import type { TurnItem } from "./items.js";

const memories: Record<string, string> = { native: "It remembers all of it.", replayed: "It was told again what had been said.", fresh: "It was started anew and does not remember what was said before." };

/** Turns whose use is listed; the newest. */
const maxTurns = 20;

/** What there is to know of a session. */
export default function About({ conversation, info, onClose }: { conversation: Conversation; info: SessionInfo; onClose: () => void }) {
  const { usage, options, unsupported, continuity, commands } = useStore(conversation);
  const { node, replica } = info as HubSession;
  const { rows, version } = useStore(conversation.rows);
  const agent = useSelected(gateway, (g) => g.agents.find((a) => a.id === info.agent));
  const turns = useMemo(() => rows.flatMap((r) => (r.item.kind === "turn" ? [r.item] : [])), [rows, version]);
  const sum = (of: (u: NonNullable<TurnItem["usage"]>) => number | null | undefined) => turns.reduce((n, t) => n + ((t.usage && of(t.usage)) ?? 0), 0);
  const tools = useMemo(() => rows.filter((r) => r.item.kind === "tool").length, [rows, version]);
  const when = (time: string) => new Date(time).toLocaleString();
  const chosen = (current: string | boolean, choices: readonly { value: string; name: string }[]) => (typeof current === "boolean" ? (current ? "on" : "off") : (choices.find((c) => c.value === current)?.name ?? current));
  useEffect(() => void conversation.refresh(), [conversation]);
  return (
    <Dialog title="About this session" onClose={onClose} wide>
      <dl className="facts-list">
        <Fact name="Agent"><a href={hrefOf("agents", [info.agent])}>{agent?.name ?? info.agent}</a>{agent?.version ? ` ${agent.version}` : ""}</Fact>
        {node !== undefined && <Fact name="Node"><a href={hrefOf("nodes", [node])}>{node}</a></Fact>}
        {replica && <Fact name="Copy of the hub">{replica.missing > 0 ? `${plural(replica.missing, "event")} missing, at most` : replica.mayMiss ? "all events that the node told of; it was lost at work" : replica.trouble ? "not all events" : "all events"}{replica.trouble ? `: ${replica.trouble}` : ""}</Fact>}
        <Fact name="Folder"><a className="mono" href={hrefOfFile(info.cwd)}>{info.cwd}</a></Fact>
        <Fact name="Memory">{memories[continuity ?? info.continuity]}</Fact>
        {info.model && !options.some((o) => o.category === "model" || o.id === "model") && <Fact name="Model">{info.model}</Fact>}
        {options.map((o) => <Fact key={o.id} name={o.name}>{chosen(o.current, o.choices)}</Fact>)}
        <Fact name="Made">{when(info.createdAt)}</Fact>
        <Fact name="Last change">{when(info.updatedAt)}</Fact>
        <Fact name="Id"><span className="mono">{info.sessionId}</span> <CopyButton text={info.sessionId} iconOnly label="Copy the id" /></Fact>
        {info.agentSessionId !== info.sessionId && <Fact name="Id of the agent"><span className="mono">{info.agentSessionId}</span> <CopyButton text={info.agentSessionId} iconOnly label="Copy the agent’s id" /></Fact>}
        <Fact name="Log">{info.eventCount} events; {info.clients} attached</Fact>
        {commands.length > 0 && <Fact name="Commands"><span className="mono">{commands.map((c) => `/${c.name}`).join("  ")}</span></Fact>}
        {unsupported.map((u) => <Fact key={u.field} name={`Without ${u.field}`}>{u.reason}</Fact>)}
      </dl>
      <Given conversation={conversation} agent={agent?.name ?? info.agent} />
      <Allowed info={info} agent={agent?.name ?? info.agent} />
      <h3>Use</h3>
      <dl className="facts-list">
        {usage && <Fact name="Context">{count(usage.used)} of {count(usage.size)} tokens</Fact>}
        {usage?.cost && <Fact name="Cost">{money(usage.cost.amount, usage.cost.currency)}</Fact>}
        <Fact name="Read here">{plural(turns.length, "turn")}, {plural(tools, "tool call")}{sum((u) => u.totalTokens) > 0 ? `, ${count(sum((u) => u.inputTokens))} tokens in, ${count(sum((u) => u.outputTokens))} out${sum((u) => u.cachedReadTokens) > 0 ? `, ${count(sum((u) => u.cachedReadTokens))} cached` : ""}${sum((u) => u.thoughtTokens) > 0 ? `, ${count(sum((u) => u.thoughtTokens))} thought` : ""}` : ""}</Fact>
      </dl>
      {turns.length > 0 && (
        <div className="table-scroll" tabIndex={0} role="region" aria-label="Turns">
          <table className="turns">
            <thead><tr><th>Ended</th><th>Took</th><th>In</th><th>Out</th><th>How</th></tr></thead>
            <tbody>
              {turns.slice(-maxTurns).reverse().map((t) => (
                <tr key={t.key}><td>{new Date(t.at).toLocaleTimeString()}</td><td>{t.tookMs === undefined ? "" : duration(t.tookMs)}</td><td>{t.usage ? count(t.usage.inputTokens) : ""}</td><td>{t.usage ? count(t.usage.outputTokens) : ""}</td><td>{t.error !== undefined ? "failed" : (t.stopReason ?? "").replaceAll("_", " ")}</td></tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Dialog>
  );
}

function Fact({ name, children }: { name: string; children: React.ReactNode }) {
  return <div><dt>{name}</dt><dd>{children}</dd></div>;
}
