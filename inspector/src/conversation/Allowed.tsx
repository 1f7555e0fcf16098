import { useEffect, useRef, useState } from "react";
import { ProblemError, type SessionInfo, type SessionPermission } from "sandbox-agent";
import { Button } from "../kit/controls.js";
import { useLoad } from "../kit/load.js";
import { ago } from "../kit/text.js";
import { messageOf } from "../state/explain.js";
import { gateway, toasts } from "../state/page.js";
import { useSelected } from "../state/store.js";

/** What the session's agent was always allowed, and buttons that take it back. */
export function Allowed({ info, agent }: { info: SessionInfo; /** Its name. */ agent: string }) {
  const reader = useSelected(gateway, (g) => g.hub?.scope === "read");
  const id = info.sessionId;
  const { value, error, busy, reload } = useLoad((signal) => listed(id, signal), [id]);
  const [taking, setTaking] = useState<string>(); // an id, or all
  const heading = useRef<HTMLHeadingElement>(null);
  const loaded = useRef<(() => void)[]>([]); // who waits for the list
  const reloaded = () => new Promise<void>((resolve) => {
    loaded.current.push(resolve);
    reload();
  });
  useEffect(() => {
    if (!busy) for (const resolve of loaded.current.splice(0)) resolve();
  }, [busy]);
  // What is allowed, and what another client takes back, is an event; while the agent works most events are others.
  const seen = `${info.state} ${info.pending} ${info.state === "running" ? "" : info.eventCount}`;
  const last = useRef(seen);
  useEffect(() => {
    if (last.current !== seen) reload();
    last.current = seen;
  }, [seen]);
  const take = async (button: HTMLElement, one: string | undefined) => {
    setTaking(one ?? "all");
    const forgotten = await toasts.attempt("It could not be taken back", () => gateway.client.api.forgetPermissions(id, one));
    await reloaded();
    setTaking(undefined);
    const at = document.activeElement;
    if (forgotten !== undefined && forgotten.length > 0 && (at === null || at === document.body || at === button)) heading.current?.focus(); // the button may be gone
  };
  if (value === null) return null; // a gateway that does not know
  const revocable = value?.filter((p) => p.revocable) ?? [];
  return (
    <>
      <h3 ref={heading} tabIndex={-1}>Allowed always</h3>
      {error && <p className="row" role="status"><span className="soft grow">{messageOf(error)}</span><Button small busy={busy} onClick={reload}>Try again</Button></p>}
      {value === undefined ? !error && <p className="soft" role="status">Asking what is allowed…</p> : value.length === 0 ? <p className="soft">Nothing: {agent} asks as its mode says.</p> : (
        <ul className="mcp-list" aria-label="Allowed always">
          {value.map((p) => (
            <li key={p.id} className="mcp-one">
              <div className="row nowrap">
                <strong className="clip grow" title={p.title}>{p.title}</strong>
                {p.givenAt !== undefined && <span className="soft small" title={new Date(p.givenAt).toLocaleString()}>{ago(p.givenAt)}</span>}
                {p.revocable && !reader && <Button small aria-label={`Take back ${p.title}`} busy={taking === p.id} disabled={taking !== undefined} onClick={(event) => void take(event.currentTarget, p.id)}>Take back</Button>}
              </div>
              {p.reason !== undefined && <p className="soft small">It cannot be taken back here: {p.reason}.</p>}
              {p.where === "process" && <p className="soft small">{agent} forgets it when it lets go of the session, and with it all that it keeps so.</p>}
            </li>
          ))}
        </ul>
      )}
      {revocable.length > 1 && !reader && <p><Button small busy={taking === "all"} disabled={taking !== undefined} onClick={(event) => void take(event.currentTarget, undefined)}>Take back all</Button></p>}
    </>
  );
}

/** The permissions, or null at a gateway that does not know of any. */
const listed = (id: string, signal: AbortSignal): Promise<SessionPermission[] | null> =>
  gateway.client.api.sessionPermissions(id, { signal }).catch((error: unknown) => {
    if (error instanceof ProblemError && error.status === 404) return null;
    throw error;
  });
