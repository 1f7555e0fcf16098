// A node that comes to the next hub a moment after its clients: what waits for it, and what is told at once that it is away.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { SandboxAgentClient, type ConnectionState } from "sandbox-agent";
import { expect, onTestFinished, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { forNode } from "../src/passing.js";

interface Message { id?: number; method: string; params?: { sessionId?: string; _meta?: Record<string, { node?: string }> } }

/** A hub whose node is away for the next request with a method; with `done` it went away while it did it, with "cut" the connection breaks instead. `says` has what it answers otherwise, by the method, or that and the session, the last again and again. */
async function hub(method: string, done?: "unknown" | "cut", says: Record<string, object[]> = {}) {
  const asked: string[] = [];
  const nodes: unknown[] = []; // that requests which have other answers name
  const opened = { was: () => {}, may: Promise.resolve() }; // of session s, again
  let away = method;
  let known = false; // that there is session s
  const answer = async ({ id, method, params }: Message): Promise<object> => {
    if (method === "initialize") return { id, result: { protocolVersion: 1, agentCapabilities: {} } };
    asked.push(method);
    const other = says[`${method} ${params?.sessionId}`] ?? says[method];
    if (other) {
      nodes.push(params?._meta?.["sandboxagent.dev"]?.node);
      return { id, ...(await (other.length > 1 ? other.shift() : other[0])) };
    }
    if (method === "session/resume" && params?.sessionId === "s") {
      opened.was();
      await opened.may;
    } else if (method === away && known) {
      away = "";
      if (done === "cut") {
        for (const socket of sockets.clients) socket.terminate();
        return {};
      }
      return { id, error: { code: -32603, message: "it is away", data: { type: "urn:sandbox-agent:error:node_offline", done } } };
    }
    if (method !== "session/new" && method !== "session/fork") return { id, result: {} };
    const sessionId = known ? "another" : "s";
    known = true;
    return { id, result: { sessionId } };
  };
  const server = createServer((_, response) => response.writeHead(404).end());
  const sockets = new WebSocketServer({ server });
  sockets.on("connection", (socket) => socket.on("message", (data: Buffer) => {
    void answer(JSON.parse(data.toString()) as Message).then((said: { id?: number }) => said.id !== undefined && socket.send(JSON.stringify({ jsonrpc: "2.0", ...said })));
  }));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const client = new SandboxAgentClient({ baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, transport: "websocket", WebSocket: WebSocket as never, retry: { firstDelayMs: 1, maxDelayMs: 20 } });
  onTestFinished(async () => {
    await client[Symbol.asyncDispose]();
    server.close();
  });
  const cut = async () => {
    const lost = new Promise<void>((resolve) => client.onState((state: ConnectionState) => state === "reconnecting" && resolve()));
    for (const socket of sockets.clients) socket.terminate();
    await lost;
  };
  /** Cuts the connection, and has the client wait for its session on the next one until what is returned is called. */
  const attaching = async () => {
    await client.newSession({ cwd: "/" });
    const again = new Promise<void>((resolve) => (opened.was = resolve));
    let go = () => {};
    opened.may = new Promise<void>((resolve) => (go = resolve));
    await cut();
    await again;
    return go;
  };
  /** Tells of an event of a session. */
  const tell = (sessionId: string, seq: number) => {
    const params = { sessionId, update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text: String(seq) } }, _meta: { "sandboxagent.dev": { seq } } };
    for (const socket of sockets.clients) socket.send(JSON.stringify({ jsonrpc: "2.0", method: "session/update", params }));
  };
  return { client, asked, nodes, attaching, cut, tell };
}

const away = { data: { type: "urn:sandbox-agent:error:node_offline" } };

test("a client that connects for the first time is told at once", async () => {
  const { client } = await hub("session/close");
  await client.newSession({ cwd: "/" });
  await expect(client.closeSession("s")).rejects.toMatchObject(away);
});

test("so is one whose connection is there again", async () => {
  const { client, cut } = await hub("session/close");
  await client.newSession({ cwd: "/" });
  await cut();
  await client.pendingRequests("s");
  await expect(client.closeSession("s")).rejects.toMatchObject(away);
});

test("what is asked while the sessions are attached again waits for the node", async () => {
  const { client, asked, attaching } = await hub("session/close");
  const go = await attaching();
  const closing = client.closeSession("s");
  go();
  await closing;
  expect(asked.filter((method) => method === "session/close")).toHaveLength(2);
});

test.each(["is not opened again", "has its node away"])("a session that %s holds nothing up that is not of it", async (why) => {
  const { client, asked, attaching, cut } = await hub("", undefined, why.startsWith("has") ? { "_sandboxagent/session/get s": [refused(-32603, "node_offline")] } : {});
  await client.resumeSession({ sessionId: "other", cwd: "/" });
  if (why.startsWith("is")) await attaching();
  else {
    await client.newSession({ cwd: "/" });
    await cut();
  }
  await client.listSessions();
  await client.prompt({ sessionId: "other", prompt: "go on" });
  await client.cancel("other");
  const held = [client.cancel("s"), client.closeSession("s"), client.prompt({ sessionId: "s", prompt: "go on" })].map((one) => expect(one).rejects.toThrow("not connected"));
  await client.closeSession("other");
  expect(asked.filter((method) => /list|prompt|cancel|close/.test(method))).toEqual(["session/list", "session/prompt", "session/cancel", "session/close"]);
  await client.disconnect();
  await Promise.all(held);
});

test.each(["session/load", "session/resume"] as const)("%s waits for the node", async (method) => {
  const { client, asked, attaching } = await hub(method);
  const go = await attaching();
  const before = asked.length;
  const params = { sessionId: "other", cwd: "/" };
  const opening = method === "session/load" ? client.loadSession(params) : client.resumeSession(params);
  go();
  await opening;
  expect(asked.slice(before)).toEqual([method, method]);
});

test("a replay is not waited for when its signal aborts", async () => {
  const { client, asked } = await hub("", undefined, { "session/load": [{ result: { _meta: { "sandboxagent.dev": { replayedSeq: 5 } } } }] });
  const controller = new AbortController();
  const loading = client.loadSession({ sessionId: "other", cwd: "/" }, { signal: controller.signal });
  await expect.poll(() => asked).toEqual(["session/load"]);
  await client.listSessions(); // behind the answer
  controller.abort(new Error("enough"));
  await expect(loading).rejects.toThrow("enough");
});

test.each(["before", "behind"])("a session whose load was aborted %s its answer is followed, and comes whole when it is loaded again", async (when) => {
  const result = { result: { _meta: { "sandboxagent.dev": { seq: 5, replayedSeq: 5 } } } };
  const never = new Promise<object>(() => {});
  const { client, asked, tell, cut } = await hub("", undefined, { "session/load": [when === "before" ? never : result, result], "_sandboxagent/session/get other": [idle] });
  const said: string[] = [];
  client.onUpdate(({ update }) => void (update.sessionUpdate === "agent_message_chunk" && update.content.type === "text" && said.push(update.content.text)));
  const controller = new AbortController();
  const params = { sessionId: "other", cwd: "/" };
  const loading = client.loadSession(params, { signal: controller.signal });
  await expect.poll(() => asked).toEqual(["session/load"]);
  for (const seq of [1, 2]) tell("other", seq);
  await client.listSessions(); // behind them, and an answer
  controller.abort(new Error("enough"));
  await expect(loading).rejects.toThrow("enough");
  const again = client.loadSession(params);
  await expect.poll(() => asked.filter((method) => method === "session/load")).toHaveLength(2);
  for (const seq of [3, 1, 2, 3, 4, 5]) tell("other", seq); // the first was on its way
  await again;
  expect(said.join("")).toBe("12312345");
  await cut();
  await client.pendingRequests("other");
  expect(asked).toContain("session/resume");
});

test.each([
  { what: "with a signal and was lost with its connection", cut: true, options: { signal: new AbortController().signal } },
  { what: "and was lost with its connection", cut: true },
  { what: "and was refused because its node is away", cut: false },
])("a prompt comes behind what was set before it $what, and what is set then behind the prompt", async ({ cut, options }) => {
  const { client, asked, attaching } = await hub("session/set_mode", cut ? "cut" : undefined);
  const set = () => client.setSessionMode("s", "plan", options);
  let [go, setting] = [() => {}, Promise.resolve()];
  if (cut) {
    await client.newSession({ cwd: "/" });
    setting = set();
    await new Promise<void>((resolve) => client.onState((state) => state === "reconnecting" && resolve()));
  } else {
    go = await attaching();
    setting = set();
  }
  const turn = client.prompt({ sessionId: "s", prompt: "go on" });
  const title = client.setTitle("s", "later");
  go();
  await Promise.all([setting, turn, title]);
  expect(asked.filter((method) => /set_|prompt/.test(method))).toEqual(["session/set_mode", "session/set_mode", "session/prompt", "_sandboxagent/session/set_metadata"]);
});

test.each((["session/new", "session/fork"] as const).flatMap((method) => ([undefined, "unknown"] as const).map((done) => ({ method, done }))))("$method waits for the node, unless it may have made one: done $done", async ({ method, done }) => {
  const { client, asked, attaching } = await hub(method, done);
  const go = await attaching();
  const before = asked.length;
  const making = method === "session/new" ? client.newSession({ cwd: "/" }) : client.forkSession({ sessionId: "s", cwd: "/" });
  go();
  if (done) await expect(making).rejects.toMatchObject(away);
  else expect((await making).id).toBe("another");
  expect(asked.slice(before)).toEqual(done ? [method] : [method, method]);
});

test.each(["loadSession", "resumeSession", "forkSession"] as const)("%s opens nothing in another directory because that of the session could not be asked for", async (open) => {
  const { client, asked } = await hub("_sandboxagent/session/get");
  await client.newSession({ cwd: "/" });
  await expect(client[open]({ sessionId: "other" })).rejects.toMatchObject(away);
  expect(asked).toEqual(["session/new", "_sandboxagent/session/get"]);
});

test("a node is waited for no longer than half a minute", () => {
  expect([forNode({ giveUpAfterMs: Infinity }), forNode(), forNode({ giveUpAfterMs: 5 })].map((retry) => retry.giveUpAfterMs)).toEqual([30_000, 30_000, 5]);
});

const refused = (code: number, kind: string) => ({ error: { code, message: kind, data: { type: `urn:sandbox-agent:error:${kind}` } } });
const idle = { result: { state: "idle" } };
const gone = refused(-32002, "session_not_found");
const ended = refused(-32002, "conflict"); // or goes on elsewhere
const closed = { state: "closed", updatedAt: "2026-01-02T03:04:05Z" };

test.each([
  ["is there, and cannot be opened", [idle], [ended], []],
  ["is there, and its record is not", [idle], [gone], []],
  ["is not there, and has ended", [gone], [ended], []],
  ["is not there", [gone], [gone], ["deleted"]],
  ["was closed, which is known when its node is there", [refused(-32603, "node_offline"), { result: closed }], [gone], ["closed"]],
  ["went to another node", [{ result: { ...closed, metadata: { movedTo: "node://two" } } }], [gone], ["moved it goes on at node://two"]],
  ["went to another gateway", [{ result: { ...closed, metadata: { movedTo: "http://two" } } }], [gone], ["moved it goes on at http://two"]],
])("what is told of a session that %s", async (_, get, resume, told) => {
  const { client, asked, nodes, cut } = await hub("", undefined, { "_sandboxagent/session/get": [...get], "session/resume": resume });
  await client.newSession({ cwd: "/", _meta: { "sandboxagent.dev": { node: "one" } } });
  const ends: string[] = [];
  client.onSessionEnded(({ data }) => ends.push([data.reason, data.message].filter(Boolean).join(" ")));
  await cut();
  await client.pendingRequests("s");
  expect(ends).toEqual(told);
  expect(asked.includes("session/resume")).toBe(!JSON.stringify(get).includes("closed")); // which would open it again
  expect(new Set(nodes)).toEqual(new Set(["one"]));
});
