/** How a piece of output looks. Colours are 0 to 255 of the terminal's table, or `#rrggbb`. */
export interface Style {
  readonly fg?: number | string;
  readonly bg?: number | string;
  readonly bold?: true;
  readonly dim?: true;
  readonly italic?: true;
  readonly underline?: true;
  readonly strike?: true;
  readonly inverse?: true;
}

export interface Span {
  readonly text: string;
  readonly style: Style;
}

// A control sequence, an operating system command, another escape, or a control character.
const control = /\u001b\[([0-9;:?<=>]*)[ -/]*([@-~])|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\|$)|\u001b[PX^_][^\u001b]*(?:\u001b\\|$)|\u001b(?:[ -/]*[0-~])?|[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g;

/** The text without what a terminal would not show. */
export function plain(text: string): string {
  return parseAnsi(text).map((line) => line.map((span) => span.text).join("")).join("\n");
}

/**
 * The lines of a terminal's output, with its colours. A carriage return begins the line
 * anew, as progress bars do; the cursor moves no further than that.
 */
export function parseAnsi(text: string): Span[][] {
  const lines: Span[][] = [];
  let style: Style = {};
  for (const raw of text.replaceAll("\r\n", "\n").split("\n")) {
    let line: Span[] = [];
    const parts = raw.split("\r");
    for (const [i, part] of parts.entries()) {
      const spans: Span[] = [];
      style = addLine(part, style, spans);
      if (i === 0) line = spans;
      else if (part !== "") line = over(line, spans);
    }
    lines.push(line);
  }
  return lines;
}

function addLine(text: string, from: Style, out: Span[]): Style {
  let style = from;
  let at = 0;
  const add = (piece: string) => {
    if (piece === "") return;
    const last = out.at(-1);
    if (last && last.style === style) out[out.length - 1] = { text: last.text + piece, style };
    else out.push({ text: piece, style });
  };
  for (const match of text.matchAll(control)) {
    add(text.slice(at, match.index));
    at = match.index + match[0].length;
    if (match[2] === "m") style = sgr(style, match[1] ?? "");
    else if (match[2] === "K" && (match[1] === "2" || match[1] === "1")) out.length = 0;
    else if (match[0] === "\b") backspace(out);
  }
  add(text.slice(at));
  return style;
}

function backspace(out: Span[]): void {
  const last = out.pop();
  if (last && last.text.length > 1) out.push({ text: last.text.slice(0, -1), style: last.style });
}

/** A line written over the beginning of another one. */
function over(below: readonly Span[], above: readonly Span[]): Span[] {
  let skip = above.reduce((n, span) => n + span.text.length, 0);
  const rest: Span[] = [];
  for (const span of below) {
    if (skip >= span.text.length) {
      skip -= span.text.length;
      continue;
    }
    rest.push({ text: span.text.slice(skip), style: span.style });
    skip = 0;
  }
  return [...above, ...rest];
}

type Mutable = { -readonly [K in keyof Style]: Style[K] };

function sgr(before: Style, params: string): Style {
  if (/[<=>?]/.test(params)) return before;
  const codes = params.split(/[;:]/).map(Number);
  let style: Mutable = { ...before };
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i] ?? 0;
    if (code === 0) style = {};
    else if (code === 1) style.bold = true;
    else if (code === 2) style.dim = true;
    else if (code === 3) style.italic = true;
    else if (code === 4) style.underline = true;
    else if (code === 7) style.inverse = true;
    else if (code === 9) style.strike = true;
    else if (code === 22) {
      delete style.bold;
      delete style.dim;
    } else if (code === 23) delete style.italic;
    else if (code === 24) delete style.underline;
    else if (code === 27) delete style.inverse;
    else if (code === 29) delete style.strike;
    else if (code >= 30 && code <= 37) style.fg = code - 30;
    else if (code >= 40 && code <= 47) style.bg = code - 40;
    else if (code >= 90 && code <= 97) style.fg = code - 82;
    else if (code >= 100 && code <= 107) style.bg = code - 92;
    else if (code === 39) delete style.fg;
    else if (code === 49) delete style.bg;
    else if (code === 38 || code === 48) {
      const [colour, used] = extended(codes, i + 1);
      i += used;
      if (colour !== undefined) style[code === 38 ? "fg" : "bg"] = colour;
    }
  }
  return style;
}

function extended(codes: readonly number[], at: number): [number | string | undefined, number] {
  if (codes[at] === 5) {
    const n = codes[at + 1];
    return [n !== undefined && n >= 0 && n <= 255 ? n : undefined, 2];
  }
  if (codes[at] === 2) {
    const rgb = codes.slice(at + 1, at + 4);
    const good = rgb.length === 3 && rgb.every((n) => n >= 0 && n <= 255);
    return [good ? `#${rgb.map((n) => n.toString(16).padStart(2, "0")).join("")}` : undefined, 4];
  }
  return [undefined, 0];
}

/** The colour as CSS. The first sixteen follow the page's theme. */
export function cssColour(colour: number | string): string {
  if (typeof colour === "string") return colour;
  if (colour < 16) return `var(--ansi-${colour % 8})`;
  if (colour >= 232) {
    const v = 8 + (colour - 232) * 10;
    return `rgb(${v} ${v} ${v})`;
  }
  const n = colour - 16;
  const step = (v: number) => (v === 0 ? 0 : 55 + v * 40);
  return `rgb(${step(Math.floor(n / 36))} ${step(Math.floor(n / 6) % 6)} ${step(n % 6)})`;
}
