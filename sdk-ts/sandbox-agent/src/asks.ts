import type { Answer, PermissionHandler, QuestionHandler, QuestionRequest, QuestionResponse } from "./extensions.js";
import { metaOf } from "./meta.js";
import type { Acp, AcpVersion } from "./versions.js";

/** Asks that are remembered, those without an answer included. */
const maxKept = 1024;

/**
 * What agents ask the user. A request that nobody here answers stays open: another
 * client may answer it, or a handler that is set later. One that is asked again on a
 * new connection is not shown again.
 */
export class Asks<V extends AcpVersion> {
  #permission: PermissionHandler<V> | undefined;
  #question: QuestionHandler | undefined;
  #waiting = new Set<() => void>(); // asks without a handler
  #running = new Map<string, { answer: Promise<unknown>; controller: AbortController }>();

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

  async #ask<T>(request: { sessionId: string }, signal: AbortSignal, closing: () => boolean, cancelled: T, run: (signal: AbortSignal) => Promise<Answer<T>>): Promise<T> {
    const seq = metaOf(request).seq;
    const key = `${request.sessionId} ${String(seq)}`;
    const aborted = new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
    for (;;) {
      let mine = seq === undefined ? undefined : this.#running.get(key);
      if (mine === undefined) {
        const controller = new AbortController();
        mine = { answer: run(controller.signal), controller };
        const own = mine;
        if (seq !== undefined) {
          this.#running.set(key, own);
          const drop = () => {
            if (this.#running.get(key) === own) this.#running.delete(key);
          };
          // An answer is kept: if the connection breaks before it arrives, it is asked for again.
          own.answer.then((answer) => (answer === undefined ? drop() : this.#forgetOld()), drop);
        }
      }
      const answer = (await Promise.race([mine.answer, aborted])) as T | undefined;
      if (signal.aborted) {
        // With the connection gone it will be asked again; otherwise it is over.
        if (!closing()) mine.controller.abort();
        return cancelled;
      }
      if (answer !== undefined) return answer;
      await Promise.race([new Promise<void>((resolve) => {
        const go = () => {
          this.#waiting.delete(go);
          resolve();
        };
        this.#waiting.add(go);
        void aborted.then(go);
      })]);
      if (signal.aborted) return cancelled;
    }
  }
}
