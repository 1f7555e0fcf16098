import { useState } from "react";
import { Button, CopyButton, IconButton, Segmented } from "../kit/controls.js";
import { Json } from "../kit/json.js";
import { Badge, Notice } from "../kit/show.js";
import { bytes, duration, plural } from "../kit/text.js";
import { gateway } from "../state/page.js";
import { useStore } from "../state/store.js";
import { asCurl } from "./export.js";
import { replayOf } from "./methods.js";
import { rawOf, type Row } from "./rows.js";
import type { Finding } from "./schema.js";

/** One entry, whole. `findings` is what the schema says of it, when that is known. */
export function Detail({ row, findings, comparing, onClose, onGo, onCompare, onReplay }: { row: Row; findings: readonly Finding[] | undefined; /** It waits for another entry to be compared with. */ comparing: boolean; onClose: () => void; onGo: (n: number) => void; onCompare: () => void; onReplay: () => void }) {
  const [form, setForm] = useState<"pretty" | "raw">("pretty");
  const { endpoint, hasToken, agent } = useStore(gateway);
  const raw = rawOf(row);
  const curl = asCurl(row.entry, endpoint, hasToken, agent);
  const { entry } = row;
  const replay = entry.kind === "frame" && row.sent ? replayOf(row.kind, row.title) : undefined;
  return (
    <section className="wire-detail" aria-label="Entry">
      <header className="row">
        <h2 className="clip grow" title={row.title}>{row.title}</h2>
        <IconButton label="Close" icon="close" onClick={onClose} />
      </header>
      <div className="row small">
        <Badge tone={row.failed ? "bad" : "plain"}>{row.kind}</Badge>
        <span className="soft">{row.sent ? "sent" : "received"} {new Date(entry.at).toISOString()}{entry.kind === "frame" ? ` · ${entry.envelope.via} · ${bytes(raw.length)}` : ""}</span>
        {entry.kind === "frame" && entry.envelope.eventId !== undefined && <span className="soft">event {entry.envelope.eventId}</span>}
        {row.firstUpdateMs !== undefined && <span className="soft">first update after {duration(row.firstUpdateMs)}</span>}
        {row.answeredMs !== undefined && <span className="soft">answered after {duration(row.answeredMs)}</span>}
      </div>
      <div className="row">
        <Segmented small label="Form" value={form} onChange={setForm} options={[{ value: "pretty", label: "Pretty" }, { value: "raw", label: "Raw" }]} />
        <CopyButton text={entry.kind === "frame" ? raw : JSON.stringify(entry.request)} label="Copy as JSON" />
        {curl !== undefined && <CopyButton text={curl} label="Copy as curl" />}
        {row.partner !== undefined && <Button small tone="quiet" icon="wire" onClick={() => onGo(row.partner!)}>{row.kind === "response" ? "Its request" : "Its response"}</Button>}
        {replay && "does" in replay && <Button small tone="quiet" icon="send" onClick={onReplay}>Send again…</Button>}
        <Button small tone="quiet" icon="review" aria-pressed={comparing} onClick={onCompare}>Compare with…</Button>
        {row.session !== undefined && <a className="button quiet small" href={`#/sessions/${encodeURIComponent(row.session)}`}>Its session</a>}
      </div>
      {comparing && <Notice tone="info"><p>Choose another entry in the list.</p></Notice>}
      {replay && "not" in replay && <p className="small soft">{replay.not}</p>}
      <Findings findings={findings} version={row.version} />
      <div className="wire-content">
        {entry.kind === "frame"
          ? form === "pretty" ? <Json value={entry.envelope.message} label="Message" /> : <pre className="json raw" tabIndex={0} aria-label="Message">{raw}</pre>
          : <Http form={form} exchange={entry.request} />}
      </div>
    </section>
  );
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
