import { Store } from "../state/store.js";
import type { Passed } from "../state/traffic.js";
import { unknownRequest, type Row } from "./rows.js";
import type { Finding, Schema } from "./schema.js";

/** Frames that are checked before the browser may draw again. */
const atOnce = 50;

/**
 * What frames have that their schema has not. A frame is checked when it is in sight or
 * chosen; the schemas are loaded with the first one. The value grows with each answer.
 */
export class Violations extends Store<number> {
  readonly #found = new WeakMap<Passed, readonly Finding[]>(); // let go with the traffic
  readonly #schemas = new Map<number, Schema>();
  #waiting: Row[] = []; // those in sight
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

  /** Has these looked at, and gives up those of before that were not. */
  want(rows: readonly Row[]): void {
    this.#waiting = rows.filter((row) => row.entry.kind === "frame" && !this.#found.has(row.entry));
    if (this.#working || this.#waiting.length === 0) return;
    this.#working = true;
    void this.#work().finally(() => (this.#working = false));
  }

  async #work(): Promise<void> {
    while (this.#waiting.length > 0) {
      const some = this.#waiting.splice(0, atOnce);
      for (const { entry, sent, version, kind, title } of some) {
        if (entry.kind !== "frame") continue;
        try {
          const schema = this.#schemas.get(version) ?? (await this.load(version));
          this.#schemas.set(version, schema);
          this.#found.set(entry, schema.check({ message: entry.envelope.message, sent, answers: kind === "response" && title !== unknownRequest ? title : undefined }));
        } catch (error) {
          this.problem = `The schema of the protocol could not be loaded: ${(error as Error).message}`;
          this.#waiting = [];
          break;
        }
      }
      this.set(this.get() + 1);
      await new Promise((resolve) => setTimeout(resolve));
    }
  }
}
