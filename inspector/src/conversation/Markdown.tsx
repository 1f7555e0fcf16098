import { Marked, type MarkedToken, type Token, type Tokens } from "marked";
import { Fragment, memo, useMemo, type ReactNode } from "react";
import { Code } from "./Code.js";
import { Diagram } from "./Diagram.js";
import { Maths } from "./Maths.js";
import { mathsInMarkdown, type MathsToken } from "./formulas.js";
import type { CutCode } from "./segments.js";

const parser = new Marked({ gfm: true, breaks: false }).use(mathsInMarkdown);

/**
 * Markdown as elements of the page, made from the parser's tokens: no HTML of an agent
 * gets into the page, so there is none to sanitise. HTML in the text is shown as text.
 */
export const Markdown = memo(function Markdown({ text, begun, cut, growing }: { text: string; begun?: CutCode | undefined; cut?: CutCode | undefined; growing?: boolean }) {
  const tokens = useMemo(() => parser.lexer(text), [text]);
  const last = tokens.length - 1;
  return (
    <div className="markdown">
      {tokens.map((token, i) => {
        const whole = (i === 0 ? begun : undefined) ?? (i === last ? cut : undefined);
        const code = token.type === "code" ? (token as Tokens.Code) : undefined;
        // What is still being written is shown as it is written.
        if (code && !whole && !(growing === true && i === last)) {
          if (languageIs(code, "mermaid")) return <Diagram key={i} source={code.text} />;
          if (languageIs(code, "math")) return <p key={i}><Maths tex={code.text} display raw={code.text} /></p>;
        }
        return <Fragment key={i}>{code ? <Code code={code.text} language={code.lang} whole={whole} growing={growing === true && i === last} /> : block(token as MarkedToken)}</Fragment>;
      })}
    </div>
  );
});

const blocks = (tokens: readonly Token[]): ReactNode => tokens.map((token, i) => <Fragment key={i}>{block(token as MarkedToken)}</Fragment>);

function block(token: MarkedToken): ReactNode {
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading":
      // One level for all: which one an agent begins with, and in what order, is its own affair.
      return <h2 className={`md-h${token.depth}`}>{inline(token.tokens)}</h2>;
    case "paragraph":
      return <p>{inline(token.tokens)}</p>;
    case "code":
      return <Code code={token.text} language={token.lang} />;
    case "blockquote":
      return <blockquote>{blocks(token.tokens)}</blockquote>;
    case "list":
      return list(token as Tokens.List);
    case "table":
      return table(token as Tokens.Table);
    case "hr":
      return <hr />;
    case "html":
      return <p className="md-html">{token.text.trimEnd()}</p>;
    case "text":
      return "tokens" in token && token.tokens ? inline(token.tokens) : decode(token.text);
    default:
      return isMaths(token) ? <p>{maths(token)}</p> : inlineOne(token);
  }
}

const languageIs = (code: Tokens.Code, language: string) => code.lang?.trim().toLowerCase() === language && code.text.trim() !== "";
const isMaths = (token: Token): token is MathsToken => token.type === "maths";
const maths = (token: MathsToken) => <Maths tex={token.tex} display={token.display} raw={token.raw} />;

function list(token: Tokens.List): ReactNode {
  const items = token.items.map((item, i) => (
    <li key={i} className={item.task ? "task" : undefined}>
      {item.task && <input type="checkbox" checked={item.checked ?? false} readOnly disabled aria-label={item.checked ? "done" : "to do"} />}
      {blocks(item.tokens.filter((t) => t.type !== "checkbox"))}
    </li>
  ));
  return token.ordered ? <ol start={token.start === "" ? 1 : token.start}>{items}</ol> : <ul>{items}</ul>;
}

function table(token: Tokens.Table): ReactNode {
  const style = (cell: Tokens.TableCell) => (cell.align ? { textAlign: cell.align } : undefined);
  return (
    <div className="table-scroll" tabIndex={0} role="region" aria-label="Table">
      <table>
        <thead><tr>{token.header.map((cell, i) => <th key={i} style={style(cell)}>{inline(cell.tokens)}</th>)}</tr></thead>
        <tbody>{token.rows.map((row, i) => <tr key={i}>{row.map((cell, j) => <td key={j} style={style(cell)}>{inline(cell.tokens)}</td>)}</tr>)}</tbody>
      </table>
    </div>
  );
}

const inline = (tokens: readonly Token[] | undefined): ReactNode => tokens?.map((token, i) => <Fragment key={i}>{inlineOne(token as MarkedToken)}</Fragment>);

function inlineOne(token: MarkedToken): ReactNode {
  switch (token.type) {
    case "strong":
      return <strong>{inline(token.tokens)}</strong>;
    case "em":
      return <em>{inline(token.tokens)}</em>;
    case "del":
      return <del>{inline(token.tokens)}</del>;
    case "codespan":
      return <code className="inline">{decode(token.text)}</code>;
    case "br":
      return <br />;
    case "link":
      return <Link href={token.href} title={token.title}>{inline(token.tokens)}</Link>;
    case "image":
      // Images of other places would tell them who reads this.
      return /^data:image\/(png|jpeg|gif|webp|avif);/.test(token.href) ? <img src={token.href} alt={token.text} /> : <Link href={token.href} title={token.title}>{token.text || token.href}</Link>;
    case "text":
    case "escape":
      return "tokens" in token && token.tokens ? inline(token.tokens) : decode(token.text);
    default:
      return isMaths(token) ? maths(token) : decode((token as Token).raw);
  }
}

function Link({ href, title, children }: { href: string; title?: string | null | undefined; children: ReactNode }) {
  if (!/^(https?:|mailto:)/i.test(href)) return <span className="md-link" title={href}>{children}</span>;
  return <a href={href} title={title ?? href} target="_blank" rel="noreferrer noopener">{children}</a>;
}

const entities: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'", nbsp: "\u00a0", copy: "©", hellip: "…", mdash: "—", ndash: "–", rarr: "→", larr: "←", times: "×" };

/** The common entities as characters: the page escapes them again where it must. */
function decode(text: string): string {
  return text.includes("&") ? text.replace(/&(#?\w+);/g, (whole, name: string) => entities[name] ?? whole) : text;
}
