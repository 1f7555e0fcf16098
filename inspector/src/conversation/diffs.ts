import { diffWordsWithSpace, structuredPatch } from "diff";

export interface DiffLine {
  readonly kind: "same" | "add" | "del";
  readonly old: number | undefined;
  readonly new: number | undefined;
  readonly text: string;
  /** Which parts of the line differ from the one it replaces. */
  readonly parts?: readonly { readonly text: string; readonly changed: boolean }[];
}

export interface Hunk {
  readonly oldStart: number;
  readonly newStart: number;
  readonly lines: readonly DiffLine[];
}

export interface FileDiff {
  readonly hunks: readonly Hunk[];
  readonly added: number;
  readonly removed: number;
  /** The texts were not compared: both are shown whole. */
  readonly whole: boolean;
}

/**
 * How many lines may differ. What a comparison costs grows with their square: the
 * first takes some milliseconds, the second some seconds of another thread.
 */
export const maxEdits = { atOnce: 500, inWorker: 6000 } as const;
const maxPairs = 400;

/** What differs; undefined when more lines than `most` do. */
export function diffTexts(before: string | undefined, after: string, most: number = maxEdits.atOnce): FileDiff | undefined {
  if (!before) return { ...wholeTexts("", after), whole: false };
  if (atLeast(before, after) > most) return undefined;
  const patch = structuredPatch("a", "b", before, after, undefined, undefined, { context: 3, maxEditLength: most });
  if (!patch) return undefined;
  const hunks = patch.hunks.map(hunkOf);
  const count = (kind: DiffLine["kind"]) => hunks.reduce((n, h) => n + h.lines.filter((l) => l.kind === kind).length, 0);
  return { hunks, added: count("add"), removed: count("del"), whole: false };
}

/** The lines of a patch's hunk, with their numbers and the words that changed. */
export function hunkOf(hunk: { readonly oldStart: number; readonly newStart: number; readonly lines: readonly string[] }): Hunk {
  let oldLine = hunk.oldStart;
  let newLine = hunk.newStart;
  const lines: DiffLine[] = [];
  for (const raw of hunk.lines) {
    const text = raw.slice(1);
    if (raw.startsWith("+")) lines.push({ kind: "add", old: undefined, new: newLine++, text });
    else if (raw.startsWith("-")) lines.push({ kind: "del", old: oldLine++, new: undefined, text });
    else if (raw.startsWith(" ")) lines.push({ kind: "same", old: oldLine++, new: newLine++, text });
  }
  return { oldStart: hunk.oldStart, newStart: hunk.newStart, lines: withParts(lines) };
}

/** Lines that one text has and the other has not, wherever they stand: at least so many differ. */
function atLeast(before: string, after: string): number {
  const balance = new Map<string, number>();
  for (const line of before.split("\n")) balance.set(line, (balance.get(line) ?? 0) + 1);
  for (const line of after.split("\n")) balance.set(line, (balance.get(line) ?? 0) - 1);
  let sum = 0;
  for (const n of balance.values()) sum += Math.abs(n);
  return sum;
}

/** The old text and behind it the new one. */
export function wholeTexts(before: string, after: string): FileDiff {
  const old = before === "" ? [] : before.replace(/\n$/, "").split("\n");
  const now = after === "" ? [] : after.replace(/\n$/, "").split("\n");
  const lines: DiffLine[] = [
    ...old.map((text, i): DiffLine => ({ kind: "del", old: i + 1, new: undefined, text })),
    ...now.map((text, i): DiffLine => ({ kind: "add", old: undefined, new: i + 1, text })),
  ];
  return { hunks: lines.length === 0 ? [] : [{ oldStart: 1, newStart: 1, lines }], added: now.length, removed: old.length, whole: true };
}

/** Marks the words that changed where as many lines come as went. */
function withParts(lines: DiffLine[]): DiffLine[] {
  const out = [...lines];
  let pairs = 0;
  for (let i = 0; i < out.length; ) {
    let dels = 0;
    while (out[i + dels]?.kind === "del") dels++;
    let adds = 0;
    while (out[i + dels + adds]?.kind === "add") adds++;
    if (dels > 0 && dels === adds && pairs + dels <= maxPairs) {
      pairs += dels;
      for (let k = 0; k < dels; k++) {
        const del = out[i + k]!;
        const add = out[i + dels + k]!;
        if (del.text.length > 500 || add.text.length > 500) continue;
        const words = diffWordsWithSpace(del.text, add.text);
        const same = words.filter((w) => !w.added && !w.removed).reduce((n, w) => n + w.value.length, 0);
        if (same * 3 < Math.max(del.text.length, add.text.length)) continue; // another line altogether
        out[i + k] = { ...del, parts: words.filter((w) => !w.added).map((w) => ({ text: w.value, changed: w.removed })) };
        out[i + dels + k] = { ...add, parts: words.filter((w) => !w.removed).map((w) => ({ text: w.value, changed: w.added })) };
      }
    }
    i += Math.max(1, dels + adds);
  }
  return out;
}

/** The lines of a hunk in two columns. */
export function columns(lines: readonly DiffLine[]): { readonly left: DiffLine | undefined; readonly right: DiffLine | undefined }[] {
  const rows: { left: DiffLine | undefined; right: DiffLine | undefined }[] = [];
  for (let i = 0; i < lines.length; ) {
    const line = lines[i]!;
    if (line.kind === "same") {
      rows.push({ left: line, right: line });
      i++;
      continue;
    }
    const dels: DiffLine[] = [];
    const adds: DiffLine[] = [];
    while (lines[i]?.kind === "del") dels.push(lines[i++]!);
    while (lines[i]?.kind === "add") adds.push(lines[i++]!);
    for (let k = 0; k < Math.max(dels.length, adds.length); k++) rows.push({ left: dels[k], right: adds[k] });
  }
  return rows;
}
