import { META, type Envelope } from "sandbox-agent";

/** One thing that went over the wire, in the order in which this page saw it. */
export type Passed =
  | { readonly kind: "frame"; readonly n: number; readonly at: number; readonly size: number; readonly envelope: Envelope }
  | { readonly kind: "request"; readonly n: number; readonly at: number; readonly size: number; readonly request: HttpExchange };

/** An HTTP request of this page. Its answer is filled in when it comes. */
export interface HttpExchange {
  readonly method: string;
  readonly url: string;
  /** Without the token. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | undefined;
  status?: number;
  responseHeaders?: Readonly<Record<string, string>>;
  /** Text of short answers that are JSON or text. */
  responseBody?: string;
  error?: string;
  tookMs?: number;
}

/** What is kept: the newest entries within both bounds. Older ones are let go, and counted in `dropped`. */
const maxEntries = 20_000;
const maxBytes = 48 << 20;
const maxBody = 256 << 10;

const secretHeaders = new Set(["authorization", "x-sandbox-token", "cookie", "set-cookie"]);

/** A record of everything this page sent and got. Listeners are told once per burst. */
export class Traffic {
  #entries: Passed[] = [];
  #first = 0; // of #entries that still count: removing from the front in steps is cheap
  #bytes = 0;
  #n = 0;
  #version = 0;
  #told = false;
  readonly #listeners = new Set<() => void>();
  dropped = 0;
  /** While paused nothing is recorded. */
  paused = false;

  /** The entries that are kept, oldest first. A new array for each call. */
  entries(): Passed[] {
    return this.#entries.slice(this.#first);
  }

  /** Grows with every change. */
  readonly get = (): number => this.#version;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  };

  clear(): void {
    this.#entries = [];
    this.#first = 0;
    this.#bytes = 0;
    this.dropped = 0;
    this.#changed();
  }

  readonly envelope = (envelope: Envelope): void => {
    if (this.paused) return;
    if (envelope.direction === "sent") envelope = { ...envelope, message: withoutCredentials(envelope.message) };
    this.#add({ kind: "frame", n: this.#n++, at: Date.now(), size: roughSize(envelope.message), envelope });
  };

  /** A fetch that is recorded. */
  readonly fetch: typeof globalThis.fetch = async (input, init) => {
    if (this.paused) return globalThis.fetch(input, init);
    const started = performance.now();
    const body = typeof init?.body === "string" ? bodyWithoutCredentials(init.body).slice(0, maxBody) : undefined;
    const request: HttpExchange = {
      method: init?.method ?? "GET",
      url: input instanceof Request ? input.url : String(input),
      headers: withoutSecrets(new Headers(init?.headers)),
      body,
    };
    this.#add({ kind: "request", n: this.#n++, at: Date.now(), size: body?.length ?? 0, request });
    try {
      const response = await globalThis.fetch(input, init);
      request.status = response.status;
      request.tookMs = performance.now() - started;
      request.responseHeaders = withoutSecrets(response.headers);
      const length = Number(response.headers.get("content-length") ?? Number.NaN);
      if (length <= maxBody && /json|^text\/(?!event-stream)/.test(response.headers.get("content-type") ?? "")) {
        void response.clone().text().then((text) => {
          if (text.length > maxBody) return; // it was compressed on its way
          request.responseBody = text;
          this.#bytes += text.length;
          this.#trim();
          this.#changed();
        }, () => {});
      }
      this.#changed();
      return response;
    } catch (error) {
      request.error = error instanceof Error ? error.message : String(error);
      request.tookMs = performance.now() - started;
      this.#changed();
      throw error;
    }
  };

  #add(entry: Passed): void {
    this.#entries.push(entry);
    this.#bytes += entry.size;
    this.#trim();
    this.#changed();
  }

  #trim(): void {
    while (this.#entries.length - this.#first > maxEntries || (this.#bytes > maxBytes && this.#entries.length - this.#first > 1)) {
      const old = this.#entries[this.#first];
      if (!old) break;
      this.#bytes -= old.size + (old.kind === "request" ? (old.request.responseBody?.length ?? 0) : 0);
      this.#first++;
      this.dropped++;
    }
    if (this.#first > 4096) {
      this.#entries = this.#entries.slice(this.#first);
      this.#first = 0;
    }
  }

  #changed(): void {
    this.#version++;
    if (this.#told || this.#listeners.size === 0) return;
    this.#told = true;
    setTimeout(() => {
      this.#told = false;
      for (const listener of [...this.#listeners]) listener();
    }, 100);
  }
}

/** A frame without a session's credentials: they are kept nowhere. */
function withoutCredentials<T>(message: T): T {
  const { params } = message as { params?: { _meta?: Record<string, { credentials?: unknown } | undefined> | null } };
  const own = params?._meta?.[META];
  if (own?.credentials === undefined) return message;
  return { ...message, params: { ...params, _meta: { ...params!._meta, [META]: { ...own, credentials: "(removed)" } } } };
}

function bodyWithoutCredentials(body: string): string {
  if (!body.includes("credentials")) return body;
  try {
    return JSON.stringify(withoutCredentials(JSON.parse(body) as object));
  } catch {
    return body; // no frame
  }
}

function withoutSecrets(headers: Headers): Record<string, string> {
  const out: Record<string, string> = {};
  headers.forEach((value, name) => (out[name] = secretHeaders.has(name.toLowerCase()) ? "(removed)" : value));
  return out;
}

/** The same for what comes by the thousand, without looking at all of it. */
function roughSize(message: unknown): number {
  const text = (message as { params?: { update?: { content?: { text?: unknown } } } }).params?.update?.content?.text;
  return typeof text === "string" ? text.length + 600 : sizeOf(message);
}

/** About how much memory a message takes; long texts are what counts. */
function sizeOf(value: unknown, depth = 0): number {
  if (typeof value === "string") return value.length + 16;
  if (typeof value !== "object" || value === null) return 16;
  if (depth > 8) return 256;
  let size = 32;
  for (const name in value) size += name.length + sizeOf((value as Record<string, unknown>)[name], depth + 1);
  return size;
}
