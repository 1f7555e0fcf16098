import { abortable } from "acp-http-client";

interface Setting {
  sent: Promise<unknown> | undefined; // undefined when it is, and all before
  over: Promise<unknown>; // when all so far is answered
}

/** What is set in sessions, one after the other: the last one counts, also where a connection breaks in between. */
export class Settings {
  readonly #last = new Map<string, Setting>(); // by session

  /** Settles when all that was set so far is sent; undefined when it is. What is sent behind that waits for it. */
  sent(sessionId: string): Promise<unknown> | undefined {
    return this.#last.get(sessionId)?.sent;
  }

  /** `send` calls what it is given when the request is handed over. */
  set<T>(sessionId: string, send: (sent: () => void) => Promise<T>, signal?: AbortSignal): Promise<T> {
    const before = this.#last.get(sessionId);
    let handed = () => {};
    const own = new Promise<void>((resolve) => (handed = resolve));
    const last: Setting = { sent: Promise.all([before?.sent, own]), over: own };
    const sent = () => {
      handed();
      last.sent = undefined;
    };
    const mine = before ? abortable(before.over, signal).then(() => send(sent)) : send(sent);
    mine.catch(handed); // it is not sent any more
    last.over = Promise.allSettled([before?.over, mine]);
    this.#last.set(sessionId, last);
    void last.over.then(() => this.#last.get(sessionId) === last && this.#last.delete(sessionId));
    return mine;
  }
}
