import type { AnyMessage, Stream } from "@agentclientprotocol/sdk";
import { Backoff, follow } from "./clock.js";
import { ConnectionLostError, ProblemError, reasonOf, type LossReason } from "./errors.js";
import type { AcpStreamOptions, ConnectionState, Envelope, HeaderSource } from "./options.js";

/** Messages that may wait for the reader before no more are read from the network. */
const readAhead = 1024;

/** How long `close` waits for the server to hear of it. */
export const farewellMs = 2000;

/** The stream that the official SDK's `connect` takes, and what else can be known of the connection. */
export interface AcpStream extends Stream {
  /** The connection's id, once initialize was answered. */
  readonly connectionId: string | undefined;
  readonly state: ConnectionState;
  /** Why the connection ended; undefined while it lives and after `close()`. */
  readonly error: Error | undefined;
  /** Resolves when the connection has ended, however it did. */
  readonly closed: Promise<void>;
  /** Ends the connection. Its sessions live on. */
  close(): Promise<void>;
}

/** What every transport has: the two streams, what is unanswered, and one way to end. */
export abstract class Link implements AcpStream {
  readonly readable: ReadableStream<AnyMessage>;
  readonly writable: WritableStream<AnyMessage>;
  readonly closed: Promise<void>;
  connectionId: string | undefined;
  error: Error | undefined;

  protected readonly ended = new AbortController();
  protected readonly sessions = new Set<string>();
  #state: ConnectionState = "idle";
  #incoming!: ReadableStreamDefaultController<AnyMessage>;
  #unanswered = new Map<string, { id: string | number; method: string }>();
  #resolveClosed!: () => void;
  #waiting: (() => void)[] = []; // for room in #incoming

  constructor(protected readonly url: string, protected readonly options: AcpStreamOptions) {
    this.closed = new Promise((resolve) => (this.#resolveClosed = resolve));
    this.readable = new ReadableStream<AnyMessage>(
      {
        start: (controller) => void (this.#incoming = controller),
        pull: () => {
          for (const go of this.#waiting.splice(0)) go();
        },
        cancel: () => this.close(),
      },
      { highWaterMark: readAhead },
    );
    this.writable = new WritableStream<AnyMessage>({
      write: async (message) => {
        if (this.ended.signal.aborted) throw this.error ?? new Error("the connection is closed");
        const text = this.#written(message);
        if (text === undefined) return;
        this.#sent(message);
        await this.send(message, text);
      },
      close: () => this.close(),
      abort: () => this.close(),
    });
    const signal = options.signal;
    if (signal?.aborted) queueMicrotask(() => this.end(abortReason(signal)));
    else if (signal) follow(this.ended.signal, follow(signal, () => this.end(abortReason(signal))));
  }

  get state(): ConnectionState {
    return this.#state;
  }

  /** Opens the connection, and tries again where that may help; `refused` says that the headers of before were. */
  protected async opens(attempt: (refused: boolean) => Promise<void>): Promise<void> {
    this.setState("connecting");
    const backoff = new Backoff(this.options.retry ?? {}, this.ended.signal);
    for (let refused = false; ; ) {
      try {
        return await attempt(refused);
      } catch (error) {
        if (this.ended.signal.aborted) return;
        if (error instanceof NoHeaders) return this.lose("headers", error.message, error.cause);
        if (error instanceof ProblemError && !worthAnotherTry(error.status)) {
          if (error.status > 199 && error.status < 300) return this.lose("closed", error.message, error); // something that is no WebSocket, such as a page
          if (!error.refusesHeaders || refused || typeof this.options.headers !== "function") return this.end(error);
          refused = true;
        } else if (!(await backoff.next())) return this.lose("unreachable", `${this.url} cannot be reached: ${reasonOf(error)}`, error);
      }
    }
  }

  /** Hands a message on, with its text; resolves as soon as the next may come. */
  protected abstract send(message: AnyMessage, text: string): Promise<void>;
  /** Lets go of what the transport holds. */
  protected abstract release(lost: boolean): Promise<void>;

  async close(): Promise<void> {
    if (!this.ended.signal.aborted) {
      this.#finish();
      try {
        this.#incoming.close();
      } catch {
        // It was cancelled by its reader.
      }
      await this.release(false).finally(this.#resolveClosed);
    }
    await this.closed;
  }

  /** Ends the connection with an error, which the readers get. */
  protected end(error: Error): void {
    if (this.ended.signal.aborted) return;
    this.error = error;
    this.#finish();
    try {
      this.#incoming.error(error);
    } catch {
      // It was cancelled by its reader.
    }
    void this.release(true).finally(this.#resolveClosed);
  }

  /** Ends the connection as lost. */
  protected lose(reason: LossReason, message: string, cause?: unknown): void {
    const detail = { sessions: [...this.sessions], unanswered: [...this.#unanswered.values()] };
    this.end(new ConnectionLostError(reason, message, detail, cause === undefined ? undefined : { cause }));
  }

  /** Waits while the reader is far behind: who reads events then stops reading. */
  protected async room(): Promise<void> {
    while (!this.ended.signal.aborted && (this.#incoming.desiredSize ?? 1) <= 0) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  /** Messages that wait for the reader beyond what may. */
  protected get backlog(): number {
    return Math.max(0, -(this.#incoming.desiredSize ?? 0));
  }

  #finish(): void {
    this.ended.abort();
    for (const go of this.#waiting.splice(0)) go();
    this.setState("closed");
  }

  protected setState(state: ConnectionState): void {
    if (this.#state === state || this.#state === "closed") return;
    this.#state = state;
    try {
      this.options.onState?.(state);
    } catch {
      // The hook's trouble is its own.
    }
  }

  /** Gives a message to the reader. */
  protected receive(message: AnyMessage, via: Envelope["via"], eventId?: string): void {
    if (this.ended.signal.aborted) return;
    this.observe({ direction: "received", message, via, ...(eventId === undefined ? {} : { eventId }) });
    if (this.ended.signal.aborted) return; // by who observes
    if (!("method" in message) && message.id !== null && message.id !== undefined) {
      this.#unanswered.delete(keyOf(message.id));
      if ("result" in message) {
        const session = stringAt(message.result, "sessionId");
        if (session !== undefined) this.sessions.add(session);
      }
    }
    const gone = deletedSession(message);
    if (gone !== undefined) this.sessions.delete(gone);
    this.#incoming.enqueue(message);
  }

  protected observe(envelope: Envelope): void {
    try {
      this.options.onEnvelope?.(envelope);
    } catch {
      // The hook's trouble is its own.
    }
  }

  /** Answers a request that could not be carried out. */
  protected refuse(message: AnyMessage, code: number, text: string, data: unknown): void {
    if ("method" in message && "id" in message && message.id !== null) {
      this.receive({ jsonrpc: "2.0", id: message.id, error: { code, message: text, data } }, "response");
    }
  }

  /** The message as JSON. One that is none, as with a bigint in it, is its own sender's trouble: the connection goes on. */
  #written(message: AnyMessage): string | undefined {
    try {
      return JSON.stringify(message);
    } catch (error) {
      const reason = `it cannot be written as JSON: ${error instanceof Error ? error.message : String(error)}`;
      if (!("method" in message)) return JSON.stringify({ jsonrpc: "2.0", id: message.id, error: { code: -32603, message: `the answer is none, ${reason}` } });
      if (!("id" in message)) throw error;
      this.refuse(message, -32602, reason, undefined);
      return undefined;
    }
  }

  #sent(message: AnyMessage): void {
    if (!("method" in message)) return;
    const session = sessionOf(message);
    if (session !== undefined) {
      if (endings.has(message.method)) this.sessions.delete(session);
      else if ("id" in message) this.sessions.add(session);
    }
    if ("id" in message && message.id !== null && message.id !== undefined) {
      this.#unanswered.set(keyOf(message.id), { id: message.id, method: message.method });
    }
  }
}

const keyOf = (id: string | number) => `${typeof id} ${id}`;

/** Requests behind which a session has nothing more to say, those of a Sandbox Agent gateway too. */
export const endings = new Set<string>(["session/close", "session/delete", "_sandboxagent/session/detach", "_sandboxagent/session/terminate"]);

/** Statuses that say nothing of the request itself. */
export const worthAnotherTry = (status: number) => status === 429 || status === 502 || status === 503 || status === 504;

/** Refuses a first message that opens no connection. */
export function mustBegin(message: AnyMessage): void {
  if (!("method" in message) || message.method !== "initialize" || !("id" in message)) throw new Error("the first message of a connection is initialize");
}

/** The session that a message names. */
export function sessionOf(message: AnyMessage): string | undefined {
  return "method" in message ? stringAt(message.params, "sessionId") : undefined;
}

/** The session of which a Sandbox Agent gateway says that somebody deleted it: nothing more comes of it. */
export function deletedSession(message: AnyMessage): string | undefined {
  if (!("method" in message) || message.method !== "_sandboxagent/session/ended") return undefined;
  const { data } = message.params as { data?: unknown };
  return stringAt(data, "reason") === "deleted" ? sessionOf(message) : undefined;
}

/** A member of an object, if it is a string. */
export function stringAt(value: unknown, name: string): string | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const v = (value as Record<string, unknown>)[name];
  return typeof v === "string" ? v : undefined;
}

function abortReason(signal: AbortSignal): Error {
  return signal.reason instanceof Error ? signal.reason : new DOMException("This operation was aborted", "AbortError");
}

/** There are no headers to send. */
export class NoHeaders extends Error {}

/** The headers to send now, as `fetch` takes them: those that cannot be sent are found before anything is. */
export function resolveHeaders(source: HeaderSource | undefined, refused: boolean, signal: AbortSignal): Promise<Record<string, string>> {
  return had("headers", async () => {
    const given = (typeof source === "function" ? await source({ refused, signal }) : source) ?? {};
    return Object.fromEntries(Object.entries(given).map(([name, value]) => [name, sendable(name, String(value).trim())]));
  });
}

/** The subprotocols to offer now. */
export function resolveProtocols(source: AcpStreamOptions["protocols"], signal: AbortSignal): Promise<string[]> {
  return had("subprotocols", async () => [...((typeof source === "function" ? await source({ signal }) : source) ?? [])]);
}

async function had<T>(what: string, get: () => Promise<T>): Promise<T> {
  try {
    return await get();
  } catch (cause) {
    throw new NoHeaders(`the ${what} to send, such as a token, cannot be had: ${reasonOf(cause)}`, { cause });
  }
}

/** The value of a header, if it can be one. What is wrong is said without it: it may be a secret. */
function sendable(name: string, value: string): string {
  try {
    new Headers([[name, value]]);
  } catch {
    throw new TypeError(`the header ${JSON.stringify(name)} has characters in it that headers cannot have`);
  }
  return value;
}

/** Reads one message; undefined when the text is no JSON object. */
export function parseMessage(text: string): AnyMessage | undefined {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as AnyMessage;
  } catch {
    // Said by the caller.
  }
  return undefined;
}
