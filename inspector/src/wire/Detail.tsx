import { useState } from "react";
import { Button, CopyButton, IconButton, Segmented } from "../kit/controls.js";
import { Json } from "../kit/json.js";
import { Badge } from "../kit/show.js";
import { bytes } from "../kit/text.js";
import { gateway } from "../state/page.js";
import { useStore } from "../state/store.js";
import { asCurl } from "./export.js";
import { rawOf, type Row } from "./rows.js";

/** One entry, whole. */
export function Detail({ row, onClose, onGo }: { row: Row; onClose: () => void; onGo: (n: number) => void }) {
  const [form, setForm] = useState<"pretty" | "raw">("pretty");
  const { endpoint, hasToken, agent } = useStore(gateway);
  const raw = rawOf(row);
  const curl = asCurl(row.entry, endpoint, hasToken, agent);
  const { entry } = row;
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
      </div>
      <div className="row">
        <Segmented small label="Form" value={form} onChange={setForm} options={[{ value: "pretty", label: "Pretty" }, { value: "raw", label: "Raw" }]} />
        <CopyButton text={entry.kind === "frame" ? raw : JSON.stringify(entry.request)} label="Copy as JSON" />
        {curl !== undefined && <CopyButton text={curl} label="Copy as curl" />}
        {row.partner !== undefined && <Button small tone="quiet" icon="wire" onClick={() => onGo(row.partner!)}>{row.kind === "response" ? "Its request" : "Its response"}</Button>}
        {row.session !== undefined && <a className="button quiet small" href={`#/sessions/${encodeURIComponent(row.session)}`}>Its session</a>}
      </div>
      <div className="wire-content">
        {entry.kind === "frame"
          ? form === "pretty" ? <Json value={entry.envelope.message} label="Message" /> : <pre className="json raw" tabIndex={0} aria-label="Message">{raw}</pre>
          : <Http form={form} exchange={entry.request} />}
      </div>
    </section>
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
