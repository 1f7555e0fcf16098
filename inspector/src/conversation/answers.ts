import type { SessionEvent } from "sandbox-agent";
import type { Ask } from "../state/inbox.js";
import { forPerson, raisePermission } from "./raise.js";
import type { Transcript } from "./transcript.js";
import { askedCall, type PermissionParams } from "./updates.js";

/** A request of an agent to a person, as it stands in the log. */
export interface AskFrame {
  readonly id?: unknown;
  readonly method?: string;
  readonly params?: unknown;
}

const frameOf: Record<Ask["kind"], string> = { permission: "session/request_permission", question: "_sandboxagent/session/request_question", elicitation: "elicitation/create" };

/** The request of an ask that this page was sent. */
export const askFrame = (ask: Ask): AskFrame => ({ method: frameOf[ask.kind], params: ask.request });

/** What a session's newest events say of an answer that another client gave. */
export function answerIn(events: readonly SessionEvent[], ask: AskFrame, first: boolean): unknown {
  const same = JSON.stringify(keyOf(ask));
  const request = events.findLast((e) => e.direction === "agent" && (e.message as AskFrame).method === ask.method && JSON.stringify(keyOf(askOf(e.message as AskFrame, first))) === same);
  const id = (request?.message as AskFrame | undefined)?.id;
  const answer = request && events.find((e) => e.seq > request.seq && e.direction === "client" && (e.message as AskFrame).method === undefined && (e.message as AskFrame).id === id);
  return (answer?.message as { result?: unknown } | undefined)?.result;
}

const keyOf = ({ params }: AskFrame) => askedCall(params as PermissionParams, "") ?? (params as { questions?: unknown }).questions ?? (params as { message?: unknown }).message;

/** A request of an agent to a person, as version 2 has it. */
export const askOf = (frame: AskFrame, first: boolean): AskFrame => (first && frame.method === "session/request_permission" ? { ...frame, params: raisePermission(frame.params) } : frame);

export const isAsk = (method: string | undefined): boolean => method !== undefined && forPerson.has(method);

/** Shows that an agent asks something. */
export function showAsk(transcript: Transcript, ask: AskFrame, at: number): void {
  const call = ask.method === "session/request_permission" ? askedCall(ask.params as PermissionParams, transcript.session) : undefined;
  if (call !== undefined) transcript.asked(call, at);
}

/** Shows what was answered; undefined when nobody knows. It may be shown already as an event behind the one that asks. */
export function showAnswer(transcript: Transcript, ask: AskFrame, result: unknown, at: number, asked = Infinity): void {
  const note = (words: string) => {
    if (!transcript.hasAnswer(words, asked)) transcript.note("answer", words, undefined, at);
  };
  if (ask.method === "session/request_permission") {
    const { title, options } = ask.params as PermissionParams;
    const call = askedCall(ask.params as PermissionParams, transcript.session);
    const { outcome } = (result ?? {}) as { outcome?: { outcome?: string; optionId?: string } };
    const option = options.find((o) => o.optionId === outcome?.optionId);
    if (call !== undefined) transcript.answered(call, option && { kind: option.kind, name: option.name }, at);
    else if (option) note(`${title}: ${option.name}`);
    return;
  }
  const words = ask.method === "elicitation/create" ? formWords(result) : questionWords(ask.params, result);
  if (words !== undefined) note(words);
}

function questionWords(params: unknown, result: unknown): string | undefined {
  const { questions } = params as { questions: readonly { readonly question: string }[] };
  const { outcome, answers } = (result ?? {}) as { outcome?: string; answers?: readonly (readonly string[])[] };
  if (outcome === undefined) return undefined;
  if (outcome !== "answered") return `Not answered: ${questions.map((q) => q.question).join(" ")}`;
  return questions.map((q, i) => `${q.question} ${(answers?.[i] ?? []).join(", ")}`).join(" \u00b7 ");
}

function formWords(result: unknown): string | undefined {
  const { action, content } = (result ?? {}) as { action?: string; content?: Record<string, unknown> };
  if (action === undefined) return undefined;
  if (action !== "accept") return action === "decline" ? "The form was declined" : "The form was cancelled";
  const filled = Object.entries(content ?? {}).map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`);
  return filled.length > 0 ? `Sent: ${filled.join(" \u00b7 ")}` : "Accepted";
}
