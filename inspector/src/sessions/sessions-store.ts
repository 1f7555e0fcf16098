import type { SandboxAgentClient, SessionInfo } from "sandbox-agent";
import { messageOf } from "../state/explain.js";
import { baseName } from "../kit/text.js";
import { Store } from "../state/store.js";
import { nameOf, withMarks, type Marks } from "./marks.js";

export interface Cost {
  readonly amount: number;
  readonly currency: string;
}

export interface SessionsState {
  readonly sessions: readonly SessionInfo[];
  readonly loaded: boolean;
  readonly problem: string | undefined;
  /** Sessions behind those that are listed. */
  readonly more: boolean;
  /** What sessions have cost, as far as it is known. */
  readonly costs: ReadonlyMap<string, Cost>;
  /** How the first prompts of sessions without a title begin. */
  readonly gists: ReadonlyMap<string, string>;
}

const pageSize = 200;
/** The newest events in which the cost is looked for. */
const costWindow = 40;
/** The first events in which a prompt is looked for. */
const gistWindow = 10;
/** Requests for costs at a time; the others wait, the newest wishes first. */
const maxAsking = 2;
const maxWishes = 64;

/**
 * The gateway's sessions, of all its clients. The gateway does not tell of changes of
 * the list, so it is asked again as long as somebody looks.
 */
export class SessionsStore extends Store<SessionsState> {
  #client: SandboxAgentClient | undefined;
  #pages = 1;
  #asking: Promise<void> | undefined;
  #wishes: SessionInfo[] = [];
  #running = 0;
  readonly #costAt = new Map<string, number>(); // the event count for which the cost was looked up
  readonly #listeners = new Set<(sessions: readonly SessionInfo[]) => void>();

  constructor() {
    super({ sessions: [], loaded: false, problem: undefined, more: false, costs: new Map(), gists: new Map() });
  }

  use(client: SandboxAgentClient): void {
    this.#client = client;
    this.#pages = 1;
    void this.refresh();
  }

  /** Tells of each answer of the gateway. */
  onAnswer(listener: (sessions: readonly SessionInfo[]) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Asks the gateway; calls that come meanwhile wait for the same answer. */
  refresh(): Promise<void> {
    this.#asking ??= this.#ask().finally(() => (this.#asking = undefined));
    return this.#asking;
  }

  async #ask(): Promise<void> {
    const client = this.#client;
    if (!client) return;
    try {
      const sessions: SessionInfo[] = [];
      let cursor: string | undefined;
      for (let page = 0; page < this.#pages; page++) {
        const answer = await client.api.sessions({ limit: pageSize, ...(cursor ? { cursor } : {}) });
        sessions.push(...answer.sessions);
        cursor = answer.nextCursor;
        if (!cursor) break;
      }
      if (client !== this.#client) return;
      const before = this.get();
      if (!before.loaded || before.problem !== undefined || before.more !== (cursor !== undefined) || JSON.stringify(before.sessions) !== JSON.stringify(sessions)) {
        this.patch({ sessions, loaded: true, problem: undefined, more: cursor !== undefined });
      }
      for (const listener of [...this.#listeners]) listener(sessions);
    } catch (error) {
      if (client === this.#client) this.patch({ problem: messageOf(error) });
    }
  }

  /** Lists the sessions behind those that are listed, too. */
  async showMore(): Promise<void> {
    this.#pages++;
    await this.#asking;
    await this.refresh();
  }

  /** Notes what a conversation has seen of the cost. */
  noteCost(id: string, cost: Cost): void {
    const known = this.get().costs.get(id);
    if (known?.amount === cost.amount && known.currency === cost.currency) return;
    this.patch({ costs: new Map(this.get().costs).set(id, cost) });
  }

  /** Puts marks onto a session, for every window. */
  async mark(info: SessionInfo, part: Marks): Promise<void> {
    const client = this.#client;
    if (!client) return;
    const now = await client.api.session(info.sessionId); // what others have written meanwhile stays
    await client.setMetadata(info.sessionId, withMarks(now, part));
    await this.#asking;
    await this.refresh();
  }

  /** Looks for the cost of a session that is shown; it stands in its events only. */
  wantCost(info: SessionInfo): void {
    const looked = this.#costAt.get(info.sessionId);
    if (info.eventCount === 0 || looked === info.eventCount || (info.state === "running" && looked !== undefined)) return;
    this.#costAt.set(info.sessionId, info.eventCount);
    this.#wish(info);
  }

  /** Looks how a session without a title begins. */
  wantGist(info: SessionInfo): void {
    if (nameOf(info) !== baseName(info.cwd) || info.eventCount === 0 || this.get().gists.has(info.sessionId)) return;
    this.#gistsWanted.add(info.sessionId);
    this.#wish(info);
  }
  readonly #gistsWanted = new Set<string>();

  #wish(info: SessionInfo): void {
    this.#wishes = [...this.#wishes.filter((w) => w.sessionId !== info.sessionId), info].slice(-maxWishes);
    void this.#lookUp();
  }

  async #lookUp(): Promise<void> {
    if (this.#running >= maxAsking) return;
    const info = this.#wishes.pop();
    const client = this.#client;
    if (!info || !client) return;
    this.#running++;
    try {
      if (this.#gistsWanted.delete(info.sessionId)) {
        const { events } = await client.api.sessionEvents(info.sessionId, { after: 0, limit: gistWindow });
        this.patch({ gists: new Map(this.get().gists).set(info.sessionId, gistOf(events.map((e) => e.message))) });
      }
      const { events } = await client.api.sessionEvents(info.sessionId, { after: Math.max(0, info.eventCount - costWindow), limit: costWindow });
      const cost = lastCost(events.map((e) => e.message));
      if (cost) this.noteCost(info.sessionId, cost);
    } catch {
      // It was deleted meanwhile, or its events are gone.
    } finally {
      this.#running--;
    }
    void this.#lookUp();
  }
}

/** How the first prompt begins; empty when there is none. */
export function gistOf(messages: readonly unknown[]): string {
  for (const message of messages) {
    const { method, params } = message as { method?: string; params?: { prompt?: readonly { type: string; text?: string }[] } };
    const text = method === "session/prompt" ? params?.prompt?.find((b) => b.type === "text")?.text?.trim().split("\n")[0] : undefined;
    if (text) return text.slice(0, 80);
  }
  return "";
}

export function lastCost(messages: readonly unknown[]): Cost | undefined {
  for (const message of messages.toReversed()) {
    const update = (message as { params?: { update?: { sessionUpdate?: string; cost?: Cost | null } } }).params?.update;
    if (update?.sessionUpdate === "usage_update" && update.cost) return update.cost;
  }
  return undefined;
}

/** Whether the words of a search are all somewhere in what is shown of the session. */
export function matches(info: SessionInfo, search: string): boolean {
  const text = `${nameOf(info)} ${info.title ?? ""} ${info.agent} ${info.cwd} ${info.sessionId} ${info.state} ${info.model ?? ""}`.toLowerCase();
  return search.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}
