import type { ContentBlock } from "sandbox-agent";
import { count } from "../kit/text.js";
import type { Asked, BackgroundItem, ChildItem, Item, NoteItem, PlanDocument, PlanItem, Row, Stop, TextItem, ToolContent, ToolItem, ToolStatus, UserItem } from "./items.js";
import { Segments } from "./segments.js";
import { Terminals } from "./terminals.js";
import { blocksOf, contentsOf, nameIn, ownOf, type Background, type Plan, type Update } from "./updates.js";

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

/** What a session does. Later versions of the protocol may know other states. */
export type Doing = "running" | "requires_action" | "idle" | (string & {});

/** Subagents that are known; the newest. What others do is shown with the session's own. */
const maxChildren = 4096;
/** How many events behind the place where rows are let go a prompt may be with which the others begin. */
const promptWithin = 1000;

/**
 * A conversation as rows to show. It takes updates of version 2 of ACP, one after the
 * other; each costs time that does not depend on how many there were before, except where
 * a message is replaced that others follow. It knows nothing of connections.
 *
 * Messages and calls have ids: whatever is told again about one takes its place.
 */
export class Transcript {
  /** Grows at its end; a row in it is replaced when it changes. */
  readonly rows: Row[] = [];
  /** What the session does, as it was told last. */
  doing: Doing = "idle";
  /** Why the newest turn has ended. */
  ending: string | undefined;
  usage: Usage | undefined;
  commands: readonly Command[] | undefined;
  configOptions: readonly unknown[] | undefined;
  /** Where in the session's log they were told. */
  optionsAt = 0;
  title: string | undefined;
  /** How often the agent was started anew and had forgotten what was said before. */
  forgot = 0;
  /** Updates taken so far. */
  updates = 0;
  /** Where in the session's log what is taken next stands: rows keep their keys when they are made anew. */
  place: number | undefined;
  /** What goes on though no turn runs; another list whenever it changes. */
  background: readonly BackgroundItem[] = [];
  #tools = new Map<string, { item: ToolItem; row: number }>(); // row of the outermost call
  readonly #asked = new Map<string, Asked>(); // by tool call, which may come later
  readonly #children = new Map<string, string>(); // the call of a subagent, by its session
  readonly #stoppable = new Set<string>(); // subagents that can be ended by themselves
  readonly #made = new Set<string>(); // calls that no agent has told of: they show a subagent
  readonly #terminals = new Terminals();
  #anew: { readonly kind: string; readonly id: string; readonly blocks: readonly ContentBlock[] } | undefined; // the message that was replaced last: what follows of it goes on there
  readonly #said = new Set<string>(); // kinds and ids of messages that have rows
  #last: Item | undefined;
  #lastRow = -1; // of the last item's first row
  #own: { readonly key: string; readonly blocks: readonly ContentBlock[] } | undefined; // a prompt of this page that nobody has told of
  readonly #plans = new Map<string, { item: PlanItem; row: number }>(); // of this turn
  readonly #compactions = new Map<string, { item: NoteItem; row: number; summary: string }>(); // that have not ended
  #behind: readonly Background[] = [];
  #turn: { readonly began: number | undefined } | undefined; // that is open; when it began is not known where its prompt was not read
  #count = 0; // of keys that are the page's own

  /** session is the id of what the updates without another one are of. */
  constructor(readonly session = "") {}

  get empty(): boolean {
    return this.rows.length === 0;
  }

  /** Whether a turn was begun whose end has not come. */
  get turnOpen(): boolean {
    return this.#turn !== undefined;
  }

  /** Whether the session has not told of a prompt of this page. */
  get unconfirmed(): boolean {
    return this.#own !== undefined;
  }

  /** Whether what is told of a session belongs to this one: it is the session, or a subagent of it. */
  has(sessionId: string): boolean {
    return sessionId === this.session || this.#children.has(sessionId) || sessionId.startsWith(`${this.session}.`);
  }

  /** Notes a subagent that was told of before what is read. */
  knows(sessionId: string, parentId: string, toolCallId: string): void {
    this.#children.set(sessionId, toolCallId === sessionId ? sessionId : nameIn(this.session, parentId, toolCallId));
  }

  /** What comes first is in the middle of something: of a turn, unless its state says that there is none. */
  beginsLate(): void {
    this.#turn ??= { began: undefined };
  }

  /** Takes what the session does from what was shown of it before: it is told to who attaches, and not in the log. */
  goesOnAs(before: Transcript): void {
    this.doing = before.doing;
    this.ending = before.ending;
    this.#turn = before.#turn && { began: this.#turn?.began ?? before.#turn.began };
    this.#behind = before.#behind;
    this.#showBackground();
  }

  /**
   * Takes from what was shown before what is told only once, and maybe before what was read: what can be ended by itself, and what it is called.
   * Options that are newer, too: an answer tells of them, and maybe no event.
   */
  toldOnceAs(before: Transcript): void {
    for (const [session, call] of before.#children) if (!this.#children.has(session)) this.#child(session, call);
    for (const session of before.#stoppable) this.#stoppable.add(session);
    this.#terminals.toldOnceAs(before.#terminals);
    this.#showBackground();
    if (before.configOptions === undefined || before.optionsAt < this.optionsAt) return;
    this.configOptions = before.configOptions;
    this.optionsAt = before.optionsAt;
  }

  /** The place of the oldest row of what goes on; Infinity where there is none. */
  get since(): number {
    const keys = this.#goesOn();
    return this.rows.reduce((since, { item, place }) => (keys.has(item.key) ? Math.min(since, place ?? since) : since), Infinity);
  }

  /** The items in whose rows something goes on, of which more will be told: the prompt and the plans of the open turn, calls, compactions. */
  #goesOn(): ReadonlySet<string> {
    const background = new Set(this.background.map(({ key }) => key));
    const begin = this.#turn ? this.rows.findLastIndex(({ item }) => item.kind === "turn") : Infinity; // of a turn that is over nobody tells what became of its calls
    const prompt = this.#turn && this.rows.findLast(({ item }) => item.kind === "user");
    const keys = new Set([...(prompt ? [prompt.item.key] : []), ...[...this.#plans.values(), ...this.#compactions.values()].map(({ item }) => item.key)]);
    for (const { item, row } of this.#tools.values()) if (background.has(item.id) || (item.endedAt === undefined && row > begin)) keys.add(this.rows[row]!.item.key);
    return keys;
  }

  /**
   * Lets go of the rows that begin before a place: up to the next prompt, where one follows soon. What goes on keeps its
   * row, however old it is. Returns where the first one of the others begins; undefined where there is nothing to let go.
   */
  letGo(before: number): number | undefined {
    const begins = ({ segment, place }: Row) => segment <= 0 && place !== undefined;
    const late = (row: Row) => begins(row) && row.place! > before;
    const first = [
      this.rows.findIndex((row) => row.item.kind === "user" && late(row) && row.place! <= before + promptWithin),
      this.rows.findIndex(late),
      this.rows.findLastIndex(begins),
    ].find((i) => i >= 0) ?? 0;
    const keys = this.#goesOn();
    const stays = (row: number) => row >= first || keys.has(this.rows[row]!.item.key);
    const kept = this.rows.slice(0, first).filter((_, i) => stays(i));
    if (kept.length === first) return undefined;
    for (const [id, { row }] of this.#tools) if (!stays(row) && this.#tools.delete(id)) this.#made.delete(id);
    for (const [call, { since }] of this.#asked) if (since === undefined && !this.#tools.has(call)) this.#asked.delete(call);
    this.rows.splice(0, first, ...kept);
    this.#said.clear();
    for (const { item } of this.rows) if ("messageId" in item && item.messageId !== undefined) this.#said.add(`${item.kind} ${item.messageId}`);
    if (this.#anew && !this.#said.has(`${this.#anew.kind} ${this.#anew.id}`)) this.#anew = undefined;
    this.#findRows(0);
    return this.rows[kept.length]!.place;
  }

  apply(update: Update, at: number, sessionId = this.session): void {
    this.updates++;
    const child = sessionId === this.session ? undefined : this.#callOf(sessionId, at);
    switch (update.sessionUpdate) {
      case "user_message":
      case "user_message_chunk":
        if (child === undefined) this.#user(update, at);
        return;
      case "agent_message":
      case "agent_thought":
        return this.#message(update.sessionUpdate === "agent_message" ? "text" : "thought", update, at, child);
      case "agent_message_chunk":
      case "agent_thought_chunk":
        for (const block of blocksOf(update.content)) this.#text(update.sessionUpdate === "agent_message_chunk" ? "text" : "thought", block, update.messageId ?? undefined, at, child);
        return;
      case "tool_call_update":
        return this.#told({ ...update, toolCallId: nameIn(this.session, sessionId, String(update.toolCallId)) }, at, child, sessionId);
      case "tool_call_content_chunk":
        return this.#more({ ...update, toolCallId: nameIn(this.session, sessionId, String(update.toolCallId)) }, at, child, sessionId);
      case "terminal_update":
      case "terminal_output_chunk":
        return this.#terminal(update, sessionId);
      case "plan_update":
        if (child === undefined && update.plan) this.#plan(update.plan.planId, planOf(update.plan), at);
        return;
      case "plan_removed":
        if (this.#plans.has(String(update.planId))) this.#plan(String(update.planId), { entries: [], document: undefined }, at);
        return;
      case "subagent_update":
        return this.#subagent(update, at, child, sessionId);
      case "state_update":
        if (child === undefined) this.#state(update, at);
        return;
      case "notice":
        return this.#notice(update, at);
      case "compaction_update":
      case "compaction_summary_chunk":
        return this.#compaction(update, at);
      default:
        if (child === undefined) this.#about(update, at);
    }
  }

  /** What is told of the session itself. Kinds that are newer than this page are on the Wire. */
  #about(update: Update, at: number): void {
    switch (update.sessionUpdate) {
      case "available_commands_update":
        this.commands = (update.availableCommands ?? []).map((c) => ({ name: c.name, description: c.description ?? "", hint: c.input?.hint === undefined ? undefined : String(c.input.hint) }));
        return;
      case "config_option_update":
        if ((this.place ?? this.optionsAt) < this.optionsAt) return; // an answer behind it has come before
        this.optionsAt = this.place ?? this.optionsAt;
        this.configOptions = update.configOptions;
        return;
      case "session_info_update":
        if (update.title !== undefined) this.title = update.title ?? ""; // null: it has none any more
        if (ownOf(update).continuity === "fresh") {
          this.forgot++;
          this.note("warn", forgotten, undefined, at);
        }
        return;
      case "usage_update":
        this.usage = usageOf(update, this.usage);
    }
  }

  /** Something the agent has to say beside its answer. One without words is only on the Wire. */
  #notice({ severity, title, description }: Update, at: number): void {
    const [first, ...rest] = [title, description].filter((words) => typeof words === "string" && words.trim() !== "") as string[];
    if (first !== undefined) this.note(severity === "error" ? "bad" : severity === "warning" ? "warn" : "info", first, rest[0], at);
  }

  /** A prompt of this page, before the session tells of it. */
  prompt(blocks: readonly ContentBlock[], at: number): void {
    this.#beginTurn(at);
    const key = this.#key("user");
    this.#own = { key, blocks };
    this.#add({ kind: "user", key, at, messageId: undefined, place: undefined, blocks });
  }

  /** A turn of this page is over, though the session has not told of its end. */
  over({ result, error }: { readonly result?: { readonly stopReason?: string }; readonly error?: { readonly message?: string; readonly code?: number } }, at: number): void {
    this.#own = undefined;
    this.#endTurn(error ? { stopReason: "error", error } : { stopReason: result?.stopReason ?? "end_turn" }, at);
  }

  #state(update: Update, at: number): void {
    if (typeof update.state === "string") this.doing = update.state;
    this.#behind = update.background ?? [];
    if (update.state === "idle" && typeof update.stopReason === "string") this.#endTurn(update, at);
    else if (update.state === "idle") this.#turn = this.#own ? this.#turn : undefined; // nobody has seen how it ended
    this.#showBackground();
  }

  /** The turn is over. A second word about the same end has no effect. */
  #endTurn({ stopReason, error, usage }: Pick<Update, "stopReason" | "error" | "usage">, at: number): void {
    if (this.#turn === undefined) return;
    const { began } = this.#turn;
    this.ending = stopReason ?? undefined;
    this.#settleLast();
    const tookMs = began !== undefined && at >= began ? at - began : undefined;
    this.#turn = undefined;
    this.#plans.clear();
    const failure = typeof error === "object" && error !== null ? error : undefined;
    this.#add({
      kind: "turn", key: this.#key("turn"), at, tookMs, stopReason: stopReason ?? undefined, usage: usage && isAmount(usage.inputTokens) && isAmount(usage.outputTokens) ? usage : undefined,
      error: stopReason === "error" ? (failure?.message ?? "The agent gave no reason.") : undefined, code: failure?.code,
    });
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
    const known = this.#tools.get(toolCallId)?.item ?? this.#callOfChild(toolCallId);
    if (known) this.#changed({ ...known, asked });
  }

  /** The newest call of a subagent with this id: version 1 asks for them in the session. */
  #callOfChild(toolCallId: string): ToolItem | undefined {
    return [...this.#tools.values()].findLast(({ item }) => item.id.endsWith(` ${toolCallId}`))?.item;
  }

  note(tone: NoteItem["tone"], title: string, detail: string | undefined, at: number): void {
    this.#add({ kind: "note", key: this.#key("note"), at, tone, title, detail, place: this.place });
  }

  /** Whether the log has told of an answer behind an event. */
  hasAnswer(title: string, behind: number): boolean {
    return this.rows.some(({ item }) => item.kind === "note" && item.tone === "answer" && item.title === title && item.place !== undefined && item.place > behind);
  }

  #key(kind: string): string {
    return this.place === undefined ? `${kind}-own-${this.#count++}` : this.#free(`${kind}-${this.place}`);
  }

  /** One place of the log may make several rows of a kind. */
  #free(key: string): string {
    if (this.#lastKey !== key) {
      this.#lastKey = key;
      this.#sameKey = 0;
      return key;
    }
    return `${key}-${++this.#sameKey}`;
  }
  #lastKey = "";
  #sameKey = 0;

  #beginTurn(at: number): void {
    this.#settleLast();
    this.#turn = { began: at };
    this.#plans.clear();
  }

  #add(item: Item): void {
    this.#settleLast();
    this.#last = item;
    this.#lastRow = this.rows.length;
    this.rows.push({ key: item.key, item, segment: item.kind === "text" ? 0 : -1, place: this.place });
  }

  /** Nothing is added to the last item's text any more. */
  #settleLast(): void {
    const last = this.#last;
    if ((last?.kind === "text" || last?.kind === "thought") && !last.done) {
      last.segments.close();
      const item = { ...last, done: true, version: last.version + 1 };
      this.#last = item;
      for (let i = this.#lastRow; i < this.rows.length; i++) this.rows[i] = { ...this.rows[i]!, item };
    }
  }

  /** Puts an item in the place of its former self, of which it has the key. */
  #replace(row: number, item: Item, place = this.rows[row]!.place): void {
    this.rows[row] = { ...this.rows[row]!, item, place };
    if (this.#last?.key === item.key) this.#last = item;
  }

  #user(update: Update, at: number): void {
    const blocks = blocksOf(update.content);
    const id = update.messageId ?? undefined;
    const whole = update.sessionUpdate === "user_message";
    const own = this.#own;
    const wanted = own && blocks.length > 0 && blocks.every((b) => own.blocks.some((o) => JSON.stringify(o) === JSON.stringify(b)));
    const row = wanted ? this.#rowOf((item) => item.key === own.key) : id !== undefined && this.#said.has(`user ${id}`) ? this.#rowOf((item) => item.kind === "user" && item.messageId === id) : -1;
    if (id !== undefined) this.#said.add(`user ${id}`);
    const before = row < 0 ? undefined : (this.rows[row]!.item as UserItem);
    if (wanted && before) { // the session tells of this page's own prompt
      if (whole) this.#own = undefined;
      this.#turn ??= { began: at };
      const item: UserItem = { ...before, messageId: id, place: before.place ?? this.place };
      if (row === this.rows.length - 1) return this.#replace(row, item, item.place);
      this.#settleLast();
      this.rows.splice(row, 1); // what came meanwhile was said before it
      this.#findRows(row);
      return this.#add(item);
    }
    if (before) {
      if (update.content === undefined || update.content === null) return;
      return this.#replace(row, { ...before, blocks: whole ? blocks : blocks.reduce(join, before.blocks) });
    }
    if (this.#last?.kind === "user" && !whole && id === undefined) return this.#replace(this.#lastRow, { ...this.#last, blocks: blocks.reduce(join, this.#last.blocks) });
    this.#beginTurn(at);
    this.#add({ kind: "user", key: this.#key("user"), at, messageId: id, place: this.place, blocks });
  }

  /** The newest row of an item. */
  #rowOf(is: (item: Item) => boolean): number {
    return this.rows.findLastIndex((row) => is(row.item));
  }

  /** All that there is of a message. What goes on with what was shown is added to it. */
  #message(kind: "text" | "thought", update: Update, at: number, child: string | undefined): void {
    const id = update.messageId ?? undefined;
    if (id === undefined || update.content === undefined) return;
    const blocks = blocksOf(update.content);
    if (child !== undefined) return this.#childMessage(child, kind, id, blocks, at);
    const last = this.#last;
    const known = this.#said.has(`${kind} ${id}`);
    if (!known) return blocks.forEach((block) => this.#text(kind, block, id, at, undefined));
    const text = blocks.every((b) => b.type === "text") ? blocks.map((b) => (b.type === "text" ? b.text : "")).join("") : undefined;
    if (last?.kind === kind && last.messageId === id && !last.done && text !== undefined && last.blocks.length === 0 && text.startsWith(last.segments.whole)) {
      const more = text.slice(last.segments.whole.length);
      if (more !== "") this.#text(kind, { type: "text", text: more }, id, at, undefined);
      return;
    }
    this.#rewrite(kind, id, blocks);
    this.#anew = { kind, id, blocks };
  }

  /** Gives a message other words, where it stands. Its rows may become more or fewer. */
  #rewrite(kind: "text" | "thought", id: string, blocks: readonly ContentBlock[]): void {
    const is = (row: Row) => row.item.kind === kind && (row.item as TextItem).messageId === id;
    const first = this.rows.findIndex(is);
    if (first < 0) return;
    const { place } = this.rows[first]!;
    const before = this.rows[first]!.item as TextItem;
    let item: TextItem = { ...before, segments: new Segments(), blocks: [], version: before.version + 1 };
    for (const block of blocks) item = grow(item, block).item;
    if (item.done) item.segments.close();
    const segments = kind === "thought" ? [-1] : Array.from({ length: Math.max(1, item.segments.all.length) }, (_, i) => i);
    const written = segments.map((segment): Row => ({ key: segment <= 0 ? item.key : `${item.key}.${segment}`, item, segment, place }));
    const rest = this.rows.slice(first).filter((row) => !is(row));
    this.rows.length = first;
    for (const row of [...written, ...rest]) this.rows.push(row);
    if (this.#last?.key === item.key || (this.#last && is({ key: "", item: this.#last, segment: 0 }))) this.#last = item;
    this.#findRows(first);
  }

  /** Rows from one on stand elsewhere now. */
  #findRows(from: number): void {
    const at = new Map<string, number>();
    for (let i = from; i < this.rows.length; i++) if (this.rows[i]!.segment <= 0) at.set(this.rows[i]!.item.key, i);
    const moved = (row: number, key: string) => (row < from ? row : (at.get(key) ?? row));
    for (const tool of this.#tools.values()) tool.row = moved(tool.row, this.#outermost(tool.item).key);
    for (const plan of this.#plans.values()) plan.row = moved(plan.row, plan.item.key);
    for (const compaction of this.#compactions.values()) compaction.row = moved(compaction.row, compaction.item.key);
    if (this.#last) this.#lastRow = moved(this.#lastRow, this.#last.key);
  }

  #outermost(item: ToolItem): ToolItem {
    const parent = item.parent === undefined || item.parent === item.id ? undefined : this.#tools.get(item.parent)?.item;
    return parent ? this.#outermost(parent) : item;
  }

  #text(kind: "text" | "thought", content: ContentBlock, messageId: string | undefined, at: number, parent: string | undefined): void {
    if (parent !== undefined) return this.#childText(parent, kind, content, messageId, at);
    const last = this.#last;
    const anew = this.#anew;
    if (anew && anew.id === messageId && anew.kind === kind && (last?.kind !== kind || last.messageId !== messageId)) {
      this.#anew = { ...anew, blocks: join(anew.blocks, content) };
      return this.#rewrite(kind, anew.id, this.#anew.blocks);
    }
    if (last?.kind !== kind || last.done || (messageId !== undefined && last.messageId !== undefined && last.messageId !== messageId)) {
      if (messageId !== undefined) this.#said.add(`${kind} ${messageId}`);
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
      this.rows[this.#lastRow] = { ...this.rows[this.#lastRow]!, item };
      return;
    }
    const { place } = this.rows[this.#lastRow]!;
    for (let i = from; i < Math.max(1, item.segments.all.length); i++) {
      this.rows[this.#lastRow + i] = { key: i === 0 ? item.key : `${item.key}.${i}`, item, segment: i, place };
    }
  }

  #told(update: Update, at: number, parentCall: string | undefined, sessionId: string): void {
    if (ownOf(update).ended !== undefined && !this.#tools.has(String(update.toolCallId))) return this.#lost(update, at);
    this.#made.delete(String(update.toolCallId));
    this.#tool(update, at, parentCall, sessionId);
  }

  /**
   * A gateway that was killed ends what ran, by the names that version 1 has for it: a
   * subagent, or a call of one. What has no row here was never shown, and gets none.
   */
  #lost(update: Update, at: number): void {
    for (const [session, call] of this.#children) {
      const name = `sa.subagent.${session}`;
      const id = update.toolCallId === name ? call : update.toolCallId?.startsWith(`${name}.`) ? nameIn(this.session, session, update.toolCallId.slice(name.length + 1)) : undefined;
      if (id !== undefined && this.#tools.has(id)) return this.#tool({ ...update, toolCallId: id }, at, undefined);
    }
  }

  #tool(update: Update, at: number, parentCall: string | undefined, sessionId = this.session): void {
    const id = String(update.toolCallId);
    const known = this.#tools.get(id);
    const before: ToolItem = known?.item ?? {
      kind: "tool", key: this.#key("tool"), at, endedAt: undefined, id, title: "", tool: "other", status: "pending",
      content: [], locations: [], rawInput: undefined, rawOutput: undefined, parent: parentCall, children: [], cancellable: false, asked: this.#asked.get(id),
    };
    const status = update.status === undefined ? before.status : statusOf(update.status);
    const ended = status !== "pending" && status !== "in_progress";
    const item: ToolItem = {
      ...before,
      title: patched(update.title, before.title, ""),
      tool: patched(update.kind, before.tool, "other"),
      status,
      endedAt: ended ? (before.endedAt ?? at) : undefined,
      content: update.content === undefined ? before.content : this.#shown(sessionId, id, withoutWords(contentsOf(update.content), before.children)),
      locations: patched(update.locations, before.locations, []),
      rawInput: patched(update.rawInput, before.rawInput, undefined),
      rawOutput: patched(update.rawOutput, before.rawOutput, undefined),
      cancellable: update.capabilities === undefined ? before.cancellable : update.capabilities?.cancel != null,
    };
    if (known) return this.#changed(item);
    const parent = item.parent === undefined ? undefined : this.#tools.get(item.parent);
    if (parent && item.parent !== item.id) {
      this.#tools.set(item.id, { item, row: parent.row });
      this.#changed({ ...parent.item, children: [...parent.item.children, item] });
      return;
    }
    this.#add(item);
    this.#tools.set(item.id, { item, row: this.rows.length - 1 });
  }

  /** More of what a call shows. */
  #more(update: Update, at: number, parentCall: string | undefined, sessionId: string): void {
    const id = String(update.toolCallId);
    if (!this.#tools.has(id)) this.#tool({ sessionUpdate: "tool_call_update", toolCallId: id }, at, parentCall);
    const { item } = this.#tools.get(id)!;
    this.#changed({ ...item, content: [...item.content, ...this.#shown(sessionId, id, contentsOf([update.content]))] });
  }

  /** What a call shows, with what is known of its terminals. */
  #shown(sessionId: string, call: string, content: readonly ToolContent[]): readonly ToolContent[] {
    return content.map((c) => (c.type === "terminal" ? this.#terminals.shown(nameIn(this.session, sessionId, c.terminalId), c.terminalId, call) : c));
  }

  #terminal(update: Update, sessionId: string): void {
    const { terminalId } = update;
    if (terminalId === undefined) return;
    const name = nameIn(this.session, sessionId, terminalId);
    for (const call of this.#terminals.take(name, update)) {
      const item = this.#tools.get(call)?.item;
      if (!item) continue;
      this.#changed({ ...item, content: item.content.map((c) => ((c.type === "terminal" || c.type === "output") && c.terminalId === terminalId ? this.#terminals.shown(name, terminalId, call) : c)) });
    }
    if (this.#behind.some((b) => b.terminalId === terminalId)) this.#showBackground();
  }

  /** Puts a call in the place of its former self, in its row and in its parents. */
  #changed(item: ToolItem): void {
    const known = this.#tools.get(item.id);
    if (!known) return;
    const renamed = known.item.title !== item.title || known.item.cancellable !== item.cancellable;
    known.item = item;
    if (renamed && this.#behind.length > 0) this.#showBackground();
    const parent = item.parent === undefined ? undefined : this.#tools.get(item.parent);
    if (parent && parent.row === known.row && item.parent !== item.id) {
      this.#changed({ ...parent.item, children: parent.item.children.map((c) => (c.kind === "tool" && c.id === item.id ? item : c)) });
      return;
    }
    this.#replace(known.row, item);
  }

  /** The call in which a subagent is shown. One that nobody has told of is shown in a call of its own. */
  #callOf(sessionId: string, at: number): string {
    const named = this.#children.get(sessionId) ?? (sessionId.startsWith(`${this.session}.`) ? sessionId.slice(this.session.length + 1) : sessionId);
    this.#child(sessionId, named);
    if (!this.#tools.has(named)) this.#make({ sessionUpdate: "tool_call_update", toolCallId: named, title: "Subagent", kind: "think", status: "in_progress" }, at, undefined);
    return named;
  }

  /** Shows a subagent in a call that no agent has told of. */
  #make(update: Update, at: number, parentCall: string | undefined): void {
    this.#made.add(String(update.toolCallId));
    this.#tool(update, at, parentCall);
  }

  #child(sessionId: string, call: string): void {
    this.#children.set(sessionId, call);
    for (const oldest of this.#children.keys()) {
      if (this.#children.size <= maxChildren) break;
      this.#children.delete(oldest);
      this.#stoppable.delete(oldest);
    }
  }

  /** A subagent begins, or does something else than before. */
  #subagent(update: Update, at: number, parentCall: string | undefined, parentId: string): void {
    if (update.sessionId === undefined) return;
    const { toolCallId } = ownOf(update);
    const call = this.#children.get(update.sessionId) ?? (typeof toolCallId === "string" ? nameIn(this.session, parentId, toolCallId) : update.sessionId);
    this.#child(update.sessionId, call);
    if (update.capabilities?.cancel != null) this.#stoppable.add(update.sessionId);
    else if (update.capabilities !== undefined) this.#stoppable.delete(update.sessionId);
    if (this.#tools.has(call) && !this.#made.has(call)) return; // the agent tells of the call itself
    const state = typeof update.state === "object" && update.state !== null ? update.state : undefined;
    this.#make({
      sessionUpdate: "tool_call_update", toolCallId: call, kind: "think", ...(update.title === undefined ? (this.#tools.has(call) ? {} : { title: "Subagent" }) : { title: update.title }),
      ...(state ? { status: state.state !== "idle" ? "in_progress" : state.stopReason === "error" ? "failed" : state.stopReason === "cancelled" ? "cancelled" : "completed" } : {}),
    }, at, parentCall);
  }

  /** What a subagent says is shown in the call that started it. */
  #childText(parentId: string, kind: "text" | "thought", content: ContentBlock, messageId: string | undefined, at: number): void {
    const parent = this.#tools.get(parentId)?.item;
    if (!parent) return;
    const last = parent.children.at(-1);
    const joins = last?.kind === kind && (messageId === undefined || last.messageId === messageId);
    const item: TextItem = joins ? last : { kind, key: this.#key(kind), at, messageId, segments: new Segments(), blocks: [], version: 0, done: false };
    const children: ChildItem[] = joins ? parent.children.slice(0, -1) : [...parent.children];
    children.push(grow(item, content).item);
    this.#changed({ ...parent, children });
  }

  #childMessage(parentId: string, kind: "text" | "thought", id: string, blocks: readonly ContentBlock[], at: number): void {
    const parent = this.#tools.get(parentId)?.item;
    const before = parent?.children.find((c) => c.kind === kind && c.messageId === id);
    if (!parent || before?.kind !== kind) return blocks.forEach((block) => this.#childText(parentId, kind, block, id, at));
    let item: TextItem = { ...before, segments: new Segments(), blocks: [], version: before.version + 1 };
    for (const block of blocks) item = grow(item, block).item;
    // Its other parts are in what was replaced.
    this.#changed({ ...parent, children: parent.children.flatMap((c) => (c === before ? [item] : c.kind === kind && c.messageId === id ? [] : [c])) });
  }

  #plan(planId: string, plan: Pick<PlanItem, "entries" | "document">, at: number): void {
    const known = this.#plans.get(planId);
    if (known) {
      known.item = { ...known.item, ...plan };
      return this.#replace(known.row, known.item);
    }
    const item: PlanItem = { kind: "plan", key: this.#key("plan"), at, ...plan };
    this.#add(item);
    this.#plans.set(planId, { item, row: this.rows.length - 1 });
  }

  #showBackground(): void {
    if (this.#behind.length === 0 && this.background.length === 0) return;
    this.background = this.#behind.map((work, i): BackgroundItem => {
      const [shown] = work.terminalId === undefined ? [] : this.#terminals.calls(work.terminalId);
      const call = work.toolCallId ?? shown ?? (work.sessionId === undefined ? undefined : this.#children.get(work.sessionId));
      const item = call === undefined ? undefined : this.#tools.get(call)?.item;
      const command = work.terminalId === undefined ? undefined : this.#terminals.command(work.terminalId);
      const stop: Stop | undefined =
        work.terminalId !== undefined ? (this.#terminals.cancellable(work.terminalId) ? { kind: "terminal", terminalId: work.terminalId } : undefined)
        : work.sessionId !== undefined ? (this.#stoppable.has(work.sessionId) ? { kind: "subagent", sessionId: work.sessionId } : undefined)
        : work.toolCallId !== undefined && item?.cancellable ? { kind: "tool_call", toolCallId: work.toolCallId } : undefined;
      return { key: call ?? work.terminalId ?? `${work.type}-${i}`, stop, title: item?.title || command || item?.tool || names[work.type] || work.type };
    });
  }

  /** One row from a compaction's begin to its end. */
  #compaction(update: Update, at: number): void {
    const id = String(update.compactionId);
    const known = this.#compactions.get(id);
    const words = (blocks: readonly ContentBlock[]) => blocks.map((b) => (b.type === "text" ? b.text : "")).join("");
    const summary = update.sessionUpdate === "compaction_summary_chunk" ? (known?.summary ?? "") + words(blocksOf(update.content)) : update.summary ? words(update.summary) : (known?.summary ?? "");
    const status = update.status ?? "in_progress";
    const before: NoteItem = known?.item ?? { kind: "note", key: this.#key("note"), at, tone: "info", title: "", detail: undefined };
    const ended = status === "completed" || status === "failed" || status === "cancelled";
    const item: NoteItem = {
      ...before,
      tone: status === "failed" ? "warn" : "info",
      title: !ended ? "Compacting the conversation" : status === "completed" ? `The conversation was compacted${tokensOf(update)}` : status === "failed" ? "The conversation was not compacted" : "The compaction was stopped",
      detail: (status === "failed" && typeof update.error === "string" ? update.error : summary) || undefined,
    };
    if (known) this.#replace(known.row, item);
    else this.#add(item);
    if (ended) this.#compactions.delete(id);
    else this.#compactions.set(id, { item, row: known?.row ?? this.rows.length - 1, summary });
  }
}

/** A field of an update: what is not there stays, and null clears. */
const patched = <T, U>(value: T | null | undefined, before: T | U, none: T | U): T | U => (value === undefined ? before : value === null ? none : value);

function statusOf(status: string | null): ToolStatus {
  switch (status) {
    case "pending":
    case "completed":
    case "failed":
    case "cancelled":
      return status;
    case null:
      return "pending";
    default:
      return "in_progress"; // paused, or newer than this page
  }
}

const names: Record<string, string> = { tool_call: "A tool", terminal: "A command", subagent: "A subagent" };

function planOf({ type, entries, content, uri }: Plan): Pick<PlanItem, "entries" | "document"> {
  if (type === "items") return { entries: entries ?? [], document: undefined };
  const document: PlanDocument =
    type === "markdown" && content !== undefined ? { type, text: content } : type === "file" && uri !== undefined ? { type, uri } : { type: "unknown", name: type };
  return { entries: [], document };
}

const isAmount = (n: unknown): n is number => typeof n === "number" && Number.isFinite(n) && n >= 0;

/** What is used now. What is no amount leaves what was told before; undefined until both are known. */
function usageOf({ used, size, cost }: Update, before: Usage | undefined): Usage | undefined {
  const now = { used: isAmount(used) ? used : before?.used, size: isAmount(size) ? size : before?.size };
  if (now.used === undefined || now.size === undefined) return before;
  return { used: now.used, size: now.size, cost: cost && isAmount(cost.amount) ? cost : undefined };
}

/** How much there was before and after it, where the agent tells. */
function tokensOf(update: Update): string {
  const { before, after } = (ownOf(update).tokens ?? {}) as { before?: unknown; after?: unknown };
  if (!isAmount(before)) return "";
  return isAmount(after) ? `, from ${count(before)} to ${count(after)} tokens` : ` from ${count(before)} tokens`;
}

/** What stands where an agent has lost its memory. */
const forgotten = "From here on the agent does not remember what was said above";

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
function join(blocks: readonly ContentBlock[], next: ContentBlock): readonly ContentBlock[] {
  const last = blocks.at(-1);
  if (last?.type === "text" && next.type === "text" && last.text.length < 100_000) return [...blocks.slice(0, -1), { ...last, text: last.text + next.text }];
  return [...blocks, next];
}
