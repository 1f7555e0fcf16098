import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { AcpRpcError, SandboxAgentClient, TurnInterruptedError } from "sandbox-agent";
import { WebSocket } from "ws";
import { forgets, Gateway, sayMuch } from "../../test/gateway.js";
import { Proxy } from "../../test/proxy.js";
import { variants, ws } from "../../test/variants.js";

let gateway: Gateway;
beforeAll(async () => void (gateway = await Gateway.startWithBoth()));
afterAll(() => gateway.stop());

/** A promise, and what settles it. */
function later<T>(): { promise: Promise<T>; resolve(value: T): void } {
  let resolve!: (value: T) => void;
  return { promise: new Promise<T>((r) => (resolve = r)), resolve };
}
const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

describe.each(variants)("version $acpVersion, $agent, $transport", (options) => {
  const most = process.env.SANDBOX_AGENT_LONG ? 400 : 80;
  test("cuts at random moments: every update once, every turn its end, every question its answer", async () => {
    const proxy = await Proxy.to(gateway.port);
    await using c = new SandboxAgentClient({ baseUrl: proxy.url, ...options, retry: { firstDelayMs: 1, maxDelayMs: 20 } });
    c.onPermission(async () => {
      await wait(Math.random() * 10);
      return "allow_once";
    });
    const sessions = await Promise.all([c.newSession({ cwd: "/tmp" }), c.newSession({ cwd: "/tmp" }), c.newSession({ cwd: "/tmp" })]);
    // Then no more: on a slow machine no connection would live until a turn has ended.
    const cutter = (async () => {
      while (proxy.cuts < most) {
        await wait(3 + Math.random() * 20);
        proxy.cut();
      }
    })();
    let turns = 0;
    await Promise.all(sessions.map(async (session) => {
      let all = 0;
      let ends = 0; // told in version 2
      session.onUpdate((u) => {
        if (u.sessionUpdate === "agent_message_chunk") all++;
        if (u.sessionUpdate === "state_update" && "stopReason" in u) ends++;
      });
      let want = 0;
      let mine = 0;
      for (; proxy.cuts < most || turns < 6; turns++) {
        const n = 1 + Math.floor(Math.random() * 200);
        want += n;
        const result = await session.prompt(`stream ${n} 100`);
        expect(result.stopReason).toBe("end_turn");
        expect(all, `turn ${turns} after ${proxy.cuts} cuts`).toBe(want);
        const before = all;
        expect((await session.prompt("permission")).stopReason).toBe("end_turn");
        want += all - before;
        expect(ends % 2, "one end of each turn is told").toBe(0);
        if (options.acpVersion === 2) expect(ends).toBe((mine += 2));
      }
    }));
    await cutter;
    await proxy.stop();
  });

  test("a gateway that is killed in mid-turn: the session goes on with what it had", async () => {
    const own = await Gateway.startWithBoth();
    await using c = new SandboxAgentClient({ baseUrl: own.url, ...options, retry: { firstDelayMs: 10, maxDelayMs: 100 } });
    const states: string[] = [];
    c.onState((s) => states.push(s));
    const session = await c.newSession({ cwd: "/tmp" });
    const numbers: string[] = [];
    session.onUpdate((u) => void (u.sessionUpdate === "agent_message_chunk" && numbers.push((u.content as { text: string }).text)));
    expect((await session.prompt("echo before")).text).toBe("before");
    const turn = session.prompt("slow");
    for await (const u of turn) if (u.sessionUpdate === "agent_message_chunk") break;
    await own.kill("SIGKILL");
    await own.restart();
    await expect(turn).rejects.toBeInstanceOf(TurnInterruptedError);
    expect(states).toContain("reconnecting");
    expect((await session.prompt("echo after")).text).toBe("after");
    // The log has what was shown, once and in order.
    const logged: string[] = [];
    for (let after = 0; ; ) {
      const page = await c.getEvents(session.id, { after, limit: 1000 });
      for (const event of page.events) {
        const message = event.message as { params?: { update?: { sessionUpdate: string; content: { text: string } } } };
        if (message.params?.update?.sessionUpdate === "agent_message_chunk") logged.push(message.params.update.content.text);
        after = event.seq;
      }
      if (!page.hasMore) break;
    }
    expect(numbers).toEqual(logged);
    await own.stop();
  });

  test("a turn that ends while the client is away is found ended", async () => {
    const proxy = await Proxy.to(gateway.port);
    await using c = new SandboxAgentClient({ baseUrl: proxy.url, ...options, retry: { firstDelayMs: 20, maxDelayMs: 50 } });
    const session = await c.newSession({ cwd: "/tmp" });
    const turn = session.prompt("stream 3000 50");
    for await (const _ of turn) break;
    proxy.refusing = true;
    proxy.cut();
    await using direct = new SandboxAgentClient({ baseUrl: gateway.url, agent: "mock" });
    while ((await direct.api.session(session.id)).state === "running") await wait(10);
    proxy.refusing = false;
    const result = await turn;
    expect(result.stopReason).toBe("end_turn");
    const count = result.text.split("\n").length;
    expect(count).toBeGreaterThan(0);
    await proxy.stop();
  });

  test("a session that another client deletes while the end of its turn is on its way", async () => {
    const proxy = await Proxy.to(gateway.port);
    await using c = new SandboxAgentClient({ baseUrl: proxy.url, ...options });
    await using other = new SandboxAgentClient({ baseUrl: gateway.url, agent: "mock" });
    const session = await c.newSession({ cwd: "/tmp" });
    await other.resumeSession({ sessionId: session.id });
    const turnEnded = new Promise((resolve) => other.onTurnEnded(resolve));
    const deleted = new Promise((resolve) => c.onSessionEnded(({ data }) => resolve(data.reason)));
    const begun = later<void>();
    session.onUpdate((u) => void (u.sessionUpdate === "agent_message_chunk" && begun.resolve()));
    const turn = session.prompt("stream 200 100000"); // more than the network keeps
    await begun.promise;
    proxy.hold(true);
    await turnEnded;
    await other.deleteSession(session.id);
    proxy.hold(false);
    // An answer comes all the same; how a turn ended is not told any more.
    const end = await turn.then<unknown, unknown>(({ stopReason }) => stopReason, (error) => (error as { code?: number }).code);
    expect(end).toBe(options.acpVersion === 1 ? "end_turn" : -32002);
    expect(await deleted).toBe("deleted");
    await proxy.stop();
  });
});

/** Clients that know subagents, and the words that start one. */
const subagents = [
  [1, "mock", "subagent"],
  [1, "mock2", "child-permission"],
  [2, "mock", "subagent"],
  [2, "mock2", "child-permission"],
] as const;

test.each([
  ...subagents.map((one) => [...one, /"subagent_update"/] as const), // behind the call, which has the same place
  ...subagents.map((one) => [...one, /"agent_message_chunk".*allow_once/] as const), // behind others of the subagent
])("version %i: a connection that breaks in a subagent of %s (%s, %s) loses no frame, and none comes twice", async (acpVersion, agent, words, where) => {
  const sockets: WebSocket[] = [];
  let cuts = 0;
  class Cut extends WebSocket {
    constructor(...args: ConstructorParameters<typeof WebSocket>) {
      super(...args);
      sockets.push(this);
    }
    override emit(event: string | symbol, ...args: unknown[]): boolean {
      if (event !== "message") return super.emit(event, ...args);
      if (cuts === 0 && where.test(String(args[0]))) {
        cuts++;
        this.terminate();
      }
      return cuts > 0 && this === sockets[0] ? false : super.emit(event, ...args);
    }
  }
  const capabilities = acpVersion === 1 ? { subagents: {} } : {};
  await using c = new SandboxAgentClient({ baseUrl: gateway.url, acpVersion, agent, capabilities, transport: "websocket", WebSocket: Cut as never, retry: { firstDelayMs: 1, maxDelayMs: 20 } });
  await using other = new SandboxAgentClient({ baseUrl: gateway.url, acpVersion, agent, capabilities, transport: "websocket", WebSocket: ws });
  c.onPermission(() => "allow_once");
  const session = await c.newSession({ cwd: "/tmp" });
  await other.resumeSession({ sessionId: session.id, cwd: "/tmp" });
  const both = [c, other].map((client) => {
    const [told, done] = [[] as string[], later<string[]>()];
    client.onUpdate(({ sessionId, update }) => {
      if (update.sessionUpdate === "state_update" || update.sessionUpdate === "user_message_chunk") return; // whose prompt it is knows it
      told.push(JSON.stringify({ sessionId, update }));
      if (told.at(-1)?.includes(" is done.")) done.resolve(told);
    });
    return done.promise;
  });
  await session.prompt(words);
  const [mine, theirs] = await Promise.all(both);
  expect(mine).toEqual(theirs);
  expect([cuts, mine?.some((one) => one.includes('"subagent_update"'))]).toEqual([1, true]);
});

test.each(subagents)("version %i: a request of a subagent of %s that began before the client came is over", async (acpVersion, agent, words) => {
  const proxy = await Proxy.to(gateway.port);
  const options = { acpVersion, agent, capabilities: acpVersion === 1 ? { subagents: {} } : {}, transport: "websocket", WebSocket: ws } as const;
  await using owner = new SandboxAgentClient({ baseUrl: gateway.url, ...options });
  await using c = new SandboxAgentClient({ baseUrl: proxy.url, ...options, retry: { firstDelayMs: 1, maxDelayMs: 20 } });
  const theirs = later<string>();
  const answer = later<"allow_once">();
  owner.onPermission((request) => {
    theirs.resolve(request.sessionId);
    return answer.promise;
  });
  const mine = later<string>();
  const over = later<void>();
  c.onPermission((request, { signal }) => {
    mine.resolve(request.sessionId);
    return new Promise((resolve) => signal.addEventListener("abort", () => (over.resolve(), resolve("allow_once"))));
  });
  const session = await owner.newSession({ cwd: "/tmp" });
  const turn = session.prompt(words);
  const child = await theirs.promise;
  await c.resumeSession({ sessionId: session.id, cwd: "/tmp" });
  expect([await mine.promise, child === session.id]).toEqual([child, false]);
  proxy.refusing = true;
  proxy.cut();
  answer.resolve("allow_once");
  await turn;
  proxy.refusing = false;
  await over.promise;
  await proxy.stop();
});

// The gateway tells nobody of the end of a turn that is history when the session is opened.
describe.each([{ acpVersion: 1, lost: true }, { acpVersion: 2, lost: true }, { acpVersion: 2, lost: false }] as const)("version $acpVersion, connection lost: $lost", ({ acpVersion, lost }) => {
  test.each(["loadSession", "resumeSession"] as const)("a turn ends before %s, and was not told of", async (open) => {
    let hold: Promise<void> | undefined; // of the session's stream
    let cut = () => {};
    let connection = "";
    const seen = { events: later<void>(), opening: later<void>() };
    const fetch: typeof globalThis.fetch = async (input, init) => {
      const headers = new Headers(init?.headers);
      connection = headers.get("Acp-Connection-Id") ?? connection;
      if (headers.get("Accept") === "text/event-stream" && headers.has("Acp-Session-Id")) {
        await hold;
        const broken = new AbortController();
        cut = () => broken.abort();
        return globalThis.fetch(input, { ...init, signal: AbortSignal.any([broken.signal, ...(init?.signal ? [init.signal] : [])]) });
      }
      const response = await globalThis.fetch(input, init);
      if (/[/]events([?]|$)/.test(String(input instanceof Request ? input.url : input))) seen.events.resolve();
      if (hold && typeof init?.body === "string" && /"session[/](load|resume)"/.test(init.body)) seen.opening.resolve();
      return response;
    };
    await using c = new SandboxAgentClient({ baseUrl: gateway.url, agent: "mock", acpVersion, fetch, retry: { firstDelayMs: 1, maxDelayMs: 20 } });
    await using other = new SandboxAgentClient({ baseUrl: gateway.url, agent: "mock" });
    const session = await c.newSession({ cwd: "/tmp" });
    const [shown, asked] = [later<void>(), later<(option: string) => void>()];
    c.onPermission(() => (shown.resolve(), new Promise(() => {})));
    other.onPermission(() => new Promise((resolve) => asked.resolve(resolve)));
    await other.resumeSession({ sessionId: session.id, cwd: "/tmp" });
    const turn = session.prompt("permission");
    await shown.promise;
    const answer = await asked.promise;
    if (lost) {
      await globalThis.fetch(`${gateway.url}/v2/rpc`, { method: "DELETE", headers: { "Acp-Connection-Id": connection } });
      await seen.events.promise; // it knows that the turn goes on, and waits to be told of the end
    }
    const letGo = later<void>();
    hold = letGo.promise;
    cut();
    answer("allow_once");
    await expect.poll(async () => (await other.api.session(session.id)).state).toBe("idle");
    const opened = c[open]({ sessionId: session.id, cwd: "/tmp" });
    await seen.opening.promise;
    letGo.resolve();
    await opened;
    expect((await turn).stopReason).toBe("end_turn");
    expect((await session.prompt("echo after")).text).toBe("after");
  });
});

test.each([
  [1, "there"], [1, "away"], [2, "there"], [2, "away"],
] as const)("version %i: the end of a turn that was found counts when another client deletes the session before it is told: the client is %s", async (acpVersion, where) => {
  const proxy = await Proxy.to(gateway.port);
  let held: Promise<void> | undefined; // what comes of the session
  let connection = "";
  const found = later<void>();
  const fetch: typeof globalThis.fetch = async (input, init) => {
    const headers = new Headers(init?.headers);
    connection = headers.get("Acp-Connection-Id") ?? connection;
    const response = await globalThis.fetch(input, init);
    if (held && headers.has("Acp-Session-Id") && response.ok && response.body && init?.method === "GET") {
      const reader = response.body.getReader();
      const late = new ReadableStream<Uint8Array>({ // that who ends it ends at the gateway, too, also while it is held
        async pull(out) {
          const { done, value } = await reader.read();
          await held;
          if (done) out.close();
          else out.enqueue(value);
        },
        cancel: (reason) => reader.cancel(reason),
      });
      return new Response(late, response);
    }
    if (!held || !/[/]events([?]|$)/.test(String(input))) return response;
    const text = await response.text();
    if (text.includes("turn_ended")) found.resolve();
    return new Response(text, response);
  };
  await using c = new SandboxAgentClient({ baseUrl: proxy.url, agent: "mock", acpVersion, fetch, retry: { firstDelayMs: 1, maxDelayMs: 20 } });
  await using other = new SandboxAgentClient({ baseUrl: gateway.url, agent: "mock" });
  const session = await c.newSession({ cwd: "/tmp" });
  const [shown, asked] = [later<void>(), later<(option: string) => void>()];
  c.onPermission(() => (shown.resolve(), new Promise(() => {})));
  other.onPermission(() => new Promise((resolve) => asked.resolve(resolve)));
  await other.resumeSession({ sessionId: session.id, cwd: "/tmp" });
  const turn = session.prompt("permission");
  await shown.promise;
  const letGo = later<void>();
  held = letGo.promise;
  const lose = () => globalThis.fetch(`${gateway.url}/v2/rpc`, { method: "DELETE", headers: { "Acp-Connection-Id": connection } });
  await lose();
  (await asked.promise)("allow_once");
  await found.promise;
  if (where === "away") {
    proxy.refusing = true;
    proxy.cut();
    await lose();
  }
  await other.deleteSession(session.id);
  proxy.refusing = false;
  expect((await turn).stopReason).toBe("end_turn");
  letGo.resolve();
  await proxy.stop();
});

test.each(variants.filter(({ transport }) => transport !== "inline"))("events that are gone when the client is back are told as lost, and the session goes on: version $acpVersion, $agent, $transport", async (options) => {
  const own = await Gateway.startWithBoth(forgets);
  onTestFinished(() => own.stop());
  const proxy = await Proxy.to(own.port);
  onTestFinished(() => proxy.stop());
  await using c = new SandboxAgentClient({ baseUrl: proxy.url, ...options, retry: { firstDelayMs: 1, maxDelayMs: 20 } });
  await using other = new SandboxAgentClient({ baseUrl: own.url, agent: "mock" });
  const session = await c.newSession({ cwd: "/tmp" });
  await session.prompt("run");
  const knew = session.activity?.commands.length;
  const seen: number[] = [];
  const said: string[] = [];
  const lost = later<{ sessionId: string; firstSeq: number; lastSeq: number }>();
  c.onEventsLost(lost.resolve);
  c.onUpdate((n) => {
    const { seq } = (n._meta?.["sandboxagent.dev"] ?? {}) as { seq?: number };
    if (seq !== undefined) seen.push(seq);
    if (n.update.sessionUpdate === "agent_message_chunk") said.push((n.update.content as { text: string }).text);
  });
  const theirs = await other.resumeSession({ sessionId: session.id, cwd: "/tmp" });
  proxy.refusing = true;
  proxy.cut();
  await expect.poll(() => c.state).toBe("reconnecting");
  await sayMuch(theirs);
  proxy.refusing = false;
  const { sessionId, firstSeq, lastSeq } = await lost.promise;
  expect([sessionId, firstSeq < lastSeq]).toEqual([session.id, true]);
  expect([knew, session.activity?.commands.length]).toEqual(options.acpVersion === 2 ? [1, 0] : [undefined, undefined]); // how it ended may be lost
  await theirs.prompt("echo theirs");
  await expect.poll(() => said).toContain("theirs");
  expect((await session.prompt("echo mine")).text).toBe("mine");
  expect(Math.min(...seen)).toBeGreaterThanOrEqual(lastSeq); // in version 2 the state is told with it
});

// Over HTTP the old connection may take the prompt.
test.each(variants.filter(({ transport }) => transport === "websocket"))("a prompt that is sent when the client is back has nothing of turns of others whose beginning is gone: version $acpVersion, $agent", async (options) => {
  const own = await Gateway.startWithBoth(forgets);
  onTestFinished(() => own.stop());
  const proxy = await Proxy.to(own.port);
  onTestFinished(() => proxy.stop());
  await using c = new SandboxAgentClient({ baseUrl: proxy.url, ...options, retry: { firstDelayMs: 1, maxDelayMs: 20 } });
  await using other = new SandboxAgentClient({ baseUrl: own.url, agent: "mock" });
  const session = await c.newSession({ cwd: "/tmp" });
  const theirs = await other.resumeSession({ sessionId: session.id, cwd: "/tmp" });
  const lost = later<unknown>();
  c.onEventsLost(lost.resolve);
  proxy.refusing = true;
  proxy.cut();
  await expect.poll(() => c.state).toBe("reconnecting");
  await sayMuch(theirs);
  const mine = session.prompt("echo mine");
  proxy.refusing = false;
  expect((await mine).text).toBe("mine");
  await lost.promise;
});

test.each([1, 2] as const)("version %i: a prompt that an earlier connection brings while the gateway is asked for it is no turn that was interrupted", async (acpVersion) => {
  const proxy = await Proxy.to(gateway.port);
  onTestFinished(() => proxy.stop());
  let bring: (() => Promise<unknown>) | undefined; // the prompt, which is on its way
  let expired = false;
  const [held, answer] = [later<void>(), later<string>()];
  const fetch: typeof globalThis.fetch = async (input, init) => {
    if (init?.method === "POST" && !bring && String(init.body).includes('"session/prompt"')) {
      const { signal, ...sent } = init;
      bring = () => globalThis.fetch(String(input).replace(proxy.url, gateway.url), sent);
      held.resolve();
      return new Promise((_, reject) => signal?.addEventListener("abort", () => reject(new TypeError("it was lost"))));
    }
    if (expired && init?.method === "GET" && new Headers(init.headers).get("Accept") === "text/event-stream") {
      expired = false;
      return new Response(JSON.stringify({ type: "urn:sandbox-agent:error:events_expired" }), { status: 410 });
    }
    const response = await globalThis.fetch(input, init);
    if (!bring || !/[/]sessions[/][^/]+$/.test(String(input))) return response;
    const before = await response.text(); // the state, which is old when it comes
    const { state } = JSON.parse(before) as { state: string };
    if (state !== "idle") answer.resolve("allow_once");
    else {
      await bring();
      while ((await other.api.session(session.id)).pending !== 1) await wait(5);
    }
    return new Response(before, response);
  };
  await using c = new SandboxAgentClient({ baseUrl: proxy.url, agent: "mock", acpVersion, fetch, retry: { firstDelayMs: 1, maxDelayMs: 20 } });
  await using other = new SandboxAgentClient({ baseUrl: gateway.url, agent: "mock" });
  const session = await c.newSession({ cwd: "/tmp" });
  const turn = session.prompt("permission");
  await held.promise;
  c.onPermission(() => answer.promise);
  expired = true;
  proxy.cut();
  expect((await turn).stopReason).toBe("end_turn");
});

/** Every way in which a question can go while a handler thinks about it. */
interface Gone {
  readonly client: SandboxAgentClient<1 | 2>;
  readonly other: SandboxAgentClient<1 | 2>;
  readonly gateway: Gateway;
  readonly session: string;
}
const ways: Record<string, (_: Gone) => unknown> = {
  "answered by another client": async ({ other, session }) => {
    other.onPermission(() => "allow_once");
    await other.resumeSession({ sessionId: session, cwd: "/tmp" });
  },
  "the turn cancelled": ({ client, session }) => client.cancel(session),
  "the gateway killed, and back": async ({ gateway }) => {
    await gateway.kill("SIGKILL");
    await gateway.restart();
  },
  "the gateway killed for good": ({ gateway }) => gateway.kill("SIGKILL"),
  "the session closed": ({ client, session }) => client.closeSession(session),
  "the session closed by another client": ({ other, session }) => other.closeSession(session),
  "the session deleted by another client": ({ other, session }) => other.deleteSession(session),
  "the session ended": ({ client, session }) => client.terminateSession(session),
  "the session left": ({ client, session }) => client.detachSession(session),
  "the client disconnected": ({ client }) => client.disconnect(),
};

// The application was told that it failed, and may have done something else since.
test.each(variants)("a prompt that failed while the client was away is not sent when it is back: version $acpVersion, $agent, $transport", async (options) => {
  const own = await Gateway.startWithBoth();
  const proxy = await Proxy.to(own.port);
  const sent: string[] = [];
  await using c = new SandboxAgentClient({ baseUrl: proxy.url, ...options, retry: { firstDelayMs: 1, maxDelayMs: 20 }, onEnvelope: ({ direction, message }) => void (direction === "sent" && "method" in message && sent.push(message.method)) });
  const session = await c.newSession({ cwd: "/tmp" });
  proxy.refusing = true;
  proxy.cut();
  await expect.poll(() => c.state).toBe("reconnecting");
  const turns = ["echo one", "echo two"].map((text) => session.prompt(text).then(() => "it ended", (error: unknown) => error));
  await using other = new SandboxAgentClient({ baseUrl: own.url, ...options });
  await other.deleteSession(session.id);
  await own.kill("SIGKILL");
  await own.restart(); // in standard HTTP, too, there is a new connection then
  proxy.refusing = false;
  for (const end of await Promise.all(turns)) expect(end).toBeInstanceOf(AcpRpcError);
  await c.newSession({ cwd: "/tmp" });
  const resumed = sent.lastIndexOf("session/resume");
  expect(resumed).toBeGreaterThan(0);
  expect(sent.slice(resumed)).not.toContain("session/prompt");
  await proxy.stop();
  await own.stop();
});

describe.each(variants)("a handler is told that its question is gone: version $acpVersion, $agent, $transport", (options) => {
  test.each(Object.entries(ways))("%s", async (way, go) => {
    const own = await Gateway.startWithBoth();
    const retry = { firstDelayMs: 10, maxDelayMs: 50, ...(way === "the gateway killed for good" ? { giveUpAfterMs: 100 } : {}) };
    await using client = new SandboxAgentClient({ baseUrl: own.url, ...options, retry });
    await using other = new SandboxAgentClient({ baseUrl: own.url, ...options, retry });
    const told = later<void>();
    const shown = later<AbortSignal>();
    client.onPermission((_request, { signal }) => {
      shown.resolve(signal);
      return new Promise((_resolve, reject) => signal.addEventListener("abort", () => {
        told.resolve();
        reject(signal.reason); // as fetch and timers do
      }));
    });
    const session = await client.newSession({ cwd: "/tmp" });
    session.prompt("permission").then(() => {}, () => {});
    const signal = await shown.promise;
    expect(signal.aborted).toBe(false);
    await go({ client, other, gateway: own, session: session.id });
    await told.promise;
    await own.stop();
  });

  test("a break is no end of it", async () => {
    const proxy = await Proxy.to(gateway.port);
    await using client = new SandboxAgentClient({ baseUrl: proxy.url, ...options, retry: { firstDelayMs: 1, maxDelayMs: 20 } });
    const shown = later<AbortSignal>();
    const answer = later<string>();
    let times = 0;
    client.onPermission((_request, { signal }) => {
      times++;
      shown.resolve(signal);
      return answer.promise;
    });
    const session = await client.newSession({ cwd: "/tmp" });
    const turn = session.prompt("permission");
    const signal = await shown.promise;
    proxy.cut();
    await client.getSession(session.id); // on the next connection
    expect(signal.aborted).toBe(false);
    answer.resolve("allow_once");
    expect((await turn).text).toContain("allow_once");
    expect(times).toBe(1);
    await proxy.stop();
  });
});

test("without reconnect a lost connection is told, and ends what waits", async () => {
  const own = await Gateway.start();
  const c = new SandboxAgentClient({ baseUrl: own.url, agent: "mock", reconnect: false, retry: { firstDelayMs: 10, giveUpAfterMs: 200 } });
  const session = await c.newSession({ cwd: "/tmp" });
  const turn = session.prompt("slow");
  await wait(50);
  await own.kill("SIGKILL");
  await expect(turn).rejects.toMatchObject({ name: "ConnectionLostError" });
  await expect(session.prompt("hi")).rejects.toMatchObject({ name: "NotConnectedError" });
  await own.stop();
});

test.each([
  { transport: "http", WebSocket: ws },
  { transport: "websocket", WebSocket: ws },
  { transport: "websocket", WebSocket: undefined }, // as in a web page: the socket takes no headers, and does not tell why it was refused
] as const)("a token that changes is asked for again: $transport, $WebSocket.name", async ({ transport, WebSocket: made }) => {
  if (made === undefined) vi.stubGlobal("WebSocket", class extends WebSocket {
    override on(event: string, listener: (this: WebSocket, ...args: any[]) => void): this {
      return event === "unexpected-response" ? this : super.on(event, listener);
    }
  });
  onTestFinished(() => void vi.unstubAllGlobals());
  const own = await Gateway.start([], { SANDBOX_AGENT_TOKEN: "first-token-0123456789" });
  onTestFinished(() => own.stop());
  let token = "first-token-0123456789";
  let refusals = 0;
  await using c = new SandboxAgentClient({
    baseUrl: own.url, agent: "mock", transport, retry: { firstDelayMs: 10 }, ...(made ? { WebSocket: made } : {}),
    token: ({ refused }) => {
      if (refused) refusals++;
      return refused ? token : "stale-token-0123456789";
    },
  });
  const session = await c.newSession({ cwd: "/tmp" });
  expect((await session.prompt("echo hi")).text).toBe("hi");
  const { id } = await c.processes.start({ command: "cat", tty: true });
  await (await c.terminal(id)).close();
  expect((await c.api.sessions()).sessions).toHaveLength(1);
  const before = refusals;
  await c.fs.write(`${own.dir}/streamed`, new Blob(["hi"]).stream()); // which cannot be sent a second time
  expect(await c.fs.readText(`${own.dir}/streamed`)).toBe("hi");
  expect(refusals).toBeGreaterThan(before);
  token = "wrong";
  await expect(c.api.sessions()).rejects.toMatchObject({ name: "ProblemError", status: 401 });
});

test.each([
  { method: "initialize", transport: "http", acpVersion: 1 },
  { method: "initialize", transport: "inline", acpVersion: 1 },
  { method: "initialize", transport: "websocket", acpVersion: 1 },
  { method: "initialize", transport: "websocket", acpVersion: 2 },
  { method: "session/resume", transport: "inline", acpVersion: 1 },
  { method: "session/resume", transport: "websocket", acpVersion: 1 },
  { method: "session/resume", transport: "websocket", acpVersion: 2 },
] as const)("a gateway that is ending and refuses $method is asked again: version $acpVersion, $transport", async ({ method, ...options }) => {
  const own = await Gateway.start();
  const ending = { type: "urn:sandbox-agent:error:unavailable", title: "Service unavailable", status: 503, detail: "the gateway is shutting down" };
  let refusals = 0;
  /** The answer of a gateway that is ending, when it is time for one. */
  const refusal = (body: unknown) => {
    const request = typeof body === "string" ? (JSON.parse(body) as { id: number; method?: string }) : undefined;
    if (refusals === 0 || request?.method !== method) return undefined;
    refusals--;
    return { jsonrpc: "2.0", id: request.id, error: { code: -32603, message: ending.detail, data: ending } };
  };
  const fetch: typeof globalThis.fetch = async (input, init) => {
    const refused = refusal(init?.body);
    if (refused === undefined) return globalThis.fetch(input, init);
    if (method !== "initialize") return Response.json(refused);
    return Response.json(ending, { status: 503, headers: { "content-type": "application/problem+json" } });
  };
  class Refusing extends WebSocket {
    override send(data: string): void {
      const refused = refusal(data);
      if (refused === undefined) super.send(data);
      else queueMicrotask(() => this.emit("message", Buffer.from(JSON.stringify(refused)), false));
    }
  }
  await using c = new SandboxAgentClient({ baseUrl: own.url, agent: "mock", ...options, fetch, WebSocket: Refusing as never, retry: { firstDelayMs: 1, maxDelayMs: 20 } });
  const session = await c.newSession({ cwd: "/tmp" });
  expect((await session.prompt("echo one")).text).toBe("one");
  await own.kill("SIGKILL");
  refusals = 2;
  await own.restart();
  expect((await session.prompt("echo two")).text).toBe("two");
  expect(refusals).toBe(0);
  await own.stop();
});

const overWebSocket = variants.filter((options) => options.transport === "websocket");

/** A WebSocket of which `look` is given each message that is sent, and says whether it goes out. */
function watched(look: (message: { id?: number; method?: string }, socket: WebSocket) => boolean) {
  return class extends WebSocket {
    override send(data: string): void {
      if (look(JSON.parse(data) as { id?: number; method?: string }, this)) super.send(data);
    }
  } as never;
}

test.each(overWebSocket)("what became of a prompt is asked until there is an answer: version $acpVersion, $agent", async (options) => {
  let lost = false;
  let failures = 3;
  await using c = new SandboxAgentClient({
    baseUrl: gateway.url, ...options, retry: { firstDelayMs: 1, maxDelayMs: 20 },
    WebSocket: watched(({ method }, socket) => {
      if (method !== "session/prompt" || lost) return true;
      lost = true;
      socket.terminate();
      return false;
    }),
    fetch: async (input, init) => {
      if (lost && failures > 0) {
        failures--;
        throw new TypeError("the network failed");
      }
      return globalThis.fetch(input, init);
    },
  });
  const session = await c.newSession({ cwd: "/tmp" });
  expect((await session.prompt("echo there")).text).toBe("there");
  expect(failures).toBe(0);
});

test.each(overWebSocket)("a question stays open while the gateway cannot be asked about it: version $acpVersion, $agent", async (options) => {
  const refused = { type: "urn:sandbox-agent:error:unavailable", title: "Service unavailable", status: 503 };
  const shown = later<AbortSignal>();
  const answer = later<string>();
  let refusals = 0;
  let cut = () => {};
  await using c = new SandboxAgentClient({
    baseUrl: gateway.url, ...options, retry: { firstDelayMs: 1, maxDelayMs: 20 },
    WebSocket: watched(({ id, method }, socket) => {
      cut = () => socket.terminate();
      if (refusals === 0 || method !== "_sandboxagent/session/pending") return true;
      refusals--;
      queueMicrotask(() => socket.emit("message", Buffer.from(JSON.stringify({ jsonrpc: "2.0", id, error: { code: -32603, message: "not now", data: refused } })), false));
      return false;
    }),
  });
  c.onPermission((_request, { signal }) => {
    shown.resolve(signal);
    return answer.promise;
  });
  const session = await c.newSession({ cwd: "/tmp" });
  const turn = session.prompt("permission");
  const signal = await shown.promise;
  refusals = 2;
  const away = new Promise<void>((resolve) => c.onState((state) => void (state === "reconnecting" && resolve())));
  cut();
  await away;
  await c.getSession(session.id); // behind what is asked on the next connection
  expect(refusals).toBe(0);
  expect(signal.aborted).toBe(false);
  answer.resolve("allow_once");
  expect((await turn).text).toContain("allow");
});

test.each(overWebSocket)("a session that cannot be attached to again is told of before what it asks ends, and can be opened: version $acpVersion, $agent", async (options) => {
  const shown = later<AbortSignal>();
  let refuses = false;
  let cut = () => {};
  await using c = new SandboxAgentClient({
    baseUrl: gateway.url, ...options, retry: { firstDelayMs: 1, maxDelayMs: 20 },
    WebSocket: watched(({ id, method }, socket) => {
      cut = () => socket.terminate();
      if (!refuses || method !== "session/resume") return true;
      refuses = false;
      queueMicrotask(() => socket.emit("message", Buffer.from(JSON.stringify({ jsonrpc: "2.0", id, error: { code: -32603, message: "its agent did not start" } })), false));
      return false;
    }),
  });
  let answers = false;
  c.onPermission((_request, { signal }) => {
    shown.resolve(signal);
    return answers ? "allow_once" : new Promise(() => {});
  });
  const session = await c.newSession({ cwd: "/tmp" });
  const failed = expect(session.prompt("permission")).rejects.toThrow("its agent did not start");
  const asked = await shown.promise;
  const lost = new Promise((resolve) => c.onSessionLost(({ sessionId, error }) => resolve([sessionId, error.message, asked.aborted])));
  refuses = true;
  cut();
  expect(await lost).toEqual([session.id, "its agent did not start", false]);
  await failed;
  expect(asked.aborted).toBe(true);
  answers = true;
  const again = await c.resumeSession({ sessionId: session.id });
  while ((await c.api.session(session.id)).state !== "idle") await wait(5);
  expect((await again.prompt("echo there")).text).toBe("there");
});

test.each(variants.filter(({ transport }) => transport !== "websocket"))("what something before the gateway answers to a session that is attached again is asked again: version $acpVersion, $agent, $transport", async (options) => {
  let connection = "";
  const odd = { "_sandboxagent/session/get": 0, "session/resume": 0 };
  const name = options.transport === "inline" ? "X-ACP-Connection-Id" : "Acp-Connection-Id";
  const fetch: typeof globalThis.fetch = async (input, init) => {
    const { method } = typeof init?.body === "string" ? (JSON.parse(init.body) as { method: keyof typeof odd }) : { method: undefined };
    if (method !== undefined && odd[method] > 0) {
      odd[method]--;
      return new Response("no route", { status: 520 });
    }
    connection = new Headers(init?.headers).get(name) ?? connection;
    return globalThis.fetch(input, init);
  };
  await using c = new SandboxAgentClient({ baseUrl: gateway.url, ...options, fetch, retry: { firstDelayMs: 1, maxDelayMs: 20 } });
  const lost: string[] = [];
  c.onSessionLost(({ error }) => lost.push(error.message));
  const session = await c.newSession({ cwd: "/tmp" });
  expect((await session.prompt("echo one")).text).toBe("one");
  const said: string[] = [];
  c.onUpdate(({ update }) => update.sessionUpdate === "agent_message_chunk" && said.push((update.content as { text: string }).text));
  odd["_sandboxagent/session/get"] = odd["session/resume"] = 2;
  await globalThis.fetch(`${gateway.url}/v2/rpc`, { method: "DELETE", headers: { [name]: connection } });
  await using other = new SandboxAgentClient({ baseUrl: gateway.url, agent: "mock" });
  await (await other.resumeSession({ sessionId: session.id, cwd: "/tmp" })).prompt("echo two");
  await expect.poll(() => said).toContain("two");
  expect([odd["session/resume"], lost]).toEqual([0, []]);
});

/** What a client uses whose messages `look` is given before they go out: with false one is lost, and a promise is waited for. Answers are given to `hear`. */
function between(look: (message: { id?: number; method?: string }, socket?: WebSocket) => Promise<unknown> | boolean, hear: (message: { id?: number; method?: string }, socket: WebSocket) => boolean = () => true) {
  const fetch: typeof globalThis.fetch = async (input, init) => {
    if (typeof init?.body === "string" && init.method === "POST") await look(JSON.parse(init.body) as { method?: string });
    return globalThis.fetch(input, init);
  };
  class Between extends WebSocket {
    override send(data: string): void {
      const goes = look(JSON.parse(data) as { method?: string }, this);
      if (goes === true) super.send(data);
      else if (goes !== false) void goes.then(() => super.send(data));
    }
    override emit(event: string | symbol, ...args: any[]): boolean {
      return event === "message" && !hear(JSON.parse(String(args[0])) as { id?: number; method?: string }, this) ? true : super.emit(event, ...args);
    }
  }
  return { fetch, WebSocket: Between as never };
}

/** A session of a client, in which the turn of another client waits for an answer; its second one does, too. */
async function meeting(options: (typeof variants)[number], hooks: ReturnType<typeof between>) {
  const c = new SandboxAgentClient({ baseUrl: gateway.url, ...options, ...hooks, retry: { firstDelayMs: 1, maxDelayMs: 20 } });
  const other = new SandboxAgentClient({ baseUrl: gateway.url, agent: "mock" });
  onTestFinished(() => Promise.all([c.disconnect(), other.disconnect()]).then(() => {}));
  const session = await c.newSession({ cwd: "/tmp" });
  const theirs = await other.resumeSession({ sessionId: session.id, cwd: "/tmp" });
  const asks = [later<void>(), later<void>()];
  const answers = [later<"allow_once">(), later<"allow_once">()];
  let n = 0;
  other.onPermission(() => (asks[n]!.resolve(), answers[n++]!.promise));
  const first = theirs.prompt("permission");
  await asks[0]!.promise;
  return { c, session, theirs, first, asked: asks.map(({ promise }) => promise), allow: (i: number) => answers[i]!.resolve("allow_once") };
}

test.each(variants)("prompts that wait at the gateway for another client's turn are cancelled, and nothing else: version $acpVersion, $agent, $transport", async (options) => {
  let prompts = 0;
  const sent = later<void>();
  const { c, session, theirs, first, allow } = await meeting(options, between((message) => {
    if (message.method === "session/prompt" && ++prompts === (options.transport === "inline" ? 1 : 2)) sent.resolve();
    return true;
  }));
  const [second, third] = [session.prompt("echo two"), session.prompt("echo three")];
  await sent.promise;
  await c.request("_sandboxagent/session/get", { sessionId: session.id });
  const behind = theirs.prompt("echo behind");
  await second.cancel();
  for (const one of [await second, await third]) expect([one.stopReason, one.text]).toEqual(["cancelled", ""]);
  allow(0);
  expect((await first).text).toContain("allow");
  expect((await behind).text).toBe("behind");
  expect((await session.prompt("echo four")).text).toBe("four");
});

test.each(variants)("a prompt that was given an id is cancelled by it, and no other may have that: version $acpVersion, $agent, $transport", async (options) => {
  await using c = new SandboxAgentClient({ baseUrl: gateway.url, ...options });
  const session = await c.newSession({ cwd: "/tmp" });
  const _meta = { "sandboxagent.dev": { promptId: "mine" } };
  const turn = session.prompt("slow", { _meta });
  expect(() => session.prompt("echo hi", { _meta })).toThrow(TypeError);
  await expect.poll(async () => (await c.api.session(session.id)).state).toBe("running");
  await turn.cancel();
  expect((await turn).stopReason).toBe("cancelled");
});

test.each(variants)("a prompt that repeats one that is over ends as that one: version $acpVersion, $agent, $transport", async (options) => {
  await using c = new SandboxAgentClient({ baseUrl: gateway.url, ...options });
  const session = await c.newSession({ cwd: "/tmp" });
  const _meta = { "sandboxagent.dev": { promptId: "mine" } };
  expect((await session.prompt("stop refusal", { _meta })).stopReason).toBe("refusal");
  await session.prompt("echo between");
  expect((await session.prompt("stop refusal", { _meta })).stopReason).toBe("refusal");
  await using other = new SandboxAgentClient({ baseUrl: gateway.url, ...options }); // as after a page was loaded anew
  const theirs = await other.resumeSession({ sessionId: session.id, cwd: "/tmp" });
  expect((await theirs.prompt("stop refusal", { _meta })).stopReason).toBe("refusal");
  expect((await theirs.prompt("echo after")).text).toBe("after");
});

test.each(variants.filter(({ transport }) => transport !== "inline"))("prompts that wait at the gateway for a turn of their own client are cancelled, and it goes on: version $acpVersion, $agent, $transport", async (options) => {
  let prompts = 0;
  const sent = later<void>();
  const [asked, answer] = [later<void>(), later<"allow_once">()];
  await using c = new SandboxAgentClient({ baseUrl: gateway.url, ...options, ...between((message) => {
    if (message.method === "session/prompt" && ++prompts === 3) sent.resolve();
    return true;
  }) });
  c.onPermission(() => (asked.resolve(), answer.promise));
  const session = await c.newSession({ cwd: "/tmp" });
  const first = session.prompt("permission");
  await asked.promise;
  const [second, third] = [session.prompt("echo two"), session.prompt("echo three")];
  await sent.promise;
  await second.cancel();
  for (const one of [await second, await third]) expect([one.stopReason, one.text]).toEqual(["cancelled", ""]);
  answer.resolve("allow_once");
  expect((await first).text).toContain("allow");
  expect((await session.prompt("echo four")).text).toBe("four");
});

describe.each(["has begun", "is over"])("a prompt that %s while its cancel is on its way", (then) => {
  test.each(variants)("ends, and nothing else: version $acpVersion, $agent, $transport", async (options) => {
    const [sent, cancels, arrives] = [later<void>(), later<void>(), later<void>()];
    const { c, session, theirs, first, asked, allow } = await meeting(options, between((message) => {
      if (message.method === "session/prompt") sent.resolve();
      if (message.method !== "session/cancel") return true;
      cancels.resolve();
      return arrives.promise;
    }));
    const second = session.prompt(then === "has begun" ? "permission" : "echo two");
    await sent.promise;
    const cancelled = second.cancel();
    await cancels.promise;
    allow(0);
    expect((await first).text).toContain("allow");
    if (then === "has begun") {
      await asked[1];
      const behind = theirs.prompt("echo behind");
      arrives.resolve();
      expect((await second).stopReason).toBe("cancelled");
      expect((await behind).text).toBe("behind");
      await cancelled;
      return;
    }
    expect((await second).text).toBe("two");
    const behind = theirs.prompt("permission");
    await asked[1];
    arrives.resolve();
    await cancelled;
    expect(await c.request("_sandboxagent/session/get", { sessionId: session.id })).toMatchObject({ state: "waiting" });
    allow(1);
    expect((await behind).text).toContain("allow");
  });
});

describe.each(["the cancel", "the prompt and the cancel", "the answer"])("a connection that is lost with %s", (lost) => {
  test.each(overWebSocket)("the cancel of a prompt that waits is sent again, and ends nothing else: version $acpVersion, $agent", async (options) => {
    let prompt: number | undefined;
    let done = false;
    const sent = later<void>();
    const { session, first, allow } = await meeting(options, between((message, socket) => {
      if (message.method === "session/prompt" && prompt === undefined) {
        prompt = message.id;
        sent.resolve();
        return lost !== "the prompt and the cancel";
      }
      if (message.method !== "session/cancel" || done || lost === "the answer") return true;
      done = true;
      socket!.terminate();
      return false;
    }, (message, socket) => {
      if (lost !== "the answer" || done || message.id !== prompt || message.method !== undefined) return true;
      done = true;
      socket.terminate();
      return false;
    }));
    const second = session.prompt("echo two");
    await sent.promise;
    await second.cancel();
    const third = session.prompt("echo three");
    expect([(await second).stopReason, (await second).text]).toEqual(["cancelled", ""]);
    expect(done).toBe(true);
    allow(0);
    expect((await first).text).toContain("allow");
    expect((await third).text).toMatch(/three$/); // version 1 takes what runs for its own when it is back
  });
});
