import { hunkOf, type Hunk } from "./diffs.js";
import { headOf, parts } from "./passages.js";

/** What a patch changes in one file. */
export interface PatchFile {
  /** Below the folder that the patch is of. */
  readonly path: string;
  /** Where it was, when it was somewhere else. */
  readonly from: string | undefined;
  readonly kind: "changed" | "new" | "deleted" | "moved";
  readonly hunks: readonly Hunk[];
  readonly added: number;
  readonly removed: number;
  /** Why there are no lines to show; undefined when there are. */
  readonly note: string | undefined;
}

/** Reads what `git diff` writes. */
export function filesOf(patch: string): PatchFile[] {
  return parts(patch).map(fileOf).sort((a, b) => (a.path < b.path ? -1 : 1));
}

function fileOf(part: string): PatchFile {
  const { head, path, from, kind } = headOf(part);
  let hunks: readonly Hunk[] = [];
  let note: string | undefined;
  if (/^Binary files /m.test(head)) note = "It is not text.";
  else if (head.length < part.length) {
    const read = hunksOf(part.slice(head.length));
    hunks = read.hunks;
    if (read.cut) note = "The end of its changes is cut off.";
  } else note = /^(old|new) mode/m.test(head) ? "Its rights have changed." : kind === "moved" ? "Its text is the same." : "It is empty.";
  const count = (what: "add" | "del") => hunks.reduce((n, h) => n + h.lines.filter((l) => l.kind === what).length, 0);
  return {
    path, from, kind, hunks, added: count("add"), removed: count("del"), note,
  };
}

/** The hunks of one file; cut says that the last one ends too soon. */
function hunksOf(text: string): { hunks: Hunk[]; cut: boolean } {
  const hunks: Hunk[] = [];
  const all = text.split("\n");
  if (all.at(-1) === "") all.pop(); // behind the last line
  for (let i = 0; i < all.length; ) {
    const m = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/.exec(all[i++]!);
    if (!m) return { hunks, cut: true };
    let old = Number(m[2] ?? 1);
    let now = Number(m[4] ?? 1);
    const lines: string[] = [];
    for (; i < all.length && (old > 0 || now > 0 || all[i]!.startsWith("\\")); i++) {
      const line = all[i]!;
      lines.push(line);
      if (line.startsWith("\\")) continue; // that the file has no line break at its end
      if (!line.startsWith("+")) old--;
      if (!line.startsWith("-")) now--;
    }
    hunks.push(hunkOf({ oldStart: Number(m[1]), newStart: Number(m[3]), lines }));
    if (old > 0 || now > 0) return { hunks, cut: true };
  }
  return { hunks, cut: false };
}
