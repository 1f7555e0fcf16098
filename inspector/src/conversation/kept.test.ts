import { META, NotConnectedError, type SessionEvent } from "sandbox-agent";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { Attached } from "../state/attached.js";
import type { Client } from "../state/gateway.js";
import { Unsent } from "../state/unsent.js";
import { Conversation, wordsOf, type Draft, type Kept } from "./conversation.js";
import { Conversations } from "./conversations.js";
import type { Update } from "./updates.js";

beforeAll(() => void vi.stubGlobal("requestAnimationFrame", (run: () => void) => queueMicrotask(run)));
afterAll(() => void vi.unstubAllGlobals());

const text = (words: string) => [{ type: "text" as const, text: words }];
let messages = 0;
const said = (words: string): Update => ({ sessionUpdate: "user_message", messageId: `m${++messages}`, content: text(words) });
const ended: Update = { sessionUpdate: "state_update", state: "idle", stopReason: "end_turn" };
/** Lets everything happen that waits for nothing. */
const settled = () => new Promise((resolve) => setTimeout(resolve));

/** A gateway with one session, whose connection may be broken, and what the page has of it. */
function world() {
  const events: SessionEvent[] = [];
  const listeners = new Set<(params: unknown) => void>();
  const turns: { end(): void; fail(error: Error): void }[] = [];
  const listen = () => () => {};
  const client = {
    acpVersion: 2, state: "open",
    api: {
      session: async () => ({ sessionId: "s", agent: "mock", cwd: "/", state: "idle", eventCount: events.length }),
      sessionEvents: async (_: string, { after }: { after: number }) => ({ events: events.slice(after), hasMore: false }),
    },
    onUpdate: (listener: (params: unknown) => void) => (listeners.add(listener), () => void listeners.delete(listener)),
    onTurnEnded: listen, onMcpServers: listen, onEventsLost: listen, onSessionStorage: listen, onSessionEnded: listen, onSessionMoved: listen,
    resumeSession: async () => ({ result: {}, continuity: "native" }),
    detachSession: async () => {},
    prompt: () => new Promise((resolve, reject) => turns.push({ end: () => resolve({ stopReason: "end_turn" }), fail: reject })),
  };
  /** An event of the session; the page is told of it where it has a connection. */
  const happen = (update: Update) => {
    const params = { sessionId: "s", update, _meta: { [META]: { seq: events.length + 1 } } };
    events.push({ seq: events.length + 1, time: new Date(0).toISOString(), direction: "agent", message: { jsonrpc: "2.0", method: "session/update", params } } as unknown as SessionEvent);
    if (client.state === "open") for (const listener of listeners) listener(params);
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
  return { client, turns, happen, stored, open };
}

const waits = (conversation: Conversation) => conversation.get().queue.map(({ blocks }) => wordsOf(blocks));

test("the same words as before, which do not arrive, are not lost, also where the session was read anew meanwhile", async () => {
  const { client, turns, happen, open } = world();
  happen(said("yes"));
  happen(ended);
  const { conversations, conversation } = await open();
  client.state = "reconnecting";
  conversation.send(text("yes"));
  await conversation.again();
  expect([conversations.unsent, waits(conversation)]).toEqual([true, []]);
  turns[0]!.fail(new NotConnectedError());
  await settled();
  expect([waits(conversation), conversation.get().held, conversation.draft.text]).toEqual([["yes"], true, ""]);
});

test("a prompt that arrived is not taken back when its turn fails after the session was read anew", async () => {
  const { client, turns, happen, open } = world();
  const { conversation } = await open();
  client.state = "reconnecting";
  conversation.send(text("yes"));
  happen(said("yes"));
  await conversation.again();
  turns[0]!.fail(new NotConnectedError());
  await settled();
  expect([waits(conversation), conversation.draft.text, conversation.unsent]).toEqual([[], "", []]);
});

test("what was kept is let go when the session tells of it, in its history or later", async () => {
  for (const early of [true, false]) {
    const { client, happen, open } = world();
    happen(said("yes"));
    happen(ended);
    const { conversations, conversation } = await open();
    client.state = "reconnecting";
    conversation.send(text("yes"));
    conversation.send(text("and then"));
    conversations.save();
    if (early) happen(said("yes"));
    client.state = "open";
    const { conversation: after } = await open();
    expect(waits(after)).toEqual(early ? ["and then"] : ["yes", "and then"]);
    if (!early) happen(said("yes"));
    await settled();
    expect([waits(after), after.get().held]).toEqual([["and then"], true]);
  }
});

test("what was put into the storage is taken out of it when it has arrived, or goes out of the queue", async () => {
  const { client, turns, happen, stored, open } = world();
  const { conversations, conversation } = await open();
  client.state = "reconnecting";
  conversation.send(text("one"));
  conversation.send(text("two"));
  conversations.save();
  expect(stored.get("waiting")).toMatch(/one.*two/);
  client.state = "open";
  happen(said("one"));
  await settled();
  expect(stored.get("waiting")).not.toContain("one");
  happen(ended);
  turns[0]!.end();
  await settled();
  expect([turns.length, stored.get("waiting")]).toEqual([2, undefined]);
});

test("who detaches while the connection is broken gets back what was not sent, and nothing else", async () => {
  const { client, turns, open } = world();
  const { conversations, conversation } = await open();
  client.state = "reconnecting";
  conversation.send(text("one"));
  conversation.send(text("two"));
  await conversations.forget("s");
  client.state = "open";
  turns[0]!.fail(new NotConnectedError()); // it was sent, and then detached
  await settled();
  expect(conversation.draft.text).toBe("two");
});
