import type { PromptResponse, SessionEvent, SessionUpdate } from "sandbox-agent";
import { isAsk, showAnswer, showAsk, type AskFrame } from "./answers.js";
import type { Transcript } from "./transcript.js";

interface Frame {
  readonly id?: unknown;
  readonly method?: string;
  readonly params?: { readonly update?: SessionUpdate; readonly result?: PromptResponse; readonly error?: { message: string; code?: number }; readonly data?: { reason?: string; message?: string; stderr?: { tail?: string } } };
  readonly result?: { readonly stopReason?: string };
  readonly error?: { readonly message: string; readonly code?: number };
}

/**
 * Shows a session's events in a transcript. The log has both what clients sent and
 * what the gateway makes of it for the others; a prompt is shown once.
 */
export class History {
  readonly #prompts = new Set<unknown>(); // ids of requests that are prompts
  readonly #asks = new Map<unknown, AskFrame>(); // requests of the agent that nobody has answered

  constructor(private readonly transcript: Transcript) {}

  add(event: SessionEvent): void {
    const frame = event.message as Frame;
    const at = Date.parse(event.time);
    this.transcript.place = event.seq;
    switch (frame.method) {
      case "session/update":
        if (frame.params?.update) this.transcript.apply(frame.params.update, at);
        return;
      case "session/prompt":
        this.#prompts.add(frame.id);
        this.transcript.boundary();
        return;
      case "_sandboxagent/session/turn_ended":
        this.transcript.endTurn({ ...(frame.params?.result ? { result: frame.params.result } : {}), ...(frame.params?.error ? { error: frame.params.error } : {}) }, at);
        return;
      case "_sandboxagent/session/ended":
        noteEnd(this.transcript, frame.params?.data, at);
        return;
      case undefined:
        if (event.direction === "client") {
          const ask = this.#asks.get(frame.id);
          if (!ask || !this.#asks.delete(frame.id)) return;
          showAnswer(this.transcript, ask, frame.result, at);
          return;
        }
        // The answer to a prompt; where it was told as turn_ended before, the turn is over already.
        if (!this.#prompts.delete(frame.id)) return;
        this.transcript.endTurn({ ...(frame.result?.stopReason ? { result: frame.result as PromptResponse } : {}), ...(frame.error ? { error: frame.error } : {}) }, at);
        return;
      default:
        if (event.direction !== "agent" || !isAsk(frame.method)) return;
        this.#asks.set(frame.id, frame as AskFrame);
        showAsk(this.transcript, frame as AskFrame, at);
    }
  }
}

/** Says that a session's agent ended, and what it wrote last. */
export function noteEnd(transcript: Transcript, data: { reason?: string; message?: string; stderr?: { tail?: string } } | undefined, at: number): void {
  const tail = data?.stderr?.tail?.trim();
  const detail = [data?.message, tail].filter((text) => text !== undefined && text !== "").join("\n\n");
  const calm = data?.reason === "closed" || data?.reason === "terminated" || data?.reason === "idle";
  transcript.note(calm ? "info" : "warn", calm ? "The agent's process ended" : `The agent's process ended: ${(data?.reason ?? "no reason given").replaceAll("_", " ")}`, detail === "" ? undefined : detail, at);
}

/** The index of the first event of a conversation part that begins with a prompt; 0 where there is none. */
export function firstPrompt(events: readonly SessionEvent[]): number {
  const at = events.findIndex((e) => e.direction === "client" && (e.message as Frame).method === "session/prompt");
  return Math.max(0, at);
}
