import type { ContentBlock, Session } from "sandbox-agent";
import type { Attached } from "../state/attached.js";
import type { Client } from "../state/gateway.js";
import { Store } from "../state/store.js";
import { Unsent } from "../state/unsent.js";
import { Conversation, type Draft } from "./conversation.js";
import type { Kept } from "./facts.js";

/** Conversations that are followed at once; the one that was looked at longest ago is let go. */
const maxFollowed = 6;

class Count extends Store<number> {
  more(): void {
    this.set(this.get() + 1);
  }
}

/** The conversations that this page follows. */
export class Conversations {
  /** How many were let go on purpose: who shows one of them opens it anew. */
  readonly forgotten = new Count(0);
  readonly #all = new Map<string, Conversation>(); // the newest last
  #client: Client | undefined;

  /** What is written for a session outlives what is followed of it, and prompts that wait outlive the page. */
  constructor(private readonly held: Attached, readonly drafts: Unsent<Draft> = new Unsent(), private readonly waiting: Unsent<readonly Kept[]> = new Unsent()) {}

  /** What is followed goes on with another client. */
  use(client: Client): void {
    if (client === this.#client) return;
    this.#client = client;
    for (const conversation of this.#all.values()) void conversation.open(client);
  }

  /** At a hub, the node of some sessions has gone away or is back: its process may be another one. */
  nodeChanged(there: (id: string) => boolean, online: boolean): void {
    for (const [id, conversation] of this.#all) if (there(id)) void (online ? conversation.again() : conversation.refresh());
  }

  /** Puts something into what is being written for a session, whether it is followed or not. */
  write(id: string, blocks: readonly ContentBlock[]): void {
    (this.#all.get(id) ?? new Conversation(id, this.held, this.drafts)).write(blocks);
  }

  /** The conversation of a session, which is followed from now on. */
  open(id: string): Conversation {
    const conversation = this.#all.get(id) ?? new Conversation(id, this.held, this.drafts, this.waiting);
    if (this.waiting.get().has(id)) {
      this.waiting.drop(id); // it has them now, and they may be sent
      this.waiting.save();
    }
    this.#all.delete(id);
    this.#all.set(id, conversation);
    if (this.#client) void conversation.open(this.#client);
    for (const [old, other] of this.#all) {
      if (this.#all.size <= maxFollowed || old === id) break;
      if (other.sending || other.unsent.length > 0) continue; // it still has something to send
      this.#all.delete(old);
      this.waiting.drop(old);
      void other.dispose();
    }
    return conversation;
  }

  /** The same for a session that was just made. */
  made(session: Session<2>): Conversation {
    const conversation = new Conversation(session.id, this.held, this.drafts, this.waiting);
    conversation.begun = true;
    this.#all.set(session.id, conversation);
    if (this.#client) void conversation.open(this.#client, session);
    return this.open(session.id);
  }

  /** The session that is followed and has this id, or a subagent with it. */
  homeOf(id: string): string | undefined {
    return this.#all.has(id) ? id : [...this.#all.values()].find((c) => c.has(id))?.id;
  }

  peek(id: string): Conversation | undefined {
    return this.#all.get(id);
  }

  /** Asks for the sessions that are followed and stand in no list: those that are older than what is listed. */
  refreshOthers(listed: ReadonlySet<string>): void {
    for (const [id, conversation] of this.#all) if (!listed.has(id) && conversation.get().phase !== "failed") void conversation.refresh();
  }

  /** Writes what is not sent into the storage. False says that the page would take something with it. */
  save(): boolean {
    for (const conversation of this.#all.values()) conversation.keep();
    return [this.drafts.save(), this.waiting.save()].every(Boolean);
  }

  /** Whether prompts wait in this page: nobody sends them when it is closed. */
  get unsent(): boolean {
    return [...this.#all.values()].some((c) => c.unsent.length > 0);
  }

  /** Lets go of a session. What waits for its turn here becomes what is being written; what was sent goes out with the next connection. */
  async forget(id: string): Promise<void> {
    const conversation = this.#all.get(id);
    for (const waiting of conversation?.get().queue.toReversed() ?? []) conversation?.write(waiting.blocks);
    this.#all.delete(id);
    this.waiting.drop(id);
    this.forgotten.more();
    await conversation?.dispose();
  }
}
