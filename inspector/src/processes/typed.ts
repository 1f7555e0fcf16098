import { Store } from "../state/store.js";

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
    return this.#add({ text: `${line.replace(/(?<=[^])\n$/, "")}\n`, close: false });
  }

  /** Whether lines are on their way. */
  get busy(): boolean {
    return this.#waiting.length > 0;
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

/**
 * The field for what a program reads: its text, and the lines on their way. It is the page's, not what shows it: lines that come
 * back are there also when another program is shown by then.
 */
export class Input extends Store<string> {
  readonly #typed: Typed;
  #written = () => {};

  constructor(private write: (text: string, close: boolean) => Promise<unknown>, failed: (error: unknown) => void) {
    super("");
    this.#typed = new Typed((text, close) => this.write(text, close).finally(() => this.#written()), (lines, error) => {
      this.set(withLines(lines, this.get()));
      failed(error);
    });
  }

  /** Calls what is given after each line, until what it returns is called. */
  whenWritten(written: () => void): () => void {
    this.#written = written;
    return () => void (this.#written = () => {});
  }

  /** Has lines that are not on their way yet go by another way, such as with another token. */
  goBy(write: (text: string, close: boolean) => Promise<unknown>): void {
    this.write = write;
  }

  type(text: string): void {
    this.set(text);
  }

  /** Sends what is in the field. False when too many lines wait. */
  send(): boolean {
    const taken = this.#typed.line(this.get());
    if (taken) this.set("");
    return taken;
  }

  close(): void {
    this.#typed.close();
  }

  /** Whether something would be lost with it. */
  get used(): boolean {
    return this.get() !== "" || this.#typed.busy;
  }
}

/** So many fields are kept that nothing is in; of those with something none is forgotten. */
const maxEmpty = 32;

export class Inputs {
  readonly #all = new Map<string, Input>();

  /** The field of a program, by a name that no other one has. Its lines go by the way that was given last. */
  of(name: string, ...make: ConstructorParameters<typeof Input>): Input {
    const known = this.#all.get(name);
    if (known) {
      known.goBy(make[0]);
      return known;
    }
    const empty = [...this.#all].filter(([, { used }]) => !used);
    for (const [of] of empty.slice(0, Math.max(0, empty.length - maxEmpty + 1))) this.#all.delete(of);
    const made = new Input(...make);
    this.#all.set(name, made);
    return made;
  }
}
