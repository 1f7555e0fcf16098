import { abortable } from "acp-http-client";

interface Setting {
  before: Setting | undefined; // until that is answered
  unsent: Promise<void> | undefined; // until it is handed over, and again while it has to be handed over once more
  over: Promise<unknown>; // when all so far is answered
}

/** What is set in sessions, one after the other: the last one counts, also where a connection breaks in between. */
export class Settings {
  readonly #last = new Map<string, Setting>(); // by session

  /** What is sent behind all that was set so far asks, right before it is sent, what it has to wait for; after that it asks again. */
  behind(sessionId: string): () => Promise<unknown> | undefined {
    const last = this.#last.get(sessionId);
    return () => {
      let unsent: Promise<unknown> | undefined;
      for (let one = last; one !== undefined; one = one.before) unsent = one.unsent ?? unsent;
      return unsent;
    };
  }

  /** `send` tells what it is given whether the request is on its way: false when it has to be sent again. */
  set<T>(sessionId: string, send: (sent: (is: boolean) => void) => Promise<T>, signal?: AbortSignal): Promise<T> {
    const before = this.#last.get(sessionId);
    let wake = () => {};
    const own: Setting = { before, unsent: undefined, over: Promise.resolve() };
    const sent = (is: boolean) => {
      if (is) {
        own.unsent = undefined;
        wake();
      } else own.unsent ??= new Promise<void>((resolve) => (wake = resolve));
    };
    sent(false);
    const mine = before ? abortable(before.over, signal).then(() => send(sent)) : send(sent);
    const answered = () => sent(true); // or given up: it is not sent any more
    mine.then(answered, answered);
    own.over = Promise.allSettled([before?.over, mine]).then(() => (own.before = undefined));
    this.#last.set(sessionId, own);
    void own.over.then(() => this.#last.get(sessionId) === own && this.#last.delete(sessionId));
    return mine;
  }
}
