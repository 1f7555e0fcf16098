// Version 1 of ACP, brought into version 2: the page shows what comes in that form, and
// gateways that speak version 1 only are understood, too. The gateway does the same for
// clients of version 2, with more care: acp/version.
import { META, type ContentBlock, type SessionEvent } from "sandbox-agent";
import { ownOf, type Background, type Call, type PermissionParams, type Update } from "./updates.js";

/** An update, and the session or the subagent whose it is. */
export interface Told {
  readonly sessionId: string;
  readonly update: Update;
}

interface Failure {
  readonly message?: string;
  readonly code?: number;
}

/** How a turn ended, as version 1 says it. */
export interface Ending {
  readonly result?: { readonly stopReason?: string; readonly usage?: Update["usage"] };
  readonly error?: Failure;
}

interface Modes {
  readonly currentModeId: string;
  readonly availableModes: readonly { readonly id: string; readonly name: string; readonly description?: string | null }[];
}

/** The option that stands for the modes of an agent that has no option for them. */
export const modeOption = "mode";

/** The options of a session, with its modes as one of them. */
export function raiseOptions(options: readonly unknown[] | null | undefined, modes: Modes | null | undefined): unknown[] {
  const raised = (options ?? []).map((option) => {
    const { id, options: choices, ...rest } = option as { id?: string; options?: readonly Record<string, unknown>[] };
    return { configId: id, ...rest, ...(choices ? { options: choices } : {}) };
  });
  const covered = raised.some((o) => o.configId === modeOption || (o as { category?: unknown }).category === "mode");
  if (!modes || modes.availableModes.length === 0 || covered) return raised;
  return [{
    configId: modeOption, name: "Mode", category: "mode", type: "select", currentValue: modes.currentModeId,
    options: modes.availableModes.map(({ id, name, description }) => ({ value: id, name, description })),
  }, ...raised];
}

/** A permission that is asked for. */
export function raisePermission(params: unknown): PermissionParams {
  const { toolCall, ...rest } = params as { sessionId: string; toolCall?: Call; options: PermissionParams["options"] };
  return { title: toolCall?.title ?? "Permission is needed", ...rest, ...(toolCall ? { subject: { type: "tool_call", toolCall } } : {}) };
}

type Old = Record<string, unknown> & { readonly sessionUpdate: string; readonly content?: unknown; readonly messageId?: string | null; readonly toolCallId?: string; readonly status?: string | null; readonly _meta?: Record<string, unknown> | null };

/** Requests of agents that people answer. */
export const forPerson: ReadonlySet<string> = new Set(["session/request_permission", "_sandboxagent/session/request_question", "elicitation/create"]);

const roles: Record<string, string> = { user_message_chunk: "user_message", agent_message_chunk: "agent_message", agent_thought_chunk: "agent_thought" };

/** Calls of subagents that are known; a subagent of an older one is shown beside it. */
const maxHomes = 4096;

/** One session of version 1, from its events or as it happens. */
export class Raise {
  #role = ""; // of the message that is being written
  #messageId = ""; // its id, which was made here
  #made = 0;
  #echo = 0; // blocks of the prompt that follow as pieces of a message
  #working = false;
  #workingAt = 0; // the newest event that said so, or that it is over
  readonly #asks = new Set<unknown>(); // open requests that people answer
  readonly #prompts = new Set<unknown>(); // ids of requests
  readonly #calls = new Map<string, boolean>(); // open calls of the agent itself: whether they are in progress
  readonly #left = new Set<string>(); // those that go on though their turn is over
  readonly #children = new Map<string, string>(); // sessions of subagents, by their call
  readonly #homes = new Map<string, string>(); // the subagent that a call is of; the newest
  #options: readonly unknown[] | undefined;
  #modes: Modes | undefined;

  constructor(private readonly session: string) {}

  /** Whether the session has modes that are no option of the agent's own. */
  get hasMode(): boolean {
    return raiseOptions(this.#options, this.#modes).length > (this.#options?.length ?? 0);
  }

  /** Takes the answer that opens a session. It may come behind events that it does not know of: seq is the newest that it knows. */
  opened(result: { readonly configOptions?: readonly unknown[] | null | undefined; readonly modes?: Modes | null | undefined; readonly running: boolean; readonly seq?: number | undefined }): readonly Told[] {
    this.#options = result.configOptions ?? this.#options;
    this.#modes = result.modes ?? this.#modes;
    if (result.seq === undefined || result.seq >= this.#workingAt) this.#working = result.running;
    return [...this.#showOptions(), this.#state()];
  }

  /** Takes from another one what no event says: what was told to who attached, and what was asked since. */
  goesOnAs(before: Raise): void {
    this.#options = before.#options;
    this.#modes = before.#modes;
    this.#working = before.#working;
    this.#workingAt = before.#workingAt;
    this.#asks.clear();
    for (const id of before.#asks) this.#asks.add(id);
  }

  /** Takes options and modes from another one, where none were told here. */
  toldOnceAs(before: Raise): void {
    this.#options ??= before.#options;
    this.#modes ??= before.#modes;
  }

  /** Takes an event of the session's log. */
  event({ seq, direction, message }: Pick<SessionEvent, "seq" | "direction" | "message">): readonly Told[] {
    const { id, method, params, result, error } = message as unknown as { id?: unknown; method?: string; params?: Record<string, unknown>; result?: Ending["result"]; error?: Failure };
    switch (method) {
      case "session/update":
        return this.update(params?.update as Update | undefined, seq);
      case "session/prompt":
        this.#prompts.add(id);
        return this.#prompted((params?.prompt ?? []) as readonly ContentBlock[], seq);
      case "_sandboxagent/session/turn_ended":
        return (params as { began?: boolean }).began === false ? [] : this.ended(params as Ending, seq);
      case undefined:
        if (direction === "client") return this.answered(id);
        // The answer to a prompt; where it was told as turn_ended before, the turn is over already.
        return this.#prompts.delete(id) && this.#working ? this.ended({ ...(result ? { result } : {}), ...(error ? { error } : {}) }, seq) : [];
      default:
        return direction === "agent" && forPerson.has(method) ? this.asked(id) : [];
    }
  }

  #prompted(blocks: readonly ContentBlock[], seq: number): readonly Told[] {
    this.#role = "";
    this.#echo = blocks.length;
    return [this.#own({ sessionUpdate: "user_message", messageId: `v1.${seq}`, content: blocks }), ...this.begun(seq)];
  }

  /** A turn begins, with the event seq where it is known. */
  begun(seq?: number): readonly Told[] {
    this.#working = true;
    this.#workingAt = seq ?? this.#workingAt;
    this.#asks.clear();
    return [this.#state()];
  }

  /** A turn ends, with the event seq where it is known. */
  ended({ result, error }: Ending, seq?: number): readonly Told[] {
    this.#role = "";
    this.#echo = 0;
    this.#working = false;
    this.#workingAt = seq ?? this.#workingAt;
    this.#asks.clear();
    this.#left.clear();
    for (const [id, running] of this.#calls) if (running) this.#left.add(id);
    const { update } = this.#state();
    return [this.#own({ ...update, stopReason: error ? "error" : (result?.stopReason ?? "end_turn"), ...(error ? { error } : {}), ...(result?.usage ? { usage: result.usage } : {}) })];
  }

  /** The agent asks a person something. */
  asked(id: unknown): readonly Told[] {
    this.#asks.add(id);
    return this.#working ? [this.#state()] : [];
  }

  /** It was answered. */
  answered(id: unknown): readonly Told[] {
    return this.#asks.delete(id) && this.#working ? [this.#state()] : [];
  }

  /** Takes an update, as it happens or from an event. */
  update(given: Update | undefined, seq: number | undefined): readonly Told[] {
    if (!given) return [];
    const update = given as unknown as Old;
    switch (update.sessionUpdate) {
      case "user_message_chunk":
      case "agent_message_chunk":
      case "agent_thought_chunk":
        return this.#chunk(update, seq);
      case "tool_call":
      case "tool_call_update":
        return this.#call(update, seq);
      case "plan":
        return [this.#own({ sessionUpdate: "plan_update", plan: { type: "items", planId: "v1.plan", entries: update.entries as [] } })];
      case "current_mode_update":
        if (this.#modes) this.#modes = { ...this.#modes, currentModeId: String(update.currentModeId) };
        return this.#showOptions();
      case "config_option_update":
        this.#options = update.configOptions as unknown[];
        return this.#showOptions();
      default:
        return [this.#own(given)];
    }
  }

  #own(update: Update): Told {
    return { sessionId: this.session, update };
  }

  #state(): Told {
    const background = [...this.#left].map((id): Background => (this.#children.has(id) ? { type: "subagent", sessionId: this.#children.get(id)! } : { type: "tool_call", toolCallId: id }));
    return this.#own({ sessionUpdate: "state_update", state: !this.#working ? "idle" : this.#asks.size > 0 ? "requires_action" : "running", ...(background.length > 0 ? { background } : {}) });
  }

  #showOptions(): readonly Told[] {
    return this.#options || this.#modes ? [this.#own({ sessionUpdate: "config_option_update", configOptions: raiseOptions(this.#options, this.#modes) })] : [];
  }

  /** Pieces without an id that follow each other are one message. */
  #chunk(update: Old, seq: number | undefined): readonly Told[] {
    const role = roles[update.sessionUpdate]!;
    const told: Told[] = [];
    if (role === "user_message" && this.#echo > 0) {
      this.#echo--;
      return told; // of the prompt that was told of
    }
    const { parentToolCallId } = ownOf(update);
    const home = typeof parentToolCallId === "string" ? this.#childOf(parentToolCallId, told) : this.session;
    if (update.messageId) this.#role = "";
    else if (this.#role !== `${home} ${role}`) {
      this.#role = `${home} ${role}`;
      this.#messageId = `v1.${seq ?? `own.${this.#made++}`}`;
      if (role === "user_message" && !this.#working) told.push(...this.begun(seq));
    }
    told.push({ sessionId: home, update: { ...(update as unknown as Update), messageId: update.messageId ?? this.#messageId } });
    return told;
  }

  /** The session of the subagent that a call shows, which is announced when it is new. */
  #childOf(call: string, told: Told[], title?: unknown): string {
    const known = this.#children.get(call);
    if (known !== undefined) return known;
    const id = `${this.session}.${call}`;
    this.#children.set(call, id);
    const update: Update = { sessionUpdate: "subagent_update", sessionId: id, ...(typeof title === "string" ? { title } : {}), _meta: { [META]: { toolCallId: call } } };
    told.push({ sessionId: this.#homes.get(call) ?? this.session, update });
    return id;
  }

  #call(update: Old, seq: number | undefined): readonly Told[] {
    const told: Told[] = [];
    const id = String(update.toolCallId);
    const { parentToolCallId, said } = ownOf(update) as { parentToolCallId?: unknown; said?: { text?: unknown; messageId?: unknown; thought?: unknown } };
    // Later words about a call need not say whose it is.
    const home = typeof parentToolCallId === "string" && parentToolCallId !== id ? this.#childOf(parentToolCallId, told) : (this.#homes.get(id) ?? this.session);
    if (home !== this.session) this.#homes.set(id, home);
    for (const oldest of this.#homes.keys()) {
      if (this.#homes.size <= maxHomes) break;
      this.#homes.delete(oldest);
    }
    if (update.sessionUpdate === "tool_call" && home === this.session) this.#role = "";
    const words = typeof said?.text === "string" ? said : undefined;
    const fields = Object.fromEntries(Object.entries(update).filter(([name, value]) => value !== null && !(words && name === "content"))) as unknown as Update;
    if (home === this.session) this.#noteCall(id, update.status ?? undefined);
    told.push({ sessionId: home, update: { ...fields, sessionUpdate: "tool_call_update" } });
    if (words) {
      const child = this.#childOf(id, told, update.title);
      told.push({ sessionId: child, update: {
        sessionUpdate: words.thought === true ? "agent_thought_chunk" : "agent_message_chunk", content: { type: "text", text: words.text },
        ...(typeof words.messageId === "string" ? { messageId: words.messageId } : { messageId: `v1.${seq ?? `own.${this.#made++}`}` }),
      } });
    }
    if (this.#left.has(id) && !this.#calls.has(id)) {
      this.#left.delete(id);
      told.push(this.#state());
    }
    return told;
  }

  #noteCall(id: string, status: string | undefined): void {
    if (status === "completed" || status === "failed") this.#calls.delete(id);
    else if (status === "in_progress") this.#calls.set(id, true);
    else if (!this.#calls.has(id)) this.#calls.set(id, false);
  }
}

