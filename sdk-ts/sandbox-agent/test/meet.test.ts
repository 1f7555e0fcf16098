// What a program loses, or is told wrongly, where two events meet: it opens a session that it has open, its connection breaks, others act meanwhile.
import { AcpRpcError, SandboxAgentClient, TurnInterruptedError, type ProblemError, type Session } from "sandbox-agent";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebSocket } from "ws";
import { forgets, Gateway, sayMuch } from "../../test/gateway.js";
import { Proxy } from "../../test/proxy.js";

let gateway: Gateway;
beforeAll(async () => void (gateway = await Gateway.startWithBoth()));
afterAll(() => gateway.stop());

const variants = [
  { acpVersion: 1, agent: "mock", transport: "http" },
  { acpVersion: 1, agent: "mock", transport: "inline" },
  { acpVersion: 1, agent: "mock", transport: "websocket", WebSocket: WebSocket as never },
  { acpVersion: 2, agent: "mock", transport: "http" },
  { acpVersion: 2, agent: "mock2", transport: "websocket", WebSocket: WebSocket as never },
] as const;

/** A client whose connection can be cut. */
async function cuttable(options: (typeof variants)[number], at = gateway, sent: (method: string) => void = () => {}) {
  const proxy = await Proxy.to(at.port);
  const client: SandboxAgentClient<1 | 2> = new SandboxAgentClient<1 | 2>({
    baseUrl: proxy.url, ...options, retry: { firstDelayMs: 1, maxDelayMs: 20 },
    onEnvelope: ({ direction, message }) => direction === "sent" && "method" in message && sent(message.method),
  });
  return {
    proxy, client,
    async [Symbol.asyncDispose]() {
      await client[Symbol.asyncDispose]();
      await proxy.stop();
    },
  };
}

/** Has the client notice that its connection is lost; the next one is refused until what is to be `meanwhile` is. */
async function lost({ client, proxy }: Awaited<ReturnType<typeof cuttable>>, meanwhile = async () => {}): Promise<void> {
  // Over HTTP a request can be answered before the client knows that it is connected again.
  while (client.state === "reconnecting") await new Promise<void>((changed) => void client.onState(() => changed()));
  const noticed = new Promise<void>((resolve) => void client.onState((state) => state === "reconnecting" && resolve()));
  proxy.refusing = true;
  proxy.cut();
  await noticed;
  await meanwhile();
  proxy.refusing = false;
}

/** What the agent says in a session, as it comes. */
function heard(session: Session<1 | 2>): string[] {
  const said: string[] = [];
  session.onUpdate((u) => {
    if (u.sessionUpdate === "agent_message_chunk" && !Array.isArray(u.content)) said.push((u.content as { text: string }).text);
  });
  return said;
}

describe.each(variants)("version $acpVersion, $agent, $transport", (options) => {
  test.each(["load", "resume"] as const)("a session that is open, with a turn: %s", async (how) => {
    await using c = await cuttable(options);
    const session = await c.client.newSession({ cwd: "/tmp" });
    await session.prompt("echo before");
    const said = heard(session);
    const turn = session.prompt("stream 2000 2000");
    for await (const u of turn) if (u.sessionUpdate === "agent_message_chunk") break;
    const at = said.length;
    await (how === "load" ? c.client.loadSession({ sessionId: session.id, cwd: "/tmp" }) : c.client.resumeSession({ sessionId: session.id, cwd: "/tmp" }));
    const { text } = await turn;
    const all = (how === "load" ? said.slice(said.lastIndexOf("before") + 1) : said).join("");
    if (how === "load") expect(said.lastIndexOf("before")).toBeGreaterThanOrEqual(at);
    expect(all.length).toBe(2000 * 2000);
    expect(text.length).toBe(all.length);
    expect(text === all).toBe(true);
  });

  test("a session that was open before the client connected anew", async () => {
    await using c = await cuttable(options);
    const session = await c.client.newSession({ cwd: "/tmp" });
    await session.prompt("echo before");
    await c.client.disconnect();
    await c.client.connect();
    const said = heard(session);
    const turn = session.prompt("stream 1000 2000");
    for await (const u of turn) if (u.sessionUpdate === "agent_message_chunk") break;
    c.proxy.cut();
    expect((await turn).text.length).toBe(1000 * 2000);
    expect(said.join("").length).toBe(1000 * 2000);
    const permission = session.prompt("permission");
    const asked = new Promise<void>((resolve) => void c.client.onPermission(() => (resolve(), undefined)));
    await asked;
    c.proxy.cut();
    await permission.cancel();
    expect((await permission).stopReason).toBe("cancelled");
  });

  test("a cancel whose connection breaks while it waits behind a large prompt", async () => {
    let sent!: () => void;
    const prompted = new Promise<void>((resolve) => (sent = resolve));
    await using c = await cuttable(options, gateway, (method) => method === "session/prompt" && sent());
    const session = await c.client.newSession({ cwd: "/tmp" });
    const abort = new AbortController();
    const turn = session.prompt([{ type: "image", mimeType: "image/png", data: "A".repeat(16 << 20) }, { type: "text", text: "permission" }] as never, { signal: abort.signal });
    await prompted;
    abort.abort();
    await new Promise(setImmediate); // it is written
    c.proxy.cut();
    expect((await turn).stopReason).toBe("cancelled");
  });

  test("the end of a turn that is no longer kept when the client is back", async () => {
    const own = await Gateway.startWithBoth(forgets);
    {
      await using c = await cuttable(options, own);
      await using other = new SandboxAgentClient({ baseUrl: own.url, agent: "mock" });
      const session = await c.client.newSession({ cwd: "/tmp" });
      const theirs = await other.resumeSession({ sessionId: session.id });
      const turn = session.prompt("slow");
      for await (const u of turn) if (u.sessionUpdate === "agent_message_chunk") break;
      c.proxy.refusing = true;
      c.proxy.cut();
      await other.cancel(session.id);
      await sayMuch(theirs);
      c.proxy.refusing = false;
      // That is the answer of HTTP, which has waited; elsewhere nobody knows how it ended, and nobody says that it was interrupted.
      const end = await turn.then(({ stopReason }) => stopReason, (error: unknown) => String((error as ProblemError).type));
      expect(["cancelled", "urn:sandbox-agent:error:events_expired"]).toContain(end);
    }
    await own.stop();
  });

  test("a turn that was lost with its gateway, and another client's that runs when the client is back", async () => {
    const own = await Gateway.startWithBoth();
    {
      await using c = await cuttable(options, own);
      const session = await c.client.newSession({ cwd: "/tmp" });
      const turn = session.prompt("slow");
      for await (const u of turn) if (u.sessionUpdate === "agent_message_chunk") break;
      c.proxy.refusing = true;
      await own.kill("SIGKILL");
      await own.restart();
      await using other = new SandboxAgentClient({ baseUrl: own.url, agent: "mock" });
      const theirs = await other.resumeSession({ sessionId: session.id });
      const asked = new Promise<void>((resolve) => void other.onPermission(() => (resolve(), undefined)));
      const next = theirs.prompt("permission");
      await asked;
      c.proxy.refusing = false;
      await expect(turn).rejects.toBeInstanceOf(TurnInterruptedError);
      await next.cancel();
      expect((await next).stopReason).toBe("cancelled");
      expect((await session.prompt("echo on")).text).toBe("on");
    }
    await own.stop();
  });

  test.each(["delete", "close", "terminate"] as const)("another client's %s while there is no connection", async (how) => {
    await using c = await cuttable(options);
    await using other = new SandboxAgentClient({ baseUrl: gateway.url, agent: "mock" });
    const session = await c.client.newSession({ cwd: "/tmp" });
    await session.prompt("echo before");
    const told = new Promise<string>((resolve) => void c.client.onSessionEnded(({ data }) => resolve(String(data.reason))));
    c.proxy.refusing = true;
    c.proxy.cut();
    await other[`${how}Session`](session.id);
    c.proxy.refusing = false;
    expect(await told).toBe({ delete: "deleted", close: "closed", terminate: "terminated" }[how]);
    if (how !== "delete") expect((await other.getSession(session.id)).state).toBe(how === "close" ? "closed" : "ended");
  });

  test("a session that is loaded while the client connects anew", async () => {
    await using c = await cuttable(options);
    const session = await c.client.newSession({ cwd: "/tmp" });
    await session.prompt("echo before");
    const said = heard(session);
    await lost(c);
    await c.client.loadSession({ sessionId: session.id, cwd: "/tmp" });
    expect((await session.prompt("echo after")).text).toBe("after");
    expect(said).toEqual(["before", "after"]);
  });

  test("what was said behind an older event comes again when the session is resumed there while the client connects anew", async () => {
    await using c = await cuttable(options);
    const session = await c.client.newSession({ cwd: "/tmp" });
    await session.prompt("echo one");
    const after = (await c.client.getSession(session.id)).eventCount;
    await session.prompt("echo two");
    const said = heard(session);
    await lost(c);
    await c.client.resumeSession({ sessionId: session.id, cwd: "/tmp", after });
    expect((await session.prompt("echo three")).text).toBe("three");
    expect(said).toEqual(["two", "three"]);
  });

  test.each(["close", "terminate"] as const)("another client's %s is told once, however often the connection breaks", async (how) => {
    await using c = await cuttable(options);
    await using other = new SandboxAgentClient({ baseUrl: gateway.url, agent: "mock" });
    const session = await c.client.newSession({ cwd: "/tmp" });
    await session.prompt("echo before");
    const told: string[] = [];
    const first = new Promise<void>((resolve) => void c.client.onSessionEnded(({ data }) => (told.push(String(data.reason)), resolve())));
    await other[`${how}Session`](session.id);
    await first;
    for (let i = 0; i < 2; i++) {
      await lost(c);
      await c.client.getSession(session.id); // on the next connection, which is attached by then
    }
    expect(told).toHaveLength(1);
  });

  test("prompts that wait while another client ends their session fail, and it has ended", async () => {
    await using c = await cuttable(options);
    await using other = new SandboxAgentClient({ baseUrl: gateway.url, agent: "mock" });
    const session = await c.client.newSession({ cwd: "/tmp" });
    let turns: Promise<unknown>[] = [];
    await lost(c, async () => {
      turns = ["echo one", "echo two"].map((text) => session.prompt(text).then(() => "it ended", (error: unknown) => error));
      await other.terminateSession(session.id);
    });
    for (const end of await Promise.all(turns)) expect(end).toBeInstanceOf(AcpRpcError);
    expect((await other.getSession(session.id)).state).toBe("ended");
  });

  test("of titles that are given while the connection breaks the last one counts", async () => {
    await using c = await cuttable(options);
    const { id } = await c.client.newSession({ cwd: "/tmp" });
    for (let turns = 0; turns < 12; turns++) {
      const given = [c.client.setTitle(id, `${turns}, first`)];
      c.proxy.cut();
      for (let i = 0; i < turns; i++) await new Promise(setImmediate);
      given.push(c.client.setTitle(id, `${turns}, second`), c.client.setTitle(id, `${turns}, third`));
      await Promise.all(given);
      expect((await c.client.getSession(id)).title).toBe(`${turns}, third`);
    }
  });

  test("the own turns are not told as those of others", async () => {
    await using c = await cuttable(options);
    const session = await c.client.newSession({ cwd: "/tmp" });
    const told: unknown[] = [];
    c.client.onTurnEnded((one) => told.push(one));
    for (let i = 0; i < 5; i++) {
      expect((await session.prompt("echo on")).text).toBe("on");
      c.proxy.cut();
    }
    await session.prompt("echo on");
    const titled = new Promise<void>((resolve) => void c.client.on("session_info_update", () => resolve()));
    await c.client.setTitle(session.id, "behind all that is told");
    await titled;
    expect(told).toEqual([]);
  });
});
