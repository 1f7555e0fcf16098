/** How a client tries again. */
export interface RetryOptions {
  /** Before the first try again; doubles with each, with some chance in it. Default 250 ms. */
  readonly firstDelayMs?: number;
  /** The longest wait between two tries. Default 10 s. */
  readonly maxDelayMs?: number;
  /** After so long without success the connection is given up. Time in which the machine was suspended does not count; of each try at most 45 s do. Default 60 s. */
  readonly giveUpAfterMs?: number;
}

/** Milliseconds to measure with: they go on steadily when somebody sets the machine's clock. */
export const ticks = (): number => performance.now();

/** One run of tries. `next` waits, or says false when the time is over. */
export class Backoff {
  #delay: number;
  #since: number | undefined;
  #tries: number | undefined; // since when somebody does

  constructor(private readonly options: RetryOptions, private readonly signal: AbortSignal) {
    this.#delay = options.firstDelayMs ?? 250;
  }

  /** Begins anew after a success. */
  reset(): void {
    this.#delay = this.options.firstDelayMs ?? 250;
    this.#since = this.#tries = undefined;
  }

  /** Begins anew where what was opened then has lasted longer than the longest wait. */
  lasted(since: number, ms = this.options.maxDelayMs ?? 10_000): void {
    if (ticks() - since > ms) this.reset();
  }

  /** Waits for the next try; false when it is not worth one. */
  async next(atLeastMs = 0): Promise<boolean> {
    const now = ticks();
    this.#since ??= now;
    this.#since += Math.max(now - (this.#tries ?? now) - longestTryMs, 0); // the machine, or this program, was suspended during the try
    const left = this.#since + (this.options.giveUpAfterMs ?? 60_000) - now;
    if (left <= 0 || this.signal.aborted) return false;
    const delay = Math.max(atLeastMs, this.#delay * (0.5 + Math.random() / 2));
    this.#delay = Math.min(this.#delay * 2, this.options.maxDelayMs ?? 10_000);
    const wait = Math.min(delay, left);
    const goesOn = await sleep(wait, this.signal);
    const slept = ticks() - now - wait;
    if (slept > busyMs) this.#since += slept; // as above, and could not try
    this.#tries = ticks();
    return goesOn;
  }
}

/** How late a wait may end on a machine that is only busy. */
const busyMs = 5_000;

/** What is counted of a try. Most take no longer before a server that says nothing is given up. */
const longestTryMs = 45_000;

/** Who follows a signal, and the one listener that tells them. */
const followed = new WeakMap<AbortSignal, { readonly all: Set<() => void>; readonly tell: () => void }>();

/**
 * Calls `stop` when the signal aborts, and at once when it has, until what is returned is called. The signal has one listener,
 * however many follow it, and none when nobody does: Node.js warns of more than ten.
 */
export function follow(signal: AbortSignal | undefined, stop: () => void): () => void {
  if (signal?.aborted) stop();
  if (signal === undefined || signal.aborted) return () => {};
  const all = new Set<() => void>();
  const one = followed.get(signal) ?? { all, tell: () => all.forEach((call) => call()) };
  followed.set(signal, one);
  if (one.all.size === 0) signal.addEventListener("abort", one.tell, { once: true });
  const mine = () => stop(); // the same function may follow twice
  one.all.add(mine);
  return () => {
    if (one.all.delete(mine) && one.all.size === 0) signal.removeEventListener("abort", one.tell);
  };
}

/** The promise, given up when the signal aborts. */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise((resolve, reject) => {
    const leave = follow(signal, () => reject(signal.reason as Error));
    promise.then(resolve, reject).finally(leave);
  });
}

/** The longest time of a timer, some 24 days: a longer one ends at once. */
const longestMs = 2 ** 31 - 1;

/** Resolves after the time; false when the signal came first. */
export function sleep(ms: number, signal: AbortSignal): Promise<boolean> {
  if (signal.aborted) return Promise.resolve(false);
  return new Promise((resolve) => {
    const end = (ok: boolean) => {
      clearTimeout(timer);
      leave();
      resolve(ok);
    };
    const timer = setTimeout(() => end(true), Math.min(ms, longestMs));
    const leave = follow(signal, () => end(false));
  });
}

/** The server takes connections and says nothing. */
export class SilentError extends Error {
  override readonly name = "SilentError";

  constructor(ms: number) {
    super(`nothing was heard for ${Math.round(ms / 100) / 10} s`);
  }
}

/** The silence after which a server is taken for gone, where nobody says another. */
export const usualSilenceMs = 45_000;

/** The silence after which a stream of events is taken for broken: not before the comment is due that comes every 15 s where there is no event. */
export const ofStream = (ms = usualSilenceMs): number => ms && Math.max(ms, 20_000);

/**
 * Does work that waits for a server, which may take as long as it takes. When there is no end of it for a while, the server is
 * asked now and then for what it answers at once; one that says nothing to that, either, is given up, and so is the work.
 * `ms` are for both; with 0 nobody asks. The work's signal follows the one given as long as the work lasts, or for ever when it goes
 * on behind its end, as a body does that is still read. (`AbortSignal.any` would leave something behind at the given one.)
 */
export async function heard<T>(ms = usualSilenceMs, given: AbortSignal | undefined, ask: (signal: AbortSignal) => Promise<unknown>, work: (signal: AbortSignal) => Promise<T>, goesOn = false): Promise<T> {
  const mine = new AbortController();
  const over = new AbortController();
  const leave = follow(given, () => mine.abort(given?.reason));
  /** A refusal is an answer, too; that nobody is reached is none. */
  const answers = async () => {
    do if (await ask(over.signal).then(() => true, () => false)) return true;
    while (await sleep(ms / 8, over.signal));
    return false;
  };
  const watch = async () => {
    while (await sleep(ms / 2, over.signal)) {
      if (await Promise.race([answers(), sleep(ms / 2, over.signal).then(() => false)])) continue;
      if (!over.signal.aborted) mine.abort(new SilentError(ms)); // else the work ended while the question was under way
      return;
    }
  };
  if (ms > 0) void watch();
  let done = false;
  try {
    const result = await work(mine.signal);
    done = true;
    return result;
  } finally {
    over.abort();
    if (!done || !goesOn) leave();
  }
}

/** The body of an answer whose server is heard now and then, to its end. */
export async function textOf(response: Response, silenceMs = usualSilenceMs): Promise<string> {
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  let text = "";
  while (reader) {
    const { done, value } = await inTime(reader, silenceMs);
    if (done) break;
    text += decoder.decode(value, { stream: true });
  }
  return text + decoder.decode();
}

/** Reads on. When nothing comes for so long reading ends with an error. */
export async function inTime<T>(reader: { read(): Promise<T>; cancel(reason: unknown): Promise<void> }, silenceMs: number): Promise<T> {
  let watchdog: Watchdog | undefined;
  const silence = new Promise<never>((_, reject) => (watchdog = new Watchdog(silenceMs, () => reject(new SilentError(silenceMs)))));
  try {
    return await Promise.race([reader.read(), silence]);
  } catch (error) {
    void reader.cancel(error).catch(() => {});
    throw error;
  } finally {
    watchdog?.stop();
  }
}

/** Calls `onSilence` when nothing was heard for a while. */
export class Watchdog {
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly ms: number, private readonly onSilence: () => void) {
    this.heard();
  }

  heard(): void {
    clearTimeout(this.#timer);
    if (this.ms > 0 && this.ms <= longestMs) this.#timer = setTimeout(this.onSilence, this.ms);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }
}
