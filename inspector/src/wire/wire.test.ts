import type { Envelope } from "sandbox-agent";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Traffic } from "../state/traffic.js";
import { asCall, asCurl, capture, withoutSecrets } from "./export.js";
import { comparable } from "./compare.js";
import { draftOf, methodsOf, paramsAgain, parseParams, replayOf } from "./methods.js";
import { WireRows } from "./rows.js";
import type { Schema } from "./schema.js";
import { nothingIn } from "./other.js";
import { Violations } from "./violations.js";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function world() {
  const traffic = new Traffic();
  const rows = new WireRows(traffic);
  const stop = rows.follow();
  const say = (direction: "sent" | "received", message: object) => {
    traffic.envelope({ direction, via: "websocket", message: { jsonrpc: "2.0", ...message } } as unknown as Envelope);
    vi.advanceTimersByTime(200);
  };
  return { traffic, rows, say, stop, titles: () => rows.get().rows.map((r) => `${r.sent ? ">" : "<"} ${r.kind} ${r.title} ${r.note}`.trim()) };
}

test("responses carry the name of their request, also when ids are used twice", () => {
  const { rows, say, titles } = world();
  say("sent", { id: 1, method: "session/new", params: { cwd: "/w" } });
  say("received", { id: 1, method: "session/request_permission", params: { sessionId: "S", toolCall: { title: "rm -r" } } });
  say("sent", { id: 1, result: { outcome: { outcome: "cancelled" } } });
  say("received", { id: 1, result: { sessionId: "S" } });
  say("sent", { id: "1", method: "session/prompt", params: { sessionId: "S" } });
  say("received", { method: "session/update", params: { sessionId: "S", update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text: "hi" } } } });
  say("received", { id: "1", error: { code: -32000, message: "log in first" } });
  expect(titles()).toEqual([
    "> request session/new", "< request session/request_permission rm -r", "> response session/request_permission result \u00b7 200 ms", "< response session/new result \u00b7 600 ms",
    "> request session/prompt", "< notification session/update agent_message_chunk: hi", "< response session/prompt log in first \u00b7 400 ms",
  ]);
  const [first, ask, answer, made] = rows.get().rows;
  expect([first!.partner, made!.partner, ask!.partner, answer!.partner]).toEqual([made!.n, first!.n, answer!.n, ask!.n]);
  expect(rows.get().sessions).toEqual(["S"]);
});

test("filters go together, and find contents", () => {
  const { rows, say } = world();
  say("sent", { id: 1, method: "session/prompt", params: { sessionId: "A", prompt: [{ type: "text", text: "Needle" }] } });
  say("received", { id: 1, error: { code: 1, message: "no" } });
  say("sent", { id: 2, method: "session/prompt", params: { sessionId: "B", prompt: [] } });
  const found = (filter: Parameters<WireRows["filter"]>[0]) => {
    rows.filter({ text: "", kinds: "all", direction: "both", session: "", errors: false, ...filter });
    return rows.get().rows.map((r) => r.n);
  };
  expect(found({ text: "needle" })).toEqual([0]);
  expect(found({ session: "B" })).toEqual([2]);
  expect(found({ errors: true })).toEqual([1]);
  expect(found({ direction: "sent", session: "A" })).toEqual([0]);
  expect(found({ kinds: "http" })).toEqual([]);
  say("sent", { id: 3, method: "session/list" });
  expect(rows.get().rows).toEqual([]);
  expect(rows.get().total).toBe(4);
  expect(found({})).toEqual([0, 1, 2, 3]);
});

test("what is let go leaves the list, and a row that was hidden can still be had", () => {
  const { traffic, rows, say } = world();
  for (let i = 0; i < 50; i++) say("sent", { id: i, method: "session/list" });
  rows.filter({ text: "nothing like that" });
  expect(rows.row(7)?.title).toBe("session/list");
  traffic.clear();
  vi.advanceTimersByTime(200);
  say("sent", { id: 99, method: "session/new" });
  rows.filter({ text: "" });
  expect(rows.get().rows.map((r) => r.title)).toEqual(["session/new"]);
});

test("100,000 entries stay within the bounds, and are read once", () => {
  const { traffic, rows } = world();
  for (let i = 0; i < 100_000; i++) {
    traffic.envelope({ direction: "received", via: "events", message: { jsonrpc: "2.0", method: "session/update", params: { sessionId: "S", update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text: `n ${i}` } } } } } as unknown as Envelope);
    if (i % 1000 === 0) vi.advanceTimersByTime(200);
  }
  vi.advanceTimersByTime(200);
  expect(rows.get().total).toBeLessThanOrEqual(20_000);
  expect(rows.get().rows.at(-1)?.note).toContain("n 99999");
  expect(rows.get().dropped).toBeGreaterThan(79_000);
});

test("an export has no secrets", () => {
  const { traffic, say } = world();
  say("sent", {
    id: 1, method: "session/new", params: {
      cwd: "/w", mcpServers: [
        { name: "a", command: "x", args: ["--key", "sk-abcdefghijklmnop"], env: [{ name: "API_KEY", value: "hidden1" }, { name: "LANG", value: "C" }] },
        { type: "http", name: "b", url: "https://x.test/?t=my-gateway-token", headers: [{ name: "Authorization", value: "hidden2" }, { name: "Accept", value: "*/*" }] },
      ],
      _meta: { "sandboxagent.dev": { credentials: { apiKey: "hidden3" }, env: { DB_PASSWORD: "hidden4", HOME: "/h" } } },
    },
  });
  say("received", { method: "session/update", params: { sessionId: "S", update: { text: "the token is my-gateway-token, ghp_0123456789abcdefghij01", tokens: 7, inputTokens: 8, maxTokens: null } } });
  const text = capture(traffic.entries(), ["my-gateway-token"]);
  for (const secret of ["hidden1", "hidden2", "hidden3", "hidden4", "sk-abc", "my-gateway-token", "ghp_"]) expect(text, secret).not.toContain(secret);
  const [first, second] = text.trimEnd().split("\n").map((line) => JSON.parse(line) as { message: { params: never } });
  expect(first!.message.params).toMatchObject({ cwd: "/w", mcpServers: [{ env: [{ name: "API_KEY", value: "(removed)" }, { name: "LANG", value: "C" }] }, { headers: [{}, { value: "*/*" }] }], _meta: { "sandboxagent.dev": { env: { HOME: "/h" } } } });
  expect(second!.message.params).toMatchObject({ update: { tokens: 7, inputTokens: 8, maxTokens: null } });
});

test("secrets of bodies and headers of HTTP requests are removed too", () => {
  expect(withoutSecrets({ authorization: "Bearer x", password: "p", nested: [{ refresh_token: "r" }], count: 1 })).toEqual({ authorization: "(removed)", password: "(removed)", nested: [{ refresh_token: "(removed)" }], count: 1 });
});

test("curl: quotes stay quotes, and the token is a variable", () => {
  const message = { jsonrpc: "2.0", id: 1, method: "session/prompt", params: { prompt: [{ type: "text", text: "it's `x` $(y)" }] } };
  const entry = { kind: "frame" as const, n: 0, at: 0, size: 0, envelope: { direction: "sent", via: "websocket", message } as unknown as Envelope };
  const curl = asCurl(entry, "http://127.0.0.1:1", true)!;
  expect(curl).toContain(`"Authorization: Bearer $SANDBOX_AGENT_TOKEN"`);
  expect(asCurl(entry, "http://127.0.0.1:1", true, "mock")).toContain('"_meta":{"sandboxagent.dev":{"agent":"mock"}}'); // the default of the gateway may not be installed
  expect(asCall(message, "http://127.0.0.1:1", "mock")).toContain(`sandbox-agent rpc call --acp 2 --endpoint 'http://127.0.0.1:1' --agent 'mock' 'session/prompt' '{"prompt":[{"type":"text","text":"it'\\''s`);
  expect(asCall({ method: "session/cancel", params: {} }, "http://127.0.0.1:1")).toContain("rpc notify");
  expect(asCall({ id: 1, result: {} }, "http://127.0.0.1:1")).toBeUndefined();
  expect(curl).toContain(`it'\\''s \`x\` $(y)`);
  expect(asCurl({ ...entry, envelope: { ...entry.envelope, direction: "received" } }, "http://127.0.0.1:1", true)).toBeUndefined();
});

test("every method has a draft that is JSON", () => {
  for (const version of [1, 2]) {
    expect(new Set(methodsOf(version).map((m) => m.name)).size, "each once").toBe(methodsOf(version).length);
    for (const { name } of methodsOf(version)) expect(parseParams(draftOf(name, "S", "/w", version)), name).toHaveProperty("params");
  }
  expect(draftOf("session/load", "S", "/w", 1)).toContain('"/w"');
  expect(draftOf("session/resume", "S", "/w", 2)).toContain("replayFrom");
  expect(draftOf("session/load", "S", "/w", 2)).toBe("{}"); // version 2 has none
  expect(parseParams("{")).toHaveProperty("error");
  expect(parseParams("7")).toHaveProperty("error");
});

test("a request knows how long it took to the first update, and to its answer", () => {
  const { rows, say } = world();
  say("sent", { id: 1, method: "session/prompt", params: { sessionId: "A" } });
  say("received", { method: "session/update", params: { sessionId: "A", update: { sessionUpdate: "user_message", messageId: "m" } } });
  say("received", { method: "session/update", params: { sessionId: "B", update: { sessionUpdate: "agent_message_chunk" } } });
  say("received", { method: "session/update", params: { sessionId: "A", update: { sessionUpdate: "agent_message_chunk" } } });
  say("received", { method: "session/update", params: { sessionId: "A", update: { sessionUpdate: "agent_message_chunk" } } });
  say("received", { id: 1, result: {} });
  expect(rows.get().rows[0]).toMatchObject({ firstUpdateMs: 600, answeredMs: 1000 });
  expect(rows.get().rows[0]).not.toHaveProperty("endedMs");
  // In version 2 the answer comes when the turn begins.
  say("sent", { id: 2, method: "initialize", params: { protocolVersion: 2 } });
  say("sent", { id: 3, method: "session/prompt", params: { sessionId: "A" } });
  say("received", { id: 3, result: { messageId: "m" } });
  say("received", { method: "session/update", params: { sessionId: "A", update: { sessionUpdate: "state_update", state: "idle" } } });
  say("received", { method: "session/update", params: { sessionId: "A", update: { sessionUpdate: "state_update", state: "idle", stopReason: "end_turn" } } });
  expect(rows.get().rows.find((r) => r.title === "session/prompt" && r.version === 2)).toMatchObject({ answeredMs: 200, endedMs: 600 });
});

test("each frame is of the version that its connection came to", () => {
  const { rows, say } = world();
  say("sent", { id: 1, method: "initialize", params: { protocolVersion: 2 } });
  say("received", { id: 1, result: { protocolVersion: 1 } });
  say("sent", { id: 2, method: "session/list" });
  say("sent", { id: 1, method: "initialize", params: { protocolVersion: 2 } });
  say("received", { id: 1, result: { protocolVersion: 2 } });
  expect(rows.get().rows.map((r) => r.version)).toEqual([2, 1, 1, 2, 2]);
});

test("two frames are compared by their members, not by the order of those", () => {
  const [a, b] = comparable({ x: 1, list: [{ p: 1, q: 2 }], y: { c: 1, d: 2 } }, { y: { d: 2, c: 1 }, list: [{ q: 2, p: 1 }], x: 1 });
  expect(b).toBe(a);
  const [before, after] = comparable({ a: 1, b: 2 }, { c: 3, a: 1 });
  expect([before, after]).toEqual(['{\n  "a": 1,\n  "b": 2\n}\n', '{\n  "a": 1,\n  "c": 3\n}\n']);
});

test("what is sent again says what it does, and is not taken for the same prompt", () => {
  expect(replayOf("request", "session/prompt", 2)).toEqual({ does: expect.stringContaining("another turn") as string });
  expect(replayOf("notification", "session/cancel", 1)).toEqual({ does: expect.stringContaining("runs now") as string });
  expect(replayOf("request", "_my/own", 1)).toEqual({ does: expect.stringContaining("a new request") as string });
  for (const [kind, method] of [["response", "session/request_permission"], ["request", "initialize"], ["notification", "$/cancel_request"]] as const) expect(replayOf(kind, method, 1), method).toHaveProperty("not");
  expect(JSON.parse(paramsAgain({ sessionId: "S", _meta: { "sandboxagent.dev": { promptId: "p", agent: "x" }, own: 1 } }))).toEqual({ sessionId: "S", _meta: { own: 1, "sandboxagent.dev": { agent: "x" } } });
  expect(JSON.parse(paramsAgain({ sessionId: "S", _meta: { "sandboxagent.dev": { promptId: "p" } } }))).toEqual({ sessionId: "S" });
});

test("frames in sight are checked, once, and what has left it before is not", async () => {
  const { rows, say } = world();
  for (let i = 0; i < 120; i++) say("sent", { id: i, method: "session/list" });
  const seen: unknown[] = [];
  let loads = 0;
  const violations = new Violations(async () => {
    loads++;
    return { check: ({ message }: { message: { id: number } }) => (seen.push(message.id), message.id % 2 ? [] : [{ path: "/x", says: "is wrong", wrong: true }]) } as unknown as Schema;
  });
  const all = rows.get().rows;
  violations.want(all);
  violations.want(all.slice(100)); // scrolled on, before the schema was loaded
  await vi.runAllTimersAsync();
  expect(seen).not.toContain(60);
  expect(violations.of(all[118]!)).toHaveLength(1);
  expect(violations.of(all[119]!)).toEqual([]);
  expect(violations.of(all[60]!)).toBeUndefined();
  const before = seen.length;
  violations.want(all.slice(100));
  await vi.runAllTimersAsync();
  expect([seen.length, loads]).toEqual([before, 1]);
});

test("all frames are checked when there is time, those in sight first, and those that are wrong are found", async () => {
  const { traffic, say } = world();
  const seen: number[] = [];
  const violations = new Violations(async () => ({ check: ({ message }: { message: { id: number } }) => (seen.push(message.id), message.id % 100 ? [] : [{ path: "/x", says: "is wrong", wrong: true }]) }) as unknown as Schema);
  const rows = new WireRows(traffic, (row) => violations.wrong(row));
  const stop = rows.follow();
  for (let i = 0; i < 300; i++) say("sent", { id: i, method: "session/list" });
  rows.filter({ wrong: true });
  expect([rows.get().rows.length, violations.left]).toEqual([0, 0]);
  violations.wantAll(rows.all());
  violations.want(rows.all().slice(-10));
  await vi.runAllTimersAsync();
  rows.again();
  expect(seen.slice(0, 10)).toEqual([290, 291, 292, 293, 294, 295, 296, 297, 298, 299]);
  expect([seen.length, violations.left]).toEqual([300, 0]); // each once
  expect(rows.get().rows.map((r) => r.n)).toEqual([0, 100, 200]);
  // What comes later is looked at, too; what is let go is forgotten; none ends it.
  say("sent", { id: 300, method: "session/list" });
  violations.wantAll(rows.all());
  await vi.runAllTimersAsync();
  rows.again();
  expect(rows.get().rows.map((r) => r.n)).toEqual([0, 100, 200, 300]);
  traffic.clear();
  vi.advanceTimersByTime(200);
  expect(rows.all()).toEqual([]);
  say("sent", { id: 400, method: "session/list" });
  violations.wantAll(rows.all());
  expect(violations.left).toBe(1);
  violations.wantAll([]);
  await vi.runAllTimersAsync();
  expect(seen).not.toContain(400);
  stop();
});

test("it is said why a version has nothing in the place of a state", () => {
  for (const [state, says] of [["idle", "the answer to its prompt"], ["running", "from its prompt"], ["requires_action", "its request is open"], ["of tomorrow", "has no states"]] as const) expect(nothingIn(1, { sessionUpdate: "state_update", state })).toContain(says);
  expect(nothingIn(2, { sessionUpdate: "x" })).toBe("Version 2 has nothing in its place.");
});

test("without its schema nothing is checked, and the page says why", async () => {
  const { rows, say } = world();
  say("sent", { id: 1, method: "session/list" });
  const violations = new Violations(() => Promise.reject(new Error("offline")));
  violations.want(rows.get().rows);
  await vi.runAllTimersAsync();
  expect(violations.problem).toContain("offline");
  expect(violations.of(rows.get().rows[0]!)).toBeUndefined();
});
