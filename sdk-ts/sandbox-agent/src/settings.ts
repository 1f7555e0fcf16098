import { abortable } from "acp-http-client";

/** What is set in sessions, one after the other: the last one counts, also where a connection breaks in between. */
export class Settings {
  readonly #last = new Map<string, { sent: Promise<unknown> | undefined; over: Promise<unknown> }>(); // by session; over when all so far is answered

  /** Settles when all that was set so far is sent; undefined when it is. What is sent behind that waits for it. */
  sent(sessionId: string): Promise<unknown> | undefined {
    return this.#last.get(sessionId)?.sent;
  }

  set<T>(sessionId: string, send: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const before = this.#last.get(sessionId)?.over;
    const turn = before && abortable(before, signal);
    const mine = turn ? turn.then(send) : send();
    const last = { sent: turn?.catch(() => {}), over: Promise.allSettled([before, mine]) };
    this.#last.set(sessionId, last);
    void last.over.then(() => this.#last.get(sessionId) === last && this.#last.delete(sessionId));
    return mine;
  }
}
