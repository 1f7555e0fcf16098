// A hub as the page's gateway: one connection for the sessions of all nodes, and the API of each node behind it.
import { Api, META, ProblemError, SandboxAgentClient, type ApiOptions, type NewSessionParams, type OpenSessionParams, type SandboxAgentClientOptions, type Session, type SessionChange, type SessionInfo } from "sandbox-agent";
import type { Node, Scope, SessionFilter } from "../state/fleet.js";

/** What a hub says of a session beside what its node says. */
export interface HubSession extends SessionInfo {
  readonly node?: string;
  readonly replica?: { readonly lastSeq: number; readonly missing: number; readonly mayMiss?: boolean; readonly trouble?: string; readonly bundle?: number };
}

/** States in which nobody can act on a session: what the hub has of it can be read. */
const copies = new Set<string>(["offline", "gone", "moved"]);

/** Sessions that wait for a person when the page begins, and that it learns of wherever they are. */
const maxWaiting = 200;

/** The notification of a hub that says how its connection to a node is. */
const nodeState = "_sandboxagent/node/state";

const metaNode = (value: unknown): string | undefined => {
  const node = (value as { _meta?: Record<string, { node?: unknown }> | null } | undefined)?._meta?.[META]?.node;
  return typeof node === "string" ? node : undefined;
};

/**
 * The hub's own API. What a session says is read at its node, which knows it first; where the
 * node is away, it is read from the hub's copy.
 */
export class HubApi extends Api {
  /** Is told of sessions in which an agent waits, and of all that change, whatever the list is narrowed to. */
  onTold: ((sessions: readonly SessionInfo[]) => void) | undefined;
  readonly #options: ApiOptions;
  readonly #url: string;
  readonly #nodes = new Map<string, Api>();
  readonly #where = new Map<string, string>(); // the node of a session
  readonly #copies = new Set<string>(); // sessions of which the copy was read last
  readonly #labels = new Map<string, Node["labels"]>(); // of the nodes

  constructor(url: string, options: ApiOptions) {
    super(url, options);
    this.#url = url;
    this.#options = options;
  }

  /** The API of a node. */
  at(node: string): Api {
    const api = this.#nodes.get(node) ?? new Api(nodeUrl(this.#url, node), this.#options);
    this.#nodes.set(node, api);
    return api;
  }

  /** Notes where a session is. */
  learn(id: string, node: string | undefined): void {
    if (node !== undefined) this.#where.set(id, node);
  }

  /** The node that has a session, as far as is known. */
  nodeOf(id: string): string | undefined {
    return this.#where.get(id);
  }

  /** A node is there again: it is asked itself. */
  back(node: string): void {
    for (const id of this.#copies) if (this.#where.get(id) === node) this.#copies.delete(id);
  }

  /** A session has gone to another node. */
  moved(id: string, node: string): void {
    this.#copies.delete(id);
    this.#where.set(id, node);
  }

  async nodes(signal?: AbortSignal): Promise<{ nodes: Node[] }> {
    const answer = await this.json<{ nodes: Node[] }>("GET", "v2/nodes", {}, signal ? { signal } : {});
    for (const node of answer.nodes) this.#labels.set(node.name, node.labels);
    return answer;
  }

  override async session(id: string, options?: { signal?: AbortSignal }): Promise<SessionInfo> {
    const known = this.#where.get(id);
    if (known !== undefined && !this.#copies.has(id)) {
      try {
        return { ...(await this.at(known).session(id, options)), node: known } as HubSession;
      } catch (error) {
        if (!(error instanceof ProblemError)) throw error; // the node is away, or has the session no more: the hub knows
      }
    }
    const info: HubSession = await super.session(id, options);
    this.learn(id, info.node);
    if (copies.has(info.state)) this.#copies.add(id);
    else this.#copies.delete(id);
    return info;
  }

  /** Where a session can be read. */
  #of(id: string): Api | undefined {
    const node = this.#copies.has(id) ? undefined : this.#where.get(id);
    return node === undefined ? undefined : this.at(node);
  }

  override sessionEvents(...[id, query, options]: Parameters<Api["sessionEvents"]>): ReturnType<Api["sessionEvents"]> {
    return this.#of(id)?.sessionEvents(id, query, options) ?? super.sessionEvents(id, query, options);
  }

  override sessionTranscript(...[id, query, options]: Parameters<Api["sessionTranscript"]>): Promise<string> {
    return this.#of(id)?.sessionTranscript(id, query, options) ?? super.sessionTranscript(id, query, options);
  }

  override sessionRaw(...[id, options]: Parameters<Api["sessionRaw"]>): Promise<string> {
    return this.#of(id)?.sessionRaw(id, options) ?? super.sessionRaw(id, options);
  }

  override exportSession(...[id, query, options]: Parameters<Api["exportSession"]>): ReturnType<Api["exportSession"]> {
    return this.#of(id)?.exportSession(id, query, options) ?? super.exportSession(id, query, options);
  }

  /** Removes what the hub has of a session whose node cannot be asked. */
  async removeCopy(id: string): Promise<void> {
    await this.fetch("DELETE", `v2/sessions/${encodeURIComponent(id)}`, { copy: true });
  }

  override async sessions(...[query, options]: Parameters<Api["sessions"]>): ReturnType<Api["sessions"]> {
    const page = await super.sessions(query, options);
    // Of several with one id the one that somebody has stands in the list.
    const best = new Map<string, HubSession>();
    for (const info of page.sessions as HubSession[]) {
      const had = best.get(info.sessionId);
      if (!had || copies.has(had.state)) best.set(info.sessionId, info);
    }
    for (const info of best.values()) this.#listed(info);
    return { ...page, sessions: [...best.values()] };
  }

  #listed(info: HubSession): void {
    this.learn(info.sessionId, info.node);
    if (!copies.has(info.state)) this.#copies.delete(info.sessionId);
  }

  /** The changes of the list. The hub tells those of all sessions; one that a narrowed list has not counts as deleted. */
  override async *followSessions(after = 0, options: { signal?: AbortSignal; filter?: SessionFilter } = {}): AsyncGenerator<SessionChange, void, undefined> {
    const { filter } = options;
    const within = options.signal ? { signal: options.signal } : {};
    const waiting = await this.sessions({ limit: maxWaiting, state: ["waiting"] }, within); // nothing has to change in them
    this.onTold?.(waiting.sessions);
    for await (const change of super.followSessions(after, within)) {
      const session = change.session as HubSession | undefined;
      if (!session) {
        yield change;
        continue;
      }
      this.#listed(session);
      this.onTold?.([session]);
      yield !filter || (await this.#fits(session, filter, options.signal)) ? change : { type: "deleted", position: change.position, sessionId: session.sessionId };
    }
  }

  /** Whether a narrowed list has a session; labels are those that were heard of last. */
  async #fits(session: HubSession, { node, label = [], state = [] }: SessionFilter, signal: AbortSignal | undefined): Promise<boolean> {
    if ((node !== undefined && session.node !== node) || (state.length > 0 && !state.includes(session.state))) return false;
    if (label.length === 0) return true;
    const name = session.node ?? "";
    if (!this.#labels.has(name)) await this.nodes(signal);
    return label.every((one) => this.#labels.get(name)?.[one.slice(0, one.indexOf("="))] === one.slice(one.indexOf("=") + 1));
  }
}

/** The page's client of a hub. */
export class HubClient extends SandboxAgentClient<2> {
  /** The node for what is about no session. */
  node: string | undefined;
  /** Is told when a node that this connection uses goes away, and when it is back. */
  onNode: ((node: string, online: boolean) => void) | undefined;

  constructor(options: SandboxAgentClientOptions<2>) {
    super({
      ...options,
      onEnvelope: (envelope) => {
        options.onEnvelope?.(envelope);
        const { method, params } = envelope.message as { method?: string; params?: { node?: unknown; state?: unknown } };
        if (method === nodeState && typeof params?.node === "string") this.#told(params.node, params.state === "online");
      },
    });
    (this as { api: Api }).api = new HubApi(String(options.baseUrl), options);
  }

  #told(node: string, online: boolean): void {
    if (online) this.hub.back(node);
    this.onNode?.(node, online);
  }

  get hub(): HubApi {
    return this.api as HubApi;
  }

  #learned(session: Session<2>): Session<2> {
    this.hub.learn(session.id, metaNode(session.result));
    return session;
  }

  override async newSession(params: NewSessionParams<2>, options?: { signal?: AbortSignal }): Promise<Session<2>> {
    return this.#learned(await super.newSession(this.node === undefined ? params : { ...params, _meta: { ...params._meta, [META]: { node: this.node } } }, options));
  }

  override loadSession(params: OpenSessionParams<2>, options?: { signal?: AbortSignal }): Promise<Session<2>> {
    this.hub.learn(params.sessionId, this.node);
    return super.loadSession(this.node === undefined ? params : { ...params, _meta: { ...params._meta, [META]: { node: this.node } } }, options);
  }

  override async forkSession(params: OpenSessionParams<2>, options?: { signal?: AbortSignal }): Promise<Session<2>> {
    return this.#learned(await super.forkSession(params, options));
  }

  override listModels(of: { sessionId: string } | { agent: string }, options?: { signal?: AbortSignal }): ReturnType<SandboxAgentClient<2>["listModels"]> {
    return super.listModels("agent" in of && this.node !== undefined ? ({ ...of, _meta: { [META]: { node: this.node } } } as typeof of) : of, options);
  }

  override async deleteSession(sessionId: string, options?: { signal?: AbortSignal }): Promise<void> {
    const info = await this.api.session(sessionId, options);
    if (copies.has(info.state)) await this.hub.removeCopy(sessionId);
    else await super.deleteSession(sessionId, options);
  }
}

export const nodeUrl = (hub: string, node: string): string => `${hub.replace(/\/$/, "")}/nodes/${encodeURIComponent(node)}`;

export type { Scope };
