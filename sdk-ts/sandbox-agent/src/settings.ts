import { abortable } from "acp-http-client";

interface Setting {
  before: Setting | undefined; // until that is answered
  unsent?: Promise<void> | undefined; // until it is handed over, and again while it has to be handed over once more
  over: Promise<unknown>; // when all so far is answered
}

/** What is set in sessions, one after the other: the last one counts, also where a connection breaks in between. */
export class Settings {
  readonly #last = new Map<string, Setting>(); // by session

  /** What is sent behind all that was set so far asks, right before it is sent, what it has to wait for; after that it asks again. */
  behind(sessionId: string): () => Promise<unknown> | undefined {
    const last = this.#last.get(sessionId);
    return () => unsent(last);
  }

  /** `send` tells what it is given whether the request is on its way: false when it has to be sent again. */
  set<T>(sessionId: string, send: (sent: (is: boolean) => void) => Promise<T>, signal?: AbortSignal): Promise<T> {
    const before = this.#last.get(sessionId);
    let wake!: () => void;
    const own = { before } as Setting;
    const sent = (is: boolean) => {
      own.unsent = is ? (wake() as undefined) : (own.unsent ?? new Promise((resolve) => (wake = resolve)));
    };
    sent(false);
    const mine = (before ? abortable(before.over, signal).then(() => send(sent)) : send(sent)).finally(() => sent(true)); // or it is not sent any more
    this.#last.set(sessionId, own);
    own.over = Promise.allSettled([before?.over, mine]).then(() => {
      own.before = undefined;
      if (this.#last.get(sessionId) === own) this.#last.delete(sessionId);
    });
    return mine;
  }
}

/** The oldest that is not sent. */
const unsent = (one: Setting | undefined): Promise<void> | undefined => one && (unsent(one.before) ?? one.unsent);
