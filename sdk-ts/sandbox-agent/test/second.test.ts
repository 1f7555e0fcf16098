// What the client has of version 2 of ACP alone. What both versions have is in client.test.ts and recovery.test.ts.
import { resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ProtocolVersionError, SandboxAgentClient, type Acp, type SandboxAgentClientOptions } from "sandbox-agent";
import { SandboxAgentClient as LocalClient } from "sandbox-agent/local";
import { WebSocket } from "ws";
import { Gateway } from "../../test/gateway.js";
import { Proxy } from "../../test/proxy.js";

type Update = Acp<2, "SessionUpdate">;

let gateway: Gateway;
/** An agent that sends a form. */
const story = `story=${process.execPath} ${resolve(import.meta.dirname, "../../../inspector/test/agent.mjs")}`;
beforeAll(async () => void (gateway = await Gateway.startWithBoth(["--no-token", "--agent-command", story])));
afterAll(() => gateway.stop());

function connect(options: Partial<SandboxAgentClientOptions<2>> = {}): SandboxAgentClient<2> {
  const c = new SandboxAgentClient({ baseUrl: gateway.url, agent: "mock2", ...options, acpVersion: 2 });
  c.onPermission(() => "allow_once");
  return c;
}

const kindsOf = (updates: Update[]) => updates.map((u) => u.sessionUpdate);
const textOf = (bytes: Uint8Array | undefined) => new TextDecoder().decode(bytes);

test("the version is the one that was asked for, or an error says why not", async () => {
  await using c = connect();
  const hello = await c.initialized();
  expect([c.acpVersion, hello.protocolVersion]).toEqual([2, 2]);
  expect(() => connect({ transport: "inline" })).toThrow("the inline transport is of version 1");
  expect(() => new SandboxAgentClient({ baseUrl: gateway.url, acpVersion: 3 as never })).toThrow("acpVersion is 1 or 2, not 3");
  const old = await Gateway.start(["--no-token", "--acp-versions", "1"]);
  const refused = new SandboxAgentClient({ baseUrl: old.url, agent: "mock", acpVersion: 2, autoConnect: false });
  await expect(refused.connect()).rejects.toBeInstanceOf(ProtocolVersionError);
  expect(refused.state).toBe("idle");
  await refused.disconnect();
  await old.stop();
});

test("a gateway of one's own", async () => {
  await using c = await LocalClient.start({ agent: "mock", acpVersion: 2, args: ["--ephemeral"], env: { ...process.env, HOME: gateway.dir } });
  const session = await c.newSession({ cwd: "/tmp" });
  const turn = session.prompt("echo hi");
  for await (const update of turn) if (update.sessionUpdate === "user_message") expect(update.messageId).toBeTruthy();
  expect(await turn).toMatchObject({ text: "hi", response: { messageId: expect.any(String) } });
});

describe.each(["mock", "mock2"])("an agent of %s", (agent) => {
  test("a turn has its updates, from its message to its end, and those of no other", async () => {
    await using c = connect({ agent });
    const session = await c.newSession({ cwd: "/tmp" });
    const turns = ["one", "two"].map((word) => session.prompt(`echo ${word}`));
    for (const [i, turn] of turns.entries()) {
      const updates: Update[] = [];
      for await (const update of turn) updates.push(update);
      expect(kindsOf(updates).slice(0, 2)).toEqual(["user_message", "state_update"]);
      expect(updates.at(-1)).toMatchObject({ sessionUpdate: "state_update", state: "idle", stopReason: "end_turn" });
      expect(kindsOf(updates).filter((k) => k === "user_message")).toHaveLength(1);
      const { response, text } = await turn;
      expect([response?.messageId, text]).toEqual([(updates[0] as { messageId?: string }).messageId, ["one", "two"][i]]);
    }
  });

  test("a prompt that is cancelled before it begins has no message", async () => {
    await using c = connect({ agent });
    const session = await c.newSession({ cwd: "/tmp" });
    const slow = session.prompt("slow");
    for await (const u of slow) if (u.sessionUpdate === "agent_message_chunk") break;
    const waiting = session.prompt("echo never");
    await session.cancel();
    expect(await slow).toMatchObject({ stopReason: "cancelled", response: { messageId: expect.any(String) } });
    expect(await waiting).toMatchObject({ stopReason: "cancelled", response: undefined, text: "" });
  });

  test("a command is a terminal", async () => {
    await using c = connect({ agent });
    const session = await c.newSession({ cwd: "/tmp" });
    let changes = 0;
    c.onActivity(() => void changes++);
    await session.prompt("run");
    const [command] = session.activity?.commands ?? [];
    expect(command).toMatchObject({ command: "count; exit 3", cwd: "/tmp", exitStatus: { exitCode: 3 }, sessionId: session.id });
    expect(textOf(command?.output)).toBe("one\ntwo\nthree");
    expect(session.activity?.command(command?.terminalId ?? "")).toBe(command);
    expect(changes).toBeGreaterThan(3);
  });

  test("another client replays it, sees states, and may be of version 1", async () => {
    await using c = connect({ agent });
    const session = await c.newSession({ cwd: "/tmp" });
    await session.prompt("echo first");
    await using two = connect({ agent });
    await using one = new SandboxAgentClient({ baseUrl: gateway.url, agent });
    const said: string[] = [];
    let late = "";
    one.onUpdate(({ update }) => void (update.sessionUpdate === "agent_message_chunk" && update.content.type === "text" && (late += update.content.text)));
    two.on("agent_message_chunk", ({ content }, id) => void (id === session.id && said.push((content as { text: string }).text)));
    await two.loadSession({ sessionId: session.id });
    await one.loadSession({ sessionId: session.id });
    expect([said.join(""), late]).toEqual(["first", "first"]);
    expect(two.activity(session.id)?.state).toBe("idle");
    const states: string[] = [];
    two.on("state_update", (update) => void states.push(String(update.state)));
    const ended = new Promise((resolve) => two.onTurnEnded(resolve));
    await session.prompt("permission");
    expect(await ended).toMatchObject({ sessionId: session.id, result: { stopReason: "end_turn" } });
    await expect.poll(() => states).toEqual(["running", "requires_action", "running", "idle"]);
    await two.resumeSession({ sessionId: session.id });
    expect((await two.prompt({ sessionId: session.id, prompt: "echo by another" })).text).toBe("by another");
    await expect.poll(() => late).toContain("by another");
  });
});

test("notices, compactions and replaced messages", async () => {
  await using c = connect();
  const session = await c.newSession({ cwd: "/tmp" });
  const notices: string[] = [];
  const compactions: string[] = [];
  c.on("notice", ({ severity, title }) => void notices.push(`${severity}: ${title}`));
  const off = c.on("compaction_update", ({ status }) => void compactions.push(status));
  await session.prompt("notice");
  await session.prompt("compaction");
  expect([notices, compactions]).toEqual([["warning: The disk is nearly full"], ["in_progress", "completed"]]);
  off();
  await session.prompt("compaction");
  expect(compactions).toHaveLength(2);
  expect((await session.prompt("upsert")).text).toBe("The final text.");
});

test("a subagent is a session of its own, and asks as such", async () => {
  await using c = connect();
  const asked: string[] = [];
  c.onPermission((request) => {
    asked.push(request.sessionId, request.title);
    return "allow_once";
  });
  const session = await c.newSession({ cwd: "/tmp" });
  const said = new Map<string, string>();
  c.on("agent_message_chunk", ({ content }, id) => void said.set(id, (said.get(id) ?? "") + (content as { text: string }).text));
  const { text } = await session.prompt("child-permission");
  const [child] = session.activity?.subagents.values() ?? [];
  expect(child).toMatchObject({ title: "Look around", parentId: session.id, state: "idle" });
  expect(asked).toEqual([child?.sessionId, "May I?"]);
  expect([text, said.get(child?.sessionId ?? "")]).toEqual(["The child is done.", "permission: allow_once"]);
});

test("what goes on in the background is known, and can be ended by itself", async () => {
  await using c = connect();
  const session = await c.newSession({ cwd: "/tmp" });
  expect((await session.prompt("background 1000")).stopReason).toBe("end_turn");
  const [work] = session.activity?.background ?? [];
  expect(work).toMatchObject({ type: "terminal" });
  const { terminalId } = work as { terminalId: string };
  expect(session.activity?.command(terminalId)).toMatchObject({ command: "tick", cancellable: true, exitStatus: undefined });
  const unprompted = new Promise<string>((resolve) => c.on("agent_message_chunk", ({ content }) => resolve((content as { text: string }).text)));
  await c.cancelTerminal(session.id, terminalId);
  expect(await unprompted).toBe("The command in the background is cancelled.");
  await expect.poll(() => session.activity?.background).toEqual([]);
  expect(session.activity?.command(terminalId)?.exitStatus).toMatchObject({ signal: "SIGTERM" });
});

test("a form is filled in", async () => {
  const asked: unknown[] = [];
  await using c = connect({
    agent: "story",
    onElicitation: async (request) => {
      asked.push(request.message, "mode" in request ? request.mode : undefined, "sessionId" in request ? request.sessionId : undefined);
      return { action: "accept", content: { region: "eu", replicas: 2 } };
    },
  });
  const session = await c.newSession({ cwd: "/tmp" });
  const { text } = await session.prompt("form");
  expect(asked).toEqual(["Where should it be **deployed**?", "form", session.id]);
  expect(JSON.parse(text.replace("form: ", ""))).toEqual({ action: "accept", content: { region: "eu", replicas: 2 } });
});

test("a form that the gateway sends again is filled in once", async () => {
  const proxy = await Proxy.to(gateway.port);
  const asked: AbortSignal[] = [];
  let answer!: (region: string) => void;
  const answered = new Promise<string>((resolve) => (answer = resolve));
  await using c = connect({
    baseUrl: proxy.url, agent: "story", retry: { firstDelayMs: 1, maxDelayMs: 20 },
    onElicitation: async (_, { signal }) => {
      asked.push(signal);
      return { action: "accept", content: { region: await answered, replicas: 2 } };
    },
  });
  const session = await c.newSession({ cwd: "/tmp" });
  const turn = session.prompt("form");
  await expect.poll(() => asked.length).toBe(1);
  await c.resumeSession({ sessionId: session.id, cwd: "/tmp" }); // as another part of the same program
  const again = new Promise<void>((resolve) => c.onState((state) => state === "open" && resolve()));
  proxy.cut();
  await again;
  await c.resumeSession({ sessionId: session.id, cwd: "/tmp" });
  expect(asked.map((signal) => signal.aborted)).toEqual([false]);
  answer("us");
  expect(JSON.parse((await turn).text.replace("form: ", ""))).toEqual({ action: "accept", content: { region: "us", replicas: 2 } });
  await proxy.stop();
});

test.each(["mock", "mock2"].flatMap((agent) => ["the connection breaks behind its end", "it ends while the session is opened again"].map((when) => ({ agent, when }))))("no older state is told of a turn of $agent where $when", async ({ agent, when }) => {
  const proxy = await Proxy.to(gateway.port);
  let opens = () => {};
  const sent = new Promise<void>((resolve) => (opens = resolve));
  await using c = connect({
    agent, baseUrl: proxy.url, transport: "websocket", WebSocket: WebSocket as never, retry: { firstDelayMs: 1 },
    onEnvelope: ({ direction, message }) => direction === "sent" && "method" in message && message.method === "session/resume" && opens(),
  });
  await using other = connect({ agent });
  const session = await c.newSession({ cwd: "/tmp" });
  const states: string[] = [];
  c.on("state_update", ({ state }) => void states.push(String(state)));
  if (when.startsWith("the connection")) {
    await session.prompt("echo on");
    proxy.cut();
  } else {
    c.onPermission(() => undefined);
    const turn = session.prompt("permission");
    await expect.poll(() => session.activity?.state).toBe("requires_action");
    proxy.holdSent(true);
    const opened = c.resumeSession({ sessionId: session.id, cwd: "/tmp" });
    await sent;
    await other.resumeSession({ sessionId: session.id });
    await expect.poll(() => session.activity?.state).toBe("idle");
    proxy.holdSent(false);
    await Promise.all([opened, turn]);
  }
  await c.pendingRequests(session.id); // behind what comes again
  const first = states.indexOf("idle");
  expect(states.slice(first).filter((state) => state !== "idle")).toEqual([]);
  expect([first > 0, session.activity?.state]).toEqual([true, "idle"]);
  await proxy.stop();
});

test("a call can be cancelled by itself", async () => {
  await using c = connect();
  const session = await c.newSession({ cwd: "/tmp" });
  const turn = session.prompt("cancellable");
  for await (const update of turn) {
    if (update.sessionUpdate === "tool_call_update" && (update.capabilities as { cancel?: unknown } | null | undefined)?.cancel) await c.cancelToolCall(session.id, String(update.toolCallId));
  }
  expect((await turn).stopReason).toBe("end_turn");
});

test("every method of a session", async () => {
  await using c = connect({ transport: "websocket", WebSocket: WebSocket as never });
  const session = await c.newSession({ cwd: "/tmp", title: "Second", mcpServers: [{ type: "stdio", name: "none", command: "true" }] });
  await session.prompt("echo hi");
  expect((await c.listSessions()).sessions.map((s) => s.sessionId)).toContain(session.id);
  const chosen = async (category: string) => {
    const { result } = await c.resumeSession({ sessionId: session.id });
    return (result.configOptions?.find((o) => o.category === category) as { currentValue?: string } | undefined)?.currentValue;
  };
  await session.setMode("plan");
  expect(await chosen("mode")).toBe("plan");
  await session.setConfigOption("model", "mock-large");
  expect(await chosen("model")).toBe("mock-large");
  const fork = await c.forkSession({ sessionId: session.id });
  expect((await fork.prompt("echo forked")).text).toBe("forked");
  await expect(c.authenticate({ methodId: "none" })).rejects.toMatchObject({ name: "AcpRpcError" });
  await expect(c.request("session/set_mode", { sessionId: session.id, modeId: "plan" })).rejects.toMatchObject({ message: expect.stringContaining("of version 1") });
  await session.close();
  expect((await c.resumeSession({ sessionId: session.id })).continuity).toBeDefined();
  expect((await session.prompt("echo back")).text).toBe("back");
  await c.detachSession(session.id);
  expect(c.activity(session.id)).toBeUndefined();
  await c.deleteSession(session.id);
  await fork.delete();
});
