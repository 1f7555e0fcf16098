import type { Acp, AcpVersion } from "./versions.js";

/** How a turn ended. */
export interface TurnResult<V extends AcpVersion = 1> {
  readonly stopReason: Acp<V, "StopReason">;
  /** What the agent said in the turn, without its thoughts. */
  readonly text: string;
  /** Tokens, when the agent tells. */
  readonly usage: Acp<V, "Usage">;
  /** The agent's own response. */
  readonly response: Acp<V, "PromptResponse">;
}

/** What a turn is ended with. */
export interface TurnEnd {
  readonly stopReason: string;
  readonly usage?: unknown;
  readonly response: unknown;
}

/** Updates kept for an iterator that is slow or has not begun. */
export const maxKept = 100_000;

/**
 * One prompt on its way. Await it for the result, iterate it for the updates, or both.
 *
 * ```ts
 * const turn = session.prompt("hello");
 * for await (const update of turn) console.log(update.sessionUpdate);
 * const { stopReason, text } = await turn;
 * ```
 */
export class Turn<V extends AcpVersion = 1> implements PromiseLike<TurnResult<V>>, AsyncIterable<Acp<V, "SessionUpdate">> {
  readonly #result: Promise<TurnResult<V>>;
  #resolve!: (result: TurnResult<V>) => void;
  #reject!: (error: unknown) => void;
  #updates: Acp<V, "SessionUpdate">[] = [];
  #missed = false;
  readonly #said = new Map<string, string>(); // by message; version 1 tells none apart
  /** @internal */
  done = false;
  #error: unknown;
  #waiting: (() => void)[] = []; // who iterates

  constructor(private readonly version: V, readonly sessionId: string, private readonly onCancel: () => Promise<void>) {
    this.#result = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    this.#result.catch(() => {}); // who iterates is told by the iterator
  }

  then<A = TurnResult<V>, B = never>(
    onFulfilled?: ((value: TurnResult<V>) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#result.then(onFulfilled, onRejected);
  }

  /** As of a promise: for those who start a turn and go on. */
  catch<B = never>(onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<TurnResult<V> | B> {
    return this.#result.catch(onRejected);
  }

  /** As of a promise. */
  finally(onFinally?: (() => void) | null): Promise<TurnResult<V>> {
    return this.#result.finally(onFinally);
  }

  /**
   * Asks the agent to end the turn, with those of this client that wait behind it; the result's stop reason is then `cancelled`. One that
   * it waits for goes on. A prompt that was not sent yet is not sent any more. Of a turn that is over nothing is ended.
   */
  async cancel(): Promise<void> {
    if (!this.done) await this.onCancel();
  }

  /** The turn's updates, once: they are not kept for a second iteration. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Acp<V, "SessionUpdate">, void, undefined> {
    for (;;) {
      const batch = this.#updates;
      this.#updates = [];
      yield* batch;
      if (this.#updates.length > 0) continue;
      if (this.#missed) throw new Error(`more than ${maxKept} updates waited to be read: the rest is in the session's events`);
      if (this.done) {
        if (this.#error !== undefined) throw this.#error;
        return;
      }
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  /** @internal */
  push(update: Acp<V, "SessionUpdate">): void {
    this.#hear(update as Spoken);
    if (this.#updates.length >= maxKept) this.#missed = true;
    else if (!this.#missed) this.#updates.push(update);
    this.#wake();
  }

  /** @internal */
  end({ stopReason, usage, response }: TurnEnd): void {
    this.done = true;
    this.#resolve({ stopReason, text: [...this.#said.values()].join(""), usage, response } as TurnResult<V>);
    this.#wake();
  }

  #hear({ sessionUpdate, messageId, content }: Spoken): void {
    if (sessionUpdate !== "agent_message_chunk" && sessionUpdate !== "agent_message") return;
    const message = this.version === 1 ? "" : (messageId ?? "");
    const blocks = Array.isArray(content) ? content : content ? [content] : [];
    const text = blocks.map((block) => (block?.type === "text" ? block.text ?? "" : "")).join("");
    if (sessionUpdate === "agent_message_chunk") this.#said.set(message, (this.#said.get(message) ?? "") + text);
    else if (content !== undefined) this.#said.set(message, text); // all that there is of it
  }

  #wake(): void {
    for (const go of this.#waiting.splice(0)) go();
  }

  /** @internal */
  fail(error: unknown): void {
    this.done = true;
    this.#error = error;
    this.#reject(error);
    this.#wake();
  }
}

/** An update of either version, as far as it says what the agent says. */
interface Spoken {
  readonly sessionUpdate: string;
  readonly messageId?: string | null;
  readonly content?: Block | readonly (Block | null)[] | null; // of agents that keep to the protocol none is null
}

interface Block {
  readonly type: string;
  readonly text?: string;
}
