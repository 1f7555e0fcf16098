import { useEffect, useState } from "react";
import { SandboxAgentClient } from "sandbox-agent";
import { Button, Field, Select } from "../kit/controls.js";
import { AreaHead, Empty, Notice } from "../kit/show.js";
import { age, baseName } from "../kit/text.js";
import { explain, type Explanation } from "../state/explain.js";
import { conversations, departing, gateway, sessions, toasts, traffic } from "../state/page.js";
import { useSelected } from "../state/store.js";

interface Found {
  readonly sessionId: string;
  readonly cwd: string;
  readonly title?: string | null;
  readonly updatedAt?: string | null;
}

/** Conversations that agents keep themselves, such as those of a terminal. */
export default function Elsewhere() {
  const agents = useSelected(gateway, (g) => g.agents).filter((a) => a.capabilities?.nativeSessions?.level !== "unsupported");
  const [agent, setAgent] = useState(() => (agents.find((a) => a.id === gateway.get().agent) ?? agents.find((a) => a.installed) ?? agents[0])?.id ?? "");
  const [wanted, setWanted] = useState<string>(); // an agent that may be installed to be asked
  const chosen = agents.find((a) => a.id === agent);
  const askable = chosen !== undefined && (chosen.installed || wanted === agent);
  const [found, setFound] = useState<readonly Found[]>();
  const [problem, setProblem] = useState<Explanation | string>();
  const [opening, setOpening] = useState<string>();

  useEffect(() => {
    setFound(undefined);
    setProblem(undefined);
    if (!askable) return;
    const controller = new AbortController();
    list(agent, controller.signal).then(
      ({ sessions: all, incomplete }) => {
        if (controller.signal.aborted) return;
        const ours = new Set(sessions.get().sessions.flatMap((s) => [s.sessionId, s.agentSessionId]));
        setFound(all.filter((s) => !ours.has(s.sessionId)));
        if (incomplete) setProblem(incomplete);
      },
      (error: unknown) => !controller.signal.aborted && setProblem(explain(error, gateway.get().endpoint)),
    );
    return () => controller.abort();
  }, [agent, askable]);

  const open = async (one: Found) => {
    setOpening(one.sessionId);
    await toasts.attempt("It could not be opened", async () => {
      const lead = departing();
      const session = await gateway.client.loadSession({ sessionId: one.sessionId, cwd: one.cwd, agent });
      conversations.made(session);
      lead(`It is here now: ${one.title || baseName(one.cwd)}`, "sessions", [session.id]);
    });
    setOpening(undefined);
  };

  return (
    <div className="area">
      <AreaHead title="Sessions made elsewhere" lead="Conversations that an agent keeps itself, such as those of a terminal on the gateway’s machine. Opening one brings it here." />
      <div className="narrow">
        <Field label="Agent" hint="It is started to be asked.">
          {(props) => <Select {...props} value={agent} onChange={(e) => setAgent(e.target.value)}>{agents.map((a) => <option key={a.id} value={a.id}>{a.name}{a.installed ? "" : " (not installed)"}</option>)}</Select>}
        </Field>
      </div>
      {typeof problem === "string" && <Notice tone="warn" title="The list is not complete">{problem}</Notice>}
      {typeof problem === "object" && <Notice tone="bad" title={problem.title}>{problem.detail}</Notice>}
      {chosen && !askable && <Empty icon="download" title={`${chosen.name} is not installed`} action={<Button onClick={() => setWanted(agent)}>Install and ask</Button>}><p>It must be there to be asked for its sessions.</p></Empty>}
      {!found && !problem && askable && <p className="soft" role="status">Asking the agent…</p>}
      {found?.length === 0 && <Empty icon="sessions" title="No others"><p>Every session that this agent has is in the list already, or it has none.</p></Empty>}
      {found && found.length > 0 && (
        <ul className="found">
          {found.slice(0, 500).map((one) => (
            <li key={one.sessionId}>
              <span className="grow">
                <strong className="clip">{one.title || baseName(one.cwd)}</strong>
                <span className="soft small mono clip">{one.cwd}</span>
              </span>
              {one.updatedAt && <time className="soft small" dateTime={one.updatedAt}>{age(one.updatedAt)}</time>}
              <Button small busy={opening === one.sessionId} disabled={opening !== undefined} onClick={() => void open(one)}>Open</Button>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

/** Pages of the agent's list that are read. */
const maxPages = 10;

/** Asks an agent, on a connection of its own where it is not that of the page. */
async function list(agent: string, signal: AbortSignal): Promise<{ sessions: Found[]; incomplete: string | undefined }> {
  const own = agent === gateway.get().agent;
  const client = own ? gateway.client : new SandboxAgentClient<2>({
    acpVersion: gateway.client.acpVersion, baseUrl: gateway.machineUrl, agent, fetch: traffic.fetch, onEnvelope: traffic.envelope, reconnect: false, ...(gateway.token === undefined ? {} : { token: gateway.token }),
  });
  try {
    const all: Found[] = [];
    let cursor: string | null | undefined;
    let incomplete: string | undefined;
    for (let page = 0; page < maxPages; page++) {
      const answer = await client.listSessions(cursor ? { cursor } : {}, { signal });
      all.push(...answer.sessions);
      const said = (answer._meta?.["sandboxagent.dev"] as { incomplete?: unknown } | undefined)?.incomplete;
      if (said !== undefined) incomplete = typeof said === "string" ? said : "The agent did not answer.";
      cursor = answer.nextCursor;
      if (!cursor) break;
    }
    return { sessions: all, incomplete };
  } finally {
    if (!own) await client.disconnect();
  }
}
