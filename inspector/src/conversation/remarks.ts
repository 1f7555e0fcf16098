/** What a person says about a line of a change. */
export interface Remark {
  readonly path: string;
  readonly line: number;
  /** The line is one that went: its number is that of before. */
  readonly removed: boolean;
  readonly text: string; // of the line
  readonly says: string;
}

export const sameLine = (a: Pick<Remark, "path" | "line" | "removed">, b: Pick<Remark, "path" | "line" | "removed">) => a.path === b.path && a.line === b.line && a.removed === b.removed;

/** The remarks with one more, changed, or, when it says nothing, without it. */
export function withRemark(all: readonly Remark[], one: Remark): readonly Remark[] {
  const others = all.filter((r) => !sameLine(r, one));
  return one.says.trim() === "" ? others : [...others, { ...one, says: one.says.trim() }].sort((a, b) => (a.path === b.path ? a.line - b.line : a.path < b.path ? -1 : 1));
}

/** The longest part of a line that is quoted. */
const quoted = 200;

/** Remarks as an agent reads them. */
export function promptOf(remarks: readonly Remark[]): string {
  const of = (r: Remark) => `${r.path}:${r.line}${r.removed ? " (removed)" : ""}\n> ${r.text.length > quoted ? `${r.text.slice(0, quoted)}…` : r.text}\n${r.says}`;
  return `Remarks on the changes in the working tree:\n\n${remarks.map(of).join("\n\n")}`;
}
