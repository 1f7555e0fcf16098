// Patches as git writes them: which files they are of, and what those were and are.

/** The patch of each file: files whose bytes or names alone differ have no lines of text. */
export function parts(patch: string): string[] {
  const starts = [...patch.matchAll(/^diff --git /gm)].map((m) => m.index);
  return starts.map((at, i) => patch.slice(at, starts[i + 1]));
}

/** What stands above the lines of one file's patch. */
export interface Head {
  readonly head: string;
  readonly path: string;
  readonly from: string | undefined;
  readonly kind: "changed" | "new" | "deleted" | "moved";
}

export function headOf(part: string): Head {
  const head = part.slice(0, /^@@ /m.exec(part)?.index ?? part.length);
  const named = (word: string) => new RegExp(`^${word} (.*)$`, "m").exec(head)?.[1];
  const of = (side: "---" | "\\+\\+\\+") => {
    const name = named(side);
    return name === undefined || name === "/dev/null" ? undefined : withoutSide(name);
  };
  const from = named("rename from") ?? named("copy from");
  const path = of("\\+\\+\\+") ?? unquoted(named("rename to") ?? named("copy to") ?? "") ?? "";
  const kind = /^deleted file mode/m.test(head) ? "deleted" : /^new file mode/m.test(head) ? "new" : from !== undefined ? "moved" : "changed";
  return { head, path: path || (of("---") ?? sameName(head)), from: from === undefined ? undefined : unquoted(from), kind };
}

/** What a passage of a file was and what it is; `was` is undefined where the file was made. */
export interface Passage {
  readonly path: string;
  readonly was: string | undefined;
  readonly is: string;
}

/** The passages that a patch shows, which are whole files where it has all of their lines. */
export function passagesOf(patch: string): Passage[] {
  return parts(patch).flatMap((part) => {
    const { path, kind } = headOf(part);
    const made = (was: string, is: string): Passage => ({ path, was: kind === "new" ? undefined : was, is });
    const starts = [...part.matchAll(/^@@ .*$/gm)];
    if (starts.length === 0) return kind === "new" ? [made("", "")] : [];
    return starts.map((m, i) => {
      let was = "";
      let is = "";
      let last = "";
      for (const line of part.slice(m.index + m[0].length + 1, starts[i + 1]?.index).match(/.*\n|.+$/g) ?? []) {
        const sign = line[0]!;
        if (sign === "\\") {
          if (last !== "+") was = was.replace(/\n$/, "");
          if (last !== "-") is = is.replace(/\n$/, "");
          continue;
        }
        last = sign;
        const text = sign === "+" || sign === "-" || sign === " " ? line.slice(1) : line;
        if (sign !== "+") was += text;
        if (sign !== "-") is += text;
      }
      return made(was, is);
    });
  });
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
