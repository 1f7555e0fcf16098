import type { PromptResponse, SessionUpdate, StopReason } from "@agentclientprotocol/sdk/unstable";

/** How a turn ended. */
export interface TurnResult {
  readonly stopReason: StopReason;
  /** What the agent said in the turn, without its thoughts. */
  readonly text: string;
  /** Tokens, when the agent tells. */
  readonly usage: PromptResponse["usage"];
  /** The agent's own response. */
  readonly response: PromptResponse;
}

/** Updates kept for an iterator that is slow or has not begun. */
const maxKept = 100_000;

/**
 * One prompt on its way. Await it for the result, iterate it for the updates, or both.
 *
 * ```ts
 * const turn = session.prompt("hello");
 * for await (const update of turn) console.log(update.sessionUpdate);
 * const { stopReason, text } = await turn;
 * ```
 */
export class Turn implements PromiseLike<TurnResult>, AsyncIterable<SessionUpdate> {
  readonly #result: Promise<TurnResult>;
  #resolve!: (result: TurnResult) => void;
  #reject!: (error: unknown) => void;
  #updates: SessionUpdate[] = [];
  #missed = false;
  #text = "";
  #done = false;
  #error: unknown;
  #wake: (() => void) | undefined;

  constructor(readonly sessionId: string, private readonly onCancel: () => Promise<void>) {
    this.#result = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.#result.catch(() => {}); // who iterates is told by the iterator
  }

  then<A = TurnResult, B = never>(
    onFulfilled?: ((value: TurnResult) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#result.then(onFulfilled, onRejected);
  }

  /** Asks the agent to end the turn; the result's stop reason is then `cancelled`. */
  cancel(): Promise<void> {
    return this.onCancel();
  }

  /** The turn's updates, once: they are not kept for a second iteration. */
  async *[Symbol.asyncIterator](): AsyncGenerator<SessionUpdate, void, undefined> {
    for (;;) {
      const batch = this.#updates;
      this.#updates = [];
      yield* batch;
      if (this.#updates.length > 0) continue;
      if (this.#missed) throw new Error(`more than ${maxKept} updates waited to be read: the rest is in the session's events`);
      if (this.#done) {
        if (this.#error !== undefined) throw this.#error;
        return;
      }
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  /** @internal */
  push(update: SessionUpdate): void {
    if (update.sessionUpdate === "agent_message_chunk" && update.content.type === "text") this.#text += update.content.text;
    if (this.#updates.length >= maxKept) this.#missed = true;
    else if (!this.#missed) this.#updates.push(update);
    this.#wake?.();
  }

  /** @internal */
  end(response: PromptResponse): void {
    this.#done = true;
    this.#resolve({ stopReason: response.stopReason, text: this.#text, usage: response.usage, response });
    this.#wake?.();
  }

  /** @internal */
  fail(error: unknown): void {
    this.#done = true;
    this.#error = error;
    this.#reject(error);
    this.#wake?.();
  }
}
