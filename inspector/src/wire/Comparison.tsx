import { useMemo } from "react";
import { Diff } from "../conversation/Diff.js";
import { Button, IconButton } from "../kit/controls.js";
import { comparable } from "./compare.js";
import type { Row } from "./rows.js";
import "../conversation/conversation.css";

/** What differs between two entries. What is equal is left out. */
export function Comparison({ before, after, onSwap, onClose }: { before: Row; after: Row; onSwap: () => void; onClose: () => void }) {
  const [a, b] = useMemo(() => comparable(valueOf(before), valueOf(after)), [before, after]);
  return (
    <section className="wire-detail" aria-label="Comparison">
      <header className="row">
        <h2 className="clip grow">Two entries</h2>
        <Button small tone="quiet" icon="refresh" onClick={onSwap}>Swap</Button>
        <IconButton label="Stop comparing" icon="close" onClick={onClose} />
      </header>
      <p className="small soft">− {nameOf(before)}<br />+ {nameOf(after)}</p>
      <div className="wire-content">
        {a === b ? <p role="status">Both are equal, but perhaps for the order of their members.</p> : <Diff path="entries.json" before={a} after={b} />}
      </div>
    </section>
  );
}

const nameOf = (row: Row) => `${row.title}, ${row.sent ? "sent" : "received"} ${new Date(row.entry.at).toISOString().slice(11, 23)}`;

/** An entry as a value: a frame as it is, of an HTTP request what was asked and answered. */
function valueOf({ entry }: Row): unknown {
  if (entry.kind === "frame") return entry.envelope.message;
  const { method, url, headers, body, status, responseHeaders, responseBody, error } = entry.request;
  return { method, url, headers, body: parsed(body), status, responseHeaders, responseBody: parsed(responseBody), error };
}

function parsed(text: string | undefined): unknown {
  try {
    return text === undefined ? undefined : JSON.parse(text);
  } catch {
    return text;
  }
}
