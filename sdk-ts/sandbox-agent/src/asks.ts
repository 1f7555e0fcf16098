import type { Answer, PermissionHandler, QuestionHandler, QuestionRequest, QuestionResponse } from "./extensions.js";
import { metaOf } from "./meta.js";
import type { Acp, AcpVersion } from "./versions.js";

type ElicitationHandler<V extends AcpVersion> = (request: Acp<V, "CreateElicitationRequest">, context: { signal: AbortSignal }) => Promise<Acp<V, "CreateElicitationResponse">>;

/** Asks that are remembered, those without an answer included. */
const maxKept = 1024;

/** A request that a handler has been given. */
interface Asked {
  readonly key: string;
  readonly sessionId: string; // of a subagent the one that it is in
  readonly seq: unknown;
  readonly answer: Promise<unknown>;
  readonly controller: AbortController;
  kept?: boolean; // its answer is, which may not have arrived
}

/**
 * What agents ask the user. A request that nobody here answers stays open: another
 * client may answer it, or a handler that is set later. One that is asked again on a
 * new connection is not shown again.
 */
export class Asks<V extends AcpVersion> {
  #permission: PermissionHandler<V> | undefined;
  #question: QuestionHandler | undefined;
  #waiting = new Set<() => void>(); // asks without a handler
  #running = new Map<string, Asked>();
  #unnumbered = 0; // requests without a place in their session's log

  onPermission(handler: PermissionHandler<V>): () => void {
    this.#permission = handler;
    this.#retry();
    return () => {
      if (this.#permission === handler) this.#permission = undefined;
    };
  }

  onQuestion(handler: QuestionHandler): () => void {
    this.#question = handler;
    this.#retry();
    return () => {
      if (this.#question === handler) this.#question = undefined;
    };
  }

  /** What handlers were given for a session, or for all. */
  asked(sessionId?: string): Asked[] {
    return [...this.#running.values()].filter((one) => one.sessionId === (sessionId ?? one.sessionId));
  }

  /** Tells handlers that nobody waits for their answer any more. */
  end(asked: Iterable<Asked>): void {
    for (const one of asked) {
      this.#drop(one);
      one.controller.abort();
    }
  }

  #drop(one: Asked): void {
    if (this.#running.get(one.key) === one) this.#running.delete(one.key);
  }

  #forgetOld(): void {
    for (const key of this.#running.keys()) {
      if (this.#running.size <= maxKept) return;
      this.#running.delete(key);
    }
  }

  #retry(): void {
    for (const go of [...this.#waiting]) go();
  }

  permission(request: Acp<V, "RequestPermissionRequest">, signal: AbortSignal, closing: () => boolean): Promise<Acp<V, "RequestPermissionResponse">> {
    type Response = Acp<V, "RequestPermissionResponse">;
    const cancelled = { outcome: { outcome: "cancelled" } } as Response;
    return this.#ask(request, signal, closing, cancelled, async (inner) => {
      const answer = await this.#permission?.(request, { signal: inner });
      return typeof answer === "string" ? { outcome: { outcome: "selected", optionId: answer } } as Response : answer;
    });
  }

  question(request: QuestionRequest, signal: AbortSignal, closing: () => boolean): Promise<QuestionResponse> {
    return this.#ask(request, signal, closing, { outcome: "cancelled", answers: [] }, async (inner) => this.#question?.(request, { signal: inner }));
  }

  /** A form, which the client takes from its beginning. */
  elicitation(request: Acp<V, "CreateElicitationRequest">, signal: AbortSignal, closing: () => boolean, handler: ElicitationHandler<V>): Promise<Acp<V, "CreateElicitationResponse">> {
    type Response = Acp<V, "CreateElicitationResponse">;
    return this.#ask(request as { sessionId?: string }, signal, closing, { action: "cancel" } as Response, (inner) => handler(request, { signal: inner }));
  }

  /** A form can be asked outside of sessions. */
  async #ask<T>(request: { sessionId?: string }, signal: AbortSignal, closing: () => boolean, cancelled: T, run: (signal: AbortSignal) => Promise<Answer<T>>): Promise<T> {
    const { seq, rootSessionId } = metaOf(request);
    const sessionId = String(rootSessionId ?? request.sessionId ?? "");
    const key = `${sessionId} ${seq === undefined ? `without ${++this.#unnumbered}` : String(seq)}`;
    const aborted = new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
    for (;;) {
      let mine = this.#running.get(key);
      if (mine === undefined) {
        const controller = new AbortController();
        const own: Asked = (mine = { key, sessionId, seq, answer: run(controller.signal), controller });
        this.#running.set(key, own);
        // An answer is kept: if the connection breaks before it arrives, it is asked for again.
        own.answer.then((answer) => {
          if ((own.kept = answer !== undefined && seq !== undefined)) this.#forgetOld();
          else this.#drop(own);
        }, () => this.#drop(own));
      }
      const over = mine.controller.signal;
      const answer = (await Promise.race([mine.answer, aborted]).catch((error: unknown) => {
        if (!over.aborted) throw error;
      })) as T | undefined;
      if (over.aborted) await aborted; // what a handler says that was told to stop is no answer
      if (signal.aborted) {
        // With the connection gone it may be asked again, which the client finds out; otherwise it is over.
        if (seq === undefined || !closing()) this.end([mine]);
        return cancelled;
      }
      if (answer !== undefined) return answer;
      await new Promise<void>((resolve) => {
        const go = () => {
          this.#waiting.delete(go);
          resolve();
        };
        this.#waiting.add(go);
        void aborted.then(go);
      });
      if (signal.aborted) return cancelled;
    }
  }
}
