import { memo, useEffect, useLayoutEffect, useMemo, useRef, useState, type RefObject } from "react";
import { CopyButton } from "../kit/controls.js";
import type { CutCode } from "./segments.js";

type Highlight = (code: string, language: string) => string | undefined;

let loaded: Highlight | undefined;
let loading: Promise<Highlight> | undefined;

/** The highlighter, once it is loaded. */
export function useHighlighter(wanted: boolean): Highlight | undefined {
  const [highlight, set] = useState(() => loaded);
  useEffect(() => {
    if (!wanted || highlight) return;
    let alive = true;
    loading ??= import("./highlight.js").then((m) => (loaded = m.highlight));
    void loading.then((h) => alive && set(() => h));
    return () => {
      alive = false;
    };
  }, [wanted, highlight]);
  return highlight;
}

/** Longer code stays plain: colouring it would be felt. */
export const maxHighlighted = 30_000;

/** While it grows, code is coloured anew with each addition. */
const maxGrowing = 4000;

/** Keeps the end of a box in sight while its content grows, unless somebody has scrolled up. */
function useFollow(content: string, growing: boolean): RefObject<HTMLPreElement | null> {
  const box = useRef<HTMLPreElement>(null);
  const left = useRef(0); // what was below the sight before
  useLayoutEffect(() => {
    const element = box.current;
    if (!element || !growing) return;
    if (left.current < 24) element.scrollTop = element.scrollHeight;
    const note = () => void (left.current = element.scrollHeight - element.clientHeight - element.scrollTop);
    note();
    element.addEventListener("scroll", note);
    return () => element.removeEventListener("scroll", note);
  }, [content, growing]);
  return box;
}

/** Code, coloured when its language is known. */
export const Code = memo(function Code({ code, language, bare, whole, growing }: { code: string; language?: string | undefined; bare?: boolean; whole?: CutCode | undefined; growing?: boolean }) {
  const name = language?.toLowerCase().split(/[\s,{:]/)[0] ?? "";
  const coloured = name !== "" && code.length <= (growing ? maxGrowing : maxHighlighted);
  const highlight = useHighlighter(coloured);
  const html = useMemo(() => (highlight && coloured ? highlight(code, name) : undefined), [highlight, coloured, code, name]);
  const box = useFollow(code, growing === true);
  const pre = (
    <pre ref={box} className="code" tabIndex={0}>
      {html === undefined ? <code>{code}</code> : <code dangerouslySetInnerHTML={{ __html: html }} />}
    </pre>
  );
  if (bare) return pre;
  return (
    <figure className="code-block">
      <figcaption>
        <span>{name || "text"}</span>
        <CopyButton text={() => whole?.text ?? code} iconOnly label="Copy the code" />
      </figcaption>
      {pre}
    </figure>
  );
});

const extensions: Record<string, string> = {
  js: "javascript", mjs: "javascript", cjs: "javascript", jsx: "javascript", ts: "typescript", mts: "typescript", tsx: "typescript", py: "python", rs: "rust", rb: "ruby", go: "go",
  sh: "bash", bash: "bash", zsh: "bash", json: "json", md: "markdown", mdx: "markdown", yml: "yaml", yaml: "yaml", toml: "ini", ini: "ini", html: "xml", svg: "xml", xml: "xml", css: "css",
  sql: "sql", c: "c", h: "c", cc: "cpp", cpp: "cpp", hpp: "cpp", cs: "csharp", java: "java", kt: "kotlin", swift: "swift", php: "php", lua: "lua", diff: "diff", patch: "diff",
};

/** The language of a file by its name. */
export function languageOf(path: string): string | undefined {
  const name = path.split("/").pop()?.toLowerCase() ?? "";
  if (name === "dockerfile") return "dockerfile";
  if (name === "makefile") return "makefile";
  return extensions[name.split(".").pop() ?? ""];
}
