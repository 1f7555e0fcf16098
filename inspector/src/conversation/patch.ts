import { hunkOf, type Hunk } from "./diffs.js";

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

/** The patch of each file: files whose bytes or names alone differ have no lines of text. */
function parts(patch: string): string[] {
  const starts = [...patch.matchAll(/^diff --git /gm)].map((m) => m.index);
  return starts.map((at, i) => patch.slice(at, starts[i + 1]));
}

function fileOf(part: string): PatchFile {
  const head = part.slice(0, /^@@ /m.exec(part)?.index ?? part.length);
  const named = (word: string) => new RegExp(`^${word} (.*)$`, "m").exec(head)?.[1];
  const of = (side: "---" | "\\+\\+\\+") => {
    const name = named(side);
    return name === undefined || name === "/dev/null" ? undefined : withoutSide(name);
  };
  const from = named("rename from") ?? named("copy from");
  const path = of("\\+\\+\\+") ?? unquoted(named("rename to") ?? named("copy to") ?? "") ?? "";
  const kind = /^deleted file mode/m.test(head) ? "deleted" : /^new file mode/m.test(head) ? "new" : from !== undefined ? "moved" : "changed";
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
    path: path || (of("---") ?? sameName(head)), from: from === undefined ? undefined : unquoted(from), kind, hunks, added: count("add"), removed: count("del"), note,
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

/** The name in `diff --git a/NAME b/NAME`, where it is the same twice and nothing else has it. */
function sameName(head: string): string {
  const line = /^diff --git (.*)$/m.exec(head)?.[1] ?? "";
  const half = line.slice(0, (line.length - 1) / 2);
  return withoutSide(half);
}

/** Git puts a letter before each name, a tab behind one with spaces, and quotes around others. */
const withoutSide = (name: string) => unquoted(name.replace(/\t$/, "")).replace(/^[a-z]\//, "");

const escapes: Record<string, number> = { a: 7, b: 8, t: 9, n: 10, v: 11, f: 12, r: 13 };

/** A name as git writes it when it has bytes that are not plain letters. */
function unquoted(name: string): string {
  if (!/^".*"$/.test(name)) return name;
  const bytes: number[] = [];
  for (const m of name.slice(1, -1).matchAll(/\\([0-7]{3})|\\(.)|([^\\]+)/gu)) {
    if (m[1] !== undefined) bytes.push(parseInt(m[1], 8));
    else if (m[2] !== undefined) bytes.push(escapes[m[2]] ?? m[2].charCodeAt(0));
    else bytes.push(...new TextEncoder().encode(m[3]));
  }
  return new TextDecoder().decode(new Uint8Array(bytes));
}
