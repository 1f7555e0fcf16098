import type { AnyMessage } from "@agentclientprotocol/sdk";
import { Backoff, follow, ofStream, sleep, ticks, Watchdog } from "./clock.js";
import { isPage, ProblemError, reasonOf, type LossReason } from "./errors.js";
import { parseMessage } from "./link.js";
import type { AcpStreamOptions } from "./options.js";
import { EventDecoder } from "./sse.js";

/** A stream without events for so long is taken for drained. */
const calmMs = 50;
const calmBoundMs = 1000;

export interface FeedContext {
  readonly url: string;
  /** The newest event that came on an earlier stream, which the server may take for open still. */
  readonly after: string | undefined;
  readonly fetch: typeof globalThis.fetch;
  readonly headers: (refused: boolean) => Promise<Record<string, string>>;
  readonly options: AcpStreamOptions;
  /** What the feeds of a connection share: whether one of them was ever open. */
  readonly shared: { open: boolean };
  readonly onMessage: (message: AnyMessage, id: string) => void;
  /** Waits while the reader is far behind. */
  readonly room: () => Promise<void>;
  readonly onState: () => void;
  readonly onLost: (reason: LossReason, text: string, cause?: unknown) => void;
  readonly onRefused: (error: Error) => void;
}

/** One event stream, taken up again whenever it breaks, without gap or double. */
export class EventFeed {
  /** Resolves when the server has answered for the first time, or never will. */
  readonly ready: Promise<void>;
  /** The network failed, and the stream is being opened again. */
  broken = false;

  #last = 0; // id of the newest event
  /** The id of the newest event as the server says it. */
  newest: string;
  #lastAt = 0;
  #stopped = new AbortController();
  #resolveReady!: () => void;
  #wake: (() => void)[] = []; // of who waits for an event

  constructor(private readonly ctx: FeedContext) {
    this.newest = ctx.after ?? "0";
    this.ready = new Promise((resolve) => (this.#resolveReady = resolve));
    void this.#run();
  }

  stop(): void {
    this.#stopped.abort();
    this.#resolveReady();
    for (const wake of this.#wake.splice(0)) wake();
  }

  /** Resolves when event id n, or a later one, was handed on. */
  async reached(n: number, signal: AbortSignal): Promise<void> {
    while (this.#last < n && !signal.aborted && !this.#stopped.signal.aborted) {
      await new Promise<void>((resolve) => this.#wake.push(resolve));
    }
  }

  /** Resolves when the stream is open and no event has come for a moment. */
  async calm(signal: AbortSignal): Promise<void> {
    while (this.broken && !signal.aborted && !this.#stopped.signal.aborted) {
      await new Promise<void>((resolve) => this.#wake.push(resolve));
    }
    const begin = ticks();
    for (let left = calmMs; left > 0 && ticks() - begin < calmBoundMs; left = calmMs - (ticks() - Math.max(begin, this.#lastAt))) {
      if (!(await sleep(left, signal))) return;
    }
  }

  async #run(): Promise<void> {
    const { ctx } = this;
    const signal = this.#stopped.signal;
    const backoff = new Backoff(ctx.options.retry ?? {}, signal);
    let refused = false;
    let again = false;
    while (!signal.aborted) {
      const attempt = new AbortController();
      const leave = follow(signal, () => attempt.abort());
      const watchdog = new Watchdog(ofStream(ctx.options.silenceMs), () => attempt.abort());
      let failure: unknown;
      let since = Infinity; // when it was opened
      try {
        const headers: Record<string, string> = { ...(await ctx.headers(refused)), Accept: "text/event-stream" };
        if (again) headers["Last-Event-ID"] = this.newest;
        const response = await ctx.fetch(ctx.url, { method: "GET", headers, signal: attempt.signal, cache: "no-store", redirect: "manual" });
        if (!response.ok) throw await ProblemError.from(response);
        if (response.body === null || isPage(response)) throw new TypeError("the answer is no event stream");
        refused = false;
        again = ctx.shared.open = true;
        since = ticks();
        this.#mark(false);
        this.#resolveReady();
        await this.#read(response.body, watchdog, backoff);
      } catch (error) {
        failure = error;
      } finally {
        watchdog.stop();
        attempt.abort();
        leave();
      }
      if (signal.aborted) return;
      if (failure instanceof TooLarge) return ctx.onLost("protocol", failure.message, failure);
      if (failure instanceof ProblemError) {
        switch (failure.status) {
          case 401:
          case 403:
            if (refused || typeof ctx.options.headers !== "function") return ctx.onRefused(failure);
            refused = true;
            continue;
          case 404:
            return ctx.onLost("unknown_connection", `the server does not know the connection any more: ${failure.message}`, failure);
          case 410:
            return ctx.onLost("events_expired", failure.message, failure);
          case 409:
            again = true; // an earlier stream is open still: take it over
            break;
          case 400:
          case 405:
          case 406:
            if (ctx.shared.open) break; // something before the server says so
            return ctx.onLost("protocol", `the server refuses the event stream: ${failure.message}`, failure);
        }
      }
      this.#mark(true);
      backoff.lasted(since); // there was nothing to say
      if (!(await backoff.next())) {
        if (!signal.aborted) ctx.onLost("unreachable", `the event stream of ${ctx.url} cannot be opened: ${reasonOf(failure)}`, failure);
        return;
      }
    }
  }

  #mark(broken: boolean): void {
    if (this.broken === broken) return;
    this.broken = broken;
    for (const wake of this.#wake.splice(0)) wake();
    this.ctx.onState();
  }

  async #read(body: ReadableStream<Uint8Array>, watchdog: Watchdog, backoff: Backoff): Promise<void> {
    const limit = this.ctx.options.maxMessageLength ?? 32 << 20;
    const decoder = new EventDecoder(limit);
    const reader = body.getReader();
    for (;;) {
      watchdog.heard();
      const { done, value } = await reader.read();
      if (done) return;
      backoff.reset();
      watchdog.stop(); // while the reader is behind nobody listens
      let events;
      try {
        events = decoder.push(value);
      } catch (error) {
        throw new TooLarge(error instanceof Error ? error.message : String(error));
      }
      for (const event of events) {
        const n = event.id === "" ? 0 : Number(event.id);
        if (Number.isSafeInteger(n) && n > 0) {
          if (n <= this.#last) continue; // it came before the stream broke
          this.#last = n;
        }
        if (event.id !== "") this.newest = event.id;
        this.#lastAt = ticks();
        const message = parseMessage(event.data);
        if (message !== undefined) this.ctx.onMessage(message, event.id);
      }
      if (events.length > 0) for (const wake of this.#wake.splice(0)) wake();
      await this.ctx.room();
    }
  }
}

class TooLarge extends Error {}
