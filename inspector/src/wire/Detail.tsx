import { META } from "sandbox-agent";
import { useState } from "react";
import { Button, CopyButton, IconButton, Segmented } from "../kit/controls.js";
import { Json } from "../kit/json.js";
import { Badge, Notice } from "../kit/show.js";
import { bytes, duration, plural } from "../kit/text.js";
import { useLoad } from "../kit/load.js";
import { messageOf } from "../state/explain.js";
import { gateway, home } from "../state/page.js";
import { useStore } from "../state/store.js";
import { asCall, asCurl } from "./export.js";
import { replayOf } from "./methods.js";
import { nothingIn } from "./other.js";
import { objectOf, rawOf, type Row } from "./rows.js";
import type { Finding } from "./schema.js";

/** One entry, whole. `findings` is what the schema says of it, when that is known. */
export function Detail({ row, findings, comparing, onClose, onGo, onCompare, onReplay }: { row: Row; findings: readonly Finding[] | undefined; /** It waits for another entry to be compared with. */ comparing: boolean; onClose: () => void; onGo: (n: number) => void; onCompare: () => void; onReplay: () => void }) {
  const [form, setForm] = useState<"pretty" | "raw" | "other">("pretty");
  const { endpoint, hasToken, agent } = useStore(gateway);
  const raw = rawOf(row);
  const { entry } = row;
  const curl = row.version === 2 && entry.kind === "frame" ? undefined : asCurl(entry, endpoint, hasToken, agent);
  const call = row.version === 2 && entry.kind === "frame" && row.sent ? asCall(entry.envelope.message, endpoint, agent) : undefined;
  const place = placeOf(row);
  const replay = entry.kind === "frame" && row.sent ? replayOf(row.kind, row.title, row.version) : undefined;
  return (
    <section className="wire-detail" aria-label="Entry">
      <header className="row">
        <IconButton className="wire-back" label="All entries" icon="chevron" onClick={onClose} />
        <h2 className="clip grow" title={row.title}>{row.title}</h2>
        <IconButton className="wire-close" label="Close" icon="close" onClick={onClose} />
      </header>
      <div className="row small">
        <Badge tone={row.failed ? "bad" : "plain"}>{row.kind}</Badge>
        <span className="soft">{row.sent ? "sent" : "received"} {new Date(entry.at).toISOString()}{entry.kind === "frame" ? ` · ${entry.envelope.via} · ${bytes(raw.length)}` : ""}</span>
        {entry.kind === "frame" && entry.envelope.eventId !== undefined && <span className="soft">event {entry.envelope.eventId}</span>}
        {row.firstUpdateMs !== undefined && <span className="soft">first update after {duration(row.firstUpdateMs)}</span>}
        {row.answeredMs !== undefined && <span className="soft">answered after {duration(row.answeredMs)}</span>}
        {row.endedMs !== undefined && <span className="soft">turn ended after {duration(row.endedMs)}</span>}
      </div>
      <div className="row">
        <Segmented small label="Form" value={form} onChange={setForm} options={[{ value: "pretty", label: "Pretty" }, { value: "raw", label: "Raw" }, ...(place ? [{ value: "other" as const, label: `Version ${place.version}`, title: "The same as the session’s log tells it in the other version of ACP" }] : [])]} />
        <CopyButton text={entry.kind === "frame" ? raw : JSON.stringify(entry.request)} label="Copy as JSON" />
        {curl !== undefined && <CopyButton text={curl} label="Copy as curl" />}
        {call !== undefined && <CopyButton text={call} label="Copy as a command" />}
        {row.partner !== undefined && <Button small tone="quiet" icon="wire" onClick={() => onGo(row.partner!)}>{row.kind === "response" ? "Its request" : "Its response"}</Button>}
        {replay && "does" in replay && <Button small tone="quiet" icon="send" onClick={onReplay}>Send again…</Button>}
        <Button small tone="quiet" icon="review" aria-pressed={comparing} onClick={onCompare}>Compare with…</Button>
        {row.session !== undefined && <a className="button quiet small" href={`#/sessions/${encodeURIComponent(row.session)}`}>Its session</a>}
      </div>
      {replay && "not" in replay && <p className="small soft">{replay.not}</p>}
      <Findings findings={findings} version={row.version} />
      <div className="wire-content">
        {entry.kind === "frame"
          ? form === "other" && place ? <Other {...place} /> : form === "pretty" ? <Json value={entry.envelope.message} label="Message" /> : <pre className="json raw" tabIndex={0} aria-label="Message">{raw}</pre>
          : <Http form={form === "raw" ? "raw" : "pretty"} exchange={entry.request} />}
      </div>
    </section>
  );
}

/** Where a frame stands in its session's log, and the version of ACP that it is not in. */
function placeOf({ entry, session, version }: Row): { readonly session: string; readonly seq: number; readonly version: number; readonly update: Readonly<Record<string, unknown>> } | undefined {
  if (entry.kind !== "frame" || session === undefined) return undefined;
  const params = objectOf((entry.envelope.message as { params?: unknown }).params);
  const { seq } = objectOf(objectOf(params._meta)[META]);
  return typeof seq === "number" ? { session: home(session), seq, version: version === 1 ? 2 : 1, update: objectOf(params.update) } : undefined;
}

/** The event of a frame as the other version of ACP tells it. */
function Other({ session, seq, version, update }: { session: string; seq: number; version: number; update: Readonly<Record<string, unknown>> }) {
  const { value, error } = useLoad(async (signal) => {
    const { events } = await gateway.api.sessionEvents(session, { after: seq - 1, limit: 1, acp: version as 1 | 2 }, { signal });
    return events.filter((event) => event.seq === seq);
  }, [session, seq, version]);
  if (error !== undefined) return <p className="bad-text" role="alert">It could not be read: {messageOf(error)}</p>;
  if (!value) return <p className="soft" role="status">Reading the session’s log…</p>;
  if (value.length === 0) return <p className="soft">{nothingIn(version, update)}</p>;
  return <>{value.map((event, i) => <Json key={i} value={event.message} label={`Message of version ${version}`} />)}</>;
}

/** What the protocol's schema says of a frame. */
function Findings({ findings, version }: { findings: readonly Finding[] | undefined; version: number }) {
  if (findings === undefined) return null;
  const wrong = findings.filter((f) => f.wrong);
  if (findings.length === 0) return <p className="small soft">It fits the schema of version {version} of ACP.</p>;
  return (
    <Notice tone={wrong.length > 0 ? "warn" : "info"} still title={wrong.length > 0 ? `${plural(wrong.length, "violation")} of the schema of version ${version} of ACP` : `Newer than the schema of version ${version} of ACP, which is legal`}>
      <ul className="wire-findings">
        {findings.map((f, i) => <li key={i}><code>{f.path === "" ? "the frame" : f.path}</code> {f.says}</li>)}
      </ul>
    </Notice>
  );
}

function Http({ exchange: x, form }: { exchange: Extract<Row["entry"], { kind: "request" }>["request"]; form: "pretty" | "raw" }) {
  return (
    <>
      <h3>Request</h3>
      <pre className="json raw" tabIndex={0} aria-label="Request">{`${x.method} ${x.url}\n${heads(x.headers)}`}</pre>
      {x.body !== undefined && <Body text={x.body} form={form} label="Body of the request" />}
      <h3>Answer</h3>
      {x.error !== undefined && <p className="bad-text">{x.error}</p>}
      {x.status !== undefined && <pre className="json raw" tabIndex={0} aria-label="Answer">{`${x.status} after ${Math.round(x.tookMs ?? 0)} ms\n${heads(x.responseHeaders ?? {})}`}</pre>}
      {x.responseBody !== undefined && <Body text={x.responseBody} form={form} label="Body of the answer" />}
      {x.status !== undefined && x.responseBody === undefined && <p className="soft small">Its body is not kept: it is a stream, empty, no text, or too large.</p>}
    </>
  );
}

function Body({ text, form, label }: { text: string; form: "pretty" | "raw"; label: string }) {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return <pre className="json raw" tabIndex={0} aria-label={label}>{text}</pre>;
  }
  return form === "pretty" ? <Json value={value} label={label} /> : <pre className="json raw" tabIndex={0} aria-label={label}>{text}</pre>;
}

const heads = (headers: Readonly<Record<string, string>>) => Object.entries(headers).map(([name, value]) => `${name}: ${value}`).join("\n");
