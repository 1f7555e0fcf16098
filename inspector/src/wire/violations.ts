import { Store } from "../state/store.js";
import type { Passed } from "../state/traffic.js";
import { unknownRequest, type Row } from "./rows.js";
import type { Finding, Schema } from "./schema.js";

/** Frames that are checked before the browser may draw again. */
const atOnce = 50;

/** When the browser has nothing else to do, or a little later. */
const idle = (): Promise<unknown> => new Promise((resolve) => (typeof requestIdleCallback === "function" ? requestIdleCallback(resolve, { timeout: 500 }) : setTimeout(resolve)));

/**
 * What frames have that their schema has not. Those in sight are checked first, and then all
 * others, a few each time the browser is idle: there are no more of them than the page keeps. The
 * schemas are loaded with the first one. The value grows with each answer.
 */
export class Violations extends Store<number> {
  readonly #found = new WeakMap<Passed, readonly Finding[]>(); // let go with the traffic
  readonly #schemas = new Map<number, Schema>();
  #waiting: Row[] = []; // those in sight
  #all: readonly Row[] = []; // oldest first
  #through = -1; // the others were looked at up to this number
  #working = false;
  /** Why nothing can be checked. */
  problem: string | undefined;

  constructor(private readonly load: (version: number) => Promise<Schema>) {
    super(0);
  }

  /** What was found; undefined as long as it was not looked at. */
  of(row: Row): readonly Finding[] | undefined {
    return this.#found.get(row.entry);
  }

  /** Whether a row breaks the protocol, as far as it was looked at. */
  wrong(row: Row): boolean {
    return this.of(row)?.some((f) => f.wrong) ?? false;
  }

  /** How many are to be looked at yet. */
  get left(): number {
    return this.#all.length - this.#next();
  }

  /** Has these looked at soon, and gives up those of before that were not. */
  want(rows: readonly Row[]): void {
    this.#waiting = rows.filter((row) => this.#open(row));
    this.#begin();
  }

  /** Has all of these looked at in time; none ends it. */
  wantAll(rows: readonly Row[]): void {
    this.#all = rows;
    this.#begin();
  }

  #open(row: Row): boolean {
    return row.entry.kind === "frame" && !this.#found.has(row.entry);
  }

  /** The first of all rows that nobody has looked at. */
  #next(): number {
    let low = 0;
    let high = this.#all.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#all[middle]!.n <= this.#through) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #begin(): void {
    if (this.#working || (this.#waiting.length === 0 && this.left === 0)) return;
    this.#working = true;
    void this.#work().finally(() => (this.#working = false));
  }

  /** What is looked at now: of those in sight, else of all. */
  #some(): readonly Row[] {
    if (this.#waiting.length > 0) return this.#waiting.splice(0, atOnce);
    const from = this.#next();
    const some = this.#all.slice(from, from + atOnce);
    this.#through = some.at(-1)?.n ?? this.#through;
    return some.filter((row) => this.#open(row));
  }

  async #work(): Promise<void> {
    while (this.#waiting.length > 0 || this.left > 0) {
      if (this.#waiting.length === 0) await idle();
      for (const { entry, sent, version, kind, title } of this.#some()) {
        if (entry.kind !== "frame") continue;
        try {
          const schema = this.#schemas.get(version) ?? (await this.load(version));
          this.#schemas.set(version, schema);
          this.#found.set(entry, schema.check({ message: entry.envelope.message, sent, answers: kind === "response" && title !== unknownRequest ? title : undefined }));
        } catch (error) {
          this.problem = `The schema of the protocol could not be loaded: ${(error as Error).message}`;
          this.#waiting = [];
          this.#all = [];
          break;
        }
      }
      this.set(this.get() + 1);
      await new Promise((resolve) => setTimeout(resolve));
    }
  }
}
