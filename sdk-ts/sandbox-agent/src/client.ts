import { abortable, AcpRpcError, Backoff, ConnectionLostError, follow, type AcpStream, type AcpStreamOptions, type ConnectionState, type Envelope, type RetryOptions, type WebSocketConstructor } from "acp-http-client";
import { Api, type RequestOptions, type SessionInfo, type Token } from "./api.js";
import type { Activity } from "./activity.js";
import { Asks } from "./asks.js";
import { Attachments, endOf, over, type Attached } from "./attached.js";
import { open, type Connection } from "./connection.js";
import { AlreadyConnectedError, NotConnectedError } from "./errors.js";
import { asError, attachesLater, forNode, isNotThere, mapped, mayComeBack, nodeIsAway, oldestKept, passes } from "./passing.js";
import { Listeners, mustBeCalled } from "./events.js";
import type { Files } from "./files.js";
import { DAMAGED, ENDED, MCP_SERVERS, MOVED, PROGRESS, STORAGE, TURN_ENDED, UNPARSED, type EventsLost, type InstallProgress, type ModelList, type PermissionHandler, type QuestionHandler, type SessionEnded, type SessionLost, type SessionMcpServers, type SessionMoved, type SessionStorage, type Unparsed } from "./extensions.js";
import { kept, metaOf, withMeta, type NewSessionParams, type OpenSessionParams } from "./meta.js";
import type { Processes } from "./processes.js";
import { notFound, Prompts, type TurnEnded } from "./prompts.js";
import { Session, type SessionResult } from "./session.js";
import { Settings } from "./settings.js";
import type { Turn } from "./turn.js";
import type { Acp, AcpVersion, UpdateKind, UpdateOf } from "./versions.js";

/** How to reach a gateway. */
export interface SandboxAgentClientOptions<V extends AcpVersion = 1> {
  /** The gateway's address, such as `http://127.0.0.1:2468`. */
  baseUrl: string | URL;
  /** The gateway's token, or a function that is asked for it; with `refused` it is asked for a new one. */
  token?: Token;
  /** The agent of sessions that name none. */
  agent?: string;
  /** The version of ACP to speak. Default 1. */
  acpVersion?: V;
  /** Connects at once; without it, methods reject until `connect()`. Default true. */
  autoConnect?: boolean;
  /** How ACP travels. Default `http`, in web pages `websocket`: browsers allow few HTTP connections. `inline` is of version 1. */
  transport?: "http" | "inline" | "websocket";
  /** Says who the client is. */
  clientInfo?: { name: string; version: string };
  /** What the client offers to agents beyond what this class does. */
  capabilities?: Acp<V, "ClientCapabilities">;
  /** Fills in forms that agents send. */
  onElicitation?: (request: Acp<V, "CreateElicitationRequest">, context: { signal: AbortSignal }) => Promise<Acp<V, "CreateElicitationResponse">>;
  /** A lost connection is replaced, and sessions and prompts carry on. Default true. */
  reconnect?: boolean;
  retry?: RetryOptions;
  /** A gateway that is silent for so long, also where it answers at once, is taken for gone. Default 45 s, 0 for never. */
  silenceMs?: number;
  /** Sent with every request. */
  headers?: Record<string, string>;
  signal?: AbortSignal;
  fetch?: typeof globalThis.fetch;
  /** Needed where the runtime has none, such as Node 20: that of the package `ws`. */
  WebSocket?: WebSocketConstructor;
  /** Sees every ACP message. */
  onEnvelope?: (envelope: Envelope) => void;
}

/**
 * A client of one gateway: its agents by ACP, its machine by HTTP.
 *
 * ACP methods have the protocol's names. What belongs to the gateway alone is typed
 * and put in its place in `_meta`. One client has one ACP connection.
 */
export class SandboxAgentClient<V extends AcpVersion = 1> implements AsyncDisposable {
  /** The HTTP API beside ACP: agents, files, processes. It needs no connection. */
  readonly api: Api;
  /** The version of ACP that the client speaks. */
  readonly acpVersion: V;
  readonly #options: SandboxAgentClientOptions<V>;
  readonly #url: string;
  readonly #transport: "http" | "inline" | "websocket";
  readonly #ended = new AbortController();
  readonly #asks = new Asks<V>();
  readonly #prompts: Prompts;
  readonly #attached: Attachments;
  readonly #updates = new Listeners<Acp<V, "SessionNotification">>();
  readonly #activities = new Listeners<Activity>();
  readonly #notices = { // by what the gateway's own notifications are called
    [ENDED]: new Listeners<SessionEnded>(),
    [MOVED]: new Listeners<SessionMoved>(),
    [DAMAGED]: new Listeners<EventsLost>(),
    [STORAGE]: new Listeners<SessionStorage>(),
    [MCP_SERVERS]: new Listeners<SessionMcpServers>(),
    [TURN_ENDED]: new Listeners<TurnEnded>(),
    [UNPARSED]: new Listeners<Unparsed>(),
    [PROGRESS]: new Listeners<InstallProgress>(),
  };
  readonly #lostSessions = new Listeners<SessionLost>();
  readonly #states = new Listeners<ConnectionState>();
  readonly #settings = new Settings();
  #state: ConnectionState = "idle";
  #connection: Promise<Connection<V>> | undefined;
  #live: Connection<V> | undefined;
  #replacing = false; // a lost connection, by another one
  readonly #attaching = new Map<string, Promise<void>>(); // sessions that it is not attached to yet: what names one waits for that
  #lastError: Error | undefined;
  #attempts = new AbortController(); // aborted by disconnect
  #useless: Backoff | undefined; // while connections end that were of no use

  constructor(options: SandboxAgentClientOptions<V>) {
    this.acpVersion = options.acpVersion ?? (1 as V);
    if (this.acpVersion !== 1 && this.acpVersion !== 2) throw new TypeError(`acpVersion is 1 or 2, not ${String(this.acpVersion)}`);
    if (this.acpVersion === 2 && options.transport === "inline") throw new TypeError("the inline transport is of version 1 of ACP: use http or websocket");
    this.#prompts = new Prompts(this.acpVersion);
    const subagents = Boolean((options.capabilities as Acp<1, "ClientCapabilities"> | undefined)?.subagents);
    this.#options = options;
    this.#transport = options.transport ?? (typeof document === "undefined" ? "http" : "websocket");
    this.#attached = new Attachments(this.acpVersion, this.acpVersion === 2 || subagents, this.#transport === "websocket");
    this.api = new Api(options.baseUrl, options);
    this.#url = this.api.url("v2/rpc").href;
    follow(this.#ended.signal, follow(options.signal, () => void this.disconnect()));
    if ((options.autoConnect ?? true) && !options.signal?.aborted) {
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

  /**
   * Opens the connection. Behind one that was given up it goes on with the sessions where that ended. Rejects with
   * {@link AlreadyConnectedError} if there is one, and when the client was disposed of or its signal has aborted.
   */
  async connect(): Promise<Acp<V, "InitializeResponse">> {
    if (this.#ended.signal.aborted) throw new NotConnectedError(undefined, "the client was disposed of");
    this.#options.signal?.throwIfAborted();
    if (this.#connection !== undefined) throw new AlreadyConnectedError();
    this.#lastError = undefined;
    this.#useless = undefined;
    this.#setState("connecting");
    return (await this.#makes(this.#open([...this.#attached]))).hello; // not with what is opened while it connects
  }

  /** What the gateway said of itself and the agent. */
  async initialized(): Promise<Acp<V, "InitializeResponse">> {
    return (await this.#connected()).hello;
  }

  /** Ends the connection, and leaves the sessions, which live on. `connect()` opens another, unless the client's signal has aborted. */
  async disconnect(): Promise<void> {
    const live = this.#live;
    this.#idle(undefined);
    this.#attached.clear();
    const attempts = this.#attempts;
    this.#attempts = new AbortController();
    if (live) await live.stream.close(); // in order, which an abort is not
    attempts.abort(new NotConnectedError());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#ended.abort(); // first: nobody would end a connection that is opened meanwhile
    await this.disconnect();
  }

  #setState(state: ConnectionState): void {
    if (this.#state === state) return;
    this.#state = state;
    this.#attached.arrived();
    this.#states.emit(state);
  }

  /** Opens a connection, which is then being attached to the sessions that it goes on with, right where the one before ended. */
  async #open(sessions: Iterable<[string, Attached]>): Promise<Connection<V>> {
    const o = this.#options;
    const wanted = this.#attempts.signal;
    const transport = this.#transport;
    const byProtocol = transport === "websocket" && !o.WebSocket && o.token !== undefined;
    let live: Connection<V> | undefined;
    const closing = () => live?.stream.state === "closed";
    const connection = (live = await open(this.acpVersion, this.#url, {
      ...o as Pick<AcpStreamOptions, "silenceMs" | "fetch" | "WebSocket" | "onEnvelope">,
      transport,
      signal: wanted,
      retry: o.retry ?? {},
      onState: (state) => {
        if (state === "open" || state === "reconnecting") this.#setState(state);
      },
      ...(byProtocol ? { protocols: (context) => this.api.protocols(context), headers: {} } : { headers: (ask) => this.api.headers(ask.refused) }),
    }, {
      ...(o.clientInfo ?? { name: "sandbox-agent-sdk", version: "0.1.0" }),
      agent: o.agent,
      capabilities: o.capabilities ?? ({} as Acp<V, "ClientCapabilities">),
    }, {
      update: (params) => this.#update(params),
      notice: (method, params) => this.#notice(method, params),
      passed: (params, request) => this.#attached.passed(params, request),
      answered: (asked, result) => this.#prompts.answered(asked, result),
      opened: (params, result) => this.#attached.opened(params, result),
      permission: (params, signal) => this.#asks.permission(params, signal, closing),
      question: (params, signal) => this.#asks.question(params, signal, closing),
      elicitation: o.onElicitation && ((params, signal) => this.#asks.elicitation(params, signal, closing, o.onElicitation!)),
    }));
    wanted.throwIfAborted(); // disconnect() came in between, and the stream has ended
    this.#live = connection;
    this.#replacing = false;
    for (const [sessionId, attached] of [...sessions]) {
      const attaching = this.#attachAgain(connection, sessionId, attached).finally(() => this.#attaching.get(sessionId) === attaching && this.#attaching.delete(sessionId));
      this.#attaching.set(sessionId, attaching);
    }
    this.#setState("open");
    void connection.stream.closed.then(() => this.#lost(connection));
    return connection;
  }

  /** There is no connection any more, and none is being made. */
  #idle(error: Error | undefined): void {
    this.#connection = this.#live = undefined;
    this.#replacing = false;
    this.#attaching.clear();
    this.#lastError = error;
    this.#setState("idle");
    this.#prompts.failAll(error ?? new NotConnectedError());
    this.#asks.end(this.#asks.asked().filter((one) => !error || !one.kept)); // behind a connection that was given up the next one goes on
  }

  /** Takes a connection that is being made, and notes when it cannot be. */
  #makes(connection: Promise<Connection<V>>): Promise<Connection<V>> {
    connection.catch((error: unknown) => this.#connection === connection && this.#idle(asError(error)));
    return (this.#connection = connection);
  }

  /** A connection has ended that nobody closed. */
  #lost(connection: Connection<V>): void {
    if (this.#live !== connection) return;
    this.#live = undefined;
    const { error } = connection.stream;
    if (!(error instanceof ConnectionLostError && error.recoverable && (this.#options.reconnect ?? true))) return this.#idle(error);
    this.#setState("reconnecting");
    this.#replacing = true;
    this.#attaching.clear();
    void this.#makes(this.#reopen(connection));
  }

  /** A new connection in the place of a lost one. */
  async #reopen(lost: Connection<V>): Promise<Connection<V>> {
    if (lost.used() || performance.now() - lost.since > (this.#options.retry?.maxDelayMs ?? 10_000)) this.#useless = undefined;
    // A gateway that takes connections only to end them is not asked without a pause.
    else if (!(await (this.#useless ??= this.#patience()).next())) throw new NotConnectedError();
    return this.#patiently(() => this.#open(this.#attached), mayComeBack);
  }

  async #attachAgain(connection: Connection<V>, sessionId: string, a: Attached): Promise<void> {
    const asked = this.#asks.asked(sessionId);
    let info: SessionInfo | undefined;
    try {
      const result = await this.#reattach(connection, sessionId, a, async () => over((info = await this.#infoOf(connection, sessionId, a.params))?.state));
      if (this.#live !== connection) return; // the next one is attached
      if (result === undefined) return this.#gone(sessionId, endOf(info!)); // its prompts look at its events
      this.#attachedTo(sessionId, metaOf(result));
      if (asked.length > 0) {
        const { pending } = await this.#patiently(() => connection.agent.request<{ pending: { seq?: unknown }[] }>("_sandboxagent/session/pending", { sessionId }), attachesLater);
        const open = new Set(pending.map((one) => one.seq));
        this.#asks.end(asked.filter((one) => !open.has(one.seq))); // somebody has answered, or the agent is gone
      }
    } catch (error) {
      if (this.#live !== connection || connection.stream.state === "closed") return; // as above
      const why = mapped(error);
      this.#prompts.failOf(sessionId, why);
      if (!info && isNotThere(error)) return this.#gone(sessionId, { at: new Date().toISOString(), reason: "deleted", terminatedBy: "" });
      this.#attached.note(sessionId, undefined);
      this.#lostSessions.emit({ sessionId, error: why }); // before its asks end: they are still open at the gateway
      this.#asks.end(this.#asks.asked(sessionId));
    }
  }

  /** A session has ended while there was no connection. */
  #gone(sessionId: string, data: SessionEnded["data"]): void {
    const told = this.#attached.get(sessionId)?.over;
    this.#left(sessionId);
    if (!told) this.#notices[ENDED].emit({ sessionId, data });
  }

  /** What the gateway says of a session; undefined when it does not, of which what follows tells why. Rejects with what goes away by itself. */
  #infoOf(connection: Connection<V>, sessionId: string, params: object): Promise<SessionInfo | undefined> {
    return connection.agent.request<SessionInfo>("_sandboxagent/session/get", withMeta({ sessionId }, { node: metaOf(params).node })).catch((error: unknown) => (attachesLater(error) ? Promise.reject(error) : undefined));
  }

  /** Attaches to a session right behind what came of it, or with the oldest event that is kept. Undefined, and not attached, where the session `isOver`: that would open it again. */
  async #reattach(connection: Connection<V>, sessionId: string, a: Attached, isOver: () => Promise<boolean>): Promise<unknown> {
    for (;;) {
      const first = a.position.after + 1;
      if (a.opening !== undefined) a.opening = Infinity;
      const after = a.position.goOn(a.opening !== undefined); // before the newest, where that may have come in part
      try {
        return await this.#patiently(async () => ((await isOver()) ? undefined : connection.agent.request("session/resume", withMeta({ sessionId, cwd: a.cwd, ...a.params }, { after }))), attachesLater);
      } catch (error) {
        const oldest = oldestKept(error);
        if (oldest === undefined || oldest <= after + 1) throw error;
        a.position = this.#attached.position(oldest - 1);
        a.opening = this.acpVersion === 2 ? Infinity : undefined; // the state is told anew
        a.activity?.restart();
        this.#notices[DAMAGED].emit({ sessionId, firstSeq: Math.min(first, oldest - 1), lastSeq: oldest - 1 });
      }
    }
  }

  /** For what is tried as long as it takes. */
  #patience(): Backoff {
    return new Backoff({ ...this.#options.retry, giveUpAfterMs: Infinity }, this.#attempts.signal);
  }

  /** Tries again what has failed for a reason that goes away. */
  async #patiently<T>(attempt: () => Promise<T>, goesAway = passes): Promise<T> {
    const backoff = new Backoff({ ...this.#options.retry }, this.#attempts.signal);
    for (;;) {
      try {
        return await attempt();
      } catch (error) {
        if (!goesAway(error) || !(await backoff.next())) throw error;
      }
    }
  }

  /** The connection, when there is one that lives, and is attached again to the session that is named. */
  async #connected(sessionId?: string): Promise<Connection<V>> {
    for (;;) {
      const wanted = this.#connection;
      if (wanted === undefined) throw new NotConnectedError(this.#lastError ? { cause: this.#lastError } : undefined);
      const connection = await wanted;
      if (connection.stream.state === "closed") await connection.stream.closed;
      if (this.#connection !== wanted) continue;
      const attaching = this.#attaching.get(sessionId ?? "");
      if (attaching === undefined) return connection;
      await Promise.race([attaching, connection.stream.closed]);
    }
  }

  /**
   * Sends an ACP request, when there is nothing that it waits for. With `repeat` it is sent again when the
   * connection was lost in the middle, and then also while its node comes to the hub that the connection is to now; with `"node"` only
   * that, and with `"undone"` only where the hub does not say that it may have been done. Aborting the signal asks the gateway to cancel it
   * and rejects. `sent` is told whether it is on its way: where a lost connection was being replaced it may still have to be sent again, until it is answered.
   */
  async #request<T>(method: string, params: unknown, repeat: boolean | "node" | "undone", { signal }: RequestOptions = {}, behind?: () => Promise<unknown> | undefined, sent?: (is: boolean) => void): Promise<T> {
    let later: Backoff | undefined; // once a lost connection was being replaced
    for (;;) {
      signal?.throwIfAborted();
      if (repeat && (this.#replacing || this.#attaching.size > 0)) later ??= new Backoff(forNode(this.#options.retry), this.#attempts.signal);
      const connection = await abortable(this.#connected((params as { sessionId?: string } | null | undefined)?.sessionId), signal);
      const first = behind?.();
      if (first) {
        await abortable(first, signal);
        continue;
      }
      const mine = new AbortController(); // the SDK adds a listener for each request
      const leave = follow(signal, () => mine.abort(signal?.reason));
      try {
        const answer = connection.agent.request<T>(method, params, signal ? { cancellationSignal: mine.signal, stopWaitingOnCancel: true } : {}).finally(leave);
        sent?.(!later);
        return await answer;
      } catch (error) {
        sent?.(false);
        signal?.throwIfAborted();
        if (await this.#goesOn(connection)) {
          if (repeat === true) continue;
        } else if (later !== undefined && nodeIsAway(error, repeat === "undone") && (await abortable(later.next(), signal))) continue;
        throw whyNot(connection.stream, error);
      }
    }
  }

  /** Whether the connection was lost, and another one takes its place. */
  async #goesOn({ stream }: Connection<V>): Promise<boolean> {
    if (stream.state === "closed") await stream.closed;
    return stream.error !== undefined && this.#connection !== undefined;
  }

  /** Makes a session. */
  newSession(params: NewSessionParams<V>, options?: RequestOptions): Promise<Session<V>> {
    return this.#make("session/new", params, options);
  }

  /** Makes a session that begins with another's conversation. */
  async forkSession(params: OpenSessionParams<V>, options?: RequestOptions): Promise<Session<V>> {
    return this.#make("session/fork", { ...params, cwd: params.cwd ?? (await this.#cwdOf(params.sessionId, options)) }, options);
  }

  async #make(method: string, params: object, options?: RequestOptions): Promise<Session<V>> {
    const result = await this.#request<SessionResult<V>>(method, withMeta({ mcpServers: [], ...params }), "undone", options);
    return new Session<V>(this, result.sessionId, result);
  }

  /** Opens a session and replays its conversation, to `onUpdate` and `Session.onUpdate` of an object made before. */
  async loadSession(params: OpenSessionParams<V>, options?: RequestOptions): Promise<Session<V>> {
    return this.#openSession("session/load", params, options);
  }

  /** Opens a session without a replay, or right after an event. One that the client has open goes on behind what came. */
  async resumeSession(params: OpenSessionParams<V>, options?: RequestOptions): Promise<Session<V>> {
    return this.#openSession("session/resume", params, options);
  }

  async #openSession(method: string, params: OpenSessionParams<V>, options?: RequestOptions): Promise<Session<V>> {
    const { after, ...rest } = params;
    const { sessionId } = params;
    const cwd = params.cwd ?? (await this.#cwdOf(sessionId, options));
    const known = this.#attached.get(sessionId);
    const two = this.acpVersion === 2;
    const load = method === "session/load";
    const from = after ?? (load ? undefined : known?.position.after); // who has it open goes on behind what came
    const request = withMeta({ mcpServers: [], ...rest, cwd, ...(load && two ? { replayFrom: { type: "start" } } : {}) }, { after: from });
    const attached: Attached = { ...(known ?? this.#attached.begun(sessionId, after ?? 0)), cwd, params: kept(rest), over: false };
    this.#attached.note(sessionId, attached);
    const current = () => this.#attached.get(sessionId) === attached;
    const written = (): undefined => { // on a connection that lives: a new one goes on behind what came, and only what is asked for then comes again
      if (two) attached.opening = (known && from) ?? Infinity;
      if (known && (after ?? (load ? 0 : Infinity)) < attached.position.after) attached.position.again = (upTo) => {
        attached.activity?.restart();
        this.#prompts.again(sessionId, upTo);
      };
    };
    let result: SessionResult<V> | undefined; // with it the gateway has attached the client, who may have aborted since
    try {
      result = await this.#request<SessionResult<V>>(load && two ? "session/resume" : method, request, "node", options, written);
      const { seq, replayedSeq } = metaOf(result);
      // In version 2 the state is told, unless a hub in between has told what is newer.
      const until = two ? (from === undefined ? Infinity : seq) : replayedSeq;
      if (typeof until === "number") {
        const come = () => !current() || (two && attached.opening === undefined) || attached.position.after >= until;
        const heed = (come: Promise<void>) => abortable(come, options?.signal);
        await heed(this.#until(come));
        // Over HTTP the answer may be here before the replay begins, behind events of now that are newer than its last one.
        if (!two && attached.position.again) await heed(abortable(this.#until(() => !current() || !attached.position.again).then(() => this.#until(come)), AbortSignal.timeout(replayBegins)).catch(() => {}));
      }
      if (current() && !two && from === undefined && attached.position.after < (seq as number) && !attached.position.again) attached.position = this.#attached.position(seq as number);
      return new Session<V>(this, sessionId, result);
    } catch (error) {
      if (current() && !result) {
        if (known) this.#attached.note(sessionId, { ...known, position: attached.position });
        else if (!options?.signal?.aborted || attached.position.after <= (after ?? 0)) this.#left(sessionId); // else what was aborted has begun, and goes on
      }
      throw error;
    } finally {
      if (current() && result) this.#attachedTo(sessionId, metaOf(result)); // behind the prompts that came again
      this.#prompts.reopened(sessionId);
    }
  }

  /** The directory of a session. One that only its agent knows has none here. Whatever else goes wrong must not open a session in another directory. */
  async #cwdOf(sessionId: string, options?: RequestOptions): Promise<string> {
    try {
      return (await this.getSession(sessionId, options)).cwd;
    } catch (error) {
      if (error instanceof AcpRpcError && [notFound, unknownMethod].includes(error.code)) return "/";
      throw error;
    }
  }

  /** Takes what the answer that opens a session says of its turn, unless a newer event came before it. */
  #attachedTo(sessionId: string, { seq, turn }: Record<string, unknown>): void {
    const attached = this.#attached.get(sessionId);
    if (attached && seq) {
      attached.newest = seq as number;
      if (attached.turnAt > (seq as number)) return;
    }
    this.#prompts.attached(sessionId, turn === "running");
  }

  /** Resolves when it is so, which an update makes it, or cannot become so on this connection any more. */
  async #until(so: () => boolean): Promise<void> {
    const live = this.#live;
    while (live !== undefined && live === this.#live && !so()) {
      await Promise.race([this.#attached.next(), live.stream.closed]);
    }
  }

  /** The client is attached to the session no more. */
  #left(sessionId: string): void {
    this.#asks.end(this.#asks.asked(sessionId));
    this.#attached.note(sessionId, undefined);
  }

  listSessions(params: Acp<V, "ListSessionsRequest"> = {} as Acp<V, "ListSessionsRequest">, options?: RequestOptions): Promise<Acp<V, "ListSessionsResponse">> {
    return this.#request("session/list", params, true, options);
  }

  /** Ends the agent's part of a session; load or resume opens it again. One that is not there is closed, as ACP says. */
  async closeSession(sessionId: string, options?: RequestOptions): Promise<void> {
    await this.#last("session/close", sessionId, options);
  }

  /** Removes a session and its log. One that is not there is deleted, as ACP says. */
  async deleteSession(sessionId: string, options?: RequestOptions): Promise<void> {
    await this.#last("session/delete", sessionId, options);
  }

  /** Gets no more of a session, which goes on. A turn whose end would only be told, as after a lost connection, fails. */
  async detachSession(sessionId: string, options?: RequestOptions): Promise<void> {
    await this.#last("_sandboxagent/session/detach", sessionId, options, () => this.#prompts.detached(sessionId));
  }

  /** Ends a session for good; its events can still be read. */
  terminateSession(sessionId: string, options?: RequestOptions): Promise<{ terminated: boolean; alreadyEnded: boolean; reason?: string; terminatedBy?: string }> {
    return this.#last("_sandboxagent/session/terminate", sessionId, options);
  }

  /** Leaves a session, behind its prompts: one that has to be sent again must not come to a session that has ended. */
  async #last<T>(method: string, sessionId: string, options?: RequestOptions, left?: () => void): Promise<T> {
    const before = this.#attached.get(sessionId);
    const set = this.#settings.behind(sessionId);
    const prompts = this.#prompts.behind(sessionId);
    const result = await this.#request<T>(method, { sessionId }, true, options, () => set() ?? prompts());
    if (this.#attached.get(sessionId) === before) { // else it was opened again behind that
      this.#left(sessionId);
      left?.();
    }
    return result;
  }

  /** Sends a prompt. The result can be awaited, and iterated for the updates. */
  prompt(params: { sessionId: string; prompt: string | Acp<V, "ContentBlock">[]; _meta?: Record<string, unknown>; signal?: AbortSignal }): Turn<V> {
    const { signal, prompt, ...rest } = params;
    const { sessionId } = rest;
    const blocks = typeof prompt === "string" ? [{ type: "text", text: prompt }] : prompt;
    const set = this.#settings.behind(sessionId); // it begins with what was set before
    const turn = this.#prompts.add(sessionId, this.#cancels(sessionId), {
      oneByOne: this.#options.transport === "inline",
      after: () => this.#attached.get(sessionId)?.position.after,
      newest: () => this.#attached.get(sessionId)?.newest ?? 0,
      reached: (seq) => this.#until(() => (this.#attached.get(sessionId)?.position.after ?? seq) >= seq),
      send: async (promptId, go) => {
        const request = withMeta({ ...rest, prompt: blocks }, { promptId });
        let connection = await this.#connected(sessionId);
        if (!turn.done) await this.#joins(connection, turn);
        for (let first; (first = set() ?? go()); connection = await this.#connected(sessionId)) await first;
        try {
          return { response: await connection.agent.request("session/prompt", request), lost: connection.stream.closed };
        } catch (error) {
          if (await this.#goesOn(connection)) return { lost: true };
          throw whyNot(connection.stream, error);
        }
      },
      broken: () => (this.#state === "reconnecting" ? this.#attached.next() : undefined),
      connected: async () => void (await this.#connected(sessionId)),
      lost: async () => void (await (await this.#connected()).stream.closed),
      patience: () => this.#patience(),
      state: async () => (await this.api.session(sessionId)).state,
      events: (after) => this.api.sessionEvents(sessionId, { after, limit: 1000 }),
    }, metaOf(params).promptId);
    if (signal) {
      const leave = follow(signal, () => void turn.cancel().catch(() => {}));
      turn.then(leave, leave);
    }
    return turn as unknown as Turn<V>;
  }

  /** The gateway attaches who sends a prompt to a session, as after `disconnect()`: it is followed on the next connection, too. */
  async #joins(connection: Connection<V>, turn: { sessionId: string; done: boolean }): Promise<void> {
    const { sessionId } = turn;
    if (this.#attached.has(sessionId)) return;
    const info = await this.#infoOf(connection, sessionId, {}).catch(() => undefined);
    if (info && !over(info.state) && !turn.done && !this.#attached.has(sessionId)) this.#attached.note(sessionId, this.#attached.begun(sessionId, info.eventCount));
  }

  /** Asks the agent to end the session's running turn, and drops those that wait. In version 2 the session may be a subagent's. */
  cancel(sessionId: string): Promise<void> {
    return this.#prompts.cancel(sessionId, this.#cancels(sessionId));
  }

  /** What sends a cancel, of all or of some prompts alone. */
  #cancels(sessionId: string) {
    return async () => {
      const connection = await this.#connected(sessionId);
      return (again: boolean, promptIds?: string[]) => connection.agent.notify("session/cancel", withMeta({ sessionId }, promptIds && { promptIds })).then(() => true, async (error: unknown) => {
        if ((await this.#goesOn(connection)) && again) return false;
        throw whyNot(connection.stream, error);
      });
    };
  }

  /** Ends one call of the agent alone, where the call says that it can be: in version 1 in `_meta`. */
  async cancelToolCall(sessionId: string, toolCallId: string, options?: RequestOptions): Promise<void> {
    await this.#request("tool_call/cancel", { sessionId, toolCallId }, true, options);
  }

  /** Ends one command, where it says that it can be: in version 2. */
  async cancelTerminal(sessionId: string, terminalId: string, options?: RequestOptions): Promise<void> {
    await this.#request("terminal/cancel", { sessionId, terminalId }, true, options);
  }

  /** Chooses a mode. In version 2 modes are the values of an option, whose id is `configId`. */
  async setSessionMode(sessionId: string, modeId: string, options?: RequestOptions, configId = "mode"): Promise<void> {
    if (this.acpVersion === 2) await this.#set("session/set_config_option", { sessionId, configId, type: "id", value: modeId }, options);
    else await this.#set("session/set_mode", { sessionId, modeId }, options);
  }

  setSessionConfigOption(params: Acp<V, "SetSessionConfigOptionRequest">, options?: RequestOptions): Promise<Acp<V, "SetSessionConfigOptionResponse">> {
    return this.#set("session/set_config_option", { ...params }, options);
  }

  #set<T>(method: string, params: { sessionId: string } & Record<string, unknown>, options?: RequestOptions): Promise<T> {
    return this.#settings.set(params.sessionId, (sent) => this.#request<T>(method, params, true, options, undefined, sent), options?.signal);
  }

  authenticate(params: Acp<V, "AuthenticateRequest">, options?: RequestOptions): Promise<Acp<V, "AuthenticateResponse">> {
    return this.#request(this.acpVersion === 2 ? "auth/login" : "authenticate", params, false, options);
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
    await this.#set("_sandboxagent/session/set_metadata", { sessionId, metadata }, options);
  }

  /** Gives a session a title, which its agent's own do not replace. Empty is the agent's own again. */
  async setTitle(sessionId: string, title: string, options?: RequestOptions): Promise<void> {
    await this.#set("_sandboxagent/session/set_metadata", { sessionId, title }, options);
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
  onPermission(handler: PermissionHandler<V>): () => void {
    return this.#asks.onPermission(handler);
  }

  /** Answers questions, in the same way. */
  onQuestion(handler: QuestionHandler): () => void {
    return this.#asks.onQuestion(handler);
  }

  /** Tells of the updates of all attached sessions, and of their subagents'. */
  onUpdate(listener: (notification: Acp<V, "SessionNotification">) => void): () => void {
    return this.#updates.add(listener);
  }

  /** Tells of the updates of one kind: in version 2 states are `state_update`, subagents `subagent_update`. */
  on<K extends UpdateKind<V>>(kind: K, listener: (update: UpdateOf<V, K>, sessionId: string) => void): () => void {
    mustBeCalled(listener);
    return this.#updates.add(({ sessionId, update }) => {
      if (update.sessionUpdate === kind) listener(update as UpdateOf<V, K>, sessionId);
    });
  }

  /** What a session is doing, its subagents and its commands: in version 2, of sessions that the client is attached to. */
  activity(sessionId: string): Acp<V, "Activity"> | undefined {
    return this.#attached.get(sessionId)?.activity as Acp<V, "Activity"> | undefined;
  }

  /** Tells when the activity of a session has changed: in version 2. */
  onActivity(listener: (activity: Activity) => void): () => void {
    return this.#activities.add(listener);
  }

  onSessionEnded(listener: (ended: SessionEnded) => void): () => void {
    return this.#notices[ENDED].add(listener);
  }

  /** Tells of a session that the client could not attach to again on a new connection. */
  onSessionLost(listener: (lost: SessionLost) => void): () => void {
    return this.#lostSessions.add(listener);
  }

  /** Tells when a session goes on at another node of a hub. */
  onSessionMoved(listener: (moved: SessionMoved) => void): () => void {
    return this.#notices[MOVED].add(listener);
  }

  /** Tells when the gateway cannot write a session, as with a full disk, and when it can again. */
  onSessionStorage(listener: (storage: SessionStorage) => void): () => void {
    return this.#notices[STORAGE].add(listener);
  }

  /** Tells of events that were gone before the client could be told of them: the session goes on behind them. */
  onEventsLost(listener: (lost: EventsLost) => void): () => void {
    return this.#notices[DAMAGED].add(listener);
  }

  /** Tells how the MCP servers of a session are, whenever that changes; `api.session(id)` has it, too. */
  onMcpServers(listener: (servers: SessionMcpServers) => void): () => void {
    return this.#notices[MCP_SERVERS].add(listener);
  }

  /** Tells how turns ended that other clients asked for. */
  onTurnEnded(listener: (ended: TurnEnded) => void): () => void {
    return this.#notices[TURN_ENDED].add(listener);
  }

  onUnparsed(listener: (unparsed: Unparsed) => void): () => void {
    return this.#notices[UNPARSED].add(listener);
  }

  onInstallProgress(listener: (progress: InstallProgress) => void): () => void {
    return this.#notices[PROGRESS].add(listener);
  }

  #update(params: Acp<V, "SessionNotification">): void {
    const { sessionId, update } = params;
    if (!this.#attached.fresh(params)) return;
    const attached = this.#attached.of(params);
    if (attached) attached.over = false;
    const activity = attached?.activity;
    const changed = activity?.take(sessionId, update as Acp<2, "SessionUpdate">);
    if (update.sessionUpdate === "user_message_chunk" && metaOf(update).prompt === true) this.#attached.turnsAt(params);
    const { seq } = metaOf(params);
    this.#prompts.update(sessionId, update, typeof seq === "number" ? seq : undefined);
    this.#updates.emit(params);
    if (changed) this.#activities.emit(activity!);
  }

  #notice(method: string, params: unknown): void {
    if (!this.#attached.fresh(params as { sessionId?: string })) return;
    if (method === ENDED) {
      const { sessionId, data } = params as SessionEnded;
      const attached = this.#attached.of(params as SessionEnded);
      if (data?.reason === "deleted") { // by whichever client
        this.#left(sessionId);
        this.#prompts.deleted(sessionId);
      } else if (attached) attached.over = data?.terminatedBy !== "agent"; // else its process is
    }
    if (method === TURN_ENDED) {
      if ((params as TurnEnded).began !== false) this.#attached.turnsAt(params as TurnEnded);
      if (this.#prompts.ended(params as TurnEnded)) return;
    }
    (this.#notices as Partial<Record<string, Listeners<unknown>>>)[method]?.emit(params);
  }
}

/** Why what was sent has no answer. The official SDK has a word of its own for a connection that this client has closed. */
function whyNot(stream: AcpStream, error: unknown): Error {
  const told = mapped(stream.error ?? error);
  return stream.error || told instanceof AcpRpcError || stream.state !== "closed" ? told : new NotConnectedError();
}

/** A replay that has been answered is on its way: longer only where nothing of it is shown. */
const replayBegins = 5_000;

/** The code of the error about a method that the other end does not have. */
const unknownMethod = -32601;
