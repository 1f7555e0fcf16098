import { memo, useMemo, useState, type CSSProperties } from "react";
import { Button, CopyButton } from "../kit/controls.js";
import { plural } from "../kit/text.js";
import { cssColour, parseAnsi, plain, type Style } from "./ansi.js";

/** Lines that are shown of a long output: its end, where it says how it went. */
const shown = 40;
const most = 2000;

function css(style: Style): CSSProperties {
  const fg = style.inverse ? (style.bg ?? "bg") : style.fg;
  const bg = style.inverse ? (style.fg ?? "fg") : style.bg;
  return {
    ...(fg === undefined ? {} : { color: fg === "bg" ? "var(--sunk)" : cssColour(fg) }),
    ...(bg === undefined ? {} : { background: bg === "fg" ? "var(--text)" : cssColour(bg) }),
    ...(style.bold ? { fontWeight: 650 } : {}),
    ...(style.dim ? { opacity: 0.75 } : {}),
    ...(style.italic ? { fontStyle: "italic" } : {}),
    ...(style.underline || style.strike ? { textDecoration: `${style.underline ? "underline " : ""}${style.strike ? "line-through" : ""}` } : {}),
  };
}

/** What a command wrote, with its colours. */
export const Output = memo(function Output({ text }: { text: string }) {
  const [limit, setLimit] = useState(shown);
  const total = useMemo(() => text.trimEnd().split("\n").length, [text]);
  const lines = useMemo(() => parseAnsi(text.trimEnd().split("\n").slice(-limit).join("\n")), [text, limit]);
  const hidden = total - lines.length;
  return (
    <div className="output">
      {hidden > 0 && (
        <Button small tone="quiet" onClick={() => setLimit(Math.min(most, total))} disabled={limit >= most}>
          {limit >= most ? `${plural(hidden, "earlier line")} not shown; copy to see all` : `Show ${plural(hidden, "earlier line")}`}
        </Button>
      )}
      <pre tabIndex={0} aria-label="Output">
        {lines.map((line, i) => (
          <span key={i}>
            {line.map((span, j) => (Object.keys(span.style).length === 0 ? span.text : <span key={j} style={css(span.style)}>{span.text}</span>))}
            {"\n"}
          </span>
        ))}
      </pre>
      <CopyButton text={() => plain(text)} iconOnly label="Copy the output" />
    </div>
  );
});
