/** A piece of a markdown text that can be shown by itself. */
export interface Segment {
  readonly text: string;
  /** Whether nothing is added to it any more. */
  readonly closed: boolean;
  /** Whether it goes on in the middle of a code block that began before. */
  readonly continued: boolean;
}

/** Segments end at blank lines; longer ones at line ends, and longest lines in their middle. */
const soft = 4000;
const hard = 8000;

const fenceOf = (line: string) => /^ {0,3}(`{3,}|~{3,})(.*)$/.exec(line);
const listItem = /^ {0,3}(?:[-*+]|\d{1,9}[.)])(?:\s|$)/;
const indented = /^(?: {2,}|\t)\S/;

/**
 * A markdown text that grows, cut into segments of bounded size, so that adding to it
 * costs what the addition costs and not what the text does. A code block that is cut is
 * opened again in the next segment. Links by reference do not reach over a cut.
 */
export class Segments {
  readonly all: Segment[] = [];
  #block = ""; // complete lines of the open segment
  #line = ""; // the line that is being written
  #fence: { mark: string; info: string } | undefined;
  #blank = false; // the line before was blank
  #list = false; // the open segment is a list
  #table = false;
  #continued = false;
  #length = 0;

  /** The number of characters so far. */
  get length(): number {
    return this.#length;
  }

  /** Adds to the text. Returns the index of the first segment that is another one now. */
  push(text: string): number {
    const first = Math.max(0, this.all.length - (this.all.at(-1)?.closed === false ? 1 : 0));
    this.#length += text.length;
    let from = 0;
    for (;;) {
      const end = text.indexOf("\n", from);
      if (end < 0) break;
      this.#line += text.slice(from, end);
      this.#endLine();
      from = end + 1;
    }
    this.#line += text.slice(from);
    while (this.#line.length > hard) this.#cutLine();
    this.#show();
    return first;
  }

  /** The text is complete. */
  close(): void {
    const last = this.all.at(-1);
    if (last && !last.closed) this.all[this.all.length - 1] = { ...last, closed: true };
  }

  /** The whole text, near to what was pushed: cut code blocks have their fences twice. */
  text(): string {
    return this.all.map((s) => s.text).join("\n");
  }

  #endLine(): void {
    while (this.#line.length > hard) this.#cutLine();
    const line = this.#line;
    this.#line = "";
    const blank = line.trim() === "";
    if (!this.#fence && this.#blank && !blank && this.#block.trim() !== "") {
      const goesOn = this.#list && (listItem.test(line) || indented.test(line));
      if (!goesOn || this.#block.length > soft) this.#cut();
    }
    if (this.#block === "") {
      this.#list = listItem.test(line);
      this.#table = line.trimStart().startsWith("|");
    }
    this.#block += `${line}\n`;
    this.#blank = blank;
    const fence = fenceOf(line);
    if (this.#fence) {
      if (fence && fence[1]!.startsWith(this.#fence.mark) && fence[2]!.trim() === "") this.#fence = undefined;
      else if (this.#block.length > soft) this.#cut();
    } else if (fence && !(fence[1]!.startsWith("`") && fence[2]!.includes("`"))) this.#fence = { mark: fence[1]!, info: fence[2]!.trim() };
    else if (this.#block.length > (this.#table ? 4 * hard : hard)) this.#cut();
  }

  /** Ends the open segment in the middle of a line that is too long. */
  #cutLine(): void {
    const space = this.#line.lastIndexOf(" ", soft);
    const at = space > soft / 2 ? space + 1 : soft;
    const rest = this.#line.slice(at);
    this.#block += this.#line.slice(0, at);
    this.#line = rest;
    this.#cut();
  }

  #cut(): void {
    const fence = this.#fence;
    const block = this.#block.replace(/\n+$/, "");
    this.#set({ text: fence ? `${block}\n${fence.mark}` : block, closed: true, continued: this.#continued });
    this.#block = fence ? `${fence.mark}${fence.info}\n` : "";
    this.#continued = fence !== undefined;
    this.#blank = false;
  }

  #show(): void {
    const text = this.#block + this.#line;
    if (text.trim() === "") return;
    this.#set({ text, closed: false, continued: this.#continued });
  }

  /** Puts a segment in the place of the open one. */
  #set(segment: Segment): void {
    const last = this.all.at(-1);
    if (last && !last.closed) this.all[this.all.length - 1] = segment;
    else this.all.push(segment);
  }
}
