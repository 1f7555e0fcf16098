// What a client does while its gateway is away, when it has given it up, and with what is taken back meanwhile.
import { ProblemError, SandboxAgentClient, type ConnectionState } from "sandbox-agent";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { Gateway } from "../../test/gateway.js";
import { Proxy } from "../../test/proxy.js";
import { variants, ws } from "../../test/variants.js";
import { mayComeBack } from "../src/passing.js";

let gateway: Gateway;
beforeAll(async () => void (gateway = await Gateway.startWithBoth()));
afterAll(() => gateway.stop());

const haste = { firstDelayMs: 1, maxDelayMs: 20 };

/** Waits for a state of a client. */
async function until(client: SandboxAgentClient<1 | 2>, wanted: ConnectionState): Promise<void> {
  if (client.state !== wanted) await new Promise<void>((resolve) => client.onState((state) => state === wanted && resolve()));
}

describe.each(variants)("version $acpVersion, $agent, $transport", (options) => {
  /** A client behind a proxy, and the methods that it has sent. */
  async function away(retry: object = haste) {
    const proxy = await Proxy.to(gateway.port);
    const sent: string[] = [];
    let forgets = false; // the gateway does not know the connection: over HTTP, too, another one is needed
    const client = new SandboxAgentClient<1 | 2>({
      baseUrl: proxy.url, ...options, retry,
      onEnvelope: ({ direction, message }) => void (direction === "sent" && "method" in message && sent.push(message.method)),
      fetch: async (input, init) => (forgets && init?.method === "GET" ? new Response(null, { status: 404 }) : fetch(input, init)),
    });
    const other = new SandboxAgentClient({ baseUrl: gateway.url, agent: "mock" });
    onTestFinished(async () => {
      await client.disconnect();
      await other.disconnect();
      await proxy.stop();
    });
    /** Breaks the network until what is returned is called. Over HTTP the connection lives on, unless the gateway forgets it. */
    const lose = async (forget: boolean) => {
      const lost = new Promise<void>((resolve) => client.onState((state) => state === "reconnecting" && resolve()));
      forgets = forget;
      proxy.refusing = true;
      proxy.cut();
      await lost;
      if (forget && options.transport !== "websocket") await expect.poll(() => sent.filter((method) => method === "initialize").length).toBeGreaterThan(1);
      return () => void (forgets = proxy.refusing = false);
    };
    return { client, other, proxy, sent, lose };
  }

  test("a cancel of a turn that is over ends no other one", async () => {
    const { client, sent } = await away();
    const session = await client.newSession({ cwd: "/tmp" });
    const over = session.prompt("echo one");
    await over;
    const next = session.prompt("stream 50 100");
    await over.cancel();
    expect((await next).stopReason).toBe("end_turn");
    expect(sent).not.toContain("session/cancel");
  });

  test.each(["turn.cancel", "the signal", "session.cancel", "a signal that has aborted before"].flatMap((how) => [true, false].map((forget) => ({ how, forget }))))("a prompt that $how takes back before it was sent is over at once, and never sent: connection lost $forget", async ({ how, forget }) => {
    const { client, sent, lose } = await away();
    const session = await client.newSession({ cwd: "/tmp" });
    const back = await lose(forget);
    const controller = new AbortController();
    if (how.endsWith("before")) controller.abort();
    const turn = session.prompt("run", { signal: controller.signal });
    const behind = session.prompt("run");
    for (let i = 0; i < 10; i++) await new Promise((resolve) => setImmediate(resolve)); // what needs no network is through
    if (how === "the signal") controller.abort();
    const cancelled = how === "session.cancel" ? session.cancel() : how === "turn.cancel" ? turn.cancel() : undefined;
    expect(await turn).toMatchObject({ stopReason: "cancelled", text: "" });
    if (!how.endsWith("before")) expect((await behind).stopReason).toBe("cancelled"); // as those are that wait at the gateway
    back();
    await cancelled;
    await behind;
    expect((await session.prompt("echo on")).text).toBe("on");
    expect(sent.filter((method) => method === "session/prompt")).toHaveLength(how.endsWith("before") ? 2 : 1);
    expect(sent.filter((method) => method === "session/cancel")).toHaveLength(how === "session.cancel" ? 1 : 0);
  });

  test.each([true, false])("what is before a prompt that is taken back goes on: connection lost %s", async (forget) => {
    const { client, sent, lose } = await away();
    const session = await client.newSession({ cwd: "/tmp" });
    const running = session.prompt("stream 50 20");
    await running[Symbol.asyncIterator]().next();
    const back = await lose(forget);
    const before = session.prompt("echo before");
    const turns = ["turn.cancel", "behind"].map((words) => session.prompt(`echo ${words}`));
    await turns[0]!.cancel();
    for (const turn of turns) expect(await turn).toMatchObject({ stopReason: "cancelled", text: "" });
    expect((await session.prompt("echo never", { signal: AbortSignal.abort() })).stopReason).toBe("cancelled");
    back();
    expect((await running).stopReason).toBe("end_turn");
    expect(await before).toMatchObject({ stopReason: "end_turn", text: "before" });
    expect(sent).not.toContain("session/cancel");
  });

  test("a prompt with a signal that has aborted ends no turn that runs", async () => {
    const { client, sent } = await away();
    const session = await client.newSession({ cwd: "/tmp" });
    const running = session.prompt("stream 20 20");
    await running[Symbol.asyncIterator]().next();
    expect((await session.prompt("echo never", { signal: AbortSignal.abort() })).stopReason).toBe("cancelled");
    expect((await running).stopReason).toBe("end_turn");
    expect(sent.filter((method) => method === "session/prompt")).toHaveLength(1);
    expect(sent).not.toContain("session/cancel");
  });

  test("behind a connection that was given up the next one goes on with the sessions, and nothing is missing", async () => {
    const { client, other, proxy } = await away({ ...haste, giveUpAfterMs: 100 });
    const session = await client.newSession({ cwd: "/tmp" });
    const deleted = await client.newSession({ cwd: "/tmp" });
    const said: string[] = [];
    session.onUpdate((u) => void (u.sessionUpdate === "agent_message_chunk" && said.push((u.content as { text: string }).text)));
    const ended = new Promise((resolve) => client.onSessionEnded(({ sessionId, data }) => resolve([sessionId, data.reason])));
    expect((await session.prompt("echo one")).text).toBe("one");
    proxy.refusing = true;
    proxy.cut();
    await until(client, "idle");
    await expect(session.prompt("echo never")).rejects.toThrow("call connect()");
    const theirs = await other.resumeSession({ sessionId: session.id });
    for (const words of ["two", "three"]) await theirs.prompt(`echo ${words}`);
    await other.deleteSession(deleted.id);
    await expect(client.connect()).rejects.toThrow();
    proxy.refusing = false;
    await client.connect();
    expect((await session.prompt("echo four")).text).toBe("four");
    expect(said).toEqual(["one", "two", "three", "four"]);
    expect(await ended).toEqual([deleted.id, "deleted"]);
  });

  test("what was answered before the connection was given up is not asked again", async () => {
    const { client, proxy } = await away({ ...haste, giveUpAfterMs: 100 });
    const session = await client.newSession({ cwd: "/tmp" });
    const said: string[] = [];
    session.onUpdate((u) => void (u.sessionUpdate === "agent_message_chunk" && said.push((u.content as { text: string }).text)));
    let asked = 0;
    client.onPermission(({ options: [option] }) => {
      asked++;
      proxy.refusing = true;
      proxy.cut();
      return option!.optionId;
    });
    await expect(session.prompt("permission")).rejects.toThrow();
    await until(client, "idle");
    proxy.refusing = false;
    await client.connect();
    await expect.poll(() => said).not.toEqual([]);
    await expect.poll(async () => (await client.api.session(session.id)).state).toBe("idle");
    expect(asked).toBe(1);
  });

  test.each(["404", "400", "405", "429", "500"])("a proxy that says %s while the gateway is away ends no client", async (status) => {
    const { client, proxy } = await away();
    const session = await client.newSession({ cwd: "/tmp" });
    const states: string[] = [];
    client.onState((state) => void states.push(state));
    proxy.says = [status, status, status];
    proxy.cut();
    await expect.poll(() => proxy.says).toEqual([]);
    await until(client, "open");
    expect((await session.prompt("echo on")).text).toBe("on");
    expect(states).not.toContain("idle");
  });

  test("a token that a proxy refuses ends the client, whose next connection goes on", async () => {
    const { client, proxy } = await away();
    const session = await client.newSession({ cwd: "/tmp" });
    proxy.says = Array(20).fill("401");
    proxy.cut();
    await until(client, "idle");
    proxy.says = [];
    await client.connect();
    expect((await session.prompt("echo on")).text).toBe("on");
  });
});

test.each([
  [404, "about:blank", true], [403, "about:blank", false], [401, "urn:sandbox-agent:error:token_invalid", false], [404, "urn:sandbox-agent:error:node_not_found", false],
  [429, "urn:sandbox-agent:error:too_many_requests", true], [503, "urn:sandbox-agent:error:unavailable", true], [500, "about:blank", true], [0, "about:blank", true],
] as const)("what is refused with %i and %s may be otherwise in a moment: %s", (status, type, may) => {
  expect(mayComeBack(new ProblemError({ type, title: "no", status }))).toBe(may);
});
