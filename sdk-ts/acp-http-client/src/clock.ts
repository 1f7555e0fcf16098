/** How a client tries again. */
export interface RetryOptions {
  /** Before the first try again; doubles with each, with some chance in it. Default 250 ms. */
  readonly firstDelayMs?: number;
  /** The longest wait between two tries. Default 10 s. */
  readonly maxDelayMs?: number;
  /** After so long without success the connection is given up. Default 60 s. */
  readonly giveUpAfterMs?: number;
}

/** Milliseconds to measure with: they go on steadily when somebody sets the machine's clock. */
export const ticks = (): number => performance.now();

/** One run of tries. `next` waits, or says false when the time is over. */
export class Backoff {
  #delay: number;
  #since: number | undefined;

  constructor(private readonly options: RetryOptions, private readonly signal: AbortSignal) {
    this.#delay = options.firstDelayMs ?? 250;
  }

  /** Begins anew after a success. */
  reset(): void {
    this.#delay = this.options.firstDelayMs ?? 250;
    this.#since = undefined;
  }

  /** Waits for the next try; false when it is not worth one. */
  async next(atLeastMs = 0): Promise<boolean> {
    const now = ticks();
    this.#since ??= now;
    const left = this.#since + (this.options.giveUpAfterMs ?? 60_000) - now;
    if (left <= 0 || this.signal.aborted) return false;
    const delay = Math.max(atLeastMs, this.#delay * (0.5 + Math.random() / 2));
    this.#delay = Math.min(this.#delay * 2, this.options.maxDelayMs ?? 10_000);
    return sleep(Math.min(delay, left), this.signal);
  }
}

/** Resolves after the time; false when the signal came first. */
export function sleep(ms: number, signal: AbortSignal): Promise<boolean> {
  if (signal.aborted) return Promise.resolve(false);
  return new Promise((resolve) => {
    const end = (ok: boolean) => {
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
      resolve(ok);
    };
    const stop = () => end(false);
    const timer = setTimeout(() => end(true), ms);
    signal.addEventListener("abort", stop, { once: true });
  });
}

/** Calls `onSilence` when nothing was heard for a while. */
export class Watchdog {
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly ms: number, private readonly onSilence: () => void) {
    this.heard();
  }

  heard(): void {
    clearTimeout(this.#timer);
    if (this.ms > 0) this.#timer = setTimeout(this.onSilence, this.ms);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }
}
