// A gateway with one session, for tests of what a page does when its answers come late, or not at all.
import { META, type ContentBlock, type SessionEvent } from "sandbox-agent";
import { afterAll, beforeAll, vi } from "vitest";
import { Attached } from "../state/attached.js";
import type { Client } from "../state/gateway.js";
import { Unsent } from "../state/unsent.js";
import { wordsOf, type Conversation, type Draft } from "./conversation.js";
import { Conversations } from "./conversations.js";
import type { Kept } from "./facts.js";
import type { Update } from "./updates.js";

export const text = (words: string): ContentBlock[] => [{ type: "text", text: words }];
let messages = 0;
export const said = (words: string): Update => ({ sessionUpdate: "user_message", messageId: `m${++messages}`, content: text(words) });
export const answer = (words: string): Update => ({ sessionUpdate: "agent_message_chunk", messageId: "a", content: text(words)[0] as never });
export const ended: Update = { sessionUpdate: "state_update", state: "idle", stopReason: "end_turn" };
/** Lets everything happen that waits for nothing. */
export const settled = () => new Promise((resolve) => setTimeout(resolve));
/** What waits in a conversation. */
export const waits = (conversation: Conversation) => conversation.get().queue.map(({ blocks }) => wordsOf(blocks));
/** Gives the tests of a file frames that come at once. */
export function framesAtOnce(): void {
  beforeAll(() => void vi.stubGlobal("requestAnimationFrame", (run: () => void) => queueMicrotask(run)));
  afterAll(() => void vi.unstubAllGlobals());
}

type Kind = "session" | "sessionEvents" | "resumeSession";

/** A gateway with one session, whose connection may be broken, and what the page has of it. */
export function world() {
  const events: SessionEvent[] = [];
  const listeners = new Set<(params: unknown) => void>();
  const enders = new Set<(ended: unknown) => void>();
  const turns: { end(): void; fail(error: Error): void }[] = [];
  const held = new Map<string, Promise<void>>();
  const pages: number[] = []; // how many events each page of the log had that was asked for
  const failures = new Map<Kind, Error>(); // of the next request
  const listen = () => () => {};
  const heldBack = (what: string) => {
    const until = held.get(what);
    held.delete(what);
    return until;
  };
  /** A request, which may be late on its way to the gateway, and its answer on the way back. */
  const ask = async <T>(kind: Kind, run: () => T): Promise<T> => {
    await heldBack(`request ${kind}`);
    const failure = failures.get(kind);
    if (failure && failures.delete(kind)) throw failure;
    const result = run();
    await heldBack(`answer ${kind}`);
    return result;
  };
  const info = { sessionId: "s", agent: "mock", cwd: "/", state: "idle", updatedAt: "" };
  const paramsOf = (event: SessionEvent) => (event.message as { params?: unknown }).params;
  const client = {
    acpVersion: 2, state: "open",
    api: {
      session: () => ask("session", () => ({ ...info, eventCount: events.length })),
      sessionEvents: (_: string, { after, limit }: { after: number; limit: number }) => ask("sessionEvents", () => {
        const page = events.slice(after, after + limit);
        pages.push(page.length);
        return { events: page, hasMore: events.length > after + limit };
      }),
    },
    onUpdate: (listener: (params: unknown) => void) => (listeners.add(listener), () => void listeners.delete(listener)),
    onTurnEnded: (listener: (ended: unknown) => void) => (enders.add(listener), () => void enders.delete(listener)),
    onMcpServers: listen, onEventsLost: listen, onSessionStorage: listen, onSessionEnded: listen, onSessionLost: listen, onSessionMoved: listen,
    resumeSession: ({ after }: { after: number }) => ask("resumeSession", () => {
      for (const event of events.slice(after)) for (const listener of listeners) listener(paramsOf(event));
      return { result: {}, continuity: "native", unsupported: [] };
    }),
    detachSession: async () => {},
    closeSession: async () => {},
    cancel: async () => {},
    prompt: () => new Promise((resolve, reject) => turns.push({ end: () => resolve({ stopReason: "end_turn" }), fail: reject })),
  };
  /** Something that the page is told of and that is no event. */
  const tell = (update: Update) => {
    for (const listener of listeners) listener({ sessionId: "s", update, _meta: { [META]: { seq: events.length } } });
  };
  /** The end of a turn, as version 1 has it. */
  const end = () => {
    const params = { sessionId: "s", result: { stopReason: "end_turn" }, _meta: { [META]: { seq: events.length + 1 } } };
    log("agent", { jsonrpc: "2.0", method: "_sandboxagent/session/turn_ended", params });
    for (const listener of enders) listener(params);
  };
  /** An event of the session; the page is told of it where it has a connection. */
  const happen = (update: Update) => {
    const params = { sessionId: "s", update, _meta: { [META]: { seq: events.length + 1 } } };
    events.push({ seq: events.length + 1, time: new Date(0).toISOString(), direction: "agent", message: { jsonrpc: "2.0", method: "session/update", params } } as unknown as SessionEvent);
    if (client.state === "open") for (const listener of listeners) listener(params);
  };
  /** An event that the page is not told of. */
  const log = (direction: "agent" | "client", message: unknown) => void events.push({ seq: events.length + 1, time: new Date(0).toISOString(), direction, message } as unknown as SessionEvent);
  /** Keeps the next request of a kind, or its answer, until what it returns is called. */
  const hold = (what: "request" | "answer", kind: Kind) => {
    let go!: () => void;
    held.set(`${what} ${kind}`, new Promise((resolve) => (go = resolve)));
    return () => go();
  };
  const stored = new Map<string, string>();
  const storage = { getItem: (name: string) => stored.get(name) ?? null, setItem: (name: string, value: string) => void stored.set(name, value), removeItem: (name: string) => void stored.delete(name) };
  const page = () => new Conversations(new Attached(), new Unsent<Draft>(storage, "drafts"), new Unsent<readonly Kept[]>(storage, "waiting"));
  /** Opens the session in a page. */
  const open = async (conversations = page()) => {
    conversations.use(client as unknown as Client);
    const conversation = conversations.open("s");
    await settled();
    return { conversations, conversation };
  };
  return { client, info, turns, pages, happen, tell, log, end, hold, failures, stored, open };
}

/** What stands in the conversation, a word for each row that has none. */
export const shown = (conversation: Conversation) =>
  conversation.rows.get().rows.map(({ item }) => (item.kind === "user" ? wordsOf(item.blocks) : item.kind === "text" ? item.segments.whole : item.kind === "note" ? item.title : item.kind === "turn" ? (item.error ?? "end") : item.kind));

/** A long session, of which the page shows the end: a turn that it has not asked for goes on. */
export async function long() {
  const gateway = world();
  for (const words of ["first", "second"]) {
    gateway.happen(said(words));
    for (let i = 0; i < 2500; i++) gateway.happen({ sessionUpdate: "agent_thought_chunk", messageId: words, content: text("…")[0] as never });
    gateway.happen(ended);
  }
  gateway.happen(said("third"));
  return { ...gateway, ...(await gateway.open()) };
}

/** Lets many things happen in a session that the page follows. */
export async function work({ happen }: Pick<ReturnType<typeof world>, "happen">, events: number, words = "w") {
  for (let i = 0; i < events; i += 1000) {
    happen(said(`${words} ${i}`));
    for (let j = 0; j < 998; j++) happen({ sessionUpdate: "agent_thought_chunk", messageId: `${words} ${i}`, content: text("…")[0] as never });
    happen(ended);
    await settled();
  }
}
