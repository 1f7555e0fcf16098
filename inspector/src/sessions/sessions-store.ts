import { AcpRpcError, type Api, type RequestOptions, type SessionInfo } from "sandbox-agent";
import type { SessionFilter } from "../state/fleet.js";
import type { Client } from "../state/gateway.js";
import { messageOf } from "../state/explain.js";
import { retryMs } from "../state/retry.js";
import { Store } from "../state/store.js";
import { marksOf, nameOf, withMarks, type Marks } from "./marks.js";

export interface SessionsState {
  /** The one in which something happened last is the first. */
  readonly sessions: readonly SessionInfo[];
  readonly loaded: boolean;
  readonly problem: string | undefined;
  /** Sessions behind those that are listed. */
  readonly more: boolean;
  /** What the list is narrowed to; nothing at a gateway. */
  readonly filter: SessionFilter;
}

const pageSize = 200;
/** The code of an error about params. */
const invalidParams = -32602;
/** How long a list that changes often is shown as it was. */
const frameMs = 50;
/** How often it is asked what has changed while nobody looks: browsers allow few connections that stay open. */
const hiddenMs = 15_000;

/**
 * The gateway's sessions, of all its clients. The newest are read once; what changes of
 * them, and of others, the gateway tells.
 */
export class SessionsStore extends Store<SessionsState> {
  #client: Client | undefined;
  #all = new Map<string, SessionInfo>();
  #position = 0;
  #cursor: string | undefined;
  #deleted: Set<string> | undefined; // while older ones are read
  #timer: ReturnType<typeof setTimeout> | undefined;
  #over = new AbortController();
  #turned: (() => void) | undefined; // wakes who waits until somebody looks
  #hidden = false;
  readonly #marking = new Map<string, Promise<void>>(); // the last marks that are on their way, by session
  readonly #listeners = new Set<(sessions: readonly SessionInfo[], anew: boolean) => void>();

  constructor() {
    super({ sessions: [], loaded: false, problem: undefined, more: false, filter: {} });
  }

  use(client: Client): void {
    this.#over.abort();
    this.#over = new AbortController();
    if (client !== this.#client) this.patch({ filter: {} });
    this.#client = client;
    this.#deleted = undefined;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#all.clear();
    void this.#follow(client.api, this.#over.signal);
  }

  /** Lists some sessions only, which a hub can choose. */
  narrow(filter: SessionFilter): void {
    if (JSON.stringify(filter) === JSON.stringify(this.get().filter)) return;
    this.patch({ filter, loaded: false });
    if (this.#client) this.use(this.#client);
  }

  /** Says whether anybody looks at the page. */
  look(hidden: boolean): void {
    this.#hidden = hidden;
    this.#turned?.();
  }

  /** Tells of the list whenever it has changed; `anew` when it was read anew, and what is not in it may have changed as well. */
  onChange(listener: (sessions: readonly SessionInfo[], anew: boolean) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  async #follow(api: Pick<Api, "sessions" | "followSessions">, over: AbortSignal): Promise<void> {
    let known = false;
    for (let failed = 0; !over.aborted; ) {
      try {
        if (!known) await this.#read(api, over);
        known = await this.#changes(api, over);
        if (over.aborted) return;
        failed = 0;
        if (known && this.#hidden) await this.#wait(hiddenMs, over);
      } catch (error) {
        if (over.aborted) return;
        this.patch({ problem: messageOf(error) });
        await this.#wait(retryMs(failed++), over);
      }
    }
  }

  /** Reads the first page. */
  async #read(api: Pick<Api, "sessions">, over: AbortSignal): Promise<void> {
    const page = await api.sessions({ limit: pageSize, ...this.get().filter } as never, { signal: over });
    this.#all = new Map(page.sessions.map((info) => [info.sessionId, info]));
    this.#position = page.position;
    this.#cursor = page.nextCursor;
    this.#show(true);
  }

  /** Takes what changes. False says that the list must be read anew. */
  async #changes(api: Pick<Api, "followSessions">, over: AbortSignal): Promise<boolean> {
    const stop = new AbortController();
    const abort = () => stop.abort();
    over.addEventListener("abort", abort, { once: true });
    let current = false;
    this.#turned = () => {
      if (this.#hidden && current) abort();
    };
    try {
      for await (const change of api.followSessions(this.#position, { signal: stop.signal, filter: this.get().filter } as RequestOptions)) {
        if (change.type === "reset") return false;
        this.#position = change.position;
        if (change.session) this.#all.set(change.session.sessionId, change.session);
        else if (change.type === "deleted" && change.sessionId !== undefined) {
          this.#all.delete(change.sessionId);
          this.#deleted?.add(change.sessionId);
        }
        else if (change.type === "current") {
          current = true;
          if (this.get().problem !== undefined) this.patch({ problem: undefined });
          if (this.#hidden) return true;
          continue;
        }
        this.#timer ??= setTimeout(() => this.#show(), frameMs);
      }
      if (!over.aborted) throw new Error("The gateway has ended the list.");
      return true;
    } catch (error) {
      if (stop.signal.aborted) return true;
      throw error;
    } finally {
      over.removeEventListener("abort", abort);
      this.#turned = undefined;
      stop.abort();
    }
  }

  #wait(ms: number, over: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        over.removeEventListener("abort", done);
        this.#turned = undefined;
        resolve();
      };
      const timer = setTimeout(done, ms);
      over.addEventListener("abort", done, { once: true });
      this.#turned = () => {
        if (!this.#hidden) done();
      };
    });
  }

  #show(anew = false): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const sessions = [...this.#all.values()]
      .map((info) => ({ info, at: Date.parse(info.updatedAt) }))
      .sort((a, b) => b.at - a.at || (a.info.sessionId < b.info.sessionId ? -1 : 1))
      .map(({ info }) => info);
    this.patch({ sessions, loaded: true, more: this.#cursor !== undefined });
    for (const listener of [...this.#listeners]) listener(sessions, anew);
  }

  /** Lists the sessions behind those that are listed, too. */
  async showMore(): Promise<void> {
    const client = this.#client;
    const cursor = this.#cursor;
    if (!client || cursor === undefined || this.#deleted) return;
    const deleted = (this.#deleted = new Set<string>());
    const page = await client.api.sessions({ limit: pageSize, cursor, ...this.get().filter } as never).finally(() => {
      if (this.#deleted === deleted) this.#deleted = undefined;
    });
    if (client !== this.#client || cursor !== this.#cursor) return;
    // What was told meanwhile is newer.
    for (const info of page.sessions) if (!this.#all.has(info.sessionId) && !deleted.has(info.sessionId)) this.#all.set(info.sessionId, info);
    this.#cursor = page.nextCursor;
    this.#show();
  }

  /** The sessions in whose messages words are, the newest first, with the place. */
  async search(words: string, signal: AbortSignal): Promise<readonly SessionInfo[]> {
    const client = this.#client;
    const found: SessionInfo[] = [];
    for (let cursor: string | undefined; client && found.length < pageSize; ) {
      const page = await client.api.sessions({ q: words, limit: pageSize, ...this.get().filter, ...(cursor === undefined ? {} : { cursor }) } as never, { signal });
      found.push(...page.sessions);
      if (page.nextCursor === undefined) break;
      cursor = page.nextCursor;
    }
    return found;
  }

  /** Puts marks onto a session, for every window; one after the other, since each is put beside what is there. */
  async mark({ sessionId }: Pick<SessionInfo, "sessionId">, part: Marks, client = this.#client): Promise<void> {
    if (!client) return;
    const put = async () => {
      const now = await client.api.session(sessionId); // what others have written meanwhile stays
      await client.setMetadata(sessionId, withMarks(now, part));
    };
    const before = this.#marking.get(sessionId);
    const marking = before ? before.then(put, put) : put();
    this.#marking.set(sessionId, marking);
    try {
      await marking;
    } finally {
      if (this.#marking.get(sessionId) === marking) this.#marking.delete(sessionId);
    }
  }

  /** Gives a session a title, for everybody. A gateway of before keeps it as a mark, which only the page shows. */
  async rename(info: SessionInfo, title: string): Promise<void> {
    const client = this.#client;
    if (!client) return;
    const { title: marked } = marksOf(await client.api.session(info.sessionId));
    try {
      await client.setTitle(info.sessionId, title);
    } catch (problem) {
      if (!(problem instanceof AcpRpcError) || problem.code !== invalidParams) throw problem;
      return this.mark(info, { title });
    }
    if (marked !== undefined) await this.mark(info, { title: "" });
  }
}

/** Whether the words of a search are all somewhere in what is shown of the session. */
export function matches(info: SessionInfo, search: string): boolean {
  const text = `${nameOf(info)} ${info.title ?? ""} ${info.agent} ${info.cwd} ${info.sessionId} ${info.state} ${info.model ?? ""}`.toLowerCase();
  return search.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}
