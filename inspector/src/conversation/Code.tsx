import { memo, useEffect, useMemo, useState } from "react";
import { CopyButton } from "../kit/controls.js";

type Highlight = (code: string, language: string) => string | undefined;

let loaded: Highlight | undefined;
let loading: Promise<Highlight> | undefined;

/** The highlighter, once it is loaded. */
function useHighlighter(wanted: boolean): Highlight | undefined {
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
const maxHighlighted = 30_000;

/** Code, coloured when its language is known. */
export const Code = memo(function Code({ code, language, bare }: { code: string; language?: string | undefined; bare?: boolean }) {
  const name = language?.toLowerCase().split(/[\s,{:]/)[0] ?? "";
  const highlight = useHighlighter(name !== "" && code.length <= maxHighlighted);
  const html = useMemo(() => (highlight && name !== "" && code.length <= maxHighlighted ? highlight(code, name) : undefined), [highlight, code, name]);
  const pre = (
    <pre className="code" tabIndex={0}>
      {html === undefined ? <code>{code}</code> : <code dangerouslySetInnerHTML={{ __html: html }} />}
    </pre>
  );
  if (bare) return pre;
  return (
    <figure className="code-block">
      <figcaption>
        <span>{name || "text"}</span>
        <CopyButton text={code} iconOnly label="Copy the code" />
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
