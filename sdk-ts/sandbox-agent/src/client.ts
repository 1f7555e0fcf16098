import { methods, type ClientCapabilities, type ContentBlock, type CreateElicitationRequest, type CreateElicitationResponse, type InitializeResponse, type PromptResponse, type SessionNotification, type SessionUpdate, type ListSessionsRequest, type ListSessionsResponse, type SetSessionConfigOptionRequest, type SetSessionConfigOptionResponse, type AuthenticateRequest, type AuthenticateResponse } from "@agentclientprotocol/sdk/unstable";
import { AcpRpcError, Backoff, ConnectionLostError, type AcpStreamOptions, type ConnectionState, type Envelope, type RetryOptions, type WebSocketConstructor } from "acp-http-client";
import { Api, type RequestOptions, type Token } from "./api.js";
import { Asks } from "./asks.js";
import { open, type Connection } from "./connection.js";
import { AlreadyConnectedError, NotConnectedError } from "./errors.js";
import { Listeners } from "./events.js";
import type { Files } from "./files.js";
import { ENDED, PROGRESS, STORAGE, TURN_ENDED, UNPARSED, type InstallProgress, type ModelList, type PermissionHandler, type QuestionHandler, type SessionEnded, type SessionStorage, type Unparsed } from "./extensions.js";
import { metaOf, withMeta, type NewSessionParams, type OpenSessionParams } from "./meta.js";
import type { Processes } from "./processes.js";
import { Prompts, type TurnEnded } from "./prompts.js";
import { Session, type SessionResult } from "./session.js";
import type { Turn } from "./turn.js";

/** How to reach a gateway. */
export interface SandboxAgentClientOptions {
  /** The gateway's address, such as `http://127.0.0.1:2468`. */
  baseUrl: string | URL;
  /** The gateway's token, or a function that is asked for it; with `refused` it is asked for a new one. */
  token?: Token;
  /** The agent of sessions that name none. */
  agent?: string;
  /** Connects at once; without it, methods reject until `connect()`. Default true. */
  autoConnect?: boolean;
  /** How ACP travels. Default `http`, in web pages `websocket`: browsers allow few HTTP connections. */
  transport?: "http" | "inline" | "websocket";
  /** Says who the client is. */
  clientInfo?: { name: string; version: string };
  /** What the client offers to agents beyond what this class does. */
  capabilities?: ClientCapabilities;
  /** Fills in forms that agents send. */
  onElicitation?: (request: CreateElicitationRequest, context: { signal: AbortSignal }) => Promise<CreateElicitationResponse>;
  /** A lost connection is replaced, and sessions and prompts carry on. Default true. */
  reconnect?: boolean;
  retry?: RetryOptions;
  /** Sent with every request. */
  headers?: Record<string, string>;
  signal?: AbortSignal;
  fetch?: typeof globalThis.fetch;
  /** Needed where the runtime has none, such as Node 20: that of the package `ws`. */
  WebSocket?: WebSocketConstructor;
  /** Sees every ACP message. */
  onEnvelope?: (envelope: Envelope) => void;
}

/** What a session that this client is attached to needs on a new connection. */
interface Attached {
  readonly cwd: string;
  readonly params: Record<string, unknown>; // mcpServers, additionalDirectories, _meta
  after: number; // the newest event seen
}

/**
 * A client of one gateway: its agents by ACP, its machine by HTTP.
 *
 * ACP methods have the protocol's names. What belongs to the gateway alone is typed
 * and put in its place in `_meta`. One client has one ACP connection.
 */
export class SandboxAgentClient implements AsyncDisposable {
  /** The HTTP API beside ACP: agents, files, processes. It needs no connection. */
  readonly api: Api;
  readonly #options: SandboxAgentClientOptions;
  readonly #url: string;
  readonly #ended = new AbortController();
  readonly #asks = new Asks();
  readonly #prompts = new Prompts();
  readonly #attached = new Map<string, Attached>();
  readonly #updates = new Listeners<SessionNotification>();
  readonly #endings = new Listeners<SessionEnded>();
  readonly #storages = new Listeners<SessionStorage>();
  readonly #turnEndings = new Listeners<TurnEnded>();
  readonly #unparsed = new Listeners<Unparsed>();
  readonly #progress = new Listeners<InstallProgress>();
  readonly #states = new Listeners<ConnectionState>();
  #state: ConnectionState = "idle";
  #connection: Promise<Connection> | undefined;
  #live: Connection | undefined;
  #lastError: Error | undefined;
  #arrivals: (() => void)[] = []; // of who waits for an event
  #attempts = new AbortController(); // aborted by disconnect

  constructor(options: SandboxAgentClientOptions) {
    this.#options = options;
    const base = new URL(options.baseUrl);
    this.#url = new URL("v2/rpc", base.href.endsWith("/") ? base : `${base.href}/`).href;
    this.api = new Api(base, options);
    options.signal?.addEventListener("abort", () => void this.disconnect(), { once: true, signal: this.#ended.signal });
    if (options.autoConnect ?? true) {
      this.connect().catch(() => {}); // the methods that wait for it are told
    }
  }


  get state(): ConnectionState {
    return this.#state;
  }

  /** Files of the gateway's machine. */
  get fs(): Files {
    return this.api.fs;
  }

  /** Programs of the gateway's machine. */
  get processes(): Processes {
    return this.api.processes;
  }

  /** Opens the terminal of a program that was started with `tty`. */
  terminal(...args: Parameters<Processes["terminal"]>): ReturnType<Processes["terminal"]> {
    return this.api.processes.terminal(...args);
  }

  health(): ReturnType<Api["health"]> {
    return this.api.health();
  }

  /** The gateway's metrics in the text format of Prometheus. */
  metrics(): ReturnType<Api["metrics"]> {
    return this.api.metrics();
  }

  agents(): ReturnType<Api["agents"]> {
    return this.api.agents();
  }

  /** Installs an agent; `onProgress` tells how far it is. */
  installAgent(...args: Parameters<Api["installAgent"]>): ReturnType<Api["installAgent"]> {
    return this.api.installAgent(...args);
  }

  /** Tells of every change of `state`. */
  onState(listener: (state: ConnectionState) => void): () => void {
    return this.#states.add(listener);
  }

  /** Opens the connection. Rejects with {@link AlreadyConnectedError} if there is one. */
  async connect(): Promise<InitializeResponse> {
    if (this.#connection !== undefined) throw new AlreadyConnectedError();
    this.#setState("connecting");
    const connection = (this.#connection = this.#open());
    connection.catch((error: unknown) => this.#failed(connection, asError(error)));
    return (await connection).hello;
  }

  /** What the gateway said of itself and the agent. */
  async initialized(): Promise<InitializeResponse> {
    return (await this.#connected()).hello;
  }

  /** Ends the connection. Sessions live on; `connect()` opens another. */
  async disconnect(): Promise<void> {
    const live = this.#live;
    this.#connection = undefined;
    this.#live = undefined;
    this.#setState("idle");
    this.#prompts.failAll(new NotConnectedError());
    this.#attached.clear();
    const attempts = this.#attempts;
    this.#attempts = new AbortController();
    await live?.stream.close();
    attempts.abort(new NotConnectedError());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.disconnect();
    this.#ended.abort();
  }

  #setState(state: ConnectionState): void {
    if (this.#state === state) return;
    this.#state = state;
    this.#states.emit(state);
  }

  #streamOptions(): AcpStreamOptions {
    const o = this.#options;
    const transport = o.transport ?? (typeof document === "undefined" ? "http" : "websocket");
    return {
      transport,
      headers: (ask) => this.api.headers(ask.refused),
      retry: o.retry ?? {},
      signal: this.#attempts.signal,
      onState: (state) => {
        if (state === "open" || state === "reconnecting") this.#setState(state);
      },
      ...(o.fetch ? { fetch: o.fetch } : {}),
      ...(o.WebSocket ? { WebSocket: o.WebSocket } : {}),
      ...(o.onEnvelope ? { onEnvelope: o.onEnvelope } : {}),
    };
  }

  async #open(): Promise<Connection> {
    const o = this.#options;
    const options = this.#streamOptions();
    const protocols = options.transport === "websocket" && !o.WebSocket ? await this.api.protocols() : undefined;
    let live: Connection | undefined;
    const connection = (live = await open(this.#url, protocols ? { ...options, protocols, headers: {} } : options, {
      ...(o.clientInfo ?? { name: "sandbox-agent-sdk", version: "0.1.0" }),
      agent: o.agent,
      capabilities: o.capabilities ?? {},
    }, {
      update: (params) => this.#update(params),
      notice: (method, params) => this.#notice(method, params),
      answered: (promptId) => this.#prompts.answered(promptId),
      permission: (params, signal) => this.#asks.permission(params, signal, () => live?.stream.state === "closed"),
      question: (params, signal) => this.#asks.question(params, signal, () => live?.stream.state === "closed"),
      elicitation: o.onElicitation && ((params, signal) => o.onElicitation!(params, { signal })),
    }));
    this.#live = connection;
    this.#setState("open");
    void connection.stream.closed.then(() => this.#lost(connection));
    return connection;
  }

  /** There is no connection any more, and none is being made. */
  #failed(connection: Promise<Connection>, error: Error | undefined): void {
    if (this.#connection !== connection) return;
    this.#connection = undefined;
    this.#lastError = error;
    this.#setState("idle");
    this.#prompts.failAll(error ?? new NotConnectedError());
  }

  /** A connection has ended that nobody closed. */
  #lost(connection: Connection): void {
    if (this.#live !== connection) return;
    this.#live = undefined;
    const error = connection.stream.error;
    const recover = error instanceof ConnectionLostError && error.recoverable && (this.#options.reconnect ?? true);
    const before = this.#connection;
    if (!recover) {
      if (before) this.#failed(before, error);
      return;
    }
    this.#setState("reconnecting");
    const next = (this.#connection = this.#reopen());
    next.catch((failure: unknown) => this.#failed(next, asError(failure)));
  }

  /** A new connection, attached to the sessions of the old one right where that ended. */
  async #reopen(): Promise<Connection> {
    const connection = await this.#openAgain();
    await Promise.all([...this.#attached].map(async ([sessionId, a]) => {
      try {
        await connection.acp.agent.request(methods.agent.session.resume, withMeta({ sessionId, cwd: a.cwd, ...a.params }, { after: a.after }) as never);
      } catch (error) {
        if (connection.stream.error) throw connection.stream.error;
        this.#attached.delete(sessionId); // it was deleted, or has ended, meanwhile
        this.#prompts.failOf(sessionId, mapped(error));
      }
    })).catch(() => {}); // the connection was lost again, and is opened again
    return connection;
  }

  /** Opens a connection on a network that may break in the middle of it. */
  async #openAgain(): Promise<Connection> {
    const backoff = new Backoff(this.#options.retry ?? {}, this.#attempts.signal);
    for (;;) {
      try {
        return await this.#open();
      } catch (error) {
        const worth = error instanceof ConnectionLostError && error.recoverable && error.reason !== "unreachable";
        if (!worth || !(await backoff.next())) throw error;
      }
    }
  }

  /** The connection, when there is one that lives. */
  async #connected(): Promise<Connection> {
    for (;;) {
      const wanted = this.#connection;
      if (wanted === undefined) throw new NotConnectedError(this.#lastError ? { cause: this.#lastError } : undefined);
      const connection = await wanted;
      if (connection.stream.state === "closed") await connection.stream.closed;
      if (this.#connection === wanted) return connection;
    }
  }

  /**
   * Sends an ACP request. With `repeat` it is sent again when the connection was lost
   * in the middle. Aborting the signal asks the gateway to cancel it and rejects.
   */
  async #request<T>(method: string, params: unknown, repeat: boolean, { signal }: RequestOptions = {}): Promise<T> {
    for (;;) {
      signal?.throwIfAborted();
      const connection = await abortable(this.#connected(), signal);
      try {
        return await connection.acp.agent.request<T>(method, params, signal ? { cancellationSignal: signal, stopWaitingOnCancel: true } : {});
      } catch (error) {
        signal?.throwIfAborted();
        if (connection.stream.state === "closed") {
          await connection.stream.closed;
          if (repeat && this.#connection !== undefined && connection.stream.error) continue;
        }
        throw mapped(connection.stream.error ?? error);
      }
    }
  }


  /** Makes a session. */
  async newSession(params: NewSessionParams, options?: RequestOptions): Promise<Session> {
    const request = withMeta({ mcpServers: [], ...params });
    const result = await this.#request<SessionResult>(methods.agent.session.new, request, false, options);
    return this.#session(result.sessionId, params, result, 0);
  }

  /** Opens a session and replays its conversation, to `onUpdate` and `Session.onUpdate` of an object made before. */
  async loadSession(params: OpenSessionParams, options?: RequestOptions): Promise<Session> {
    return this.#openSession(methods.agent.session.load, params, options);
  }

  /** Opens a session without a replay, or right after an event. */
  async resumeSession(params: OpenSessionParams, options?: RequestOptions): Promise<Session> {
    return this.#openSession(methods.agent.session.resume, params, options);
  }

  async #openSession(method: string, params: OpenSessionParams, options?: RequestOptions): Promise<Session> {
    const { after, ...rest } = params;
    const cwd = params.cwd ?? (await this.api.session(params.sessionId).then((s) => s.cwd, () => "/"));
    const known = this.#attached.get(params.sessionId);
    if (known && method === methods.agent.session.load) known.after = after ?? 0; // what comes again is wanted again
    const request = withMeta({ mcpServers: [], ...rest, cwd }, after === undefined ? {} : { after });
    this.#attached.set(params.sessionId, { cwd, params: kept(rest), after: after ?? 0 });
    try {
      const result = await this.#request<SessionResult>(method, request, false, options);
      const { seq, replayedSeq } = metaOf(result);
      if (typeof replayedSeq === "number") await this.#seen(params.sessionId, replayedSeq);
      return this.#session(params.sessionId, { ...rest, cwd }, result, after ?? (typeof seq === "number" ? seq : 0));
    } catch (error) {
      if (known) this.#attached.set(params.sessionId, known);
      else this.#attached.delete(params.sessionId);
      throw error;
    }
  }

  /** Resolves when the session's event has come, or cannot come any more. */
  async #seen(sessionId: string, seq: number): Promise<void> {
    const live = this.#live;
    while (live !== undefined && live === this.#live && (this.#attached.get(sessionId)?.after ?? seq) < seq) {
      await Promise.race([new Promise<void>((resolve) => this.#arrivals.push(resolve)), live.stream.closed]);
    }
  }

  /** Makes a session that begins with another's conversation. */
  async forkSession(params: OpenSessionParams, options?: RequestOptions): Promise<Session> {
    const cwd = params.cwd ?? (await this.api.session(params.sessionId)).cwd ?? "/";
    const result = await this.#request<SessionResult>(methods.agent.session.fork, withMeta({ mcpServers: [], ...params, cwd }), false, options);
    const { seq } = metaOf(result); // what was said before is not new
    return this.#session(result.sessionId, { ...params, cwd }, result, typeof seq === "number" ? seq : 0);
  }

  #session(sessionId: string, params: { cwd: string }, result: SessionResult, after: number): Session {
    const known = this.#attached.get(sessionId);
    this.#attached.set(sessionId, { cwd: params.cwd, params: kept(params), after: Math.max(after, known?.after ?? 0) });
    return new Session(this, sessionId, result);
  }

  listSessions(params: ListSessionsRequest = {}, options?: RequestOptions): Promise<ListSessionsResponse> {
    return this.#request(methods.agent.session.list, params, true, options);
  }

  /** Ends the agent's part of a session; load or resume opens it again. */
  async closeSession(sessionId: string, options?: RequestOptions): Promise<void> {
    await this.#request(methods.agent.session.close, { sessionId }, true, options);
    this.#attached.delete(sessionId);
  }

  /** Removes a session and its log. */
  async deleteSession(sessionId: string, options?: RequestOptions): Promise<void> {
    await this.#request(methods.agent.session.delete, { sessionId }, true, options);
    this.#attached.delete(sessionId);
  }

  /** Gets no more of a session, which goes on. */
  async detachSession(sessionId: string, options?: RequestOptions): Promise<void> {
    await this.#request("_sandboxagent/session/detach", { sessionId }, true, options);
    this.#attached.delete(sessionId);
  }

  /** Ends a session for good; its events can still be read. */
  async terminateSession(sessionId: string, options?: RequestOptions): Promise<{ terminated: boolean; alreadyEnded: boolean; reason?: string; terminatedBy?: string }> {
    const result = await this.#request<{ terminated: boolean; alreadyEnded: boolean }>("_sandboxagent/session/terminate", { sessionId }, true, options);
    this.#attached.delete(sessionId);
    return result;
  }


  /** Sends a prompt. The result can be awaited, and iterated for the updates. */
  prompt(params: { sessionId: string; prompt: string | ContentBlock[]; _meta?: Record<string, unknown>; signal?: AbortSignal }): Turn {
    const { signal, prompt, ...rest } = params;
    const blocks: ContentBlock[] = typeof prompt === "string" ? [{ type: "text", text: prompt }] : prompt;
    const turn = this.#prompts.add(rest.sessionId, () => this.cancel(rest.sessionId), {
      oneByOne: this.#options.transport === "inline",
      startAfter: this.#attached.get(rest.sessionId)?.after ?? 0,
      after: () => this.#attached.get(rest.sessionId)?.after ?? 0,
      send: async (promptId, onSent) => {
        const connection = await this.#connected();
        const request = withMeta({ ...rest, prompt: blocks }, { promptId });
        try {
          const response = connection.acp.agent.request<PromptResponse>(methods.agent.session.prompt, request);
          onSent();
          return { response: await response };
        } catch (error) {
          if (connection.stream.state === "closed") {
            await connection.stream.closed;
            if (this.#connection !== undefined && connection.stream.error) return { lost: true };
          }
          throw mapped(connection.stream.error ?? error);
        }
      },
      connected: async () => void (await this.#connected()),
      lost: async () => void (await (await this.#connected()).stream.closed),
      state: async () => (await this.api.session(rest.sessionId)).state,
      events: (after) => this.api.sessionEvents(rest.sessionId, { after, limit: 1000 }),
    });
    if (signal) {
      const cancel = () => void turn.cancel().catch(() => {});
      if (signal.aborted) cancel();
      else {
        signal.addEventListener("abort", cancel, { once: true });
        const done = () => signal.removeEventListener("abort", cancel);
        turn.then(done, done);
      }
    }
    return turn;
  }

  /** Asks the agent to end the session's running turn, and drops those that wait. */
  async cancel(sessionId: string): Promise<void> {
    await this.#prompts.settleBeforeCancel(sessionId);
    const connection = await this.#connected();
    await connection.acp.agent.notify(methods.agent.session.cancel, { sessionId });
  }

  async setSessionMode(sessionId: string, modeId: string, options?: RequestOptions): Promise<void> {
    await this.#request(methods.agent.session.setMode, { sessionId, modeId }, true, options);
  }

  setSessionConfigOption(params: SetSessionConfigOptionRequest, options?: RequestOptions): Promise<SetSessionConfigOptionResponse> {
    return this.#request(methods.agent.session.setConfigOption, params, true, options);
  }

  authenticate(params: AuthenticateRequest, options?: RequestOptions): Promise<AuthenticateResponse> {
    return this.#request(methods.agent.authenticate, params, false, options);
  }

  /** Sends any request of ACP or an extension. */
  request<T = unknown>(method: string, params: unknown, options?: RequestOptions): Promise<T> {
    return this.#request(method, params, false, options);
  }


  /** The models of a session, or of an agent. */
  listModels(of: { sessionId: string } | { agent: string }, options?: RequestOptions): Promise<ModelList> {
    return this.#request("_sandboxagent/session/list_models", of, true, options);
  }

  async setMetadata(sessionId: string, metadata: Record<string, unknown>, options?: RequestOptions): Promise<void> {
    await this.#request("_sandboxagent/session/set_metadata", { sessionId, metadata }, true, options);
  }

  getSession(sessionId: string, options?: RequestOptions): ReturnType<Api["session"]> {
    return this.#request("_sandboxagent/session/get", { sessionId }, true, options);
  }

  getEvents(sessionId: string, page: { after?: number; limit?: number } = {}, options?: RequestOptions): ReturnType<Api["sessionEvents"]> {
    return this.#request("_sandboxagent/session/events", { sessionId, ...page }, true, options);
  }

  /** The requests of a session's agent that nobody has answered. */
  pendingRequests(sessionId: string, options?: RequestOptions): Promise<{ pending: unknown[] }> {
    return this.#request("_sandboxagent/session/pending", { sessionId }, true, options);
  }

  /** Answers permission requests. The newest handler counts; without one they wait, also for other clients. */
  onPermission(handler: PermissionHandler): () => void {
    return this.#asks.onPermission(handler);
  }

  /** Answers questions, in the same way. */
  onQuestion(handler: QuestionHandler): () => void {
    return this.#asks.onQuestion(handler);
  }

  /** Tells of the updates of all attached sessions. */
  onUpdate(listener: (notification: SessionNotification) => void): () => void {
    return this.#updates.add(listener);
  }

  onSessionEnded(listener: (ended: SessionEnded) => void): () => void {
    return this.#endings.add(listener);
  }

  /** Tells when the gateway cannot write a session, as with a full disk, and when it can again. */
  onSessionStorage(listener: (storage: SessionStorage) => void): () => void {
    return this.#storages.add(listener);
  }

  /** Tells how turns ended that other clients asked for. */
  onTurnEnded(listener: (ended: TurnEnded) => void): () => void {
    return this.#turnEndings.add(listener);
  }

  onUnparsed(listener: (unparsed: Unparsed) => void): () => void {
    return this.#unparsed.add(listener);
  }

  onInstallProgress(listener: (progress: InstallProgress) => void): () => void {
    return this.#progress.add(listener);
  }


  /** Notes how far the session has come; false for what came before the connection was replaced. */
  #fresh(params: { sessionId?: string }): boolean {
    const seq = metaOf(params).seq;
    const attached = params.sessionId === undefined ? undefined : this.#attached.get(params.sessionId);
    if (attached === undefined || typeof seq !== "number") return true;
    if (seq <= attached.after) return false;
    attached.after = seq;
    for (const arrived of this.#arrivals.splice(0)) arrived();
    return true;
  }

  #update(params: SessionNotification): void {
    if (!this.#fresh(params)) return;
    this.#prompts.update(params.sessionId, params.update as SessionUpdate);
    this.#updates.emit(params);
  }

  #notice(method: string, params: unknown): void {
    if (!this.#fresh(params as { sessionId?: string })) return;
    switch (method) {
      case ENDED:
        this.#endings.emit(params as SessionEnded);
        break;
      case STORAGE:
        this.#storages.emit(params as SessionStorage);
        break;
      case TURN_ENDED:
        if (!this.#prompts.ended(params as TurnEnded)) this.#turnEndings.emit(params as TurnEnded);
        break;
      case UNPARSED:
        this.#unparsed.emit(params as Unparsed);
        break;
      case PROGRESS:
        this.#progress.emit(params as InstallProgress);
        break;
    }
  }
}

/** What a session's params must say again when it is resumed. */
function kept(params: object): Record<string, unknown> {
  const { sessionId: _, cwd: __, requestedSessionId: ___, after: ____, handover: _____, ...rest } = params as Record<string, unknown>;
  return { mcpServers: [], ...rest };
}

/** Errors of the protocol, without the official SDK's class around them. */
function mapped(error: unknown): Error {
  if (error instanceof Error && "code" in error && typeof error.code === "number" && !(error instanceof DOMException)) {
    return new AcpRpcError(error.code, error.message, "data" in error ? error.data : undefined);
  }
  return asError(error);
}

/** The promise, given up when the signal aborts. */
function abortable<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason as Error);
    signal.addEventListener("abort", stop, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
  });
}

const asError = (error: unknown) => (error instanceof Error ? error : new Error(String(error)));
