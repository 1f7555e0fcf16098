/** A code block that several segments show: the whole of what was written in it. */
export interface CutCode {
  readonly text: string;
}

/** A piece of a markdown text that can be shown by itself. */
export interface Segment {
  readonly text: string;
  /** Whether nothing is added to it any more. */
  readonly closed: boolean;
  /** The code block that began in a segment before and goes on here. */
  readonly begun?: CutCode | undefined;
  /** The code block that goes on in the next segment. */
  readonly cut?: CutCode | undefined;
}

/** Segments end at blank lines; longer ones at line ends, and longest lines in their middle. */
const soft = 2000;
const hard = 4000;
/** Code blocks stay whole up to here: they are read, and copied, as one. */
const mostCode = 60_000;

const fenceOf = (line: string) => /^ {0,3}(`{3,}|~{3,})(.*)$/.exec(line);
const listItem = /^ {0,3}(?:[-*+]|\d{1,9}[.)])(?:\s|$)/;
const maybeItem = /^ {0,3}(?:[-*+]|\d{1,9}[.)]?)$/;
const delimiter = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const indented = /^(?: {2,}|\t)\S/;
/** A line that begins a formula and has nothing else: where words follow it can be money. */
const formula = /^ {0,3}(\$\$|\\\[)[ \t]*$/;

/**
 * A markdown text that grows, cut into segments of bounded size, so that adding to it
 * costs what the addition costs and not what the text does. A code block that is cut is
 * opened again in the next segment, and a table has its head there again. Links by reference do not reach over a cut.
 */
export class Segments {
  readonly all: Segment[] = [];
  #said: string[] = []; // all of it, as it came
  #block = ""; // complete lines of the open segment
  #line = ""; // the line that is being written
  #fence: { mark: string; info: string; code: { text: string } } | undefined;
  #formula: string | undefined; // what ends the formula that is open
  #blank = false; // the line before was blank
  #list = false; // the open segment is a list
  #table: string[] | undefined; // the first two lines of the open segment, which is a table
  #head = ""; // of the table that goes on from the segment before
  #begun: CutCode | undefined;
  #length = 0;

  /** The number of characters so far. */
  get length(): number {
    return this.#length;
  }

  /** The whole text. */
  get whole(): string {
    if (this.#said.length > 1) this.#said = [this.#said.join("")];
    return this.#said[0] ?? "";
  }

  /** Adds to the text. Returns the index of the first segment that is another one now. */
  push(text: string): number {
    const first = Math.max(0, this.all.length - (this.all.at(-1)?.closed === false ? 1 : 0));
    this.#length += text.length;
    this.#said.push(text);
    let from = 0;
    for (;;) {
      const end = text.indexOf("\n", from);
      if (end < 0) break;
      this.#line += text.slice(from, end);
      this.#endLine();
      from = end + 1;
    }
    this.#line += text.slice(from);
    this.#cutLines();
    this.#show();
    return first;
  }

  /** The text is complete. */
  close(): void {
    const last = this.all.at(-1);
    if (last && !last.closed) this.all[this.all.length - 1] = { ...last, closed: true };
  }

  #endLine(): void {
    this.#cutLines();
    const line = this.#line;
    this.#line = "";
    const blank = line.trim() === "";
    this.#cutBefore(line, false);
    if (blank && this.#head !== "" && this.#block === this.#head) this.#block = ""; // the table ended where it was cut
    if (this.#block === "") {
      this.#list = listItem.test(line);
      this.#table = line.trimStart().startsWith("|") ? [] : undefined;
    }
    if (this.#table && this.#table.length < 2) this.#table.push(line);
    this.#block += `${line}\n`;
    this.#blank = blank;
    const fence = fenceOf(line);
    if (this.#fence) {
      if (fence && fence[1]!.startsWith(this.#fence.mark) && fence[2]!.trim() === "") {
        this.#fence = undefined;
        return;
      }
      this.#fence.code.text += `${line}\n`;
      if (this.#block.length > mostCode) this.#cut();
    } else if (fence && !(fence[1]!.startsWith("`") && fence[2]!.includes("`"))) this.#fence = { mark: fence[1]!, info: fence[2]!.trim(), code: { text: "" } };
    else {
      this.#inFormula(line);
      if (this.#block.length > (this.#table ? 4 * hard : hard)) this.#cut();
    }
  }

  /** Takes a line of a formula, in which a blank line ends no segment. What grows beyond one was none. */
  #inFormula(line: string): void {
    if (this.#formula !== undefined) {
      if (line.includes(this.#formula) || this.#block.length > soft) this.#formula = undefined;
      return;
    }
    const begins = formula.exec(line);
    if (begins) this.#formula = begins[1] === "$$" ? "$$" : "\\]";
  }

  /** Ends the open segment at a blank line, unless what follows belongs to its list. */
  #cutBefore(line: string, partial: boolean): void {
    if (this.#fence || this.#formula !== undefined || !this.#blank || line.trim() === "" || this.#block.trim() === "") return;
    const goesOn = this.#list && (listItem.test(line) || indented.test(line) || (partial && maybeItem.test(line)));
    if (!goesOn || this.#block.length > soft) this.#cut();
  }

  /** Ends segments in the middle of a line that is too long. */
  #cutLines(): void {
    const most = this.#fence ? mostCode : hard;
    while (this.#line.length > most) {
      const space = this.#line.lastIndexOf(" ", most / 2);
      const at = space > most / 4 ? space + 1 : most / 2;
      if (this.#fence) this.#fence.code.text += this.#line.slice(0, at);
      this.#block += this.#line.slice(0, at);
      this.#line = this.#line.slice(at);
      this.#cut(true);
    }
  }

  #cut(inLine = false): void {
    const fence = this.#fence;
    this.#formula = undefined;
    const inTable = this.#table?.length === 2 && !this.#blank && !inLine && delimiter.test(this.#table[1]!);
    this.#head = inTable ? `${this.#table!.join("\n")}\n` : "";
    const block = this.#block.replace(fence ? /\n$/ : /\n+$/, "");
    this.#set({ text: fence ? `${block}\n${fence.mark}` : block, closed: true, begun: this.#begun, cut: fence?.code });
    this.#block = fence ? `${fence.mark}${fence.info}\n` : this.#head;
    this.#begun = fence?.code;
    this.#blank = false;
  }

  #show(): void {
    this.#cutBefore(this.#line, true);
    if (this.#head !== "" && this.#block === this.#head && this.#line === "") return; // the table may have ended
    const text = this.#block + this.#line;
    if (text.trim() === "") return;
    this.#set({ text, closed: false, begun: this.#begun });
  }

  /** Puts a segment in the place of the open one. */
  #set(segment: Segment): void {
    const last = this.all.at(-1);
    if (last && !last.closed) this.all[this.all.length - 1] = segment;
    else this.all.push(segment);
  }
}
