import type { Client } from "../state/gateway.js";
import { retryMs } from "../state/retry.js";

/**
 * One taking-up of a session on a client, until it is taken up anew or let go. What comes
 * while its log is read waits here, and goes with the opening: the next one reads that, too.
 */
export class Opening {
  #waiting: (() => void)[] | undefined; // no more than comes until the log is read to its end
  #reading: Promise<void> | undefined; // until the reading that goes on has ended
  #steps = 0;
  #failed = 0;
  #wake = () => {};
  #over = false;
  /** Whether what is shown was read by it. */
  hasRead = false;

  constructor(readonly client: Client) {}

  /** Whether the session's log is read just now. */
  get reading(): boolean {
    return this.#reading !== undefined;
  }

  /** Whether the session is read or opened just now. */
  get busy(): boolean {
    return this.#steps > 0;
  }

  /** Whether it has failed before. */
  get hasFailed(): boolean {
    return this.#failed > 0;
  }

  /** Does something that reads or opens the session. */
  async step<T>(run: () => Promise<T>): Promise<T> {
    this.#steps++;
    try {
      return await run();
    } finally {
      this.#steps--;
    }
  }

  /** Runs it, behind what is being read. */
  behind(run: () => void): void {
    if (this.#waiting) this.#waiting.push(run);
    else run();
  }

  /**
   * Reads the log, and takes it before what came meanwhile: one reading after the other, since
   * each takes the place of what is shown. An opening that is over takes nothing.
   */
  async read<T>(log: () => Promise<T>, take: (read: T) => void): Promise<void> {
    while (this.#reading) await this.#reading;
    let done!: () => void;
    this.#reading = new Promise<void>((resolve) => (done = resolve));
    this.#waiting = [];
    try {
      const read = this.#over ? undefined : { log: await log() };
      if (read && !this.#over) take(read.log);
    } finally {
      const waited = this.#over ? [] : this.#waiting;
      this.#waiting = undefined;
      this.#reading = undefined;
      done();
      for (const run of waited) {
        try {
          run();
        } catch (error) {
          reportError(error); // it is this page's mistake, and takes nothing from what waits behind it
        }
      }
    }
  }

  /** Waits before it is tried again, longer each time. */
  async pause(): Promise<void> {
    if (this.#over) return;
    const ms = retryMs(this.#failed++);
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  end(): void {
    this.#over = true;
    this.#wake();
  }
}
