import type { DiffLine } from "./diffs.js";

/** A piece of a line with one look. */
export interface Piece {
  readonly text: string;
  /** The highlighter's classes; empty for none. */
  readonly kind: string;
}

const entities: Record<string, string> = { "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#x27;": "'" };

/** The lines of highlighted code. What the highlighter makes are spans with classes, and text with five entities. */
export function linesOf(html: string): Piece[][] {
  const lines: Piece[][] = [[]];
  const open: string[] = [];
  for (const [, kind, close, raw] of html.matchAll(/<span class="([^"]*)">|(<\/span>)|([^<]+)/g)) {
    if (kind !== undefined) open.push(kind);
    else if (close !== undefined) open.pop();
    else {
      const text = raw!.replace(/&(?:amp|lt|gt|quot|#x27);/g, (e) => entities[e]!);
      text.split("\n").forEach((part, i) => {
        if (i > 0) lines.push([]);
        if (part !== "") lines.at(-1)!.push({ text: part, kind: open.join(" ") });
      });
    }
  }
  return lines;
}

/** The pieces of a line with which of them changed. Colours that do not fit the line are left out. */
export function piecesOf(line: DiffLine, coloured: readonly Piece[] | undefined): (Piece & { readonly changed: boolean })[] {
  const parts = line.parts ?? [{ text: line.text, changed: false }];
  const pieces = coloured && coloured.map((p) => p.text).join("") === line.text ? coloured : [{ text: line.text, kind: "" }];
  const out: (Piece & { readonly changed: boolean })[] = [];
  let at = 0; // in parts
  let used = 0; // of that part
  for (const piece of pieces) {
    for (let from = 0; from < piece.text.length; ) {
      const part = parts[at];
      const left = part ? part.text.length - used : piece.text.length - from;
      if (left === 0) {
        at++;
        used = 0;
        continue;
      }
      const n = Math.min(left, piece.text.length - from);
      out.push({ text: piece.text.slice(from, from + n), kind: piece.kind, changed: part?.changed === true });
      from += n;
      used += n;
    }
  }
  return out;
}
