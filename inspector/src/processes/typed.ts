interface Part {
  readonly text: string;
  readonly close: boolean;
}

/** Lines that wait here for those before them; then no more is taken. */
const maxWaiting = 64;

/**
 * Lines that are typed for a program: one goes out after the other. Behind one that failed none is
 * sent, since the program would get it without what was before it: all of them are given back, in order.
 */
export class Typed {
  readonly #waiting: Part[] = []; // the first one is on its way

  constructor(private readonly write: (text: string, close: boolean) => Promise<unknown>, private readonly failed: (lines: readonly string[], error: unknown) => void) {}

  /** False when it is not taken, because too many wait. A line that was copied with its end is one line. */
  line(line: string): boolean {
    return this.#add({ text: `${line.replace(/(?<=.)\n$/, "")}\n`, close: false });
  }

  /** Ends the input, behind the lines that wait. */
  close(): void {
    if (!this.#waiting.some(({ close }) => close)) this.#add({ text: "", close: true });
  }

  #add(part: Part): boolean {
    if (this.#waiting.length >= maxWaiting && !part.close) return false;
    this.#waiting.push(part);
    if (this.#waiting.length === 1) void this.#send();
    return true;
  }

  async #send(): Promise<void> {
    for (let part = this.#waiting[0]; part; part = this.#waiting[0]) {
      try {
        await this.write(part.text, part.close);
      } catch (error) {
        const lines = this.#waiting.splice(0).filter(({ close }) => !close);
        return this.failed(lines.map(({ text }) => text.slice(0, -1)), error);
      }
      this.#waiting.shift();
    }
  }
}

/** What is in the field when lines come back: before what is typed by now. */
export const withLines = (lines: readonly string[], typed: string) => [...lines, ...(typed === "" ? [] : [typed])].join("\n");
