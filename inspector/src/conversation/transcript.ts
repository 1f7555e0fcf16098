import { META, type ContentBlock, type PromptResponse, type SessionUpdate, type ToolCall, type ToolCallUpdate } from "sandbox-agent";
import type { Asked, ChildItem, Item, NoteItem, PlanItem, Row, TextItem, ToolContent, ToolItem, ToolStatus } from "./items.js";
import { count } from "../kit/text.js";
import { Segments } from "./segments.js";

export interface Command {
  readonly name: string;
  readonly description: string;
  readonly hint: string | undefined;
}

export interface Usage {
  readonly used: number;
  readonly size: number;
  readonly cost: { readonly amount: number; readonly currency: string } | undefined;
}

/** How a turn ended. */
export interface TurnOutcome {
  readonly result?: PromptResponse;
  readonly error?: { readonly message: string; readonly code?: number | undefined };
}

type Update = SessionUpdate & { _meta?: Record<string, unknown> | null };

/**
 * A conversation as rows to show. It takes updates one after the other; each costs
 * time that does not depend on how many there were before. It knows no protocol
 * but the updates, and nothing of connections.
 */
export class Transcript {
  /** Grows at its end; a row in it is replaced when it changes. */
  readonly rows: Row[] = [];
  usage: Usage | undefined;
  commands: readonly Command[] = [];
  modeId: string | undefined;
  configOptions: readonly unknown[] | undefined;
  title: string | undefined;
  /** How often the agent was started anew and had forgotten what was said before. */
  forgot = 0;
  /** Updates taken so far. */
  updates = 0;
  /** Where in the session's log what is taken next stands: rows keep their keys when they are made anew. */
  place: number | undefined;
  #tools = new Map<string, { item: ToolItem; row: number }>(); // row of the outermost call
  readonly #asked = new Map<string, Asked>(); // by tool call, which may come later
  #last: Item | undefined;
  #lastRow = -1; // of the last item's first row
  #plan: { item: PlanItem; row: number } | undefined; // of this turn
  readonly #compactions = new Map<string, { item: NoteItem; row: number; summary: string }>(); // that have not ended
  readonly #running = new Set<string>(); // calls of the agent itself that are in progress
  readonly #left = new Set<string>(); // those of them whose turn is over
  #turnBegan: number | undefined;
  #made = 0;

  /** What goes on though the turn that began it is over; another list whenever it changes. */
  background: readonly ToolItem[] = [];

  get empty(): boolean {
    return this.rows.length === 0;
  }

  /** Whether a turn was begun whose end has not come. */
  get turnOpen(): boolean {
    return this.#turnBegan !== undefined;
  }

  apply(update: Update, at: number): void {
    this.updates++;
    switch (update.sessionUpdate) {
      case "user_message_chunk":
        return this.#user(update.content, at);
      case "agent_message_chunk":
        return this.#text("text", update.content, update.messageId ?? undefined, at, parentOf(update));
      case "agent_thought_chunk":
        return this.#text("thought", update.content, update.messageId ?? undefined, at, parentOf(update));
      case "tool_call":
      case "tool_call_update":
        return this.#tool(update, at);
      case "plan":
        return this.#showPlan(update.entries, at);
      case "available_commands_update":
        this.commands = update.availableCommands.map((c) => ({ name: c.name, description: c.description, hint: c.input && "hint" in c.input ? String(c.input.hint) : undefined }));
        return;
      case "current_mode_update":
        this.modeId = update.currentModeId;
        return;
      case "config_option_update":
        this.configOptions = update.configOptions;
        return;
      case "session_info_update":
        if (typeof update.title === "string") this.title = update.title;
        if (ownOf(update).continuity === "fresh") {
          this.forgot++;
          this.note("warn", forgotten, undefined, at);
        }
        return;
      case "usage_update":
        this.usage = { used: update.used, size: update.size, cost: update.cost ?? undefined };
        return;
      default:
        return this.#other(update as { sessionUpdate: string }, at);
    }
  }

  /** A prompt of this page: the gateway does not tell who sent it. */
  prompt(blocks: readonly ContentBlock[], at: number): void {
    this.#beginTurn(at);
    this.#add({ kind: "user", key: this.#key("user"), at, blocks, unconfirmed: true });
  }

  /** The turn is over. A second word about the same end has no effect. */
  endTurn({ result, error }: TurnOutcome, at: number): void {
    if (this.#turnBegan === undefined) return;
    this.#settleLast();
    const tookMs = at >= this.#turnBegan ? at - this.#turnBegan : undefined;
    this.#turnBegan = undefined;
    this.#plan = undefined;
    for (const id of this.#running) this.#left.add(id);
    this.#showBackground();
    this.#add({ kind: "turn", key: this.#key("turn"), at, tookMs, stopReason: result?.stopReason, error: error?.message, code: error?.code, usage: result?.usage });
  }

  /** Another prompt begins, whatever the rows say. */
  boundary(): void {
    if (this.#last?.kind === "user") {
      this.#settleLast();
      this.#last = undefined;
    }
  }

  /** A permission is asked for; what is waited for it is no work of the tool. */
  asked(toolCallId: string, at: number): void {
    const before = this.#asked.get(toolCallId);
    this.#setAsked(toolCallId, { since: before?.since ?? at, waitedMs: before?.waitedMs ?? 0, answer: before?.answer });
  }

  /** The permission was given or refused; without an answer nobody knows which. */
  answered(toolCallId: string, answer: Asked["answer"], at: number): void {
    const before = this.#asked.get(toolCallId);
    this.#setAsked(toolCallId, { since: undefined, waitedMs: (before?.waitedMs ?? 0) + (before?.since === undefined ? 0 : Math.max(0, at - before.since)), answer: answer ?? before?.answer });
  }

  #setAsked(toolCallId: string, asked: Asked): void {
    this.#asked.set(toolCallId, asked);
    const known = this.#tools.get(toolCallId);
    if (known) this.#changed({ ...known.item, asked });
  }

  note(tone: NoteItem["tone"], title: string, detail: string | undefined, at: number): void {
    this.#add({ kind: "note", key: this.#key("note"), at, tone, title, detail });
  }

  #key(kind: string): string {
    return this.place === undefined ? `${kind}-own-${this.#made++}` : `${kind}-${this.place}`;
  }

  #beginTurn(at: number): void {
    this.#settleLast();
    this.#turnBegan = at;
    this.#plan = undefined;
  }

  #add(item: Item): void {
    this.#settleLast();
    this.#last = item;
    this.#lastRow = this.rows.length;
    this.rows.push({ key: item.key, item, segment: item.kind === "text" ? 0 : -1 });
  }

  /** Nothing is added to the last item's text any more. */
  #settleLast(): void {
    const last = this.#last;
    if (last?.kind === "user" && last.unconfirmed) {
      const { unconfirmed: _, ...item } = last;
      this.#replaceLast(item);
    }
    if ((last?.kind === "text" || last?.kind === "thought") && !last.done) {
      last.segments.close();
      const item = { ...last, done: true, version: last.version + 1 };
      this.#last = item;
      for (let i = this.#lastRow; i < this.rows.length; i++) this.rows[i] = { ...this.rows[i]!, item };
    }
  }

  #replaceLast(item: Item): void {
    this.#last = item;
    this.rows[this.#lastRow] = { ...this.rows[this.#lastRow]!, item };
  }

  #user(content: ContentBlock, at: number): void {
    const last = this.#last;
    if (last?.kind === "user") {
      // On another connection the gateway tells us of our own prompt.
      if (last.unconfirmed && last.blocks.some((b) => JSON.stringify(b) === JSON.stringify(content))) return;
      return this.#replaceLast({ ...last, blocks: join(last.blocks, content) });
    }
    this.#beginTurn(at);
    this.#add({ kind: "user", key: this.#key("user"), at, blocks: [content] });
  }

  #text(kind: "text" | "thought", content: ContentBlock, messageId: string | undefined, at: number, parent: string | undefined): void {
    if (parent !== undefined && this.#childText(parent, kind, content, messageId, at)) return;
    const last = this.#last;
    if (last?.kind !== kind || last.done || (messageId !== undefined && last.messageId !== undefined && last.messageId !== messageId)) {
      const item: TextItem = { kind, key: this.#key(kind), at, messageId, segments: new Segments(), blocks: [], version: 0, done: false };
      const { item: grown } = grow(item, content);
      this.#add(grown);
      this.#spread(grown, 0);
      return;
    }
    const { item, from } = grow(last, content);
    this.#last = item;
    this.#spread(item, from);
  }

  /** Gives the segments from one on rows of their own. */
  #spread(item: TextItem, from: number): void {
    if (item.kind === "thought") {
      this.rows[this.#lastRow] = { key: item.key, item, segment: -1 };
      return;
    }
    for (let i = from; i < Math.max(1, item.segments.all.length); i++) {
      this.rows[this.#lastRow + i] = { key: i === 0 ? item.key : `${item.key}.${i}`, item, segment: i };
    }
  }

  #tool(update: (ToolCall | ToolCallUpdate) & { _meta?: Record<string, unknown> | null }, at: number): void {
    const known = this.#tools.get(update.toolCallId);
    const before: ToolItem = known?.item ?? {
      kind: "tool", key: this.#key("tool"), at, endedAt: undefined, id: update.toolCallId, title: "", tool: "other", status: "pending",
      content: [], locations: [], rawInput: undefined, rawOutput: undefined, parent: parentOf(update), children: [], asked: this.#asked.get(update.toolCallId),
    };
    const words = saidOf(update);
    const status: ToolStatus = update.status ?? before.status;
    const ended = status === "completed" || status === "failed";
    const item: ToolItem = {
      ...before,
      title: update.title ?? before.title,
      tool: update.kind ?? before.tool,
      status,
      endedAt: ended ? (before.endedAt ?? at) : undefined,
      content: words !== undefined || !update.content ? before.content : withoutWords(update.content, before.children),
      locations: (update.locations as ToolItem["locations"] | null | undefined) ?? before.locations,
      rawInput: update.rawInput ?? before.rawInput,
      rawOutput: update.rawOutput ?? before.rawOutput,
    };
    if (ended) this.#running.delete(item.id);
    else if (status === "in_progress" && item.parent === undefined) this.#running.add(item.id);
    if (known) {
      this.#changed(item);
      if (this.#left.has(item.id)) {
        if (ended) this.#left.delete(item.id);
        this.#showBackground();
      }
      if (words) this.#childText(item.id, words.thought ? "thought" : "text", { type: "text", text: words.text }, words.messageId, at);
      return;
    }
    const parent = item.parent === undefined ? undefined : this.#tools.get(item.parent);
    if (parent && item.parent !== item.id) {
      this.#tools.set(item.id, { item, row: parent.row });
      this.#changed({ ...parent.item, children: [...parent.item.children, item] });
      return;
    }
    this.#add(item);
    this.#tools.set(item.id, { item, row: this.rows.length - 1 });
  }

  /** Puts a call in the place of its former self, in its row and in its parents. */
  #changed(item: ToolItem): void {
    const known = this.#tools.get(item.id);
    if (!known) return;
    known.item = item;
    const parent = item.parent === undefined ? undefined : this.#tools.get(item.parent);
    if (parent && parent.row === known.row && item.parent !== item.id) {
      this.#changed({ ...parent.item, children: parent.item.children.map((c) => (c.kind === "tool" && c.id === item.id ? item : c)) });
      return;
    }
    this.rows[known.row] = { ...this.rows[known.row]!, item };
    if (this.#last?.key === item.key) this.#last = item;
  }

  /** What a subagent says is shown in the call that started it. */
  #childText(parentId: string, kind: "text" | "thought", content: ContentBlock, messageId: string | undefined, at: number): boolean {
    const parent = this.#tools.get(parentId)?.item;
    if (!parent) return false;
    const last = parent.children.at(-1);
    const joins = last?.kind === kind && (messageId === undefined || last.messageId === messageId);
    const item: TextItem = joins ? last : { kind, key: this.#key(kind), at, messageId, segments: new Segments(), blocks: [], version: 0, done: false };
    const children: ChildItem[] = joins ? parent.children.slice(0, -1) : [...parent.children];
    children.push(grow(item, content).item);
    this.#changed({ ...parent, children });
    return true;
  }

  #showPlan(entries: PlanItem["entries"], at: number): void {
    if (this.#plan) {
      const item = { ...this.#plan.item, entries };
      this.#plan.item = item;
      this.rows[this.#plan.row] = { ...this.rows[this.#plan.row]!, item };
      if (this.#last?.key === item.key) this.#last = item;
      return;
    }
    const item: PlanItem = { kind: "plan", key: this.#key("plan"), at, entries };
    this.#add(item);
    this.#plan = { item, row: this.rows.length - 1 };
  }

  #showBackground(): void {
    this.background = [...this.#left].flatMap((id) => this.#tools.get(id)?.item ?? []);
  }

  /** One row from a compaction's begin to its end. */
  #compaction(update: Compaction, at: number): void {
    const known = this.#compactions.get(update.compactionId);
    const summary = update.sessionUpdate === "compaction_summary_chunk" ? (known?.summary ?? "") + textOf(update.content)
      : update.summary ? update.summary.map(textOf).join("") : (known?.summary ?? "");
    const status = update.status ?? "in_progress";
    const before: NoteItem = known?.item ?? { kind: "note", key: this.#key("note"), at, tone: "info", title: "", detail: undefined };
    const ended = status === "completed" || status === "failed" || status === "cancelled";
    const item: NoteItem = {
      ...before,
      tone: status === "failed" ? "warn" : "info",
      title: !ended ? "Compacting the conversation" : status === "completed" ? `The conversation was compacted${tokensOf(update)}` : status === "failed" ? "The conversation was not compacted" : "The compaction was stopped",
      detail: (status === "failed" && update.error ? update.error : summary) || undefined,
    };
    if (known) {
      this.rows[known.row] = { ...this.rows[known.row]!, item };
      if (this.#last?.key === item.key) this.#last = item;
    } else this.#add(item);
    if (ended) this.#compactions.delete(update.compactionId);
    else this.#compactions.set(update.compactionId, { item, row: known?.row ?? this.rows.length - 1, summary });
  }

  #other(update: { sessionUpdate: string; title?: unknown; description?: unknown; severity?: unknown }, at: number): void {
    if (update.sessionUpdate === "notice") {
      this.note(update.severity === "error" ? "bad" : update.severity === "warning" ? "warn" : "info", String(update.title), update.description === undefined ? undefined : String(update.description), at);
    } else if (update.sessionUpdate === "compaction_update" || update.sessionUpdate === "compaction_summary_chunk") {
      this.#compaction(update as Compaction, at);
    }
    // Kinds that are newer than this page are on the Wire.
  }
}

/** What is told of a compaction. */
interface Compaction {
  readonly sessionUpdate: string;
  readonly compactionId: string;
  readonly status?: string;
  readonly error?: string | null;
  readonly summary?: readonly ContentBlock[] | null;
  readonly content?: ContentBlock;
  readonly _meta?: Record<string, unknown> | null;
}

const textOf = (block: ContentBlock | undefined) => (block?.type === "text" ? block.text : "");

/** How much there was before and after it, where the agent tells. */
function tokensOf(update: Compaction): string {
  const { before, after } = (ownOf(update).tokens ?? {}) as { before?: unknown; after?: unknown };
  if (typeof before !== "number") return "";
  return typeof after === "number" ? `, from ${count(before)} to ${count(after)} tokens` : ` from ${count(before)} tokens`;
}

/** What stands where an agent has lost its memory. */
const forgotten = "From here on the agent does not remember what was said above";

/** What the gateway adds to an update. */
function ownOf(update: { _meta?: Record<string, unknown> | null }): Record<string, unknown> {
  const own = update._meta?.[META];
  return typeof own === "object" && own !== null ? (own as Record<string, unknown>) : {};
}

/** The call of the subagent that an update belongs to. */
function parentOf(update: { _meta?: Record<string, unknown> | null }): string | undefined {
  const id = ownOf(update).parentToolCallId;
  return typeof id === "string" ? id : undefined;
}

/** What a subagent has said, of which its call shows all. */
function saidOf(update: { _meta?: Record<string, unknown> | null }): { text: string; messageId: string | undefined; thought: boolean } | undefined {
  const said = ownOf(update).said as { text?: unknown; messageId?: unknown; thought?: unknown } | undefined;
  if (typeof said?.text !== "string") return undefined;
  return { text: said.text, messageId: typeof said.messageId === "string" ? said.messageId : undefined, thought: said.thought === true };
}

/** Content of a subagent's call, without the words that are among what it did. */
function withoutWords(content: readonly ToolContent[], children: readonly ChildItem[]): readonly ToolContent[] {
  const words = children.flatMap((c) => (c.kind === "tool" ? [] : [c.segments.whole.trim()]));
  if (words.length === 0) return content;
  const all = [words.join("\n\n"), words.join("")];
  return content.filter((c) => !(c.type === "content" && c.content.type === "text" && (words.includes(c.content.text.trim()) || all.includes(c.content.text.trim()))));
}

function grow(item: TextItem, content: ContentBlock): { item: TextItem; from: number } {
  if (content.type === "text") {
    const from = item.segments.push(content.text);
    return { item: { ...item, version: item.version + 1 }, from };
  }
  return { item: { ...item, blocks: [...item.blocks, content], version: item.version + 1 }, from: 0 };
}

/** Texts that come one after the other are one text. */
function join(blocks: readonly ContentBlock[], next: ContentBlock): ContentBlock[] {
  const last = blocks.at(-1);
  if (last?.type === "text" && next.type === "text" && last.text.length < 100_000) return [...blocks.slice(0, -1), { ...last, text: last.text + next.text }];
  return [...blocks, next];
}
