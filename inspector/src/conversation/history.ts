import type { SessionEvent } from "sandbox-agent";
import { askOf, isAsk, showAnswer, showAsk, type AskFrame } from "./answers.js";
import type { Raise } from "./raise.js";
import type { Transcript } from "./transcript.js";
import type { Update } from "./updates.js";

interface Frame {
  readonly id?: unknown;
  readonly method?: string;
  readonly params?: { readonly sessionId?: string; readonly update?: Update; readonly data?: { reason?: string; message?: string; stderr?: { tail?: string } } };
  readonly result?: unknown;
}

/** Shows a session's events in a transcript. Those of version 1 are brought into version 2 first. */
export class History {
  readonly #asks = new Map<unknown, AskFrame>(); // requests of the agent that nobody has answered

  constructor(private readonly transcript: Transcript, private readonly raise: Raise | undefined) {}

  add(event: SessionEvent): void {
    const frame = event.message as Frame;
    const at = Date.parse(event.time);
    this.transcript.place = event.seq;
    if (this.raise) for (const { sessionId, update } of this.raise.event(event)) this.transcript.apply(update, at, sessionId);
    else if (frame.method === "session/update" && frame.params?.update) this.transcript.apply(frame.params.update, at, frame.params.sessionId);
    if (frame.method === "_sandboxagent/session/ended") return noteEnd(this.transcript, frame.params?.data, at);
    if (frame.method === undefined && event.direction === "client") {
      const ask = this.#asks.get(frame.id);
      if (ask && this.#asks.delete(frame.id)) showAnswer(this.transcript, ask, frame.result, at);
    } else if (event.direction === "agent" && isAsk(frame.method)) {
      const ask = askOf(frame, this.raise !== undefined);
      this.#asks.set(frame.id, ask);
      showAsk(this.transcript, ask, at);
    }
  }
}

/** Says that a session's agent ended, and what it wrote last. */
export function noteEnd(transcript: Transcript, data: { reason?: string; message?: string; stderr?: { tail?: string } } | undefined, at: number): void {
  if (data?.reason === "deleted") return transcript.note("warn", "The session was deleted", undefined, at);
  if (data?.reason === "moved") return transcript.note("info", `The session was moved${data.message === undefined ? "" : `: ${data.message}`}`, undefined, at);
  if (data?.reason === "closed") return transcript.note("info", "The session was closed", undefined, at);
  const tail = data?.stderr?.tail?.trim();
  const detail = [data?.message, tail].filter((text) => text !== undefined && text !== "").join("\n\n");
  const calm = data?.reason === "terminated" || data?.reason === "idle";
  transcript.note(calm ? "info" : "warn", calm ? "The agent's process ended" : `The agent's process ended: ${(data?.reason ?? "no reason given").replaceAll("_", " ")}`, detail === "" ? undefined : detail, at);
}

/** The index of the first event of a conversation part that begins with a prompt; 0 where there is none. */
export function firstPrompt(events: readonly SessionEvent[]): number {
  return Math.max(0, events.findIndex(isPrompt));
}

export const isPrompt = (e: SessionEvent): boolean => e.direction === "client" && (e.message as Frame).method === "session/prompt";
