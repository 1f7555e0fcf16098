import { Store } from "./store.js";
import { messageOf } from "./explain.js";

export interface Toast {
  readonly id: number;
  readonly tone: "info" | "good" | "bad";
  readonly text: string;
  /** What it is about, to be looked at. */
  readonly href: string | undefined;
}

/** Toasts at once; the oldest makes room. */
const maxToasts = 4;
const shownMs = { info: 4000, good: 4000, bad: 10_000 };
const linkMs = 15_000; // it is to be reached, too

/** Short messages about what was just done. What needs a decision is no toast. */
export class Toasts extends Store<readonly Toast[]> {
  #next = 1;

  constructor() {
    super([]);
  }

  /** Returns what takes it away, where it is of no use elsewhere. */
  show(text: string, tone: Toast["tone"] = "info", href?: string): () => void {
    const toast = { id: this.#next++, tone, text, href };
    this.set([...this.get().slice(1 - maxToasts), toast]);
    setTimeout(() => this.dismiss(toast.id), href === undefined ? shownMs[tone] : linkMs);
    return () => this.dismiss(toast.id);
  }

  dismiss(id: number): void {
    this.set(this.get().filter((t) => t.id !== id));
  }

  /** Does something and shows what goes wrong; undefined then. */
  async attempt<T>(what: string, run: () => Promise<T>): Promise<T | undefined> {
    try {
      return await run();
    } catch (error) {
      this.show(`${what}: ${messageOf(error)}`, "bad");
      return undefined;
    }
  }
}
