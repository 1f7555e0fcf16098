import type { PromptResponse } from "@agentclientprotocol/sdk/unstable";
import type { Backoff } from "acp-http-client";
import type { components } from "./api.gen.js";
import { AcpRpcError, NotConnectedError, TurnInterruptedError } from "./errors.js";
import { TURN_ENDED } from "./extensions.js";
import { metaOf } from "./meta.js";
import { isFinal, oldestKept, passes } from "./passing.js";
import { maxKept, Turn, type TurnEnd } from "./turn.js";
import type { Acp, AcpVersion } from "./versions.js";

/** How a turn ended that was not asked for on this connection. */
export interface TurnEnded {
  readonly sessionId: string;
  readonly promptId?: string;
  readonly result?: PromptResponse;
  readonly error?: { readonly code: number; readonly message: string; readonly data?: unknown };
  /** False for a prompt that was cancelled or refused while it waited: another turn may go on. */
  readonly began?: boolean;
}

/** How many ids that an application has chosen are known for its own. */
const maxGiven = 64;

type EventPage = components["schemas"]["EventPage"];

/** What a prompt needs of its client. */
interface Wire {
  /** Responses come beside the updates: only one prompt of a session at a time tells whose they are. */
  readonly oneByOne: boolean;
  /** The newest event of the session so far; undefined while the client is not attached to it. */
  after(): number | undefined;
  /** The newest event that the session had when the client was attached to it last: up to there nothing is of a prompt that is sent now. */
  newest(): number;
  /** Resolves when the session has come to the event, or cannot come to it on this connection any more. */
  reached(seq: number): Promise<void>;
  /**
   * Calls `go` right before the request is sent, so that what is sent then comes after it. It throws when nobody wants it any more, and
   * returns what is to be waited for before it is asked again.
   */
  send(promptId: string, go: () => Promise<void> | undefined): Promise<{ response: unknown; /** Resolves when its connection is lost. */ lost: Promise<void> } | { lost: true }>;
  /** What is waited for before a prompt is sent for the first time: while the network is broken it can still be taken back. */
  broken(): Promise<void> | undefined;
  /** Resolves when there is a connection again, rejects when there will be none. */
  connected(): Promise<void>;
  /** Resolves when the present connection is lost. */
  lost(): Promise<void>;
  /** How the gateway is asked again what it could not be asked. */
  patience(): Backoff;
  state(): Promise<components["schemas"]["Session"]["state"]>;
  events(after: number): Promise<EventPage>;
}

/**
 * Where a prompt is. It waits for the one before it, and is then sent, as soon as there is a connection; it has begun when it was answered, or was found
 * among the events; it is over when its turn is. What is cancelled before it was ever sent is over at once, and never sent.
 */
type Phase = "waits" | "sent" | "begun" | "over";

/**
 * What the client sees of the session since the gateway was last asked how the prompt goes. "anew": the session was opened
 * anew, and an end before that is history, of which nobody is told. "left": the client is not attached, and no end is told.
 * "deleted": the session is no more, and what was still on its way to the client went with it.
 */
type Sight = "all" | "anew" | "left" | "deleted";

/**
 * Whether the gateway has the prompt. "open": it is still to be sent, or may have been lost with its connection. "unclear": the gateway could
 * not be asked about that: a cancel goes out all the same, what else is behind it waits. "done": it is on its way, or is not to be sent any more.
 */
type Delivery = "open" | "unclear" | "done";

/**
 * The end of a turn other than by the answer to its prompt, and how it is known. "found": in the session's events; what tells it may still be on
 * its way. "announced": in version 2, where the state that ends the turn may come behind it. "told": with all that came before it.
 */
interface KnownEnd {
  readonly ended: TurnEnded;
  readonly how: "found" | "announced" | "told";
}

/** Resolves, when there is a connection, with what sends a cancel on it, of all or of some prompts alone, and with `again` says false when that was lost. */
type Connected = () => Promise<(again: boolean, promptIds?: string[]) => Promise<unknown>>;

/** A cancel until it is sent. */
interface Cancel {
  readonly sessionId: string;
  readonly asked: readonly Prompt[]; // the prompts that it is to end
  readonly done: Promise<void>;
}

interface Prompt {
  readonly id: string;
  readonly sessionId: string;
  readonly turn: Turn<AcpVersion>;
  phase: Phase;
  sight: Sight;
  delivery: Delivery;
  delivered: Promise<void>; // resolves with the next change of that: who has waited looks again
  changeDelivery: () => void;
  gone?: boolean; // it was sent at least once
  from: number; // the newest event of the session before it was sent
  floor: number; // the events up to this one are not its own, or came before
  cancels: number; // of all, sent behind it
  alone: number; // cancels of it and of what is behind it, sent behind it
  repeat?: Connected; // what repeats them
  held: Acp<AcpVersion, "SessionUpdate">[]; // before it is known to have begun: they may be of another client's turn
  heard?: boolean; // of version 1: its turn has had an update
  lost?: boolean; // its connection was: on another one its own words come as those of somebody else
  response?: unknown; // of version 2
  past?: boolean; // of version 2: a later prompt's message came, and with it the end of what is the turn's; how it ended may be history
  idle?: boolean; // the session's state was told to be so since the last message of a person
  end?: KnownEnd;
  tell: () => void; // wakes who waits for another phase or sight, or for the end
}

/**
 * The prompts on their way, also across connections. In version 1 the response to a prompt
 * ends its turn. In version 2 it says that the turn has begun, and the end is told: by the
 * gateway's own notification, which names the prompt, and by the session's state.
 */
export class Prompts {
  readonly #answerEnds: boolean; // the turn, as in version 1
  readonly #cancelled: TurnEnd; // the end of a prompt that was cancelled before its turn began

  constructor(private readonly version: AcpVersion) {
    this.#answerEnds = version === 1;
    this.#cancelled = { stopReason: "cancelled", response: this.#answerEnds ? { stopReason: "cancelled" } : undefined };
  }

  readonly #open = new Map<string, Prompt>(); // by session and id
  readonly #order = new Map<string, Prompt[]>(); // by session, oldest first
  readonly #cancels = new Set<Cancel>();
  readonly #others = new Set<string>(); // sessions in which another client's turn goes on; of version 1
  readonly #prefix = crypto.randomUUID();
  #given: string[] = []; // the newest of these whose id the application has chosen, and which are over
  #count = 0;

  add(sessionId: string, connected: Connected, wire: Wire, given?: unknown): Turn<AcpVersion> {
    given ??= undefined; // as at the gateway null is none
    if (given !== undefined && (!given || typeof given !== "string" || this.#open.has(keyOf({ sessionId, promptId: given })))) throw new TypeError("give each prompt a promptId of its own");
    const queue = this.#queue(sessionId);
    const before = wire.oneByOne ? queue.at(-1) : undefined;
    const prompt: Prompt = {
      id: (given as string | undefined) ?? `${this.#prefix}-${++this.#count}`, sessionId, turn: new Turn<AcpVersion>(this.version, sessionId, () => this.cancel(sessionId, connected, prompt)),
      phase: before ? "waits" : "sent", sight: "all", delivery: "open", delivered: Promise.resolve(), changeDelivery: () => {},
      from: 0, floor: 0, cancels: 0, alone: 0, held: [], tell: () => {},
    };
    setDelivery(prompt, "open");
    const key = keyOf(prompt);
    this.#open.set(key, prompt);
    queue.push(prompt);
    this.#order.set(sessionId, queue);
    void this.#run(prompt, wire, before).finally(() => setDelivery(prompt, "done")).then(
      (end) => {
        if (given) this.#given = [...this.#given.slice(-maxGiven), key];
        this.#finish(prompt, () => prompt.turn.end(end));
      },
      (error: unknown) => this.#finish(prompt, () => prompt.turn.fail(error)),
    );
    return prompt.turn;
  }

  #queue(sessionId: string): Prompt[] {
    return this.#order.get(sessionId) ?? [];
  }

  #finish(prompt: Prompt, end: () => void): void {
    if (prompt.phase === "over") return;
    prompt.phase = "over";
    this.#open.delete(keyOf(prompt));
    this.#leaveOrder(prompt);
    end();
    prompt.tell();
  }

  #leaveOrder(prompt: Prompt): void {
    const queue = this.#queue(prompt.sessionId).filter((p) => p !== prompt);
    if (queue.length > 0) this.#order.set(prompt.sessionId, queue);
    else this.#order.delete(prompt.sessionId);
  }

  /** The response is here, if not yet handed on: updates are the next prompt's. */
  answered(asked: { sessionId: string; promptId: string }, result: unknown): void {
    const prompt = this.#open.get(keyOf(asked));
    if (!prompt) return;
    if (!prompt.heard && (result === undefined || metaOf(result).began === false)) {
      prompt.held = []; // of the turn that it waited for, which may go on
      return this.#leaveOrder(prompt);
    }
    if (prompt.heard) prompt.held = []; // of the next turn: the answer need not come in its place
    else this.#others.delete(prompt.sessionId); // what is held was its own after all
    if (this.version === 2) prompt.response = result;
    this.#begin(prompt);
    if (this.#answerEnds) this.#leaveOrder(prompt);
  }

  /** What is held is the turn's, if it begins with the prompt's message, where that is known. */
  #begin(prompt: Prompt, message?: string): void {
    if (prompt.phase === "over") return;
    prompt.phase = "begun";
    const held = prompt.held.splice(0);
    if (!message || (held[0] as { messageId?: string } | undefined)?.messageId === message) for (const update of held) prompt.turn.push(update);
  }

  /** The client is attached to the session, where a turn goes on or none does. With a prompt of its own, which was sent, it is taken for that one's. */
  attached(sessionId: string, running: boolean): void {
    if (running && !this.#queue(sessionId).some((p) => p.gone)) this.#others.add(sessionId);
    else this.#free(sessionId);
  }

  /** What the session has said up to an event comes again: an own prompt's words, too. */
  again(sessionId: string, upTo: number): void {
    for (const prompt of this.#queue(sessionId)) {
      if (!prompt.gone) continue;
      prompt.lost = true;
      prompt.floor = Math.max(prompt.floor, upTo);
    }
  }

  /** The application has opened the session anew. */
  reopened(sessionId: string): void {
    this.#see(sessionId, "anew");
  }

  /** The client has left the session, which goes on: only an answer that is on its way, or an end that was found, still ends a prompt. */
  detached(sessionId: string): void {
    this.#see(sessionId, "left");
  }

  /** Somebody has deleted the session: only an answer, or an end that was told or found, still ends a prompt. */
  deleted(sessionId: string): void {
    this.#see(sessionId, "deleted");
  }

  #see(sessionId: string, sight: Sight): void {
    for (const prompt of this.#open.values()) {
      if (prompt.sessionId !== sessionId) continue;
      prompt.sight = sight;
      prompt.tell();
    }
  }

  /** The turn of another client is over. */
  #free(sessionId: string): void {
    this.#others.delete(sessionId);
    const next = this.#queue(sessionId)[0];
    if (next && this.#answerEnds) next.held = [];
  }

  /** Gives an update to its turn, when that is one of this client's. */
  #give(sessionId: string, prompt: Prompt | undefined, update: Acp<AcpVersion, "SessionUpdate">, seq: number): void {
    if (this.#answerEnds && update.sessionUpdate === "user_message_chunk" && metaOf(update).prompt === true && !prompt?.lost) this.#others.add(sessionId);
    if (!prompt?.gone || seq <= prompt.floor) return;
    if (this.#answerEnds ? !this.#others.has(sessionId) : prompt.phase === "begun") {
      prompt.heard = this.#answerEnds;
      return prompt.turn.push(update);
    }
    // The answer, which says that it has begun, comes right behind its own message.
    if (update.sessionUpdate === "user_message") prompt.held = [];
    if (prompt.held.length < maxKept) prompt.held.push(update);
  }

  /** Gives an update to the session's oldest prompt. The end of a turn is that of each that has begun: the end of one before may be lost with its gateway. */
  update(sessionId: string, update: Acp<AcpVersion, "SessionUpdate">, seq = Infinity): void {
    const queue = this.#queue(sessionId);
    if (update.sessionUpdate === "user_message") {
      for (const prompt of queue) {
        prompt.idle = false;
        prompt.past ||= eventOf(update) > eventOf(prompt.response);
      }
    }
    this.#give(sessionId, queue.find((p) => !p.past), update, seq);
    if (update.sessionUpdate !== "state_update" || !("stopReason" in update)) return;
    for (const prompt of queue) {
      if (prompt.phase !== "begun" && prompt !== queue[0]) continue;
      prompt.idle = true;
      if (prompt.end?.how === "announced") this.#told(prompt, prompt.end.ended);
    }
  }

  #told(prompt: Prompt, ended: TurnEnded): void {
    prompt.end = { ended, how: "told" };
    this.#leaveOrder(prompt);
    prompt.tell();
  }

  /** Takes the end of a turn that was asked for on an earlier connection; false when it is somebody else's. */
  ended(ended: TurnEnded): boolean {
    const key = ended.promptId === undefined ? "" : keyOf(ended);
    const prompt = this.#open.get(key);
    if (!prompt) {
      if (ended.began !== false) this.#free(ended.sessionId);
      return this.#given.includes(key) || !!ended.promptId?.startsWith(this.#prefix); // of an own one the end was told
    }
    if (ended.began !== false && (!ended.error || prompt.phase === "begun")) this.#begin(prompt);
    // In version 2 the session's state may follow, unless the prompt never began.
    if (this.#answerEnds || prompt.idle || (ended.began === false || ended.error) && prompt.phase !== "begun") this.#told(prompt, ended);
    else if (prompt.end?.how !== "told") prompt.end = { ended, how: "announced" };
    return true;
  }

  failAll(error: Error): void {
    for (const prompt of [...this.#open.values()]) this.#finish(prompt, () => prompt.turn.fail(error));
  }

  /** The session is not there any more: what is known of how a turn ended counts. */
  failOf(sessionId: string, error: Error): void {
    for (const prompt of this.#queue(sessionId)) if (!prompt.end) this.#finish(prompt, () => prompt.turn.fail(error));
    this.#see(sessionId, "deleted");
  }

  /**
   * Ends the session's prompts that were never sent, and sends a cancel behind the others, where it does not come before one of them.
   * With `first` that is for this one and those of this client behind it: what is before it, or another client's, goes on.
   */
  async cancel(sessionId: string, connected: Connected, first?: Prompt): Promise<void> {
    const queue = this.#queue(sessionId);
    const from = first ? queue.indexOf(first) : 0;
    if (from < 0) return; // its end is here, if not yet handed on
    for (const prompt of queue.slice(from)) {
      if (prompt.gone) continue;
      this.#finish(prompt, () => prompt.turn.end(this.#cancelled));
      setDelivery(prompt, "done");
    }
    const asked = this.#queue(sessionId).slice(from);
    if (!first || asked.length > 0) await this.#cancelBehind(sessionId, asked, connected, !!first);
  }

  async #cancelBehind(sessionId: string, asked: readonly Prompt[], connected: Connected, alone?: boolean): Promise<void> {
    let over!: () => void;
    const kind = alone ? "alone" : "cancels";
    const cancel: Cancel = { sessionId, asked, done: new Promise((resolve) => (over = resolve)) };
    this.#cancels.add(cancel);
    try {
      for (let later = false; ; later = true) {
        await Promise.all(asked.map((p) => p.delivery === "open" && p.delivered));
        const send = await connected();
        if (later && asked.every((p) => p.phase === "over")) return; // it would end what is newer
        if (asked.some((p) => p.delivery === "open")) continue; // they went with a connection, and are sent again
        for (const prompt of asked) {
          prompt[kind]++; // the connection may be lost before it is said to be sent
          prompt.repeat = connected;
        }
        let sent: unknown = false;
        try {
          if ((sent = await send(asked.length > 0, alone ? asked.map((p) => p.id) : undefined)) !== false) return; // whose turn it was to end nobody knows on another connection, if no prompt says it
        } finally {
          if (sent === false) for (const prompt of asked) prompt[kind]--;
        }
      }
    } finally {
      this.#cancels.delete(cancel);
      over();
    }
  }

  /** What the prompt is sent behind: an older prompt, and a cancel that came before it, which would end it, too: of all, or at a gateway that knows no other. */
  #before(prompt: Prompt): Promise<void> | undefined {
    const queue = this.#queue(prompt.sessionId);
    const older = queue.slice(0, Math.max(queue.indexOf(prompt), 0)).find((p) => p.delivery !== "done");
    if (older || prompt.gone) return older?.delivered;
    for (const cancel of this.#cancels) if (cancel.sessionId === prompt.sessionId && !cancel.asked.includes(prompt)) return cancel.done;
    return undefined;
  }

  /** Says what is waited for before something is sent that belongs behind the session's prompts of now, but not behind those that wait for others. */
  behind(sessionId: string): () => Promise<void> | undefined {
    const prompts = this.#queue(sessionId).filter((p) => p.phase !== "waits");
    return () => prompts.find((p) => p.delivery !== "done")?.delivered;
  }

  /** The prompt is on its way again, or the gateway has it. A cancel may have been lost, and is repeated, but not when it would end what was sent behind it. */
  #found(prompt: Prompt): void {
    setDelivery(prompt, "done");
    const queue = this.#queue(prompt.sessionId);
    const last = queue.indexOf(prompt);
    if (!prompt.lost || last < 0) return;
    const again = (asked: Prompt[], alone?: boolean) => void this.#cancelBehind(prompt.sessionId, asked, prompt.repeat!, alone).catch(() => {}); // the next connection does it
    if (prompt.alone) again(queue.filter((p) => p.alone), true);
    if (prompt.cancels && !this.#sentBehind(prompt)) again(queue.slice(0, last + 1));
  }

  #sentBehind(prompt: Prompt): boolean {
    const queue = this.#queue(prompt.sessionId);
    return queue.includes(prompt) && queue.slice(queue.indexOf(prompt) + 1).some((p) => p.gone);
  }

  async #run(prompt: Prompt, wire: Wire, before: Prompt | undefined): Promise<TurnEnd> {
    if (before) await before.turn.catch(() => {});
    if (prompt.phase === "waits") prompt.phase = "sent";
    const go = () => {
      if (prompt.phase === "over") throw new TurnInterruptedError(prompt.sessionId); // it failed meanwhile
      const first = this.#before(prompt) ?? (prompt.gone ? undefined : wire.broken());
      if (first) return first;
      if (!prompt.gone) prompt.from = wire.after() ?? 0;
      prompt.gone = true;
      prompt.floor = wire.newest();
      this.#found(prompt);
      return undefined;
    };
    for (;;) {
      const sent = await wire.send(prompt.id, go).catch((error: unknown) => {
        if (!this.#answerEnds && error instanceof AcpRpcError && error.code === cancelled) return undefined;
        throw error;
      });
      if (sent === undefined) return this.#cancelled;
      if ("response" in sent) {
        if (this.#answerEnds) return endOf(sent.response as PromptResponse);
        const begun = eventOf(prompt.response);
        if (begun <= prompt.from) prompt.from = begun - 1; // it is one that was sent before with the id that it was given, whose end may have been told
        else {
          const end = await Promise.race([this.#outcome(prompt), sent.lost]);
          if (end && end !== "again") return { ...endOf(settle(end)), response: prompt.response };
        }
      }
      const found = await this.#afterLoss(prompt, wire);
      if (found === "resend" && prompt.response !== undefined) throw new TurnInterruptedError(prompt.sessionId);
      if (found === "cancelled") return this.#cancelled;
      if (found === "resend") continue;
      if (this.#answerEnds) return endOf(settle(found));
      if (found.error?.code === cancelled && prompt.response === undefined) return this.#cancelled;
      return { ...endOf(settle(found)), response: prompt.response };
    }
  }

  /** The prompt's end, when it is told, and "again" when it may not be; undefined when it ended otherwise. */
  async #outcome(prompt: Prompt): Promise<TurnEnded | "again" | undefined> {
    const isTold = () => prompt.end?.how === "told";
    while (!isTold() && prompt.phase !== "over" && prompt.sight === "all") await new Promise<void>((resolve) => (prompt.tell = resolve));
    if (prompt.phase === "over" && !isTold()) return undefined;
    if (prompt.end) return prompt.end.ended; // where it is not told, what comes behind it is history, or is not told either
    if (prompt.sight === "left") throw new NotConnectedError(undefined, `detached from the session ${prompt.sessionId}: its end is not told`);
    if (prompt.sight === "deleted") throw new AcpRpcError(notFound, `the session ${prompt.sessionId} was deleted: its end is not told`);
    return "again";
  }

  /** Finds out, on a later connection or when the session was opened anew, what became of the prompt. */
  async #afterLoss(prompt: Prompt, wire: Wire): Promise<TurnEnded | "resend" | "cancelled"> {
    prompt.lost = true;
    setDelivery(prompt, "open");
    const isUnannounced = () => prompt.end === undefined || prompt.end.how === "found";
    const patience = wire.patience();
    let failures = 0; // on this connection
    let received = false; // the session had it before the state was asked for, which then knows of it
    for (;;) {
      await wire.connected();
      const lost = wire.lost().catch(() => {});
      const look = (async () => {
        if (prompt.end && (prompt.end.how !== "found" || prompt.sight !== "all")) {
          setDelivery(prompt, "done");
          return this.#outcome(prompt);
        }
        if (prompt.sight === "anew") prompt.sight = "all";
        const state = await wire.state();
        const found = await findPrompt(prompt, wire);
        if (found.begun && !this.#answerEnds) {
          this.#begin(prompt, `sa.${found.begun}`);
          prompt.response ??= { messageId: `sa.${found.begun}` };
        }
        if (found.ended) {
          if (isUnannounced()) prompt.end = { ended: found.ended, how: "found" };
          setDelivery(prompt, "done");
          // What the stream has not brought yet it will bring, behind the turn's updates, unless it is history by then.
          if (found.seq > wire.newest()) await Promise.race([this.#outcome(prompt), wire.reached(found.seq)]);
          return found.seq <= Math.max(wire.after() ?? Infinity, wire.newest()) && isUnannounced() ? found.ended : this.#outcome(prompt);
        }
        const active = !found.over && (state === "running" || state === "waiting"); // then a prompt may wait, and is no event yet
        // Sent behind another prompt it could not be cancelled any more without that.
        if (!found.received) return !active && prompt.cancels && this.#sentBehind(prompt) ? "cancelled" as const : "resend" as const;
        if (active) {
          this.#found(prompt);
          return this.#outcome(prompt);
        }
        if (received || found.over) throw found.expired ?? new TurnInterruptedError(prompt.sessionId);
        received = true; // an earlier connection may have brought it just now
        return "again" as const;
      })();
      const verdict = await Promise.race([look, lost.then(() => "lost" as const)]).catch(async (error: unknown) => {
        if (error instanceof TurnInterruptedError || prompt.phase === "over") throw error;
        if (isFinal(error) && isUnannounced()) {
          if (prompt.end) return prompt.end.ended;
          throw error.status === 404 ? new AcpRpcError(notFound, error.message, error.problem) : error; // as ACP says it
        }
        if (!passes(error)) { // there may never be an answer, as behind a proxy that lets only WebSockets through
          if (++failures >= maxFailures) setDelivery(prompt, "done");
          else if (prompt.delivery === "open") setDelivery(prompt, "unclear");
        }
        // The gateway could not be asked, which is no reason to wait for ever: it may not have the prompt.
        return Promise.race([this.#outcome(prompt), lost.then(() => "lost" as const), patience.next().then(() => "again" as const)]);
      });
      if (verdict === undefined) throw new TurnInterruptedError(prompt.sessionId);
      if (verdict === "lost") {
        failures = 0;
        setDelivery(prompt, "open");
      }
      else if (verdict !== "again") return verdict;
    }
  }
}

/** Each session has ids of its own. */
const keyOf = ({ sessionId, promptId, id = promptId }: { sessionId: string; promptId?: string; id?: string }): string => `${sessionId} ${id}`;

/** Notes whether the gateway has the prompt, and wakes who waits for that. */
function setDelivery(prompt: Prompt, delivery: Delivery): void {
  const wake = prompt.changeDelivery;
  prompt.delivery = delivery;
  prompt.delivered = new Promise((resolve) => (prompt.changeDelivery = resolve));
  wake();
}

/** The event of the session that a prompt's message is, NaN where it is none's or not known. */
const eventOf = (message: unknown): number => Number(/^sa\.(\d+)$/.exec((message as { messageId?: string } | undefined)?.messageId!)?.[1]);

/** How often the gateway is asked in vain, about half a minute long, before what is behind the prompt is sent without an answer. */
const maxFailures = 8;

/** Looks for the prompt, and its end, in the session's events. Fails when it may be among those that are no longer kept. */
async function findPrompt({ id, from, heard, response }: Prompt, wire: Wire): Promise<{ received: boolean; begun: number; ended?: TurnEnded; seq: number; /** Its turn was lost with its gateway: the next one says that it is over, or another prompt came behind it. */ over?: boolean; /** Its end may be among the events that are no longer kept. */ expired?: unknown }> {
  let received = false;
  let begun = 0; // the event that it is
  let over = false;
  let expired: unknown;
  for (let after = from; ; ) {
    let page: EventPage;
    try {
      page = await wire.events(after);
    } catch (error) {
      const oldest = oldestKept(error);
      if (oldest === undefined || oldest <= after + 1) throw error;
      expired = error;
      received ||= heard === true || response !== undefined; // it had begun before, and is one of those
      after = oldest - 1;
      continue;
    }
    for (const event of page.events) {
      after = event.seq;
      const message = event.message as { method?: string; params?: unknown } | undefined;
      if (message?.method === "session/prompt") {
        const own = metaOf(message.params).promptId === id;
        over = received && !own;
        if (own) {
          received = true;
          begun = event.seq;
        }
      }
      if (message?.method === TURN_ENDED) {
        const ended = message.params as TurnEnded;
        if (ended.promptId === id) return { received: true, begun, ended, seq: event.seq };
        over ||= received && ended.promptId === undefined && ended.began !== false; // as a gateway says that does not know whose it was
      }
    }
    if (page.hasMore) continue;
    if (expired !== undefined && !received) throw expired;
    return { received, begun, seq: 0, over, expired: begun ? undefined : expired };
  }
}

function settle(ended: TurnEnded): PromptResponse {
  if (ended.result) return ended.result;
  const { code, message, data } = ended.error ?? { code: -32603, message: "the turn ended without a result", data: undefined };
  throw new AcpRpcError(code, message, data);
}

const endOf = (response: PromptResponse): TurnEnd => ({ stopReason: response.stopReason, usage: response.usage, response });

/** The code of the error of a prompt of version 2 that was cancelled before it began. */
export const cancelled = -32800;

/** The code of the error about a session that is not there. */
export const notFound = -32002;
