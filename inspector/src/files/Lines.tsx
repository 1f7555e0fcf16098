import { useEffect, useMemo, useRef, type CSSProperties } from "react";
import { Code } from "../conversation/Code.js";

/** A text with the numbers of its lines, one of which is brought into sight. */
export function Lines({ text, language, line }: { text: string; language: string | undefined; line: number | undefined }) {
  const count = useMemo(() => text.replace(/\n$/, "").split("\n").length, [text]);
  const numbers = useMemo(() => Array.from({ length: count }, (_, i) => i + 1).join("\n"), [count]);
  const mark = useRef<HTMLSpanElement>(null);
  const known = line !== undefined && line >= 1 && line <= count;
  useEffect(() => {
    if (known) mark.current?.scrollIntoView({ block: "center" });
  }, [known, line]);
  return (
    <div className="numbered">
      <pre className="line-numbers" aria-hidden="true">{numbers}</pre>
      <Code code={text} language={language} bare />
      {known && <span ref={mark} className="line-mark" style={{ "--line": line - 1 } as CSSProperties}><span className="unseen">Line {line}</span></span>}
      {line !== undefined && !known && <p className="small soft line-gone" role="status">The file has no line {line} any more.</p>}
    </div>
  );
}
