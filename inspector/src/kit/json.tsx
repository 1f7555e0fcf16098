import { Fragment, memo, useMemo, useState, type ReactNode } from "react";
import { Button } from "./controls.js";

/** What of a long text is shown at first. */
const most = 100_000;

/** A JSON value, indented and coloured. */
export const Json = memo(function Json({ value, label }: { value: unknown; label: string }) {
  const text = useMemo(() => JSON.stringify(value, null, 2) ?? "undefined", [value]);
  const [whole, setWhole] = useState(false);
  const shown = whole ? text : text.slice(0, most);
  return (
    <>
      <pre className="json" tabIndex={0} aria-label={label}><code>{whole && text.length > most ? shown : coloured(shown)}</code></pre>
      {shown.length < text.length && <Button small onClick={() => setWhole(true)}>Show all {text.length} characters</Button>}
    </>
  );
});

const token = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

function coloured(text: string): ReactNode[] {
  const out: ReactNode[] = [];
  let from = 0;
  for (const match of text.matchAll(token)) {
    out.push(text.slice(from, match.index));
    const [all, string, colon] = match;
    const kind = string === undefined ? "json-word" : colon === undefined ? "json-text" : "json-name";
    out.push(<span key={match.index} className={kind}>{string ?? all}</span>);
    if (colon) out.push(<Fragment key={`${match.index}:`}>{colon}</Fragment>);
    from = match.index + all.length;
  }
  out.push(text.slice(from));
  return out;
}
