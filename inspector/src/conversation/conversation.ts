import { AcpRpcError, META, ProblemError, type ContentBlock, type PromptResponse, type SandboxAgentClient, type SessionInfo, type SessionUpdate, type Turn } from "sandbox-agent";
import type { Ask } from "../state/inbox.js";
import { messageOf } from "../state/explain.js";
import { Store } from "../state/store.js";
import { answerIn, askFrame, showAnswer, showAsk } from "./answers.js";
import { firstPrompt, History, noteEnd } from "./history.js";
import type { Row, ToolItem } from "./items.js";
import { Transcript, type Command, type Usage } from "./transcript.js";
import type { Remark } from "./remarks.js";

/** An option of a session: mode, model, thought level, or one of the agent's own. */
export interface ConfigOption {
  readonly id: string;
  readonly name: string;
  readonly category: string | undefined;
  readonly description: string | undefined;
  readonly current: string | boolean;
  readonly choices: readonly { readonly value: string; readonly name: string; readonly description: string | undefined }[];
}

/** A prompt that waits for the running turn to end. */
export interface Waiting {
  readonly id: number;
  readonly blocks: readonly ContentBlock[];
}

export interface ConversationState {
  readonly phase: "loading" | "live" | "reading" | "failed";
  /** Why there is nothing to see. */
  readonly problem: string | undefined;
  readonly info: SessionInfo | undefined;
  /** Whether the agent works on a prompt, of whomever. */
  readonly running: boolean;
  /** Whether this page has asked to stop and the turn has not ended. */
  readonly stopping: boolean;
  /** Grows with each prompt that a person sends here. */
  readonly sent: number;
  readonly queue: readonly Waiting[];
  /** The queue waits for a person, because a turn was stopped or failed. */
  readonly held: boolean;
  readonly options: readonly ConfigOption[];
  readonly commands: readonly Command[];
  readonly usage: Usage | undefined;
  /** What the agent does though no turn waits for it. */
  readonly background: readonly ToolItem[];
  readonly title: string | undefined;
  /** What was asked for when it was made and had no effect. */
  readonly unsupported: readonly { readonly field: string; readonly reason: string }[];
  readonly continuity: string | undefined;
  /** Why the gateway cannot write the session: nothing of it is shown meanwhile. */
  readonly unwritable: string | undefined;
  /** Events before the first one that is shown. */
  readonly earlier: number;
  readonly loadingEarlier: boolean;
}

/** Why a turn failed. */
interface Failure {
  readonly message: string;
  readonly code?: number | undefined;
}

/** The rows, as one value that is another one whenever they changed. */
export interface RowsVersion {
  readonly rows: readonly Row[];
  readonly version: number;
}

/** Events that are read when a conversation is opened; more come when somebody asks for them. */
const firstWindow = 3000;
const pageSize = 1000;
/** The newest events in which the answer of another client is looked for. */
const answerWindow = 200;
/** Prompts that wait here; then sending says that the queue is full. */
export const maxQueue = 64;

const empty: ConversationState = {
  phase: "loading", problem: undefined, info: undefined, running: false, stopping: false, sent: 0, queue: [], held: false, options: [], commands: [],
  usage: undefined, background: [], title: undefined, unsupported: [], continuity: undefined, unwritable: undefined, earlier: 0, loadingEarlier: false,
};

class Rows extends Store<RowsVersion> {
  show(rows: readonly Row[]): void {
    this.set({ rows, version: this.get().version + 1 });
  }
}

/**
 * One session as this page sees it: what was said, read from the gateway's log and
 * followed from there, and what can be done. Changes of the rows are told at most once
 * per frame, however many updates there are.
 */
export class Conversation extends Store<ConversationState> {
  readonly rows = new Rows({ rows: [], version: 0 });
  /** What is being written and not sent: it survives looking elsewhere. */
  draft: { text: string; attachments: readonly ContentBlock[] } = { text: "", attachments: [] };
  /** Remarks on changes that are not in a prompt yet. */
  remarks: readonly Remark[] = [];
  /** Whether it was just made here: then writing goes on in it. */
  begun = false;
  #transcript = new Transcript();
  #client: SandboxAgentClient | undefined;
  #off: (() => void)[] = [];
  #seq = 0; // of the newest event that is shown
  #from = 0; // events up to here are not shown
  #reading: { params: unknown; run: () => void }[] | undefined; // what comes while history is read
  #scheduled = false;
  #nextWaiting = 1;
  #own: Turn | undefined;
  #opening = 0;

  constructor(readonly id: string, private readonly schedule: (run: () => void) => void = nextFrame) {
    super(empty);
  }

  /** The number of updates that were taken. */
  get updates(): number {
    return this.#transcript.updates;
  }

  /** Begins to follow the session on a client; on another one later it goes on where it was. */
  async open(client: SandboxAgentClient, fresh?: { readonly unsupported: ConversationState["unsupported"]; readonly result: unknown }): Promise<void> {
    if (client === this.#client && this.get().phase !== "failed") return;
    const opening = ++this.#opening;
    this.#leave();
    this.#client = client;
    this.#listen(client);
    if (fresh) this.patch({ unsupported: fresh.unsupported });
    try {
      const info = await client.api.session(this.id);
      if (opening !== this.#opening) return;
      this.patch({ info, title: info.title || this.get().title, continuity: info.continuity });
      if (fresh && this.#seq === 0 && info.eventCount === 0) return this.#attached(client, fresh.result, undefined); // it is attached, and nothing was said
      if (this.#seq === 0 || this.get().phase === "failed") await this.#read(client, info.eventCount, firstWindow);
      else await this.#readOn(client);
      if (opening !== this.#opening) return;
      if (info.state === "closed" || info.state === "ended") {
        this.#caughtUp();
        this.patch({ phase: "reading", running: false });
        return;
      }
      await this.#attach(client);
    } catch (error) {
      if (opening !== this.#opening) return;
      this.#reading = undefined;
      const gone = error instanceof ProblemError && error.status === 404;
      this.patch({ phase: "failed", problem: gone ? "The gateway does not know this session. It may have been deleted." : messageOf(error) });
    }
  }

  async #attach(client: SandboxAgentClient): Promise<void> {
    const info = this.get().info;
    const session = await client.resumeSession({ sessionId: this.id, after: this.#seq, ...(info ? { cwd: info.cwd } : {}) });
    this.#attached(client, session.result, session.continuity);
  }

  #attached(client: SandboxAgentClient, opened: unknown, continuity: string | undefined): void {
    if (client !== this.#client) return;
    this.#caughtUp();
    const result = opened as { configOptions?: unknown[]; modes?: ModeState; _meta?: Record<string, { turn?: string }> };
    this.patch({
      phase: "live", problem: undefined, continuity: continuity ?? this.get().continuity, unwritable: undefined,
      options: optionsOf(result.configOptions ?? this.#transcript.configOptions, result.modes, this.#transcript.modeId),
      running: result._meta?.[META]?.turn === "running" || this.#own !== undefined,
    });
    this.#changed();
    if (!this.get().running) this.#sendNext();
  }

  /** Reads the newest events; #reading holds what comes meanwhile. */
  async #read(client: SandboxAgentClient, last: number, window: number): Promise<void> {
    this.#reading ??= [];
    let after = Math.max(0, last - window);
    const transcript = new Transcript();
    const history = new History(transcript);
    let from = after;
    let first = true;
    let gone = 0; // events up to here the gateway does not keep
    for (;;) {
      const page = await client.api.sessionEvents(this.id, { after, limit: pageSize }).catch((error: unknown) => {
        const oldest = oldestKept(error);
        if (oldest === undefined || oldest <= after + 1) throw error;
        gone = oldest - 1;
        return client.api.sessionEvents(this.id, { after: gone, limit: pageSize });
      });
      let events = page.events;
      if (first && after > 0) {
        const skip = firstPrompt(events);
        from = (events[skip]?.seq ?? after + 1) - 1;
        events = events.slice(skip);
      }
      first = false;
      for (const event of events) history.add(event);
      after = page.events.at(-1)?.seq ?? after;
      if (!page.hasMore || page.events.length === 0) break;
    }
    this.#transcript = transcript;
    this.#seq = after;
    this.#from = from;
    this.patch({ earlier: from > gone ? from : 0 });
    this.#changed();
  }

  /** Reads what came since. */
  async #readOn(client: SandboxAgentClient): Promise<void> {
    this.#reading ??= [];
    const history = new History(this.#transcript);
    for (;;) {
      const page = await client.api.sessionEvents(this.id, { after: this.#seq, limit: pageSize });
      for (const event of page.events) history.add(event);
      this.#seq = page.events.at(-1)?.seq ?? this.#seq;
      if (!page.hasMore || page.events.length === 0) break;
    }
    this.#changed();
  }

  /** Shows more of the past. The rows of before keep their places from the end. */
  async readEarlier(): Promise<void> {
    const client = this.#client;
    if (!client || this.#from === 0 || this.get().loadingEarlier) return;
    this.patch({ loadingEarlier: true });
    try {
      const shown = this.#seq - this.#from;
      await this.#read(client, this.#seq, Math.max(shown * 4, firstWindow * 4));
      this.#caughtUp();
    } finally {
      this.patch({ loadingEarlier: false });
    }
  }

  /** What came while history was read and is newer goes behind it. */
  #caughtUp(): void {
    const waited = this.#reading ?? [];
    this.#reading = undefined;
    for (const { params, run } of waited) this.#inOrder(params, run);
  }

  #listen(client: SandboxAgentClient): void {
    const mine = (params: { sessionId?: string }) => params.sessionId === this.id;
    this.#off = [
      client.onUpdate((n) => {
        if (mine(n)) this.#inOrder(n, () => this.#update(n.update as SessionUpdate));
      }),
      client.onTurnEnded((ended) => {
        if (mine(ended)) this.#inOrder(ended, () => this.#ended(ended.result, ended.error));
      }),
      client.onSessionStorage((storage) => {
        if (mine(storage)) this.patch({ unwritable: storage.writable ? undefined : (storage.reason ?? "") });
      }),
      client.onSessionEnded((ended) => {
        if (!mine(ended)) return;
        this.#inOrder(ended, () => {
          noteEnd(this.#transcript, ended.data as never, Date.now());
          this.#changed();
          void this.refresh();
        });
      }),
    ];
  }

  /** Runs it unless the event is shown already, and behind what is being read. */
  #inOrder(params: unknown, run: () => void): void {
    if (this.#reading) {
      this.#reading.push({ params, run });
      return;
    }
    const seq = seqOf(params);
    this.#transcript.place = seq;
    if (seq !== undefined) {
      if (seq <= this.#seq) return;
      this.#seq = seq;
    }
    run();
  }

  #update(update: SessionUpdate): void {
    if (update.sessionUpdate === "user_message_chunk" && !this.get().running) this.patch({ running: true });
    const { forgot } = this.#transcript;
    this.#transcript.apply(update, Date.now());
    if (this.#transcript.forgot > forgot) this.patch({ continuity: "fresh" });
    this.#changed();
  }

  #ended(result: PromptResponse | undefined, error: Failure | undefined): void {
    this.#transcript.endTurn({ ...(result ? { result } : {}), ...(error ? { error } : {}) }, Date.now());
    const smooth = result !== undefined && result.stopReason !== "cancelled";
    this.patch({ running: false, stopping: false, held: this.get().queue.length > 0 && !smooth });
    this.#changed();
    if (smooth) this.#sendNext();
  }

  /** The agent asks a person something. */
  asked(ask: Ask): void {
    this.#inOrder(undefined, () => {
      showAsk(this.#transcript, askFrame(ask), ask.at);
      this.#changed();
    });
  }

  /** It was answered here; what was answered elsewhere stands in the log. */
  answered(ask: Ask, response: unknown): void {
    const frame = askFrame(ask);
    const show = (result: unknown) => this.#inOrder(undefined, () => {
      showAnswer(this.#transcript, frame, result, Date.now());
      this.#changed();
    });
    const client = this.#client;
    if (response !== undefined || !client) return show(response);
    void client.api.sessionEvents(this.id, { after: Math.max(0, this.#seq - answerWindow), limit: pageSize }).then(({ events }) => show(answerIn(events, frame)), () => show(undefined));
  }

  /** Tells of the rows, with the next frame. */
  #changed(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    this.schedule(() => {
      this.#scheduled = false;
      const t = this.#transcript;
      const { usage, background, commands, title } = this.get();
      if (t.usage !== usage || t.background !== background || t.commands !== commands || (t.title !== undefined && t.title !== title)) this.patch({ usage: t.usage, background: t.background, commands: t.commands, title: t.title ?? title });
      if (t.configOptions !== this.#seenOptions || t.modeId !== this.#seenMode) {
        const options = t.configOptions === this.#seenOptions ? this.get().options : optionsOf(t.configOptions, undefined, undefined);
        this.#seenOptions = t.configOptions;
        this.#seenMode = t.modeId;
        if (this.get().phase === "live") this.patch({ options: withMode(options.length > 0 ? options : this.get().options, t.modeId) });
      }
      this.rows.show(t.rows);
    });
  }
  #seenOptions: readonly unknown[] | undefined;
  #seenMode: string | undefined;

  /** Asks the gateway how the session is. */
  async refresh(): Promise<void> {
    try {
      const info = await this.#client?.api.session(this.id);
      if (info) this.seen(info);
    } catch {
      // The list of sessions says what became of it.
    }
  }

  /** Takes what another part of the page knows of the session anyway. */
  seen(info: SessionInfo): void {
    const before = this.get().info;
    if (before && before.updatedAt === info.updatedAt && before.state === info.state && before.clients === info.clients && before.pending === info.pending && before.title === info.title && before.continuity === info.continuity && JSON.stringify(before.metadata) === JSON.stringify(info.metadata)) return;
    // Another client has closed it, and this page gets no more of it; or opened it again.
    const shut = info.state === "closed" || info.state === "ended";
    const over = this.get().phase === "live" && shut;
    if (this.get().phase === "reading" && !shut && this.#client) void this.#attach(this.#client).catch(() => {});
    this.patch({ info, continuity: info.continuity, ...(info.title ? { title: info.title } : {}), ...(over ? { phase: "reading" as const, running: false, stopping: false } : {}) });
  }

  /** Sends a prompt, now or when the running turn has ended. False when the queue is full. */
  send(blocks: readonly ContentBlock[]): boolean {
    const { running, queue, phase } = this.get();
    if (running || this.#own || queue.length > 0 || phase !== "live") {
      if (queue.length >= maxQueue) return false;
      this.patch({ queue: [...queue, { id: this.#nextWaiting++, blocks }] });
      return true;
    }
    this.patch({ sent: this.get().sent + 1 });
    this.#prompt(blocks);
    return true;
  }

  unqueue(id: number): Waiting | undefined {
    const found = this.get().queue.find((w) => w.id === id);
    const queue = this.get().queue.filter((w) => w.id !== id);
    this.patch({ queue, held: this.get().held && queue.length > 0 });
    return found;
  }

  /** Lets the queue go on after a turn was stopped. */
  release(): void {
    this.patch({ held: false });
    if (!this.get().running) this.#sendNext();
  }

  #sendNext(): void {
    const [next, ...queue] = this.get().queue;
    if (!next || this.get().held || this.#own || this.get().phase !== "live") return;
    this.patch({ queue });
    this.#prompt(next.blocks);
  }

  #prompt(blocks: readonly ContentBlock[]): void {
    const client = this.#client;
    if (!client) return;
    this.#transcript.place = undefined;
    this.#transcript.prompt(blocks, Date.now());
    this.#changed();
    this.patch({ running: true, stopping: false, held: false });
    const turn = client.prompt({ sessionId: this.id, prompt: [...blocks] });
    this.#own = turn;
    const over = (result: PromptResponse | undefined, error: Failure | undefined) => {
      if (this.#own !== turn) return; // another connection follows the session now
      this.#own = undefined;
      // Updates that came while the past was read belong before the end.
      if (this.#reading) this.#reading.push({ params: undefined, run: () => this.#ended(result, error) });
      else {
        this.#transcript.place = undefined;
        this.#ended(result, error);
      }
    };
    turn.then((done) => over(done.response, undefined), (error: unknown) => over(undefined, { message: messageOf(error), code: error instanceof AcpRpcError ? error.code : undefined }));
  }

  /** Asks the agent to stop. */
  async stop(): Promise<void> {
    if (!this.get().running) return;
    this.patch({ stopping: true, held: this.get().queue.length > 0 });
    await this.#client?.cancel(this.id);
  }

  /** Ends the process of an agent that does not stop, and takes the session up again. */
  async endProcess(): Promise<void> {
    await this.#client?.closeSession(this.id);
    await this.reopen();
  }

  async setOption(option: ConfigOption, value: string | boolean): Promise<void> {
    const client = this.#client;
    if (!client) return;
    const before = this.get().options;
    this.patch({ options: before.map((o) => (o.id === option.id ? { ...o, current: value } : o)) });
    try {
      if (option.id === modesOnly) await client.setSessionMode(this.id, String(value));
      else {
        const result = await client.setSessionConfigOption((typeof value === "boolean" ? { sessionId: this.id, configId: option.id, type: "boolean", value } : { sessionId: this.id, configId: option.id, value }) as never);
        if (Array.isArray(result.configOptions)) this.patch({ options: optionsOf(result.configOptions, undefined, undefined) });
      }
    } catch (error) {
      this.patch({ options: before });
      throw error;
    }
  }

  /** Gives the session credentials. An agent that cannot take them as it is lets go of the session and takes it up with them. */
  async giveCredentials(credentials: Record<string, string>): Promise<void> {
    const client = this.#client;
    if (!client) return;
    const cwd = this.get().info?.cwd;
    const give = () => client.resumeSession({ sessionId: this.id, after: this.#seq, credentials, ...(cwd === undefined ? {} : { cwd }) });
    let session = await give();
    if (session.unsupported.some((u) => u.field === "credentials")) {
      await client.closeSession(this.id);
      session = await give();
    }
    this.#attached(client, session.result, session.continuity);
  }

  /** Opens a session again that was closed. */
  async reopen(): Promise<void> {
    const client = this.#client;
    if (!client) return;
    await this.#attach(client);
    await this.refresh();
  }

  #leave(): void {
    for (const off of this.#off) off();
    this.#off = [];
    this.#reading = undefined;
    this.#own = undefined;
  }

  /** Stops following; the session goes on at the gateway. */
  async dispose(): Promise<void> {
    const client = this.#client;
    this.#opening++;
    this.#leave();
    this.#client = undefined;
    if (this.get().phase === "live") await client?.detachSession(this.id).catch(() => {});
  }
}

interface ModeState {
  readonly currentModeId: string;
  readonly availableModes: readonly { readonly id: string; readonly name: string; readonly description?: string | null }[];
}

/** The id that stands for the mode of agents that have modes and no option for it. */
const modesOnly = "\u0000mode";

export function optionsOf(raw: readonly unknown[] | undefined, modes: ModeState | undefined, modeId: string | undefined): ConfigOption[] {
  const options: ConfigOption[] = [];
  for (const value of raw ?? []) {
    const o = value as { id?: string; name?: string; category?: string | null; description?: string | null; type?: string; currentValue?: string | boolean; options?: readonly (Choice | { options: readonly Choice[] })[] };
    if (typeof o.id !== "string" || o.currentValue === undefined) continue;
    const choices = (o.options ?? []).flatMap((c) => ("options" in c ? c.options : [c]));
    options.push({
      id: o.id, name: o.name ?? o.id, category: o.category ?? undefined, description: o.description ?? undefined, current: o.currentValue,
      choices: choices.map((c) => ({ value: c.value, name: c.name, description: c.description ?? undefined })),
    });
  }
  if (modes && modes.availableModes.length > 0 && !options.some((o) => o.category === "mode")) {
    options.unshift({
      id: modesOnly, name: "Mode", category: "mode", description: undefined, current: modeId ?? modes.currentModeId,
      choices: modes.availableModes.map((m) => ({ value: m.id, name: m.name, description: m.description ?? undefined })),
    });
  }
  return options;
}

interface Choice {
  readonly value: string;
  readonly name: string;
  readonly description?: string | null;
}

function withMode(options: readonly ConfigOption[], modeId: string | undefined): readonly ConfigOption[] {
  if (modeId === undefined) return options;
  return options.map((o) => (o.category === "mode" && o.choices.some((c) => c.value === modeId) ? { ...o, current: modeId } : o));
}

function seqOf(params: unknown): number | undefined {
  const meta = (params as { _meta?: Record<string, { seq?: unknown }> | null } | undefined)?._meta?.[META];
  return typeof meta?.seq === "number" ? meta.seq : undefined;
}

/** With the next frame; in a hidden window, where there are none, a little later. */
function nextFrame(run: () => void): void {
  let done = false;
  const once = () => {
    if (done) return;
    done = true;
    run();
  };
  requestAnimationFrame(once);
  setTimeout(once, 250);
}

/** The oldest event that the gateway keeps, where an error says that those that were asked for are gone. */
function oldestKept(error: unknown): number | undefined {
  if (!(error instanceof ProblemError) || error.status !== 410) return undefined;
  const oldest = (error.problem as { oldestSeq?: unknown }).oldestSeq;
  return typeof oldest === "number" ? oldest : undefined;
}
