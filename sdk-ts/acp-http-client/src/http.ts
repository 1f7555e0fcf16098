import type { AnyMessage } from "@agentclientprotocol/sdk";
import { Backoff, follow, heard, SilentError, textOf } from "./clock.js";
import { isPage, ProblemError, reasonOf } from "./errors.js";
import { EventFeed } from "./feed.js";
import { deletedSession, endings, farewellMs, Link, mustBegin, NoHeaders, parseMessage, resolveHeaders, sessionOf, stringAt, worthAnotherTry } from "./link.js";
import type { AcpStreamOptions } from "./options.js";

/** What has an order among the messages of a session. */
interface Lane {
  readonly key: string;
  readonly late: AbortController; // aborted when it has to be sent again
  readonly done: Promise<void>; // it has arrived, or cannot
}

/** Messages under way at the same time; the writer waits for the oldest then. */
const maxUnderWay = 256;

/** Streams that were given up of which is known what came; those of before may tell it again. */
const maxCame = 1024;

/** ACP over HTTP, in both dialects. */
export class HttpLink extends Link {
  readonly #inline: boolean;
  readonly #fetch: typeof globalThis.fetch;
  readonly #feeds = new Map<string, EventFeed>(); // by session; "" is the connection's
  readonly #came = new Map<string, string>(); // the newest event of streams that were given up, by session
  readonly #shared = { open: false };
  readonly #lanes = new Map<string, Lane>(); // the newest message of each session
  readonly #underWay = new Set<Promise<void>>();
  #keyed = false; // the server carries out a POST once per key
  #keys = 0;
  readonly #keyPrefix = Math.random().toString(36).slice(2);

  constructor(url: string, options: AcpStreamOptions) {
    super(url, options);
    this.#inline = options.transport === "inline";
    this.#fetch = options.fetch ?? ((...args) => globalThis.fetch(...args));
  }

  protected async send(message: AnyMessage, text: string): Promise<void> {
    if (this.connectionId === undefined) {
      mustBegin(message);
      return this.opens((refused) => this.#initialize(message, text, refused));
    }
    while (this.#underWay.size >= maxUnderWay) await Promise.race(this.#underWay);
    const post = this.#post(message, text).catch((error: unknown) => this.end(asError(error)));
    this.#underWay.add(post);
    void post.then(() => this.#underWay.delete(post));
  }

  protected async release(lost: boolean): Promise<void> {
    for (const feed of this.#feeds.values()) feed.stop();
    this.#feeds.clear();
    if (this.connectionId === undefined || (lost && this.error?.name === "ConnectionLostError")) return;
    const signal = AbortSignal.timeout(farewellMs);
    try {
      const headers = { ...(await resolveHeaders(this.options.headers, false, signal)), ...this.#identity() };
      const response = await this.#fetch(this.url, { method: "DELETE", headers, signal });
      await response.body?.cancel();
    } catch {
      // The server ends connections that nobody uses.
    }
  }

  #identity(): Record<string, string> {
    const id = this.connectionId ?? "";
    return this.#inline ? { "X-ACP-Connection-Id": id } : { "Acp-Connection-Id": id };
  }

  /** Sends a POST and reads its answer. A GET that takes no event stream is refused at once by every server that is there. */
  #send<T>(headers: Record<string, string>, body: string, wanted: AbortSignal, read: (response: Response) => Promise<T>): Promise<T> {
    const { "Content-Type": _, ...named } = headers;
    return heard(this.options.silenceMs, wanted,
      async (signal) => (await this.#fetch(this.url, { method: "GET", headers: named, signal, redirect: "manual" })).body?.cancel(),
      async (signal) => read(await this.#fetch(this.url, { method: "POST", headers, body, signal, redirect: "manual" })));
  }

  async #initialize(message: AnyMessage, body: string, refused: boolean): Promise<void> {
    const headers = await resolveHeaders(this.options.headers, refused, this.ended.signal);
    this.observe({ direction: "sent", message, via: "post" });
    const [response, text] = await this.#send({ ...headers, "Content-Type": "application/json", Accept: "application/json" }, body, this.ended.signal, async (response) => {
      if (!response.ok) throw await ProblemError.from(response);
      return [response, await textOf(response, this.options.silenceMs)] as const;
    });
    const answer = parseMessage(text);
    const id = response.headers.get("Acp-Connection-Id") ?? response.headers.get("X-ACP-Connection-Id");
    if (answer === undefined) return this.lose("closed", "the answer to initialize is no JSON object: is there a proxy that wants a login?");
    if (id === null) return this.lose("protocol", "the answer to initialize has no Acp-Connection-Id: is this an ACP endpoint, and are its headers exposed to this page?");
    this.connectionId = id;
    this.#keyed = response.headers.get("Accept-Idempotency-Key") === "?1";
    this.setState("open");
    void this.#feed("");
    this.receive(answer, "response");
  }

  /** The event feed of a session, opened when it is asked for first; resolves when the server sends to it. */
  #feed(session: string): Promise<void> {
    const key = this.#inline ? "" : session;
    let feed = this.#feeds.get(key);
    if (feed === undefined) {
      feed = new EventFeed({
        url: this.url,
        after: this.#came.get(key),
        fetch: this.#fetch,
        headers: async (refused) => ({
          ...(await resolveHeaders(this.options.headers, refused, this.ended.signal)),
          ...this.#identity(),
          ...(key === "" ? {} : { "Acp-Session-Id": key }),
        }),
        options: this.options,
        shared: this.#shared,
        onMessage: (message, id) => this.receive(message, "events", id),
        room: () => this.room(),
        onState: () => this.#restate(),
        onLost: (reason, text, cause) => this.lose(reason, text, cause),
        onRefused: (error) => this.end(error),
      });
      this.#feeds.set(key, feed);
    }
    return feed.ready;
  }

  /** Gives up the stream of a session that was ended; it is opened again when somebody asks for it. */
  #drop(session: string): void {
    const feed = this.#feeds.get(session);
    feed?.stop();
    if (feed) this.#came.set(session, feed.newest);
    for (const old of this.#came.keys()) if (this.#came.size > maxCame) this.#came.delete(old);
    this.#feeds.delete(session);
    this.#restate();
  }

  #restate(): void {
    const broken = [...this.#feeds.values()].some((feed) => feed.broken);
    this.setState(broken ? "reconnecting" : "open");
  }

  async #post(message: AnyMessage, text: string): Promise<void> {
    const session = sessionOf(message);
    const key = `${this.#keyPrefix}-${++this.#keys}`;
    const headers: Record<string, string> = { ...this.#identity(), "Content-Type": "application/json", Accept: "application/json" };
    if (session !== undefined && !this.#inline) {
      headers["Acp-Session-Id"] = session;
    } else if (!this.#inline && !("method" in message) && message.id !== null) {
      const asked = this.#askedIn.get(message.id);
      if (asked !== undefined) headers["Acp-Session-Id"] = asked;
      this.#askedIn.delete(message.id);
    }
    // What has an order: the requests and notifications of one session, and
    // those of none. Answers go at once: somebody waits for them.
    let done = () => {};
    const before = "method" in message ? this.#lanes.get(session ?? "") : undefined;
    const mine: Lane = { key, late: new AbortController(), done: new Promise<void>((resolve) => (done = resolve)) };
    if ("method" in message) {
      if (this.#keyed && before !== undefined) headers["X-ACP-After"] = before.key;
      this.#lanes.set(session ?? "", mine);
      void mine.done.then(() => {
        if (this.#lanes.get(session ?? "") === mine) this.#lanes.delete(session ?? "");
      });
    }
    if (this.#keyed) headers["Idempotency-Key"] = key;
    try {
      if (!this.#keyed) await before?.done;
      const streams = this.#inline || (session !== undefined && this.#feeds.has(session));
      if (session !== undefined && !this.#inline && "method" in message && "id" in message && message.id !== null) {
        const opens = openings.has(message.method);
        if (opens) this.#opens(session);
        this.#asked.set(message.id, { session, ends: endings.has(message.method), alone: !streams && !opens });
      }
      if (streams || (session !== undefined && "id" in message)) await this.#feed(session ?? "");
      // An inline prompt's POST ends with its turn: a cancel must not wait for that, not even where the prompt has to be sent again.
      if (!this.ended.signal.aborted) await this.#deliver(message, text, headers, mine, this.#inline ? undefined : before);
    } finally {
      done();
    }
  }

  readonly #asked = new Map<string | number, { session: string; ends: boolean; alone: boolean }>(); // requests about a session without an answer, by id; the stream is there for that of one that is alone
  readonly #over = new Set<string>(); // sessions that have nothing more to say but the answers to those
  readonly #askedIn = new Map<string | number, string>(); // requests of the agent, by the session's stream they came on

  protected override receive(message: AnyMessage, via: "post" | "response" | "events" | "websocket", eventId?: string): void {
    if (!this.#inline && "method" in message && "id" in message && message.id !== null && message.id !== undefined) {
      const session = sessionOf(message);
      if (session !== undefined) this.#askedIn.set(message.id, session);
    }
    super.receive(message, via, eventId);
    if (this.#inline) return;
    const deleted = deletedSession(message);
    if (deleted !== undefined) this.#ends(deleted, true);
    if ("method" in message || message.id === null) return;
    const asked = this.#asked.get(message.id);
    this.#asked.delete(message.id);
    const named = "result" in message ? stringAt(message.result, "sessionId") : undefined;
    if (named !== undefined && named !== asked?.session) { // a new session has a stream of its own
      this.#opens(named);
      void this.#feed(named);
    }
    if (asked) this.#ends(asked.session, asked.alone || this.#over.has(asked.session) || ("result" in message ? asked.ends : isUnknown(message.error, asked.session)));
  }

  /** Notes that a session may have something to say, also behind the answers that are waited for. */
  #opens(session: string): void {
    this.#over.delete(session);
    for (const before of this.#asked.values()) if (before.session === session) before.ends = before.alone = false;
  }

  /** Notes that a session has nothing more to say, if it is so. Its stream is given up when nothing is waited for any more that may come there. */
  #ends(session: string, over: boolean): void {
    if (!over) return;
    this.#over.add(session);
    if ([...this.#asked.values()].some((asked) => asked.session === session)) return;
    this.#over.delete(session);
    this.#drop(session);
  }

  /**
   * Sends one message until it has arrived, or cannot. The server waits for the one before it, but not for ever: when that is late, so is
   * this one, and is sent behind it. A server that knows keys carries nothing out whose sender is gone while it waits.
   */
  async #deliver(message: AnyMessage, body: string, fixed: Record<string, string>, mine: Lane, ahead: Lane | undefined): Promise<void> {
    const backoff = new Backoff(this.options.retry ?? {}, this.ended.signal);
    const isRequest = "method" in message && "id" in message;
    let refused = false;
    this.observe({ direction: "sent", message, via: "post" });
    for (;;) {
      let failure: unknown;
      let atLeast = 0;
      if (ahead?.late.signal.aborted) {
        mine.late.abort();
        await ahead.done;
        ahead = undefined;
        delete fixed["X-ACP-After"];
        if (this.ended.signal.aborted) return;
      }
      const wanted = new AbortController();
      const leave = [this.ended.signal, ahead?.late.signal].map((signal) => follow(signal, () => wanted.abort(signal?.reason)));
      try {
        const headers = { ...(await resolveHeaders(this.options.headers, refused, this.ended.signal)), ...fixed };
        const refusal = await this.#send(headers, body, wanted.signal, async (response) => {
          if (!response.ok) return { error: await ProblemError.from(response), after: response.headers.get("Retry-After") };
          if (this.#inline && isRequest) await this.#answer(response);
          else if (response.status === 200 && isPage(response)) throw new CutOff("the answer is a web page"); // what has arrived is 202 or 204
          else await response.body?.cancel();
          return undefined;
        });
        if (refusal === undefined) return;
        const { error, after } = refusal;
        if (error.status === 404 || error.status === 410) {
          this.lose("unknown_connection", `the server does not know the connection any more: ${error.message}`, error);
          return;
        }
        if (error.refusesHeaders) {
          if (refused || typeof this.options.headers !== "function") return this.end(error);
          refused = true;
          continue;
        }
        const notDone = error.status === 429 || error.status === 503;
        if (!notDone && !(this.#keyed && worthAnotherTry(error.status))) {
          this.refuse(message, -32603, error.message, { status: error.status, problem: error.problem });
          return;
        }
        atLeast = Math.min(Number(after ?? 0) * 1000 || 0, 30_000);
        failure = error;
      } catch (error) {
        if (this.ended.signal.aborted) return;
        const unsent = error instanceof NoHeaders;
        if (!unsent && !(error instanceof TypeError) && !(error instanceof DOMException) && !(error instanceof CutOff) && !(error instanceof SilentError)) throw error;
        failure = error;
        if (!unsent && !this.#keyed && !mayBeRepeated(message)) {
          // It may have arrived, and must not be carried out twice.
          const text = "the network failed while this was sent; whether it arrived is not known";
          if (isRequest) this.refuse(message, -32603, text, { connectionLost: true });
          else this.lose("unreachable", text, error);
          return;
        }
      } finally {
        for (const left of leave) left();
      }
      mine.late.abort();
      if (ahead?.late.signal.aborted) continue;
      if (!(await backoff.next(atLeast))) {
        if (!this.ended.signal.aborted) this.lose("unreachable", `${this.url} cannot be reached: ${reasonOf(failure)}`, failure);
        return;
      }
    }
  }

  /** Takes the response out of an inline answer, behind the events that precede it. */
  async #answer(response: Response): Promise<void> {
    let text: string;
    try {
      text = await textOf(response, this.options.silenceMs);
    } catch (error) {
      throw new CutOff("the answer was cut off", { cause: error });
    }
    const message = parseMessage(text);
    if (message === undefined) throw new CutOff("the answer is no JSON object");
    const feed = this.#feeds.get("");
    const last = response.headers.get("X-ACP-Last-Event-Id");
    if (last !== null) await feed?.reached(Number(last), this.ended.signal);
    if (last === null || feed?.broken) await feed?.calm(this.ended.signal);
    this.receive(message, "response");
  }
}

/** Requests behind which a session may have something to say again. A prompt is one: the gateway attaches who sends it. */
const openings = new Set<string>(["session/load", "session/resume", "session/prompt"]);

/** Whether an answer says that there is no such session. */
const isUnknown = ({ code, data }: { code: number; data?: unknown }, session: string) => code === -32002 && stringAt(data, "sessionId") === session;

/** An answer that ended too early. */
class CutOff extends Error {}


/** Whether it does no harm when the message arrives twice. */
function mayBeRepeated(message: AnyMessage): boolean {
  return !("method" in message) || message.method === "session/cancel" || message.method === "$/cancel_request";
}

const asError = (error: unknown) => (error instanceof Error ? error : new Error(String(error)));
