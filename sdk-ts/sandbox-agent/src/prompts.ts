import type { PromptResponse, SessionUpdate } from "@agentclientprotocol/sdk/unstable";
import type { components } from "./api.gen.js";
import { AcpRpcError, TurnInterruptedError } from "./errors.js";
import { TURN_ENDED } from "./extensions.js";
import { metaOf } from "./meta.js";
import { Turn } from "./turn.js";

/** How a turn ended that was not asked for on this connection. */
export interface TurnEnded {
  readonly sessionId: string;
  readonly promptId?: string;
  readonly result?: PromptResponse;
  readonly error?: { readonly code: number; readonly message: string; readonly data?: unknown };
}

type EventPage = components["schemas"]["EventPage"];

/** What a prompt needs of its client. */
interface Wire {
  /** Responses come beside the updates: only one prompt of a session at a time tells whose they are. */
  readonly oneByOne: boolean;
  /** The newest event of the session before the prompt. */
  readonly startAfter: number;
  /** The newest event of the session so far. */
  after(): number;
  send(promptId: string): Promise<{ response: PromptResponse } | { lost: true }>;
  /** Resolves when there is a connection again, rejects when there will be none. */
  connected(): Promise<void>;
  /** Resolves when the present connection is lost. */
  lost(): Promise<void>;
  state(): Promise<components["schemas"]["Session"]["state"]>;
  events(after: number): Promise<EventPage>;
}

interface Prompt {
  readonly id: string;
  readonly sessionId: string;
  readonly turn: Turn;
  done: boolean;
  outcome: TurnEnded | undefined; // told on a later connection than it was asked on
  tell: () => void; // wakes who waits for outcome
}

/** The prompts on their way, also across connections. */
export class Prompts {
  readonly #open = new Map<string, Prompt>();
  readonly #order = new Map<string, Prompt[]>(); // by session, oldest first
  readonly #prefix = crypto.randomUUID();
  #count = 0;

  add(sessionId: string, cancel: () => Promise<void>, wire: Wire): Turn {
    const prompt: Prompt = { id: `${this.#prefix}-${++this.#count}`, sessionId, turn: new Turn(sessionId, cancel), done: false, outcome: undefined, tell: () => {} };
    this.#open.set(prompt.id, prompt);
    const queue = this.#order.get(sessionId) ?? [];
    queue.push(prompt);
    this.#order.set(sessionId, queue);
    const before = wire.oneByOne ? queue.at(-2) : undefined;
    void this.#run(prompt, wire, before).then(
      (response) => this.#finish(prompt, () => prompt.turn.end(response)),
      (error: unknown) => this.#finish(prompt, () => prompt.turn.fail(error)),
    );
    return prompt.turn;
  }

  #finish(prompt: Prompt, end: () => void): void {
    if (prompt.done) return;
    prompt.done = true;
    this.#open.delete(prompt.id);
    this.#leaveOrder(prompt);
    end();
    prompt.tell();
  }

  #leaveOrder(prompt: Prompt): void {
    const queue = this.#order.get(prompt.sessionId)?.filter((p) => p !== prompt) ?? [];
    if (queue.length > 0) this.#order.set(prompt.sessionId, queue);
    else this.#order.delete(prompt.sessionId);
  }

  /** The response is here, if not yet handed on: updates are the next prompt's. */
  answered(promptId: string): void {
    const prompt = this.#open.get(promptId);
    if (prompt) this.#leaveOrder(prompt);
  }

  /** Gives an update to the session's oldest prompt. */
  update(sessionId: string, update: SessionUpdate): void {
    this.#order.get(sessionId)?.[0]?.turn.push(update);
  }

  /** Takes the end of a turn that was asked for on an earlier connection; false when it is somebody else's. */
  ended(ended: TurnEnded): boolean {
    const prompt = ended.promptId === undefined ? undefined : this.#open.get(ended.promptId);
    if (prompt === undefined) return false;
    prompt.outcome = ended;
    this.#leaveOrder(prompt);
    prompt.tell();
    return true;
  }

  failAll(error: Error): void {
    for (const prompt of [...this.#open.values()]) this.#finish(prompt, () => prompt.turn.fail(error));
  }

  failOf(sessionId: string, error: Error): void {
    for (const prompt of [...(this.#order.get(sessionId) ?? [])]) this.#finish(prompt, () => prompt.turn.fail(error));
  }

  async #run(prompt: Prompt, wire: Wire, before: Prompt | undefined): Promise<PromptResponse> {
    await before?.turn.then(() => {}, () => {});
    for (;;) {
      const sent = await wire.send(prompt.id);
      if ("response" in sent) return sent.response;
      const found = await this.#afterLoss(prompt, wire);
      if (found !== "send again") return settle(found);
    }
  }

  /** Finds out, on a later connection, what became of the prompt. */
  async #afterLoss(prompt: Prompt, wire: Wire): Promise<TurnEnded | "send again"> {
    for (;;) {
      await wire.connected();
      const lost = wire.lost().catch(() => {});
      const look = (async () => {
        if (prompt.outcome) return prompt.outcome;
        const state = await wire.state();
        const found = await findPrompt(prompt.id, wire);
        // What the stream has not brought yet it will bring, behind the turn's updates.
        if (found.ended && found.seq <= wire.after()) return found.ended;
        if (!found.received) return "send again" as const;
        if (found.ended || state === "running" || state === "waiting") {
          while (!prompt.outcome && !prompt.done) await new Promise<void>((resolve) => (prompt.tell = resolve));
          return prompt.outcome;
        }
        throw new TurnInterruptedError(prompt.sessionId);
      })();
      const verdict = await Promise.race([look, lost.then(() => "lost" as const)]).catch(async (error: unknown) => {
        if (error instanceof TurnInterruptedError || prompt.done) throw error;
        // The gateway could not be asked: with the next connection it can.
        await lost;
        return "lost" as const;
      });
      if (verdict === undefined) throw new TurnInterruptedError(prompt.sessionId);
      if (verdict !== "lost") return verdict;
    }
  }
}

/** Looks for the prompt, and its end, in the session's events. */
async function findPrompt(id: string, wire: Wire): Promise<{ received: boolean; ended?: TurnEnded; seq: number }> {
  let received = false;
  for (let after = wire.startAfter; ; ) {
    const page = await wire.events(after);
    for (const event of page.events) {
      after = event.seq;
      const message = event.message as { method?: string; params?: unknown } | undefined;
      if (message?.method === "session/prompt" && metaOf(message.params).promptId === id) received = true;
      if (message?.method === TURN_ENDED) {
        const ended = message.params as TurnEnded;
        if (ended.promptId === id) return { received: true, ended, seq: event.seq };
      }
    }
    if (!page.hasMore) return { received, seq: 0 };
  }
}

function settle(ended: TurnEnded): PromptResponse {
  if (ended.result) return ended.result;
  const { code, message, data } = ended.error ?? { code: -32603, message: "the turn ended without a result", data: undefined };
  throw new AcpRpcError(code, message, data);
}
