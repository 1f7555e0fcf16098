import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Acp, AcpRpcError, type AcpVersion, AlreadyConnectedError, NotConnectedError, ProblemError, SandboxAgentClient, type SandboxAgentClientOptions, type SessionChange, type SessionUpdate } from "sandbox-agent";
import { Gateway } from "../../test/gateway.js";
import { warnings } from "../../test/warnings.js";
import { variants, ws } from "../../test/variants.js";

let gateway: Gateway;
beforeAll(async () => void (gateway = await Gateway.startWithBoth()));
afterAll(() => gateway.stop());


function connect<V extends AcpVersion = 1>(options: Partial<SandboxAgentClientOptions<V>> = {}): SandboxAgentClient<V> {
  return new SandboxAgentClient<V>({ baseUrl: gateway.url, agent: "mock", ...options });
}

const textOf = (updates: Acp<AcpVersion, "SessionUpdate">[]) =>
  updates.flatMap((u) => (u.sessionUpdate === "agent_message_chunk" && "content" in u ? [(u.content as { text: string }).text] : [])).join("");

test("the connection's states: methods need one, and there is one only", async () => {
  const c = connect({ autoConnect: false });
  expect(c.state).toBe("idle");
  await expect(c.newSession({ cwd: "/tmp" })).rejects.toBeInstanceOf(NotConnectedError);
  await expect(c.prompt({ sessionId: "x", prompt: "hi" })).rejects.toBeInstanceOf(NotConnectedError);
  await expect(c.listSessions()).rejects.toBeInstanceOf(NotConnectedError);
  const hello = await c.connect();
  expect(hello.protocolVersion).toBe(1);
  await expect(c.connect()).rejects.toBeInstanceOf(AlreadyConnectedError);
  expect(c.state).toBe("open");
  await c.disconnect();
  await expect(c.newSession({ cwd: "/tmp" })).rejects.toBeInstanceOf(NotConnectedError);
  await c.connect();
  await c.newSession({ cwd: "/tmp" });
  await c[Symbol.asyncDispose]();
});

test.each(variants)("one signal for many requests and prompts is nothing to warn of, and ends them all: version $acpVersion, $agent, $transport", async (options) => {
  await using c = connect(options);
  const { signal, abort } = ((controller) => ({ signal: controller.signal, abort: () => controller.abort(new Error("enough")) }))(new AbortController());
  const seen = await warnings(async () => {
    const sessions = await Promise.all(Array.from({ length: 12 }, () => c.newSession({ cwd: "/tmp" }, { signal })));
    await Promise.all(sessions.map(() => c.api.health({ signal })));
    const turns = sessions.map((session) => session.prompt("slow", { signal }));
    await Promise.all(turns.map(async (turn) => {
      for await (const _ of turn) break;
    }));
    const asked = sessions.map((session) => c.request("session/prompt", { sessionId: session.id, prompt: [] }, { signal }));
    abort();
    for (const one of await Promise.allSettled(asked)) expect(one).toMatchObject({ reason: { message: "enough" } });
    for (const { stopReason } of await Promise.all(turns)) expect(stopReason).toBe("cancelled");
  });
  expect(seen).toEqual([]);
});

test.each([
  ["localhost:2468", 'baseUrl: "localhost:2468" is not an http or https address: did you mean http://localhost:2468?'],
  ["127.0.0.1:2468", 'baseUrl: "127.0.0.1:2468" is not an http or https address: did you mean http://127.0.0.1:2468?'],
  ["http://here:port", 'baseUrl: "http://here:port" is not an http or https address'],
  ["ftp://here", 'baseUrl: "ftp://here" is not an http or https address'],
  ["", 'baseUrl: "" is not an http or https address'],
  [undefined, "baseUrl: undefined is not an http or https address"],
])("an address that is none is explained: %j", (baseUrl, message) => {
  expect(() => new SandboxAgentClient({ baseUrl: baseUrl as string })).toThrow(new TypeError(message));
});

test("the address of ACP is the gateway's", async () => {
  for (const path of ["", "/", "/v2/rpc", "/v2/rpc/"]) {
    const c = connect({ baseUrl: gateway.url + path, autoConnect: false });
    await c.connect();
    expect((await c.health()).status).toBe("ok");
    await c.disconnect();
  }
});

test("a gateway that is not there", async () => {
  const c = new SandboxAgentClient({ baseUrl: "http://127.0.0.1:9", retry: { firstDelayMs: 1, giveUpAfterMs: 50 } });
  await expect(c.newSession({ cwd: "/tmp" })).rejects.toMatchObject({ name: "ConnectionLostError", reason: "unreachable" });
  await expect(c.newSession({ cwd: "/tmp" })).rejects.toMatchObject({ name: "NotConnectedError", cause: { name: "ConnectionLostError" } });
  await expect(c.health()).rejects.toThrow(new TypeError("GET v2/health at http://127.0.0.1:9/: bad port"));
});

test("a client whose signal has aborted already does not connect", async () => {
  const c = connect({ signal: AbortSignal.abort() });
  await expect(c.newSession({ cwd: "/tmp" })).rejects.toBeInstanceOf(NotConnectedError);
  expect(c.state).toBe("idle");
});

test("a client that is over opens no connection: nobody would end it", async () => {
  const disposed = connect();
  await disposed.newSession({ cwd: "/tmp" });
  const disposing = disposed[Symbol.asyncDispose]();
  await expect(disposed.connect()).rejects.toThrow("disposed of"); // already while it ends
  await disposing;
  await expect(disposed.connect()).rejects.toThrow("disposed of");
  const signal = AbortSignal.abort(new Error("enough"));
  const aborted = connect({ signal });
  await expect(aborted.connect()).rejects.toThrow("enough");
  expect([disposed.state, aborted.state]).toEqual(["idle", "idle"]);
});

test("a client is disconnected also where the connection opens in the same moment", async () => {
  for (let later = 0; later < 12; later++) {
    let ended: Promise<void> | undefined;
    const c = connect({
      autoConnect: false,
      onEnvelope: ({ direction }) => {
        if (direction !== "received" || ended) return;
        let after = Promise.resolve(); // some turns of the queue behind the answer
        for (let i = 0; i < later; i++) after = after.then(() => {});
        ended = after.then(() => c.disconnect());
      },
    });
    const states: string[] = [];
    c.onState((state) => states.push(state));
    await c.connect().catch((error: unknown) => expect(error).toBeInstanceOf(NotConnectedError));
    await ended;
    expect([later, ...states]).toEqual([later, "connecting", "open", "idle"]);
    await expect(c.listSessions()).rejects.toBeInstanceOf(NotConnectedError);
  }
});

test("why a connection failed is not said of a later one", async () => {
  let token = "wrong\n\ntoken";
  const c = connect({ token: () => token, autoConnect: false });
  await expect(c.connect()).rejects.toMatchObject({ reason: "headers" });
  token = "right";
  await c.connect();
  await c.disconnect();
  const error = await c.newSession({ cwd: "/tmp" }).catch((e: unknown) => e);
  expect(error).toBeInstanceOf(NotConnectedError);
  expect(error).not.toHaveProperty("cause");
});

test("an agent that is not there", async () => {
  const c = connect({ agent: "nobody" });
  await expect(c.newSession({ cwd: "/tmp" })).rejects.toBeInstanceOf(ProblemError);
  await c.disconnect();
});

test("a turn has catch and finally, as promises have, and no rejection is left over", async () => {
  const left: unknown[] = [];
  const note = (reason: unknown) => void left.push(reason);
  process.on("unhandledRejection", note);
  try {
    await using c = connect();
    const session = await c.newSession({ cwd: "/tmp" });
    let ended = 0;
    const end = () => void ended++;
    const result = await session.prompt("echo for a promise").catch(() => "not reached").finally(end);
    expect(result).toMatchObject({ text: "for a promise", stopReason: "end_turn" });
    expect(ended).toBe(1);
    await expect(session.prompt("crash").finally(end)).rejects.toBeInstanceOf(AcpRpcError);
    expect(ended).toBe(2);
    expect(await session.prompt("crash").finally(end).catch((error: unknown) => error)).toBeInstanceOf(AcpRpcError);
    expect(await session.prompt("crash").catch((error: unknown) => error)).toBeInstanceOf(AcpRpcError);
    // One that goes on by itself, and whose error somebody takes later.
    const later = session.prompt("crash").finally(end);
    await expect(later).rejects.toThrow();
    expect(ended).toBe(4);
    await new Promise((turn) => setImmediate(turn)); // when rejections that nobody took are told
    expect(left).toEqual([]);
  } finally {
    process.off("unhandledRejection", note);
  }
});

describe.each(variants)("version $acpVersion, $agent, $transport", (options) => {
  test("a turn is awaited, iterated, or both", async () => {
    await using c = connect<AcpVersion>(options);
    const session = await c.newSession({ cwd: "/tmp" });
    expect(session.agent).toBe(options.agent);
    expect(await session.prompt("echo one")).toMatchObject({ stopReason: "end_turn", text: "one" });
    const turn = session.prompt("stream 2000 10");
    const updates: Acp<AcpVersion, "SessionUpdate">[] = [];
    for await (const update of turn) updates.push(update);
    const { text } = await turn;
    expect(updates.filter((u) => u.sessionUpdate === "agent_message_chunk")).toHaveLength(2000);
    expect(text).toBe(textOf(updates));
    // Iterated late: what came meanwhile was kept.
    const late = session.prompt("stream 50 10");
    await late;
    let n = 0;
    for await (const update of late) n += update.sessionUpdate === "agent_message_chunk" ? 1 : 0;
    expect(n).toBe(50);
    // Two turns at once wait for each other, and each gets its own updates.
    const [a, b] = await Promise.all([session.prompt("echo first"), session.prompt("echo second")]);
    expect([a.text, b.text]).toEqual(["first", "second"]);
  });

  test("cancel by method, by turn and by signal", async () => {
    await using c = connect<AcpVersion>(options);
    const session = await c.newSession({ cwd: "/tmp" });
    const one = session.prompt("slow");
    await session.cancel();
    expect((await one).stopReason).toBe("cancelled");
    // Those that wait behind it end too.
    const queued = [session.prompt("slow"), session.prompt("echo never"), session.prompt("echo never")];
    await session.cancel();
    expect((await Promise.all(queued)).map((r) => r.stopReason)).toEqual(["cancelled", "cancelled", "cancelled"]);
    const two = session.prompt("slow");
    for await (const _ of two) {
      await two.cancel();
      break;
    }
    expect((await two).stopReason).toBe("cancelled");
    const controller = new AbortController();
    const three = session.prompt("slow", { signal: controller.signal });
    setTimeout(() => controller.abort(), 50);
    expect((await three).stopReason).toBe("cancelled");
    const dead = session.prompt("crash");
    await expect(dead).rejects.toMatchObject({ name: "AcpRpcError", data: { exitCode: 3 } });
  });

  test("permissions and questions, answered while the prompt is pending", async () => {
    await using c = connect<AcpVersion>(options);
    const session = await c.newSession({ cwd: "/tmp" });
    const asked: string[] = [];
    c.onPermission((request) => {
      asked.push(request.sessionId);
      return "allow_once";
    });
    expect((await session.prompt("permission")).stopReason).toBe("end_turn");
    expect(asked).toEqual([session.id]);
    c.onQuestion((request) => ({ outcome: "answered", answers: request.questions.map((q) => [q.options[0]?.label ?? "none"]) }));
    const { text } = await session.prompt("question 2");
    expect(text).not.toBe("");
    // Without a handler here another client's answer counts.
    const off = c.onPermission(() => undefined);
    await using other = connect<AcpVersion>(options);
    other.onPermission(() => "allow_once");
    await other.resumeSession({ sessionId: session.id });
    expect((await session.prompt("permission")).stopReason).toBe("end_turn");
    off();
    // A handler that is set later gets what waits.
    await other.disconnect();
    const turn = session.prompt("permission");
    await expect.poll(async () => (await c.pendingRequests(session.id)).pending).toHaveLength(1);
    c.onPermission(() => "allow_once");
    expect((await turn).stopReason).toBe("end_turn");
  });
});

test("every method of a session", async () => {
  await using c = connect();
  const session = await c.newSession({ cwd: "/tmp", title: "My session", requestedSessionId: `mine-${Date.now()}`, mode: "no-such-mode", skills: { paths: ["/nowhere"] } });
  expect(session.id).toMatch(/^mine-/);
  expect(session.unsupported.map((u) => u.field)).toContain("mode");
  await session.prompt("echo hi");
  await c.setMetadata(session.id, { ticket: 17 });
  expect(await c.getSession(session.id)).toMatchObject({ sessionId: session.id, title: "My session", metadata: { ticket: 17 }, agent: "mock", cwd: "/tmp" });
  await c.setTitle(session.id, "Renamed");
  expect(await c.getSession(session.id)).toMatchObject({ title: "Renamed", metadata: { ticket: 17 } });
  const { events } = await c.getEvents(session.id, { limit: 500 });
  expect(events.length).toBeGreaterThan(2);
  expect(events[0]?.seq).toBe(1);
  expect((await c.listSessions()).sessions.map((s) => s.sessionId)).toContain(session.id);
  expect((await c.listModels({ sessionId: session.id })).availableModels).toBeInstanceOf(Array);
  const [option] = session.configOptions;
  if (option && "options" in option) {
    const values = option.options.flatMap((o) => ("value" in o ? [o.value] : o.options.map((i) => i.value)));
    await session.setConfigOption(option.id, values.at(-1) ?? "");
  }
  const modes = session.result.modes?.availableModes ?? [];
  if (modes.length > 0) await session.setMode(modes.at(-1)?.id ?? "");

  // Another client loads it: the conversation comes before loadSession resolves.
  await using other = connect();
  const seen: SessionUpdate[] = [];
  other.onUpdate(({ sessionId, update }) => void (sessionId === session.id && seen.push(update)));
  const loaded = await other.loadSession({ sessionId: session.id });
  expect(seen.map((u) => u.sessionUpdate)).toEqual(expect.arrayContaining(["user_message_chunk", "agent_message_chunk"]));
  expect(textOf(seen)).toBe("hi");
  // It sees the first one's next turn, and how it ended.
  const ended = new Promise((resolve) => other.onTurnEnded(resolve));
  await session.prompt("echo again");
  expect(await ended).toMatchObject({ sessionId: session.id, result: { stopReason: "end_turn" } });
  expect(textOf(seen)).toBe("hiagain");
  // After a detach it sees nothing.
  await other.detachSession(session.id);
  await session.prompt("echo unseen");
  expect(textOf(seen)).toBe("hiagain");
  expect(loaded.id).toBe(session.id);

  await session.close();
  const again = await c.resumeSession({ sessionId: session.id });
  expect((await again.prompt("echo back")).text).toBe("back");
  const gone = new Promise((resolve) => c.onSessionEnded(resolve));
  expect(await c.terminateSession(session.id)).toMatchObject({ terminated: true });
  expect(await gone).toMatchObject({ sessionId: session.id });
  await c.deleteSession(session.id);
  await expect(c.getSession(session.id)).rejects.toBeInstanceOf(AcpRpcError);
  await expect(c.forkSession({ sessionId: session.id })).rejects.toBeInstanceOf(Error);
  await expect(c.authenticate({ methodId: "none" })).rejects.toBeInstanceOf(AcpRpcError);
  await expect(c.request("no/such", {})).rejects.toMatchObject({ code: -32601 });
});

test("every request can be aborted, before and while it is under way", async () => {
  const aborted = AbortSignal.abort(new Error("enough"));
  await using c = connect();
  const session = await c.newSession({ cwd: "/tmp" });
  await expect(c.newSession({ cwd: "/tmp" }, { signal: aborted })).rejects.toThrow("enough");
  await expect(c.getSession(session.id, { signal: aborted })).rejects.toThrow("enough");
  const far = new SandboxAgentClient({ baseUrl: "http://127.0.0.1:9", retry: { giveUpAfterMs: 5000 } });
  const controller = new AbortController();
  const waiting = far.listSessions({}, { signal: controller.signal });
  controller.abort(new Error("too slow"));
  await expect(waiting).rejects.toThrow("too slow");
  await far.disconnect();
  // The connection is none the worse.
  expect((await session.prompt("echo fine")).text).toBe("fine");
});

test("two that iterate one turn share its updates", async () => {
  await using c = connect();
  const turn = (await c.newSession({ cwd: "/tmp" })).prompt("stream 50 5");
  let seen = 0;
  await Promise.all([1, 2].map(async () => {
    for await (const update of turn) if (update.sessionUpdate === "agent_message_chunk") seen++;
  }));
  expect(seen).toBe(50);
});

test("unparsed output of an agent is told of, and harms nothing", async () => {
  await using c = connect();
  const unparsed = new Promise((resolve) => c.onUnparsed(resolve));
  const session = await c.newSession({ cwd: "/tmp" });
  await session.prompt("garbage");
  expect(await unparsed).toMatchObject({ error: expect.any(String), rawHash: expect.any(String) });
});

test.each([1, 2] as const)("updates of an agent that are none harm nothing, in version %i", async (acpVersion) => {
  const odd = await Gateway.startWith((home) => {
    const script = join(home, "odd.mjs");
    writeFileSync(script, `
      import { createInterface } from "node:readline";
      const send = (message) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\\n");
      const chunk = (content) => ({ update: { sessionUpdate: "agent_message_chunk", content } });
      const updates = [{}, { update: null }, { update: "x" }, { update: {} }, { update: { sessionUpdate: 5 } }, chunk("x"), chunk(null), chunk([null]), chunk({ type: "text" }), chunk({ type: "text", text: "fine" })];
      for await (const line of createInterface({ input: process.stdin })) {
        const { id, method, params } = JSON.parse(line);
        if (method === "session/prompt") for (const update of updates) send({ method: "session/update", params: { sessionId: params.sessionId, ...update } });
        if (id !== undefined) send({ id, result: method === "initialize" ? { protocolVersion: 1, agentCapabilities: {} } : method === "session/new" ? { sessionId: "odd" } : { stopReason: "end_turn" } });
      }
    `);
    mkdirSync(join(home, "data"));
    writeFileSync(join(home, "data", "agents.toml"), `[agents.odd]\ncommand = ${JSON.stringify(process.execPath)}\nargs = ${JSON.stringify([script])}\n`);
  });
  await using c = connect({ baseUrl: odd.url, agent: "odd", acpVersion });
  const states: string[] = [];
  const session = await c.newSession({ cwd: "/tmp" });
  c.onState((state) => states.push(state));
  expect((await session.prompt("x")).text).toBe("fine");
  expect((await session.prompt("again")).text).toBe("fine");
  expect(states).toEqual([]);
  await odd.stop();
});

test("how the MCP servers of a session are is told as it changes, and to who asks", async () => {
  await using c = connect();
  const told: string[][] = [];
  c.onMcpServers(({ servers }) => told.push(servers.map((s) => `${s.name} ${s.state} ${s.source}`)));
  const session = await c.newSession({ cwd: "/tmp", mcpServers: [{ name: "files", command: "files-mcp", args: [], env: [] }] });
  await session.prompt("mcp");
  const now = ["files ready session", "broken failed agent", "issues needs_login agent"];
  expect(told).toEqual([["files connecting session", "broken connecting agent"], now]);
  const { mcpServers = [] } = await c.api.session(session.id);
  expect(mcpServers.map((s) => `${s.name} ${s.state} ${s.source}`)).toEqual(now);
  expect(mcpServers[0]).toMatchObject({ transport: "stdio", tools: [{ name: "read", description: "Reads a file" }, { name: "find" }] });
  expect(mcpServers[1]!.error).toBe("no such program: broken-mcp");
});

test("what was always allowed is listed, and taken back for all clients", async () => {
  await using c = connect();
  await using other = connect();
  let asked = 0;
  c.onPermission(() => (asked++, "allow_always"));
  const session = await c.newSession({ cwd: "/tmp" });
  await other.resumeSession({ sessionId: session.id, cwd: "/tmp" });
  const told: unknown[] = [];
  other.onUpdate(({ update }) => void (update.sessionUpdate === "session_info_update" && told.push(...((update._meta?.["sandboxagent.dev"] as { permissionsForgotten?: { title: string }[] } | undefined)?.permissionsForgotten ?? []).map(({ title }) => title))));
  for (const text of ["permission: allow_always", "permission: allowed before"]) expect((await session.prompt("permission")).text).toBe(text);
  const [permission] = await other.api.sessionPermissions(session.id);
  expect(permission).toMatchObject({ title: "Edit notes.txt", kind: "edit", where: "session", revocable: true });
  const turn = session.prompt("slow");
  await expect.poll(async () => (await c.api.session(session.id)).state).toBe("running");
  await expect(c.api.forgetPermissions(session.id, permission!.id)).rejects.toMatchObject({ status: 409 });
  await session.cancel();
  await turn;
  expect(await c.api.forgetPermissions(session.id, permission!.id)).toEqual([permission]);
  await expect(c.api.forgetPermissions(session.id, permission!.id)).rejects.toMatchObject({ status: 404 });
  expect((await session.prompt("permission")).text).toBe("permission: allow_always");
  expect([asked, told]).toEqual([2, ["Edit notes.txt"]]);
  expect((await other.api.forgetPermissions(session.id)).length).toBe(1);
  expect(await c.api.sessionPermissions(session.id)).toEqual([]);
});

test("agents, health and an installation that is not needed", async () => {
  await using c = connect({ autoConnect: false });
  expect(await c.health()).toEqual({ status: "ok" });
  expect(await c.metrics()).toMatch(/^sandbox_agent_build_info\{.*\} 1$/m);
  expect((await c.agents()).map((a) => a.id)).toContain("mock");
  expect(await c.api.agent("mock")).toMatchObject({ installed: true });
  await expect(c.api.agent("nobody")).rejects.toMatchObject({ name: "ProblemError", status: 404 });
  expect((await c.api.version()).protocolVersion).toBe(1);
  expect((await c.api.doctor("mock")).checks.length).toBeGreaterThan(0);
  await expect(c.installAgent("nobody", {}, { onProgress: () => {} })).rejects.toBeInstanceOf(ProblemError);
  expect(await c.installAgent("mock", {}, { onProgress: () => {} })).toMatchObject({ agent: "mock", already: true });
  const steps: string[] = [];
  const failed = await c.installAgent("opencode", { agentVersion: "0.0.9999", sources: ["npm"] }, { onProgress: (p) => steps.push(p.step) }).catch((e: unknown) => e);
  expect(failed).toMatchObject({ name: "ProblemError", type: expect.stringMatching(/:(install_failed|invalid_request)$/) });
  expect(steps).toContain("resolve");
});

test("a session travels", async () => {
  await using c = connect();
  const session = await c.newSession({ cwd: "/tmp" });
  await session.prompt("echo the word is heron");
  const file = await new Response(await c.api.exportSession(session.id, { redact: ["her.n"] })).arrayBuffer();
  await expect(c.api.importSession(file)).rejects.toThrow("here already");
  await c.deleteSession(session.id);
  const imported = await c.api.importSession(file, { cwd: "/", trust: true });
  expect(imported.session).toMatchObject({ sessionId: session.id, cwd: "/", state: "dormant" });
  expect(await c.api.sessionTranscript(session.id)).toContain("the word is [removed]");
  await c.deleteSession(session.id);
  expect((await c.api.importSession(file, { closed: true })).session.state).toBe("closed");
  expect((await c.api.importSession(file, { closed: true, replace: true })).session.state).toBe("closed");
});

test("the agent's own traffic is recorded for who asks", async () => {
  await using c = connect();
  const session = await c.newSession({ cwd: "/tmp", includeRaw: true });
  await session.prompt("echo the word is heron");
  const lines = (await c.api.sessionRaw(session.id)).trimEnd().split("\n").map((line) => JSON.parse(line) as { from: string; line: string });
  expect(lines.some(({ from, line }) => from === "gateway" && line.includes("the word is heron"))).toBe(true);
  expect(lines.at(-1)?.from).toBe("agent");
  const other = await c.newSession({ cwd: "/tmp" });
  await expect(c.api.sessionRaw(other.id)).rejects.toThrow("nothing was recorded");
});

test("the list of sessions is followed from a position, searched and sorted", async () => {
  await using c = connect();
  const session = await c.newSession({ cwd: "/tmp" });
  const { position } = await c.api.sessions();
  const kinds: string[] = [];
  const changes = c.api.followSessions(position);
  const seen = async (is: (change: SessionChange) => boolean): Promise<SessionChange> => {
    for (;;) {
      const { value, done } = await changes.next();
      if (done) throw new Error(`the changes ended behind ${kinds.join(", ")}`);
      kinds.push(value.type);
      if (is(value)) return value;
    }
  };
  await seen((change) => change.type === "current");
  expect(kinds).not.toContain("reset");
  await session.prompt("echo a Follower of lists");
  const change = await seen(({ session: info }) => info?.sessionId === session.id && info.gist === "echo a Follower of lists" && info.state === "idle");
  expect((await c.api.sessions({ q: "follower OF", state: ["idle"], sort: "created" })).sessions.map((s) => s.sessionId)).toEqual([session.id]);
  await c.deleteSession(session.id);
  await seen(({ type, sessionId }) => type === "deleted" && sessionId === session.id);
  await changes.return();
  // Sessions of the tests before may still change; the first word about this one is its end.
  for await (const next of c.api.followSessions(change.position)) {
    if (next.sessionId !== session.id) continue;
    expect(next.type).toBe("deleted");
    break;
  }
});

test.each(variants)("a turn that waits behind another client's has nothing of that: version $acpVersion, $agent, $transport", async (options) => {
  await using other = connect({ agent: options.agent });
  await using c = connect(options as Partial<SandboxAgentClientOptions<AcpVersion>>);
  let answer!: (option: string) => void;
  const asked = new Promise<void>((shown) => other.onPermission(() => {
    shown();
    return new Promise<string>((resolve) => (answer = resolve));
  }));
  const theirs = await other.newSession({ cwd: "/tmp" });
  const first = theirs.prompt("permission");
  await asked;
  const session = await c.resumeSession({ sessionId: theirs.id, cwd: "/tmp" });
  const turn = session.prompt("echo mine");
  const between = theirs.prompt("echo between");
  answer("allow_once");
  const updates: Acp<AcpVersion, "SessionUpdate">[] = [];
  for await (const update of turn) updates.push(update);
  expect([textOf(updates), (await turn).text, updates.filter((u) => u.sessionUpdate === "tool_call_update")]).toEqual(["mine", "mine", []]);
  expect([(await first).stopReason, (await between).text]).toEqual(["end_turn", "between"]);
});

test.each(variants)("a session that is loaded with another client's prompts has turns of its own: version $acpVersion, $agent, $transport", async (options) => {
  await using other = connect({ agent: options.agent });
  const { id } = await other.newSession({ cwd: "/tmp" });
  await other.prompt({ sessionId: id, prompt: "echo before" });
  for (const leaves of [false, true]) {
    if (leaves) await other.disconnect();
    await using c = connect(options as Partial<SandboxAgentClientOptions<AcpVersion>>);
    const session = await c.loadSession({ sessionId: id, cwd: "/tmp" });
    expect((await session.prompt("echo mine")).text).toBe("mine");
  }
});

// The newest event is the request, which is no update.
test.each(variants)("a session is opened while its agent waits for an answer: version $acpVersion, $agent, $transport", async (options) => {
  await using other = connect({ agent: options.agent });
  const { id } = await other.newSession({ cwd: "/tmp" });
  const turn = other.prompt({ sessionId: id, prompt: "permission" });
  await expect.poll(async () => (await other.api.session(id)).state).toBe("waiting");
  for (const open of ["loadSession", "resumeSession", "loadSession"] as const) {
    await using c = connect(options as Partial<SandboxAgentClientOptions<AcpVersion>>);
    const asked = new Promise<void>((shown) => c.onPermission(() => void shown()));
    await c[open]({ sessionId: id, cwd: "/tmp" });
    await asked;
  }
  other.onPermission(() => "allow_once");
  expect((await turn).stopReason).toBe("end_turn");
});

// The answer that opens a session may come behind what happens then, which it does not know of.
describe.each(["loadSession", "resumeSession"] as const)("what happens before the answer to %s comes", (open) => {
  /** Opens a session whose answer, which comes on the connection's own stream, is held back until `meanwhile` is over. */
  async function opened(id: string, meanwhile: (seen: (words: string) => Promise<void>) => Promise<unknown>) {
    let letGo!: () => void;
    let hold: Promise<void> | undefined;
    const slowly: typeof globalThis.fetch = async (input, init) => {
      const response = await fetch(input, init);
      const headers = new Headers(init?.headers);
      if (headers.get("Accept") !== "text/event-stream" || headers.has("Acp-Session-Id")) return response;
      const held = new TransformStream<Uint8Array, Uint8Array>({ transform: async (chunk, out) => (await hold, out.enqueue(chunk)) });
      return new Response(response.body?.pipeThrough(held), response);
    };
    const c = connect({ fetch: slowly });
    await c.initialized();
    hold = new Promise((resolve) => (letGo = resolve));
    const seen: string[] = [];
    c.onUpdate((shown) => void seen.push(JSON.stringify(shown)));
    c.onTurnEnded((ended) => void seen.push(JSON.stringify(ended)));
    const session = c[open]({ sessionId: id, cwd: "/tmp" });
    await expect.poll(async () => (await c.api.session(id)).clients).toBe(2);
    await meanwhile((words) => expect.poll(() => seen.join("\n")).toContain(words));
    letGo();
    return { c, session: await session };
  }

  /** A session with a turn behind it, of a client that is asked something in the next. */
  async function begun() {
    const other = connect();
    const theirs = await other.newSession({ cwd: "/tmp" });
    await theirs.prompt("echo before");
    const ask = async () => {
      const asked = new Promise<(option: string) => void>((shown) => void other.onPermission(() => new Promise((resolve) => shown(resolve))));
      const turn = theirs.prompt("permission");
      return { turn, answer: await asked };
    };
    return { other, theirs, ask };
  }

  test("another client's turn begins", async () => {
    const { other, theirs, ask } = await begun();
    let asked!: Awaited<ReturnType<typeof ask>>;
    const { c, session } = await opened(theirs.id, async (seen) => {
      asked = await ask();
      await seen("Edit notes.txt");
    });
    const turn = session.prompt("echo mine");
    asked.answer("allow_once");
    const updates: SessionUpdate[] = [];
    for await (const update of turn) updates.push(update);
    expect([textOf(updates), updates.filter((u) => u.sessionUpdate === "tool_call_update")]).toEqual(["mine", []]);
    await asked.turn;
    await Promise.all([c.disconnect(), other.disconnect()]);
  });

  test("another client's turn ends", async () => {
    const { other, theirs, ask } = await begun();
    const asked = await ask();
    const { c, session } = await opened(theirs.id, async (seen) => {
      asked.answer("allow_once");
      await seen("end_turn");
    });
    let answer!: (option: string) => void;
    c.onPermission(() => new Promise((resolve) => (answer = resolve)));
    other.onPermission(() => undefined);
    const turn = session.prompt("permission");
    for await (const update of turn) {
      expect(update.sessionUpdate).toBe("tool_call");
      break; // it is shown before the end
    }
    await expect.poll(() => answer).toBeDefined();
    answer("allow_once");
    expect((await turn).stopReason).toBe("end_turn");
    await Promise.all([c.disconnect(), other.disconnect()]);
  });
});

test.each([{}, { signal: new AbortController().signal }])("a prompt is sent behind what was set before it, with the options %j", async (options) => {
  const sent: string[] = [];
  await using c = connect({ onEnvelope: ({ direction, message }) => void (direction === "sent" && "method" in message && sent.push(message.method)) });
  const session = await c.newSession({ cwd: "/tmp" });
  sent.length = 0;
  const set = ["plan", "default"].map((mode) => c.setSessionMode(session.id, mode, options).catch(() => {}));
  await session.prompt("echo hi");
  await Promise.all(set);
  await Promise.all([c.setTitle(session.id, "Title", options), session.prompt("echo hi")]);
  expect(sent).toEqual(["session/set_mode", "session/set_mode", "session/prompt", "_sandboxagent/session/set_metadata", "session/prompt"]);
});
