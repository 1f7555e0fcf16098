import { Store } from "../state/store.js";
import type { Passed, Traffic } from "../state/traffic.js";
import { duration } from "../kit/text.js";

export type Kind = "request" | "response" | "notification" | "http";

/** One line of the list. */
export interface Row {
  readonly n: number;
  readonly entry: Passed;
  readonly kind: Kind;
  readonly sent: boolean;
  /** The method, also of responses; of an HTTP request its method and path. */
  readonly title: string;
  /** What tells it from others of its kind. */
  readonly note: string;
  readonly session: string | undefined;
  readonly failed: boolean;
  /** The version of ACP that its connection speaks. */
  readonly version: number;
  /** The request of a response, and the other way round. */
  partner: number | undefined;
  /** Of a request: how long after it the first update of its session came, and its answer. */
  firstUpdateMs?: number;
  answeredMs?: number;
  /** In version 2 a prompt is answered when its turn begins: how long after it the turn's end came. */
  endedMs?: number;
}

export interface Filter {
  readonly text: string;
  readonly kinds: "all" | "acp" | "http";
  readonly direction: "both" | "sent" | "received";
  readonly session: string;
  readonly errors: boolean;
  /** Those only that break the protocol, as far as they were looked at. */
  readonly wrong: boolean;
}

export const everything: Filter = { text: "", kinds: "all", direction: "both", session: "", errors: false, wrong: false };

export interface WireState {
  readonly rows: readonly Row[];
  readonly sessions: readonly string[];
  readonly total: number;
  readonly dropped: number;
  readonly filter: Filter;
}

type Message = Record<string, unknown>;

/** The rows of a page's traffic that a filter lets through. It reads only what is new. */
export class WireRows extends Store<WireState> {
  #all: Row[] = [];
  #open = new Map<string, Row>(); // requests without a response, by direction and id
  #silent = new Map<string, Row>(); // requests whose session has had no update since, by session
  #turns = new Map<string, Row>(); // prompts of version 2 whose turn has not ended, by session
  #seen = -1;
  #sessions = new Set<string>();
  #version = 1; // of the connection, as its initialize came to

  /** breaks says whether a row breaks the protocol. */
  constructor(private readonly traffic: Traffic, private readonly breaks: (row: Row) => boolean = () => false) {
    super({ rows: [], sessions: [], total: 0, dropped: 0, filter: everything });
    this.#read();
  }

  /** Reads along until the returned function is called. */
  follow(): () => void {
    this.#read();
    return this.traffic.subscribe(() => this.#read());
  }

  filter(change: Partial<Filter>): void {
    const filter = { ...this.get().filter, ...change };
    this.patch({ filter, rows: this.#passing(filter) });
  }

  /** Filters anew, if what is known now of rows can change what passes. */
  again(): void {
    if (this.get().filter.wrong) this.filter({});
  }

  /** All of them, oldest first. */
  all(): readonly Row[] {
    return this.#all;
  }

  #passing(filter: Filter): Row[] {
    return this.#all.filter((row) => passes(row, filter) && (!filter.wrong || this.breaks(row)));
  }

  /** The row with this number, also when the filter hides it. */
  row(n: number): Row | undefined {
    return this.#all.find((row) => row.n === n);
  }

  #read(): void {
    const entries = this.traffic.entries();
    const first = entries[0]?.n ?? Number.POSITIVE_INFINITY;
    if ((this.#all[0]?.n ?? first) < first) {
      this.#all = this.#all.filter((row) => row.n >= first);
      for (const rows of [this.#open, this.#silent, this.#turns]) for (const [key, row] of rows) if (row.n < first) rows.delete(key);
    }
    for (let i = firstAfter(entries, this.#seen); i < entries.length; i++) {
      const entry = entries[i]!;
      this.#all.push(this.#row(entry));
      this.#seen = entry.n;
    }
    // Answers of HTTP requests come later and are shown when they do.
    this.#all = this.#all.map((row) => (row.kind === "http" && row.note === waiting ? this.#row(row.entry) : row));
    const { filter } = this.get();
    this.set({
      rows: this.#passing(filter), sessions: [...this.#sessions], total: this.#all.length,
      dropped: this.traffic.dropped, filter,
    });
  }

  #row(entry: Passed): Row {
    if (entry.kind === "request") {
      const { method, url, status, error, tookMs } = entry.request;
      const { pathname, search } = new URL(url, "http://localhost");
      return {
        n: entry.n, entry, kind: "http", sent: true, title: `${method} ${pathname}${search}`, session: undefined, partner: undefined, version: this.#version,
        note: error ?? (status === undefined ? waiting : `${status} · ${Math.round(tookMs ?? 0)} ms`),
        failed: error !== undefined || (status !== undefined && status >= 400),
      };
    }
    const { direction, message: said } = entry.envelope;
    const message = said as unknown as Message;
    const sent = direction === "sent";
    const method = typeof message.method === "string" ? message.method : undefined;
    const params = objectOf(message.params);
    const session = typeof params.sessionId === "string" ? params.sessionId : typeof objectOf(message.result).sessionId === "string" ? (objectOf(message.result).sessionId as string) : undefined;
    if (session !== undefined) this.#sessions.add(session);
    if (method === undefined) {
      const request = this.#open.get(keyOf(!sent, message.id));
      this.#open.delete(keyOf(!sent, message.id));
      const failed = message.error !== undefined;
      if (request?.title === "initialize") this.#version = versionOf(message.result) ?? this.#version;
      const tookMs = request && entry.at - request.entry.at;
      const said = failed ? String(objectOf(message.error).message) : typeof objectOf(message.result).stopReason === "string" ? String(objectOf(message.result).stopReason) : "result";
      const row: Row = {
        n: entry.n, entry, kind: "response", sent, title: request?.title ?? unknownRequest, failed, partner: request?.n, version: this.#version,
        session: session ?? request?.session, note: tookMs === undefined ? said : `${said} · ${duration(tookMs)}`,
      };
      if (request) {
        request.partner = entry.n;
        request.answeredMs = tookMs!;
      }
      return row;
    }
    if (method === "initialize") this.#version = versionOf(params) ?? this.#version;
    const row: Row = {
      n: entry.n, entry, kind: message.id === undefined ? "notification" : "request", sent, title: method, session, failed: false, partner: undefined,
      version: this.#version, note: noteOf(params),
    };
    if (message.id !== undefined) this.#open.set(keyOf(sent, message.id), row);
    if (sent && session !== undefined && message.id !== undefined && begins.has(method)) this.#silent.set(session, row);
    if (sent && session !== undefined && method === "session/prompt" && this.#version === 2) this.#turns.set(session, row);
    if (!sent && session !== undefined && method === "session/update") this.#heard(session, objectOf(params.update), entry.at);
    return row;
  }

  /** The agent says something: so long it took since it was asked. */
  #heard(session: string, update: Message, at: number): void {
    if (update.sessionUpdate === "state_update" && typeof update.stopReason === "string") {
      const prompt = this.#turns.get(session);
      if (prompt && this.#turns.delete(session)) prompt.endedMs = at - prompt.entry.at;
    }
    if (ofPersons.has(String(update.sessionUpdate))) return;
    const asked = this.#silent.get(session);
    if (asked && this.#silent.delete(session)) asked.firstUpdateMs = at - asked.entry.at;
  }
}

const waiting = "waiting";
/** The title of a response whose request nobody has seen. */
export const unknownRequest = "response";
/** Requests that updates follow. */
const begins = new Set(["session/prompt", "session/load", "session/resume"]);
/** Updates that tell what a person said, or that something began. */
const ofPersons = new Set(["user_message", "user_message_chunk", "state_update"]);

function versionOf(value: unknown): number | undefined {
  const { protocolVersion } = objectOf(value);
  return typeof protocolVersion === "number" ? protocolVersion : undefined;
}

function noteOf(params: Message): string {
  const update = objectOf(params.update);
  if (typeof update.sessionUpdate === "string") {
    const content = objectOf(update.content);
    const text = [content.text, update.title, update.stopReason, update.state].find((one) => typeof one === "string") as string | undefined ?? "";
    return text === "" ? update.sessionUpdate : `${update.sessionUpdate}: ${text.slice(0, 120)}`;
  }
  if (typeof params.methodId === "string") return params.methodId;
  const title = params.title ?? objectOf(params.toolCall).title;
  return typeof title === "string" ? title : "";
}

function passes(row: Row, f: Filter): boolean {
  if (f.kinds === "acp" ? row.kind === "http" : f.kinds === "http" && row.kind !== "http") return false;
  if (f.direction !== "both" && row.sent !== (f.direction === "sent")) return false;
  if (f.session !== "" && row.session !== f.session) return false;
  if (f.errors && !row.failed) return false;
  if (f.text === "") return true;
  const wanted = f.text.toLowerCase();
  return row.title.toLowerCase().includes(wanted) || row.note.toLowerCase().includes(wanted) || rawOf(row).toLowerCase().includes(wanted);
}

/** What went over the wire, as one line of JSON; for HTTP the bodies. */
export function rawOf(row: Row): string {
  if (row.entry.kind === "frame") return JSON.stringify(row.entry.envelope.message);
  const { body, responseBody } = row.entry.request;
  return [body, responseBody].filter((text) => text !== undefined && text !== "").join("\n");
}

function firstAfter(entries: readonly Passed[], n: number): number {
  let low = 0;
  let high = entries.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (entries[middle]!.n <= n) low = middle + 1;
    else high = middle;
  }
  return low;
}

const keyOf = (sent: boolean, id: unknown) => `${sent ? ">" : "<"}${JSON.stringify(id)}`;
export const objectOf = (value: unknown): Message => (typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Message) : {});
