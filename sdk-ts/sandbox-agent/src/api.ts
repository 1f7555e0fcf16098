import { abortable, addressOf, heard, ProblemError, reasonOf, SilentError, type ServerEvent } from "acp-http-client";
import type { components, paths } from "./api.gen.js";
import { Files, type FileContent } from "./files.js";
import { Processes, type ProcessesOptions } from "./processes.js";
import { readEvents } from "./stream.js";
import type { AcpVersion } from "./versions.js";

type Schemas = components["schemas"];
export type Agent = Schemas["Agent"];
export type InstallResult = Schemas["InstallResult"];
export type SessionInfo = Schemas["Session"];
/** A subagent of a session. */
export type Child = Schemas["Child"];
export type ImportedSession = Schemas["ImportedSession"];
export type SessionChange = Schemas["SessionChange"];
/** What a client has allowed a session's agent for more than one call. */
export type SessionPermission = Schemas["Permission"];
export type SessionEvent = Schemas["Event"];

/** A token, or a function that is asked for it before each request, and for a new one when it was refused. */
export type Token = string | ((ask: { readonly refused: boolean }) => string | Promise<string>);

export interface ApiOptions extends ProcessesOptions {
  token?: Token;
  headers?: Record<string, string>;
  fetch?: typeof globalThis.fetch;
}

/** What one request may be given besides its parameters. */
export interface RequestOptions {
  signal?: AbortSignal | undefined;
}

/** How long it is waited for whether the gateway refuses a token. */
const trialMs = 5_000;

/** Query parameters; undefined ones are left out, lists are repeated. */
export type Query = Record<string, string | number | boolean | readonly string[] | undefined>;

/** The gateway's HTTP API. Errors are {@link ProblemError}s. */
export class Api {
  /** Files of the gateway's machine. */
  readonly fs: Files;
  /** Programs of the gateway's machine. */
  readonly processes: Processes;
  readonly #base: URL;
  readonly #options: ApiOptions;

  constructor(baseUrl: string | URL, options: ApiOptions = {}) {
    this.#base = addressOf("baseUrl", baseUrl);
    this.#base.pathname = this.#base.pathname.replace(/\/*$/, "").replace(/\/v2\/rpc$/, "") + "/"; // that of ACP is taken, too
    this.#options = options;
    this.fs = new Files(this);
    this.processes = new Processes(this, options);
  }

  health(options?: RequestOptions): Promise<Schemas["Status"]> {
    return this.json("GET", "v2/health", {}, options);
  }

  version(options?: RequestOptions): Promise<Schemas["Version"]> {
    return this.json("GET", "v2/version", {}, options);
  }

  /** The gateway's metrics in the text format of Prometheus. */
  metrics(options: RequestOptions = {}): Promise<string> {
    return this.read("GET", "metrics", {}, { ...options, headers: { Accept: "text/plain" } }, (response) => response.text());
  }

  async agents(options?: RequestOptions): Promise<Agent[]> {
    return (await this.json<Schemas["AgentList"]>("GET", "v2/agents", {}, options)).agents;
  }

  agent(id: string, options?: RequestOptions): Promise<Agent> {
    return this.json("GET", `v2/agents/${encodeURIComponent(id)}`, {}, options);
  }

  /** What is missing on the machine, and what to do about it. */
  doctor(agent?: string, options?: RequestOptions): Promise<Schemas["Report"]> {
    return this.json("GET", "v2/doctor", { agent }, options);
  }

  /** Installs an agent, telling how far it is. */
  async installAgent(id: string, request: Schemas["InstallRequest"] = {}, options: RequestOptions & { onProgress?: (progress: Schemas["InstallProgress"]) => void } = {}): Promise<InstallResult> {
    const { onProgress, ...rest } = options;
    // Also for one who does not want to know: it takes longer than some wait for an answer of which nothing comes.
    for await (const event of this.events("POST", `v2/agents/${encodeURIComponent(id)}/install`, {}, { ...rest, body: JSON.stringify(request), headers: { "Content-Type": "application/json" } })) {
      const data: unknown = JSON.parse(event.data);
      if (event.event === "progress") onProgress?.(data as Schemas["InstallProgress"]);
      if (event.event === "result") return data as InstallResult;
    }
    throw new Error("the installation's events ended without a result: it goes on; ask again to wait for it");
  }

  async removeAgent(id: string, options?: RequestOptions): Promise<void> {
    await this.done("DELETE", `v2/agents/${encodeURIComponent(id)}/install`, {}, options);
  }

  sessions(query: NonNullable<paths["/v2/sessions"]["get"]["parameters"]["query"]> = {}, options?: RequestOptions): Promise<Schemas["SessionPage"]> {
    return this.json("GET", "v2/sessions", query, options);
  }

  /**
   * How the list of sessions changes from a position on, which is that of a change or of a page of the list; without one
   * all sessions come first. Ends with the connection: go on behind the last position. Leaving the loop ends it, too.
   */
  async *followSessions(after = 0, options: RequestOptions = {}): AsyncGenerator<SessionChange, void, undefined> {
    for await (const event of this.events("GET", "v2/sessions/changes", { after }, options)) {
      yield JSON.parse(event.data) as SessionChange;
    }
  }

  session(id: string, options?: RequestOptions): Promise<SessionInfo> {
    return this.json("GET", `v2/sessions/${encodeURIComponent(id)}`, {}, options);
  }

  /** What clients have allowed a session's agent for more than one call, the oldest first. */
  async sessionPermissions(id: string, options?: RequestOptions): Promise<SessionPermission[]> {
    const { permissions } = await this.json<Schemas["PermissionList"]>("GET", `v2/sessions/${encodeURIComponent(id)}/permissions`, {}, options);
    return permissions;
  }

  /**
   * Takes one of these permissions back, or without a `permission` all that can be: the agent asks again. Refused with the
   * problem `conflict` while something goes on in the session. Returns what does not count any more: some agents forget more
   * than they were asked to.
   */
  async forgetPermissions(id: string, permission?: string, options?: RequestOptions): Promise<SessionPermission[]> {
    const one = permission === undefined ? "" : `/${encodeURIComponent(permission)}`;
    const { forgotten } = await this.json<Schemas["ForgottenPermissions"]>("DELETE", `v2/sessions/${encodeURIComponent(id)}/permissions${one}`, {}, options);
    return forgotten;
  }

  /** A page of a session's events; with `acp: 2` as version 2 of ACP tells them, where several may have one number. */
  sessionEvents(id: string, query: { after?: number; limit?: number; acp?: AcpVersion } = {}, options?: RequestOptions): Promise<Schemas["EventPage"]> {
    return this.json("GET", `v2/sessions/${encodeURIComponent(id)}/events`, query, options);
  }

  /** What was said and done in a session, for people to read, or with `handover` for another agent. What looks like a key is taken out of it. */
  sessionTranscript(
    id: string,
    query: { format?: "markdown" | "html" | "jsonl" | "handover"; redact?: string[]; thoughts?: boolean; keepSecrets?: boolean } = {},
    options?: RequestOptions,
  ): Promise<string> {
    return this.read("GET", `v2/sessions/${encodeURIComponent(id)}/transcript`, query, options, (response) => response.text());
  }

  /** What was recorded of a session with `includeRaw`, in the agent's own language: a JSON object on each line. */
  sessionRaw(id: string, options?: RequestOptions): Promise<string> {
    return this.read("GET", `v2/sessions/${encodeURIComponent(id)}/raw`, {}, options, (response) => response.text());
  }

  /**
   * All of a session in one file, as it comes, for `importSession` of another gateway. A stream that fails is not a whole
   * file. The session is closed while it is read. `workspace` takes the files of its directory along.
   */
  async exportSession(id: string, query: { redact?: string[]; keepSecrets?: boolean; workspace?: boolean } = {}, options?: RequestOptions): Promise<ReadableStream<Uint8Array>> {
    const { body } = await this.fetch("GET", `v2/sessions/${encodeURIComponent(id)}/export`, query, options);
    if (!body) throw new Error("the gateway sent no file");
    return body;
  }

  /**
   * Makes a session of a file of `exportSession`. `trust` takes over settings that can run programs, for files of your own;
   * `workspace` makes the workspace of the file in `cwd`, and `merge` puts it together with files that are there. `closed` has
   * the session arrive closed, and `replace` in the place of what a move has left there.
   */
  importSession(
    file: FileContent,
    query: { cwd?: string; trust?: boolean; workspace?: boolean; merge?: boolean; closed?: boolean; replace?: boolean } = {},
    options?: RequestOptions,
  ): Promise<ImportedSession> {
    return this.json("POST", "v2/sessions/import", query, { ...options, body: file, headers: { "Content-Type": "application/zstd" } });
  }

  /** The headers of a request now. */
  async headers(refused = false): Promise<Record<string, string>> {
    return this.#with(await this.#token(refused));
  }

  #with(token: string | undefined): Record<string, string> {
    return { ...this.#options.headers, ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }) };
  }

  /**
   * The subprotocols that carry the token where a WebSocket takes no headers. Such a WebSocket does not tell why it was
   * refused, so a token that can change is tried first.
   */
  async protocols({ signal }: { signal?: AbortSignal | undefined } = {}): Promise<string[] | undefined> {
    const token = await this.#tried(signal);
    if (token === undefined) return undefined;
    const base64 = btoa(String.fromCharCode(...new TextEncoder().encode(token)));
    return ["acp.sandboxagent.dev", `bearer.${base64.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`];
  }

  /** The token for what cannot be sent a second time: one that can change is tried with a request first. */
  async #tried(signal: AbortSignal | undefined): Promise<string | undefined> {
    const token = await this.#token(false);
    return token !== undefined && typeof this.#options.token === "function" && (await this.#refuses(token, signal)) ? this.#token(true) : token;
  }

  /** Whether the gateway refuses a token. One that does not answer soon has refused nothing. */
  async #refuses(token: string, ended: AbortSignal | undefined): Promise<boolean> {
    const send = this.#options.fetch ?? globalThis.fetch;
    try {
      const response = await abortable(send(this.url("v2/version"), { headers: this.#with(token), redirect: "manual", signal: AbortSignal.timeout(trialMs) }), ended);
      await response.body?.cancel();
      return response.status === 401;
    } catch {
      return false;
    }
  }

  async #token(refused: boolean): Promise<string | undefined> {
    const { token } = this.#options;
    return typeof token === "function" ? await token({ refused }) : token;
  }

  url(path: string, query: Query = {}): URL {
    const url = new URL(path, this.#base);
    for (const [name, value] of Object.entries(query)) {
      for (const one of Array.isArray(value) ? value : [value]) {
        if (one !== undefined) url.searchParams.append(name, String(one));
      }
    }
    return url;
  }

  /**
   * Sends a request and rejects when its answer is no success. Of content that is none `fetch` would make a text, or nothing. A
   * refused token is asked for once more. Redirects are not followed: they would carry headers to where those do not belong.
   */
  fetch(method: string, path: string, query: Query = {}, init: RequestInit = {}): Promise<Response> {
    return this.#send(method, path, query, init, async (response) => response, true);
  }

  /** As `fetch`, with what is read of the answer. All of it may take as long as it takes, as long as the gateway answers others. */
  read<T>(method: string, path: string, query: Query = {}, init: RequestInit = {}, read: (response: Response) => Promise<T>): Promise<T> {
    return this.#send(method, path, query, init, read, false);
  }

  async #send<T>(method: string, path: string, query: Query, init: RequestInit, read: (response: Response) => Promise<T>, goesOn: boolean): Promise<T> {
    const { body } = init;
    if ("body" in init && !isContent(body)) throw new TypeError(`the content is ${body === null ? "null" : `of type ${typeof body}`}: give a string, bytes, a Blob or a ReadableStream`);
    if (body instanceof ReadableStream) {
      const lent = new Lent(body);
      try {
        return await this.#tries(method, path, query, { ...init, body: lent.stream }, read, goesOn);
      } catch (error) {
        lent.end(error);
        throw error;
      } finally {
        lent.end(new TypeError("the gateway has answered already"));
      }
    }
    return this.#tries(method, path, query, init, read, goesOn);
  }

  async #tries<T>(method: string, path: string, query: Query, init: RequestInit, read: (response: Response) => Promise<T>, goesOn: boolean): Promise<T> {
    const send = this.#options.fetch ?? globalThis.fetch;
    const { body, headers, signal, expect } = init;
    const streamed = body instanceof ReadableStream;
    for (let refused = false; ; refused = true) {
      const given = { ...(streamed ? this.#with(await this.#tried(signal)) : await this.headers(refused)), ...headers };
      const isThere = async (asked: AbortSignal) => (await send(this.url("v2/health"), { signal: asked })).text();
      const answer = await heard(isLarge(body) ? 0 : this.#options.silenceMs, signal, isThere, async (signal) => {
        const response = await send(this.url(path, query), {
          method,
          headers: given,
          redirect: "manual",
          signal,
          ...(body === undefined ? {} : { body }),
          ...(streamed ? { duplex: "half" } : {}),
        } as globalThis.RequestInit);
        if (response.ok || expect?.includes(response.status)) return { read: await read(response) };
        if (response.status !== 401 || refused || typeof this.#options.token !== "function" || streamed) throw await ProblemError.from(response);
        await response.body?.cancel();
        return undefined;
      }, goesOn).catch((error: unknown) => {
        throw error instanceof TypeError || error instanceof SyntaxError || error instanceof SilentError ? new TypeError(`${method} ${path} at ${this.#base.href}: ${reasonOf(error)}`, { cause: error }) : error;
      });
      if (answer) return answer.read;
    }
  }

  /** Sends a request whose answer is JSON. */
  json<T>(method: string, path: string, query: Query = {}, init: RequestInit = {}): Promise<T> {
    return this.read(method, path, query, { ...init, headers: { Accept: "application/json", ...init.headers } }, async (response) => {
      const text = await response.text();
      try {
        const answer: unknown = JSON.parse(text);
        if (typeof answer === "object" && answer !== null && !Array.isArray(answer)) return answer as T;
      } catch {
        // It is said below.
      }
      throw foreign("no JSON object", text);
    });
  }

  /** Sends a request to which nothing is answered but that it was done. */
  done(method: string, path: string, query: Query = {}, init: RequestInit = {}): Promise<void> {
    return this.read(method, path, query, init, async (response) => {
      const text = await response.text();
      if (response.status !== 204) throw foreign(`${response.status} instead of 204`, text);
    });
  }

  /** Sends a request whose answer is a stream of events. Leaving the loop ends it. An event that says why it cannot go on is an error. */
  async *events(method: string, path: string, query: Query = {}, init: RequestInit = {}): AsyncGenerator<ServerEvent, void, undefined> {
    const response = await this.#send(method, path, query, { ...init, headers: { Accept: "text/event-stream", ...init.headers } }, async (response) => {
      if (response.headers.get("Content-Type")?.startsWith("text/event-stream")) return response;
      throw foreign("no stream of events", await response.text());
    }, true);
    init.opened?.();
    for await (const event of readEvents(response, this.#options.silenceMs)) {
      if (event.event === "error") throw new ProblemError(JSON.parse(event.data) as Schemas["Problem"]);
      yield event;
    }
  }
}

/** What a request is made of beside its address. */
interface RequestInit extends RequestOptions {
  body?: FileContent;
  headers?: Record<string, string>;
  /** Statuses that are no errors. */
  expect?: readonly number[];
  /** Called when a stream of events is open. */
  opened?: () => void;
}

/**
 * A stream of somebody else's, for one request. Some `fetch`s read on for ever when their request has failed or was aborted:
 * with `end` it is read no more, and whoever makes it is told.
 */
class Lent {
  readonly stream: ReadableStream<Uint8Array>;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  #control!: ReadableStreamDefaultController<Uint8Array>;
  #over = false;

  constructor(theirs: ReadableStream<Uint8Array>) {
    new Response(theirs); // throws, as fetch does, when something of it was read already: the rest is not the whole
    this.#reader = theirs.getReader();
    this.stream = new ReadableStream({
      start: (control) => void (this.#control = control),
      pull: async (control) => {
        const { done, value } = await this.#reader.read();
        if (this.#over) return;
        if (!done) return control.enqueue(value);
        this.#over = true;
        control.close();
      },
      cancel: (reason) => this.#stop(reason),
    }, { highWaterMark: 0 });
  }

  /** It does not end as one that is whole: what has come of it could be kept. */
  end(reason: unknown): void {
    if (this.#over) return;
    this.#control.error(reason);
    void this.#stop(reason);
  }

  async #stop(reason: unknown): Promise<void> {
    this.#over = true;
    await this.#reader.cancel(reason).catch(() => {}); // it may have failed itself
  }
}

/** The error of an answer that no gateway gives, as that of a proxy's page. */
function foreign(what: string, text: string): TypeError {
  return new TypeError(`the answer is ${what}: is this a Sandbox Agent gateway? It begins with ${JSON.stringify(text.slice(0, 60))}`);
}

/** Whether content is so large, or may be, that on a slow network nothing gets through beside it: that is no silence. */
function isLarge(body: FileContent | undefined): boolean {
  if (body === undefined || typeof body === "string") return (body?.length ?? 0) > large;
  return "size" in body ? body.size > large : !("byteLength" in body) || body.byteLength > large;
}

const large = 1 << 20;

const contents = new Set(["ArrayBuffer", "Blob", "File", "ReadableStream"]);

/** Whether something can be sent as it is, also where it was made by another realm or a polyfill. */
function isContent(body: unknown): boolean {
  return typeof body === "string" || ArrayBuffer.isView(body) || contents.has(Object.prototype.toString.call(body).slice(8, -1));
}
