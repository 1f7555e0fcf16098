import { AcpRpcError, ConnectionLostError, META, NotConnectedError, ProblemError, TurnInterruptedError, type ContentBlock, type SessionInfo, type Session, type SessionMcpServer, type Turn } from "sandbox-agent";
import type { Attached } from "../state/attached.js";
import type { Ask } from "../state/inbox.js";
import { messageOf } from "../state/explain.js";
import type { Client } from "../state/gateway.js";
import { mayPass } from "../state/retry.js";
import { Store } from "../state/store.js";
import { Unsent } from "../state/unsent.js";
import { answerIn, askFrame, showAnswer, showAsk } from "./answers.js";
import { empty, type ConversationState, type Kept, type Prompt, type Waiting } from "./facts.js";
import { nextFrame } from "./frame.js";
import { noteEnd } from "./history.js";
import type { Row, Stop } from "./items.js";
import { Opening } from "./opening.js";
import { optionsOf, type ConfigOption } from "./options.js";
import { modeOption, type Ending, type Raise, type Told } from "./raise.js";
import type { Remark } from "./remarks.js";
import { isCopy, raiseFor, readLog, seqOf, Shown, shut } from "./shown.js";
import { Transcript } from "./transcript.js";
import { lasting, type Update } from "./updates.js";

/** What a session that was just made has answered. */
export interface Fresh {
  readonly unsupported: ConversationState["unsupported"];
  readonly result: unknown;
}

/** The rows, as one value that is another one whenever they changed. */
export interface RowsVersion {
  readonly rows: readonly Row[];
  readonly version: number;
}

/** Events that are read when a conversation is opened; more come when somebody asks for them. */
const firstWindow = 3000;
/** The most events of what was shown that are read when it is taken up anew. */
const anewWindow = 2 * firstWindow;
/** The most events that are shown of what is followed, beside those that somebody has asked for: then the older ones are let go, but not while somebody looks at them. */
const maxFollowed = 4 * anewWindow;
/** The most in any case. */
const maxHeld = 10 * maxFollowed;
/** The newest events in which the answer of another client is looked for, and how many may have come since. */
const answerWindow = 200;
const maxAnswers = 1000;
/** Prompts that wait here; then sending says that the queue is full. */
export const maxQueue = 64;

/** What is written for a session, and not sent. */
export interface Draft {
  readonly text: string;
  readonly attachments: readonly ContentBlock[];
  /** On changes; they are not in the text yet. */
  readonly remarks: readonly Remark[];
}

export const noDraft: Draft = { text: "", attachments: [], remarks: [] };

/** The text of a prompt. */
export const wordsOf = (blocks: readonly ContentBlock[]) => blocks.flatMap((b) => (b.type === "text" ? [b.text] : [])).join("\n");

/** A prompt as one string, however its texts are cut. */
const allOf = (blocks: Prompt) => JSON.stringify([blocks.map((b) => (b.type === "text" ? b.text : "")).join(""), blocks.filter((b) => b.type !== "text")]);

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
  /** Whether somebody looks back, and not at the end of what is shown, as who shows it says. */
  looksBack = () => false;
  /** Whether it was just made here: then writing goes on in it. */
  begun = false;
  #shown: Shown;
  #opening: Opening | undefined; // none where nobody follows the session
  #off: (() => void)[] = [];
  #scheduled = false;
  #nextWaiting = 1;
  #own: { readonly turn: Turn<2>; readonly sent: Kept; readonly at: number } | undefined;
  readonly #sent = new Set<Kept>(); // prompts of this page on their way, until the session tells of them; those of an earlier connection, too
  #asked = 0; // how often the gateway was asked how the session is
  #attaches = 0;
  #between = false; // the session is closed, to be opened again at once: what is sent waits
  readonly #wishes = new Map<string, { readonly value: string | boolean }>(); // options that a person has set, by id, until that is answered
  #heard = 0; // the newest event that has come, also where it waits for what is being read
  #servers: readonly SessionMcpServer[] | undefined; // as they were told last: newer than an answer that was asked for before

  /** Prompts that waited when the page was left are held back: nobody has seen what the session did since. */
  constructor(readonly id: string, private readonly held: Attached, readonly drafts: Unsent<Draft> = new Unsent(), private readonly waiting: Unsent<readonly Kept[]> = new Unsent()) {
    const waited = waiting.get().get(id) ?? [];
    super({ ...empty, queue: waited.map((kept, i) => ({ ...kept, id: i + 1 })), held: waited.length > 0 });
    this.#nextWaiting = waited.length + 1;
    this.#shown = new Shown(new Transcript(id), undefined);
  }

  get #client(): Client | undefined {
    return this.#opening?.client;
  }

  get #transcript(): Transcript {
    return this.#shown.transcript;
  }

  get #raise(): Raise | undefined {
    return this.#shown.raise;
  }

  /** What is being written and not sent. */
  get draft(): Draft {
    return this.drafts.get().get(this.id) ?? noDraft;
  }

  set draft(draft: Draft) {
    if (draft.text === "" && draft.attachments.length === 0 && draft.remarks.length === 0) this.drafts.drop(this.id);
    else this.drafts.put(this.id, draft);
  }

  /** Takes a prompt into what is being written, before it: none of that is lost. */
  write(blocks: readonly ContentBlock[]): void {
    const { text, attachments, remarks } = this.draft;
    const words = wordsOf(blocks);
    this.draft = { text: text.trim() === "" ? words : `${words}\n\n${text}`, attachments: [...attachments, ...blocks.filter((b) => b.type !== "text")], remarks };
  }

  /** Whether an update with this session's id belongs here: it is the session, or a subagent of it. */
  has(sessionId: string): boolean {
    return this.#transcript.has(sessionId);
  }

  /** What the session does, where the page follows it. */
  get turn(): string | undefined {
    const { phase, running, doing } = this.get();
    if (phase !== "live") return undefined;
    return running && doing === "idle" ? "running" : doing;
  }

  /** Begins to follow the session on a client; on another one later it goes on where it was. */
  async open(client: Client, fresh?: Fresh): Promise<void> {
    if (client !== this.#client || this.get().phase === "failed") await this.#open(client, fresh);
  }

  async #open(client: Client, fresh?: Fresh): Promise<void> {
    this.#leave();
    const opening = (this.#opening = new Opening(client));
    const raise = raiseFor(client, this.id);
    if (this.#raise) raise?.toldOnceAs(this.#raise);
    this.#shown.raise = raise;
    this.#listen(client);
    if (fresh) {
      this.held.made(client, this.id, this);
      this.patch({ unsupported: fresh.unsupported });
    }
    await this.#insist(opening, () => this.#takeUp(opening, fresh), (error, passes) => {
      const { phase } = this.get();
      if (!passes || phase === "loading") this.#failed(error);
      else if (phase === "live" && opening.hasFailed) this.patch({ problem: messageOf(error) }); // the next try may do
    });
  }

  /** Does something of an opening until it is done: what passes is tried again. */
  #insist(opening: Opening, run: () => Promise<unknown>, failed: (error: unknown, passes: boolean) => void): Promise<void> {
    return opening.step(async () => {
      while (opening === this.#opening) {
        try {
          await run();
          return;
        } catch (error) {
          if (opening !== this.#opening) return;
          const passes = mayPass(error);
          failed(error, passes);
          if (!passes) return;
          await opening.pause();
        }
      }
    });
  }

  async #takeUp(opening: Opening, fresh: Fresh | undefined): Promise<void> {
    const before = this.get().info;
    const info = await opening.client.api.session(this.id);
    if (opening !== this.#opening) return;
    const now = this.get().info;
    if (now && now !== before && shut(now) !== shut(info)) return await this.#takeUp(opening, fresh); // one of the two is old
    this.patch({ info, title: info.title || this.get().title, continuity: info.continuity });
    this.#has(info, this.#servers);
    if (fresh && this.#shown.seq === 0 && info.eventCount === 0) return this.#attached(opening, fresh.result, undefined); // it is attached, and nothing was said
    // What has come since it was read is told to who attaches, unless it is more than would be read anew.
    const { copied, seq } = this.#shown;
    const again = !opening.hasRead || copied !== isCopy(info) || info.eventCount - seq > anewWindow;
    if (again) await this.#read(opening, () => {
      const { from, length, transcript } = this.#shown;
      const since = Math.min(transcript.since, length > 0 && this.looksBack() ? from + 1 : Infinity);
      return {
        begin: info.eventCount - Math.min(anewWindow, Math.max(firstWindow, length)),
        since: Math.max(since, info.eventCount - (this.looksBack() ? maxHeld : this.#most) + 1), // not without end
      };
    });
    if (opening !== this.#opening) return;
    opening.hasRead = true;
    if (shut(this.get().info ?? info)) this.#over();
    else await this.#attach(opening);
  }

  #failed(error: unknown): void {
    const gone = error instanceof ProblemError && error.status === 404;
    // Nothing of that can be sent, or is shown, but what is being written is.
    if (gone) for (const { blocks } of [...this.#sent, ...this.get().queue].toReversed()) this.write(blocks);
    if (gone) this.#sent.clear();
    this.patch({ ...(gone ? { queue: [] } : {}), phase: "failed", problem: gone ? "The gateway does not know this session. It may have been deleted." : messageOf(error) });
    this.#keepAnew();
  }

  /** What there is can be read, and nothing said. */
  #over(): void {
    this.patch({ phase: "reading", problem: undefined, doing: "idle", running: false, stopping: false, held: this.get().queue.length > 0 });
  }

  async #attach(opening: Opening): Promise<void> {
    const session = await this.#resume(opening.client);
    this.#attached(opening, session.result, session.continuity);
  }

  #resume(client: Client, more: { readonly credentials?: Record<string, string> } = {}): Promise<Session<2>> {
    const cwd = this.get().info?.cwd;
    return this.held.open(client, this.id, this, () => client.resumeSession({ sessionId: this.id, after: this.#shown.seq, ...more, ...(cwd === undefined ? {} : { cwd }) }));
  }

  /** The session is attached, as it was asked for by an opening. Another one reads it anew, and attaches behind that. */
  #attached(opening: Opening, opened: unknown, continuity: string | undefined): void {
    if (opening !== this.#opening) return;
    this.#attaches++;
    this.patch({ phase: "live", problem: undefined, continuity: continuity ?? this.get().continuity, unwritable: undefined });
    const { info } = this.get();
    if (info && shut(info)) void this.refresh(); // it was opened again by that, or closed meanwhile
    const result = opened as Pick<Parameters<Raise["opened"]>[0], "configOptions" | "modes"> & { _meta?: Record<string, { turn?: string; seq?: number }> };
    const { turn, seq } = result._meta?.[META] ?? {};
    const at = seq ?? this.#newest;
    opening.behind(() => {
      const newer = this.#transcript.optionsAt > behindOf(at); // the session has told of newer options, but maybe not of modes
      const { configOptions, modes } = !newer ? result : { modes: this.#raise?.hasMode ? undefined : result.modes };
      const running = turn === "running" || this.#own !== undefined;
      this.#answeredBehind(newer ? this.#newest : at, this.#raise?.opened({ configOptions, modes, running, seq }) ?? (configOptions ? [{ update: { sessionUpdate: "config_option_update", configOptions } }] : []));
      this.#settle();
      this.#changed();
      if (!this.get().running) this.#sendNext();
    });
  }

  /** Reads the events behind one, which is asked for when its turn has come. What is shown then is what the session tells, and a prompt of this page of which it does not tell yet. */
  async #read(opening: Opening, what: () => { readonly begin: number; readonly followed?: Shown | undefined; readonly since?: number }): Promise<void> {
    const log = () => {
      const { begin, followed, since } = what();
      return readLog(opening.client, this.id, this.get().info, begin, followed, since);
    };
    await opening.read(log, (read) => {
      const { unconfirmed } = this.#transcript;
      read.transcript.toldOnceAs(this.#transcript);
      if (this.#raise) read.raise?.toldOnceAs(this.#raise);
      this.#shown = read;
      if (this.#own && unconfirmed && !this.#told(this.#own.sent)) this.#showOwn(this.#own);
      this.patch({ earlier: read.earlier });
    });
    if (opening !== this.#opening) return;
    if (this.get().phase === "live") this.#settle();
    this.#changed();
  }

  /** Shows more of the past. The rows of before keep their places from the end. */
  async readEarlier(): Promise<void> {
    const opening = this.#opening;
    if (!opening || this.#shown.from === 0 || this.get().loadingEarlier) return;
    this.patch({ loadingEarlier: true });
    try {
      await this.#read(opening, () => {
        const { seq, length, transcript } = this.#shown;
        const wanted = Math.max(length, firstWindow) * 4;
        const since = Math.max(transcript.since, seq - maxHeld + 1);
        this.#most = Math.max(maxFollowed, wanted + anewWindow, seq - since + anewWindow);
        return { begin: seq - wanted, since, followed: this.get().phase === "live" && !opening.busy ? this.#shown : undefined };
      });
    } finally {
      this.patch({ loadingEarlier: false });
    }
  }

  #most = maxFollowed;

  /** Lets go of the oldest events of a session that is followed for long. */
  #shorten(): void {
    const { length } = this.#shown;
    if (length <= this.#most || this.#opening?.reading || (length <= maxHeld && this.looksBack())) return;
    this.#shown.shorten(anewWindow);
    this.#most = Math.max(maxFollowed, this.#shown.length + anewWindow); // where one row is as long as that
    this.patch({ earlier: this.#shown.earlier });
  }

  #saidMoved = false; // by the node that the session has left

  #listen(client: Client): void {
    const mine = (params: { sessionId?: string }) => params.sessionId === this.id;
    this.#off = [
      client.onUpdate((n) => {
        if (!this.#transcript.has(n.sessionId)) return;
        const update = n.update as unknown as Update;
        this.#inOrder(n, () => this.#show(this.#raise ? this.#raise.update(update, seqOf(n)) : [{ sessionId: n.sessionId, update }]), lasting(update));
      }),
      client.onTurnEnded((ended) => {
        if (this.#raise && mine(ended) && ended.began !== false) this.#inOrder(ended, () => this.#show(this.#raise?.ended(ended, seqOf(ended)) ?? []));
      }),
      client.onMcpServers((told) => {
        if (!mine(told)) return;
        this.#servers = told.servers;
        const { given } = this.get();
        if (given) this.patch({ given: { ...given, servers: told.servers } });
      }),
      client.onEventsLost((lost) => {
        // It is read anew, which says what is gone, unless that is done just now, or shown already.
        if (mine(lost) && !this.#opening?.reading && lost.lastSeq > this.#shown.seq) void this.again();
      }),
      client.onSessionStorage((storage) => {
        if (mine(storage)) this.patch({ unwritable: storage.writable ? undefined : (storage.reason ?? "") });
      }),
      client.onSessionEnded((ended) => {
        if (!mine(ended)) return;
        this.#inOrder(ended, () => {
          noteEnd(this.#transcript, ended.data as never, Date.now());
          this.#saidMoved = ended.data.reason === "moved";
          this.#changed();
          if (ended.data.reason === "deleted") this.#deleted();
          else void this.refresh();
        });
      }),
      client.onSessionLost(({ sessionId }) => {
        if (sessionId !== this.id) return;
        this.held.lost(client, sessionId);
        void this.again();
      }),
      // What the node before it says of that may not come any more: the hub follows the session to the other one.
      client.onSessionMoved((moved) => {
        if (!mine(moved)) return;
        this.#inOrder(moved, () => {
          if (!this.#saidMoved) noteEnd(this.#transcript, { reason: "moved", message: `it goes on at the node ${moved.node} of the same hub` }, Date.now());
          this.#saidMoved = false;
          this.#changed();
          void this.refresh();
        });
      }),
    ];
  }

  /** Runs it unless it is shown already, and behind what is being read. */
  #inOrder(params: unknown, run: () => void, lasting = false): void {
    this.#heard = Math.max(this.#heard, seqOf(params) ?? 0);
    this.#behind(() => {
      if (this.#shown.takes(params, lasting)) run();
    });
  }

  #behind(run: () => void): void {
    if (this.#opening) this.#opening.behind(run);
    else run();
  }

  #show(told: readonly Told[]): void {
    const { forgot } = this.#transcript;
    const at = Date.now();
    for (const { sessionId, update } of told) this.#transcript.apply(update, at, sessionId);
    if (this.#transcript.forgot > forgot) this.patch({ continuity: "fresh" });
    this.#settle();
    this.#changed();
  }

  /** Takes what the session does now. */
  #settle(): void {
    const t = this.#transcript;
    const before = this.get();
    const running = t.turnOpen || this.#own !== undefined;
    if (!running && before.stopping && t.doing === "idle") this.patch({ stopping: false });
    if (running === before.running && t.doing === before.doing) return;
    if (running || !before.running) return this.patch({ running, doing: t.doing });
    const smooth = t.ending !== "cancelled" && t.ending !== "error";
    this.patch({ running, doing: t.doing, stopping: false, held: before.queue.length > 0 && (before.held || !smooth) });
    if (smooth) this.#sendNext();
  }

  /** The agent asks a person something. */
  asked(ask: Ask): void {
    this.#inOrder(undefined, () => {
      showAsk(this.#transcript, askFrame(ask), ask.at);
      this.#show(this.#raise?.asked(ask.id) ?? []);
    });
  }

  /** It was answered here; what was answered elsewhere stands in the log. */
  answered(ask: Ask, response: unknown): void {
    const frame = askFrame(ask);
    const show = (result: unknown) => this.#inOrder(undefined, () => {
      showAnswer(this.#transcript, frame, result, Date.now(), seqOf(ask.request));
      this.#show(this.#raise?.answered(ask.id) ?? []);
    });
    const client = this.#client;
    if (response !== undefined || !client) return show(response);
    void client.api.sessionEvents(this.id, { after: Math.max(0, this.#shown.seq - answerWindow), limit: maxAnswers, acp: client.acpVersion }).then(({ events }) => show(answerIn(events, frame, this.#raise !== undefined)), () => show(undefined));
  }

  /** Tells of the rows, with the next frame. */
  #changed(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    nextFrame(() => {
      this.#scheduled = false;
      this.#arrived();
      const t = this.#transcript;
      const { usage, background, commands, title } = this.get();
      // What is not told again is as before, whatever was read anew since.
      const now = { usage: t.usage ?? usage, background: t.background, commands: t.commands ?? commands, title: t.title ?? title };
      if (now.usage !== usage || background !== now.background || now.commands !== commands || now.title !== title) this.patch(now);
      if (t.configOptions !== this.#seenOptions) {
        this.#seenOptions = t.configOptions;
        if (t.configOptions && this.get().phase === "live") this.#showOptions(); // where nothing was told they are as before
      }
      this.#shorten();
      this.rows.show(t.rows);
    });
  }
  #seenOptions: readonly unknown[] | undefined;

  /** The newest event that the session has told of. */
  get #newest(): number {
    return Math.max(this.#heard, this.#shown.seq);
  }

  /** Shows the options as the session tells them, and those that a person has just set as they are to be. */
  #showOptions(): void {
    const { configOptions } = this.#transcript;
    this.#seenOptions = configOptions;
    this.patch({ options: optionsOf(configOptions).map((o) => ({ ...o, current: this.#wishes.get(o.id)?.value ?? o.current })) });
  }

  /** Takes what an answer tells that came behind an event: there may be no event of it. */
  #answeredBehind(seq: number, told: readonly { readonly sessionId?: string; readonly update: Update }[]): void {
    const t = this.#transcript;
    const { place } = t;
    t.place = behindOf(seq);
    for (const { sessionId, update } of told) t.apply(update, Date.now(), sessionId);
    t.place = place;
    this.#showOptions();
  }

  /** What was said can still be read, as long as the page is open. */
  #deleted(): void {
    const { info } = this.get();
    const ended = { at: new Date().toISOString(), reason: "deleted", message: "It was deleted. What is shown here is gone with this page.", terminatedBy: "" };
    if (info) this.patch({ info: { ...info, state: "ended" as const, ended } });
    this.#over();
  }

  /** Asks the gateway how the session is. Of two answers the one that was asked for later counts. */
  async refresh(): Promise<void> {
    const told = this.#servers;
    const asked = ++this.#asked;
    const attaches = this.#attaches;
    try {
      const info = await this.#client?.api.session(this.id);
      if (!info || asked !== this.#asked) return;
      if (attaches !== this.#attaches) return await this.refresh(); // it may say how the session was before
      this.seen(info, true);
      if (this.get().phase === "live" && shut(info) && !this.#between) this.#over(); // that was told before, while it was being attached
      this.#has(info, told);
    } catch {
      // The list of sessions says what became of it.
    }
  }

  /** Takes what the session has, unless its servers were told of since it was asked for: told is what was told before. */
  #has(info: SessionInfo, told: readonly SessionMcpServer[] | undefined): void {
    const servers = this.#servers !== undefined && this.#servers !== told ? this.#servers : (info.mcpServers ?? []);
    this.patch({ given: { servers, instructions: info.instructions ?? [], skills: info.skills ?? [] } });
  }

  /** Takes what another part of the page knows of the session anyway. A list of a hub is late, and so not certain. */
  seen(info: SessionInfo, certain: boolean): void {
    const { info: before, phase } = this.get();
    if (before && before.updatedAt === info.updatedAt && before.state === info.state && before.background === info.background && before.clients === info.clients && before.pending === info.pending && before.title === info.title && before.continuity === info.continuity && JSON.stringify(before.metadata) === JSON.stringify(info.metadata)) return;
    if (!certain && shut(info) !== (phase === "reading")) return void this.refresh();
    // Another client has closed it, and this page gets no more of it; or opened it again.
    const over = phase === "live" && shut(info) && !this.#between;
    const opening = this.#opening;
    if (phase === "reading" && !shut(info) && opening && !opening.busy) {
      const now = () => (this.get().info === before ? info : this.get().info); // it may be closed once more before that is done
      void this.#insist(opening, async () => shut(now() ?? info) || this.reopen(), () => {});
    }
    // Its process is gone, and with it what the process had.
    if (before?.state !== info.state && (shut(info) || info.state === "dormant") && this.get().given?.servers.length) void this.refresh();
    this.patch({ info, continuity: info.continuity, ...(info.title ? { title: info.title } : {}) });
    if (over) this.#over();
  }

  /** Whether a prompt can be sent now. What refuses to take the session up refuses it, too: until that has passed it waits. */
  get #takesPrompts(): boolean {
    const { phase, problem } = this.get();
    return phase === "live" && problem === undefined && !this.#between;
  }

  /** Sends a prompt, now or when the running turn has ended. False when the queue is full. */
  send(blocks: readonly ContentBlock[]): boolean {
    const { running, queue } = this.get();
    if (running || this.#own || queue.length > 0 || !this.#takesPrompts) {
      if (queue.length >= maxQueue) return false;
      this.patch({ queue: [...queue, { id: this.#nextWaiting++, blocks }] });
      return true;
    }
    this.patch({ sent: this.get().sent + 1 });
    this.#prompt(blocks);
    return true;
  }

  /** Whether prompts are on their way of which the session has not told. */
  get sending(): boolean {
    return this.#sent.size > 0;
  }

  /** What would be gone with the page: what waits here, behind what a broken connection may not have taken. */
  get unsent(): readonly Kept[] {
    return [...(this.#client?.state === "open" ? [] : this.#sent), ...this.get().queue].map(({ blocks, behind }) => ({ blocks, behind }));
  }

  /** Puts it where it is found after a reload. */
  keep(): void {
    const { unsent } = this;
    if (unsent.length > 0) this.waiting.put(this.id, unsent);
    else this.waiting.drop(this.id);
  }

  /** What was put there is another now, and nobody says when the browser ends a page that is out of sight. */
  #keepAnew(): void {
    if (!this.#client || !this.waiting.get().has(this.id)) return;
    this.keep();
    this.drafts.save();
    this.waiting.save();
  }

  /** Whether the session tells of a prompt that was sent. The same words of before are another one. */
  #told({ blocks, behind }: Kept, transcript = this.#transcript): boolean {
    return behind !== undefined && transcript.rows.some(({ item }) => item.kind === "user" && item.place !== undefined && item.place > behind && allOf(item.blocks) === allOf(blocks));
  }

  /** Lets go of what has arrived. */
  #arrived(): void {
    const { queue, held } = this.get();
    const sent = [...this.#sent].filter((one) => this.#told(one));
    const missing = queue.filter((one) => !this.#told(one));
    if (sent.length === 0 && missing.length === queue.length) return;
    for (const one of sent) this.#sent.delete(one);
    this.patch({ queue: missing, held: held && missing.length > 0 });
    this.#keepAnew();
  }

  /** Takes back a prompt that has not arrived, as far as anybody knows: a person sends it again, or not. */
  #takeBack(sent: Kept): void {
    if (!this.#client) return this.write(sent.blocks); // nobody shows what waits here
    const { queue } = this.get();
    this.patch({ queue: queue.toSpliced(queue.filter((w) => w.behind !== undefined).length, 0, { ...sent, id: this.#nextWaiting++ }), held: true });
    this.#changed(); // it may have arrived after all
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
    if (!next || this.get().held || this.#own || !this.#takesPrompts) return;
    this.patch({ queue });
    this.#prompt(next.blocks);
  }

  #prompt(blocks: readonly ContentBlock[]): void {
    const client = this.#client;
    if (!client) return;
    this.patch({ stopping: false, held: false });
    const turn = client.prompt({ sessionId: this.id, prompt: blocks as never });
    const sent: Kept = { blocks, behind: this.#shown.seq };
    const own = (this.#own = { turn, sent, at: Date.now() });
    this.#sent.add(sent);
    this.#keepAnew();
    this.#showOwn(own);
    this.#show([]);
    const over = (ending: Ending, interrupted = false) => {
      if (this.#own !== own) return; // another connection follows the session now
      // Updates that came while the past was read belong before the end.
      this.#behind(() => {
        this.#own = undefined;
        this.#transcript.place = undefined;
        if (this.#raise) this.#show(this.#raise.ended(ending));
        else {
          // The session tells of each turn's end, but not of a prompt that never began, nor of what was lost with a gateway.
          if (this.#transcript.unconfirmed || (interrupted && this.#transcript.turnOpen)) this.#transcript.over(ending, Date.now());
          this.#show([]);
        }
      });
    };
    turn.then(
      (done) => {
        if (this.#sent.delete(sent)) this.#keepAnew();
        over({ result: { stopReason: done.stopReason, usage: done.usage ?? null } });
      },
      (error: unknown) => {
        // Who has let go of the session is not told how the turn of a prompt ends that was sent.
        const lost = this.#own === own ? this.#transcript.unconfirmed && (error instanceof NotConnectedError || error instanceof ConnectionLostError) : this.#client !== undefined || client.state !== "open";
        if (this.#sent.delete(sent)) {
          if (lost && !this.#told(sent)) this.#takeBack(sent);
          else if (!this.#client && error instanceof AcpRpcError) void this.#refused(client, sent);
          this.#keepAnew();
        }
        over({ error: { message: messageOf(error), ...(error instanceof AcpRpcError ? { code: error.code } : {}) } }, error instanceof TurnInterruptedError);
      },
    );
  }

  /** Shows a prompt of this page that the session has not told of. */
  #showOwn({ sent, at }: { readonly sent: Kept; readonly at: number }): void {
    this.#transcript.place = undefined;
    this.#transcript.prompt(sent.blocks, at);
    for (const { sessionId, update } of this.#raise?.begun() ?? []) this.#transcript.apply(update, at, sessionId);
  }

  /** A prompt has failed when nobody followed its session any more: it is kept, unless its turn had begun, of which only the log knows. */
  async #refused(client: Client, sent: Kept): Promise<void> {
    const read = await readLog(client, this.id, undefined, sent.behind ?? 0).catch(() => undefined);
    if (!read || !this.#told(sent, read.transcript)) this.write(sent.blocks);
  }

  /** Asks the agent to stop. */
  async stop(): Promise<void> {
    if (!this.get().running && this.get().doing === "idle") return;
    this.patch({ stopping: true, held: this.get().queue.length > 0 });
    try {
      await this.#client?.cancel(this.id);
    } catch (error) {
      this.patch({ stopping: false }); // it can be asked again
      throw error;
    }
  }

  /** Ends something that goes on in the background, and nothing else. */
  async stopOne(stop: Stop): Promise<void> {
    const client = this.#client;
    if (stop.kind === "terminal") await client?.cancelTerminal(this.id, stop.terminalId);
    else if (stop.kind === "tool_call") await client?.cancelToolCall(this.id, stop.toolCallId);
    else await client?.cancel(stop.sessionId);
  }

  /** Ends the process of an agent that does not stop, and takes the session up again. */
  async endProcess(): Promise<void> {
    await this.#closed(() => this.reopen());
  }

  /** Closes the session and opens it again. */
  async #closed<T>(open: () => Promise<T>): Promise<T> {
    this.#between = true;
    try {
      await this.#client?.closeSession(this.id);
      return await open();
    } catch (error) {
      const { phase, info } = this.get();
      if (phase === "live" && info && shut(info)) this.#over(); // that was told while it was to be opened again
      throw error;
    } finally {
      this.#between = false;
      if (!this.get().running) this.#sendNext();
    }
  }

  async setOption(option: ConfigOption, value: string | boolean): Promise<void> {
    const client = this.#client;
    if (!client) return;
    const { id } = option;
    const wish = { value }; // of two for one option the later one counts, also where the earlier one is answered late
    this.#wishes.set(id, wish);
    this.#showOptions();
    const answered = (update: object) => this.#answeredBehind(this.#newest, this.#raise?.update(update as Update, undefined) ?? [{ update: update as Update }]);
    try {
      if (this.#raise?.hasMode && id === modeOption) {
        await client.setSessionMode(this.id, String(value));
        answered({ sessionUpdate: "current_mode_update", currentModeId: String(value) });
      } else {
        const type = typeof value === "boolean" ? { type: "boolean" } : this.#raise ? {} : { type: "id" };
        const { configOptions } = await client.setSessionConfigOption({ sessionId: this.id, configId: id, ...type, value } as never);
        if (Array.isArray(configOptions)) answered({ sessionUpdate: "config_option_update", configOptions });
      }
    } finally {
      if (this.#wishes.get(id) === wish) this.#wishes.delete(id);
      this.#showOptions();
    }
  }

  /** Gives the session credentials. An agent that cannot take them as it is lets go of the session and takes it up with them. */
  async giveCredentials(credentials: Record<string, string>): Promise<void> {
    const opening = this.#opening;
    if (!opening) return;
    const give = () => this.#resume(opening.client, { credentials });
    let session = await give();
    if (session.unsupported.some((u) => u.field === "credentials")) session = await this.#closed(give);
    this.#attached(opening, session.result, session.continuity);
  }

  /** Opens a session again that was closed. */
  async reopen(): Promise<void> {
    const opening = this.#opening;
    if (!opening) return;
    if (this.#shown.copied || isCopy(this.get().info)) return this.again();
    await opening.step(() => this.#attach(opening));
    await this.refresh();
  }

  /**
   * Takes the session anew on the same client, as on another one: what was read from a hub's copy is in
   * another version and may not be all, and the node of a session may have been killed meanwhile.
   */
  async again(): Promise<void> {
    if (this.#opening) await this.#open(this.#opening.client);
  }

  #leave(): void {
    for (const off of this.#off) off();
    this.#off = [];
    this.#opening?.end();
    this.#opening = undefined;
    this.#own = undefined;
  }

  /** Stops following; the session goes on at the gateway. */
  async dispose(): Promise<void> {
    const client = this.#client;
    this.#leave();
    if (client) await this.held.leave(client, this.id, this);
  }
}

/** The place of an answer that has come behind an event: before the next one. */
const behindOf = (seq: number) => seq + 0.5;
