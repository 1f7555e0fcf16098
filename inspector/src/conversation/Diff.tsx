import { Fragment, memo, useMemo, useState } from "react";
import { Button, CopyButton, Segmented } from "../kit/controls.js";
import { Badge } from "../kit/show.js";
import { plural } from "../kit/text.js";
import { settings } from "../state/page.js";
import { useSelected } from "../state/store.js";
import { languageOf, maxHighlighted, useHighlighter } from "./Code.js";
import { linesOf, piecesOf, type Piece } from "./colours.js";
import { useDiff } from "./compare.js";
import type { FileChange } from "./items.js";
import { columns, type DiffLine, type Hunk } from "./diffs.js";

/** Lines that are shown of a large diff before somebody asks for the rest. */
const first = 300;

const operations: Record<string, string> = { add: "new", delete: "deleted", modify: "changed", move: "moved", copy: "copied" };
const fileTypes: Record<string, string> = { directory: "It is a folder.", symlink: "It is a link.", binary: "It is not text." };

/** A change of a file of which the agent shows no lines. `short` makes short what is in the session's folder. */
export function Change({ change: { operation, path, from, fileType }, short }: { change: FileChange; short: (path: string) => string }) {
  const note = fileTypes[fileType ?? ""] ?? (operation === "add" || operation === "modify" ? "The agent does not show its lines." : undefined);
  return (
    <figure className="diff change">
      <figcaption>
        <Badge>{operations[operation] ?? operation}</Badge>
        <span className="mono">{from !== undefined && <>{short(from)} <span aria-hidden="true">→</span><span className="unseen">to</span> </>}{short(path)}</span>
      </figcaption>
      {note && <p className="diff-none">{note}</p>}
    </figure>
  );
}

/** What a file was and what it becomes. */
export const Diff = memo(function Diff({ path, before, after, change }: { path: string; before: string | undefined; after: string; /** What else happened to the file. */ change?: FileChange | undefined }) {
  const mode = useSelected(settings, (s) => s.diff);
  const { diff, comparing } = useDiff(before, after);
  const colours = useColours(path, before ?? "", after);
  const [all, setAll] = useState(false);
  const total = diff.hunks.reduce((n, h) => n + h.lines.length, 0);
  const hunks = all ? diff.hunks : cut(diff.hunks, first);
  return (
    <figure className="diff">
      <figcaption>
        <span className="mono clip" title={path}>{path}</span>
        {change && change.operation !== "modify" && <Badge {...(change.from === undefined ? {} : { title: `It was ${change.from}` })}>{operations[change.operation] ?? change.operation}{change.from !== undefined && <span className="unseen"> from {change.from}</span>}</Badge>}
        {diff.whole ? null : <span className="diff-count"><span className="plus">+{diff.added}</span> <span className="minus">−{diff.removed}</span></span>}
        <span className="grow" />
        <Segmented
          label="How the difference is shown" small value={mode} onChange={(value) => settings.change({ diff: value })}
          options={[{ value: "unified", label: "Unified" }, { value: "split", label: "Split" }]}
        />
        <CopyButton text={after} iconOnly label="Copy the new text" />
      </figcaption>
      <div className="diff-scroll" tabIndex={0} role="region" aria-label={`Changes of ${path}`}>
        {diff.whole && <p className="diff-note" role="status">{comparing ? "Comparing… Until then: the old text, then the new one." : "Too many lines differ to compare them. Shown are the old text, then the new one."}</p>}
        {hunks.length === 0 && <p className="diff-none">No difference</p>}
        {mode === "split" ? hunks.map((hunk, i) => <Split key={i} hunk={hunk} gap={i > 0} colours={colours} />) : hunks.map((hunk, i) => <Unified key={i} hunk={hunk} gap={i > 0} colours={colours} />)}
      </div>
      {!all && total > first && <Button small tone="quiet" onClick={() => setAll(true)}>Show {plural(total - first, "more line")}</Button>}
    </figure>
  );
});

function cut(hunks: readonly Hunk[], lines: number): readonly Hunk[] {
  let left = lines;
  const out: Hunk[] = [];
  for (const hunk of hunks) {
    if (left <= 0) break;
    out.push({ ...hunk, lines: hunk.lines.slice(0, left) });
    left -= hunk.lines.length;
  }
  return out;
}

/** The coloured lines of both texts. */
interface Colours {
  readonly old: readonly Piece[][];
  readonly new: readonly Piece[][];
}

function useColours(path: string, before: string, after: string): Colours | undefined {
  const language = languageOf(path);
  const wanted = language !== undefined && before.length <= maxHighlighted && after.length <= maxHighlighted;
  const highlight = useHighlighter(wanted);
  return useMemo(() => {
    if (!wanted || !highlight) return undefined;
    const of = (text: string) => linesOf(highlight(text, language) ?? "");
    return { old: of(before), new: of(after) };
  }, [wanted, highlight, language, before, after]);
}

/** The text of a line, with what changed in it marked. */
export function Words({ line, colours }: { line: DiffLine; colours?: Colours | undefined }) {
  if (line.text === "") return <>{" "}</>;
  const coloured = line.kind === "del" ? colours?.old[line.old! - 1] : colours?.new[line.new! - 1];
  return <>{piecesOf(line, coloured).map((p, i) => {
    const inside = p.kind === "" ? p.text : <span className={p.kind}>{p.text}</span>;
    return p.changed ? <mark key={i}>{inside}</mark> : <Fragment key={i}>{inside}</Fragment>;
  })}</>;
}

const signs = { same: " ", add: "+", del: "−" } as const;

function Unified({ hunk, gap, colours }: { hunk: Hunk; gap: boolean; colours: Colours | undefined }) {
  return (
    <table className="unified">
      <tbody>
        {gap && <tr className="gap"><td colSpan={4}>⋯</td></tr>}
        {hunk.lines.map((line, i) => (
          <tr key={i} className={line.kind}>
            <td className="n">{line.old}</td>
            <td className="n">{line.new}</td>
            <td className="sign">{signs[line.kind]}</td>
            <td className="t"><Words line={line} colours={colours} /></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Split({ hunk, gap, colours }: { hunk: Hunk; gap: boolean; colours: Colours | undefined }) {
  const rows = useMemo(() => columns(hunk.lines), [hunk]);
  return (
    <table className="split">
      <tbody>
        {gap && <tr className="gap"><td colSpan={4}>⋯</td></tr>}
        {rows.map(({ left, right }, i) => (
          <tr key={i}>
            <td className={`n ${left?.kind ?? "void"}`}>{left?.old}</td>
            <td className={`t ${left?.kind ?? "void"}`}>{left && <Words line={left} colours={colours} />}</td>
            <td className={`n ${right?.kind ?? "void"}`}>{right?.new}</td>
            <td className={`t ${right?.kind ?? "void"}`}>{right && <Words line={right} colours={colours} />}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
