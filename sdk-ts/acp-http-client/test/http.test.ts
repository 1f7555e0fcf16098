import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { methods, type ClientCapabilities } from "@agentclientprotocol/sdk";
import { abortable, ConnectionLostError, ProblemError, createAcpStream, usualSilenceMs, type Envelope } from "acp-http-client";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { WebSocket } from "ws";
import { Gateway } from "../../test/gateway.js";
import { Proxy } from "../../test/proxy.js";
import { warnings } from "../../test/warnings.js";
import { sleep } from "../src/clock.js";
import { connect, type Connected } from "./link.js";

let gateway: Gateway;
beforeAll(async () => void (gateway = await Gateway.start()));
afterAll(() => gateway.stop());

const ws = { WebSocket: WebSocket as unknown as NonNullable<Parameters<typeof createAcpStream>[1]>["WebSocket"] & {} };
const transports = [{ transport: "http" }, { transport: "inline" }, { transport: "websocket", ...ws }] as const;

test("an address that is none is explained; those of WebSockets are taken", async () => {
  expect(() => createAcpStream("localhost:2468/v2/rpc")).toThrow(new TypeError('url: "localhost:2468/v2/rpc" is not an http or https address: did you mean http://localhost:2468/v2/rpc?'));
  expect(() => createAcpStream("ftp://here/v2/rpc")).toThrow('"ftp://here/v2/rpc" is not an http or https address');
  for (const options of transports) {
    const c = await connect(gateway.rpc.replace(/^http/, "ws"), options);
    expect(await c.prompt(await c.newSession(), "echo hi")).toBe("end_turn");
    await c.stream.close();
  }
});

describe.each(transports)("$transport", (options) => {
  test("a turn, its updates before its end", async () => {
    const c = await connect(gateway.rpc, options);
    const session = await c.newSession();
    expect(await c.prompt(session, "stream 500 20")).toBe("end_turn");
    expect(c.texts(session)).toHaveLength(500);
    expect(c.stream.state).toBe("open");
    await c.stream.close();
    expect(c.stream.state).toBe("closed");
    expect(c.stream.error).toBeUndefined();
  });

  test("a permission is answered, and a turn is cancelled, while the prompt is pending", async () => {
    const c = await connect(gateway.rpc, { ...options, permission: async () => ({ outcome: { outcome: "selected", optionId: "allow" } }) });
    const session = await c.newSession();
    expect(await c.prompt(session, "permission")).toBe("end_turn");
    const slow = c.prompt(session, "slow");
    await c.connection.agent.notify(methods.agent.session.cancel, { sessionId: session });
    expect(await slow).toBe("cancelled");
    await c.stream.close();
  });

  test("many sessions at once do not mix", async () => {
    const c = await connect(gateway.rpc, options);
    const sessions = await Promise.all(Array.from({ length: 20 }, () => c.newSession()));
    const reasons = await Promise.all(sessions.map((s, i) => c.prompt(s, `echo ${i}`)));
    expect(new Set(reasons)).toEqual(new Set(["end_turn"]));
    expect(sessions.map((s) => c.texts(s).join(""))).toEqual(sessions.map((_, i) => String(i)));
    await c.stream.close();
  });

  test("an aborted signal ends everything that waits", async () => {
    const controller = new AbortController();
    const c = await connect(gateway.rpc, { ...options, signal: controller.signal });
    const session = await c.newSession();
    const slow = c.prompt(session, "slow");
    controller.abort(new Error("enough"));
    await expect(slow).rejects.toThrow("enough");
    await c.stream.closed;
    expect(c.stream.error?.message).toBe("enough");
  });

  test("the envelope hook sees every message, and may throw", async () => {
    const seen: Envelope[] = [];
    const c = await connect(gateway.rpc, {
      ...options,
      onEnvelope(envelope) {
        seen.push(envelope);
        throw new Error("a hook's own trouble");
      },
    });
    await c.newSession();
    expect(seen.map(({ direction, message }) => `${direction} ${"method" in message ? message.method : "response"}`).slice(0, 4)).toEqual([
      "sent initialize", "received response", "sent session/new", "received response",
    ]);
    await c.stream.close();
  });

  test("the envelope hook may end the connection", async () => {
    let ends = (_: Envelope) => {};
    const c = await connect(gateway.rpc, { ...options, onEnvelope: (envelope) => ends(envelope) });
    const session = await c.newSession();
    ends = ({ direction }) => void (direction === "received" && c.stream.close());
    await expect(c.prompt(session, "echo hi")).rejects.toThrow("closed");
    await c.stream.closed;
    expect(c.stream.error).toBeUndefined();
  });

  test("what cannot be written as JSON fails alone, and the connection goes on", async () => {
    const c = await connect(gateway.rpc, { ...options, permission: async () => ({ outcome: { outcome: "selected", optionId: 1n as never } }) });
    const session = await c.newSession();
    await expect(c.prompt(session, 1n as never)).rejects.toMatchObject({ code: -32602, message: "it cannot be written as JSON: Do not know how to serialize a BigInt" });
    expect(await c.prompt(session, "permission")).toBe("end_turn"); // its agent is told that there is no answer
    expect(c.texts(session).join("")).toContain("it cannot be written as JSON");
    await c.stream.close();
  });

  test("headers that cannot be had, or sent, are told at once, and not what is in them", async () => {
    const fails = () => {
      throw new Error("the vault is shut");
    };
    await expect(connect(gateway.rpc, { ...options, headers: fails })).rejects.toMatchObject({ name: "ConnectionLostError", reason: "headers", message: expect.stringContaining("the vault is shut") });
    await expect(connect(gateway.rpc, { ...options, headers: { Authorization: "Bearer secret\nsecret" } })).rejects.toMatchObject({
      reason: "headers", message: 'the headers to send, such as a token, cannot be had: the header "Authorization" has characters in it that headers cannot have',
    });
    const c = await connect(gateway.rpc, { ...options, headers: { Authorization: "Bearer of a file\n" } });
    await c.stream.close();
  });

  test("the server's errors keep their code and data", async () => {
    const c = await connect(gateway.rpc, options);
    await expect(c.prompt("nobody", "hi")).rejects.toMatchObject({ code: -32002, data: { sessionId: "nobody" } });
    await expect(c.connection.agent.request("no/such_method", {})).rejects.toMatchObject({ code: -32601 });
    await c.stream.close();
  });
});

test("a WebSocket that is refused, and one that is closed, leave nothing behind that keeps the program alive", async () => {
  const proxy = await Proxy.to(gateway.port);
  await expect(connect(`${proxy.url}/v1/anything`, transports[2])).rejects.toBeInstanceOf(ProblemError);
  await expect.poll(() => proxy.open).toBe(0);
  const c = await connect(`${proxy.url}/v2/rpc`, transports[2]);
  const made = vi.spyOn(globalThis, "setTimeout");
  const cleared = vi.spyOn(globalThis, "clearTimeout");
  try {
    await c.stream.close();
    for (const { value } of made.mock.results) expect(cleared).toHaveBeenCalledWith(value);
  } finally {
    vi.restoreAllMocks();
  }
  await proxy.stop();
});

test("options that are none are explained", () => {
  expect(() => createAcpStream(gateway.rpc, { transport: "carrier pigeon" as never })).toThrow(new TypeError("transport is http, inline or websocket, not carrier pigeon"));
  expect(() => createAcpStream(gateway.rpc, { WebSocket: {} as never })).toThrow(new TypeError("WebSocket is no function but of type object"));
});

describe.each([{ transport: "http" }, { transport: "inline" }] as const)("$transport on a broken network", (options) => {
  test("200 cuts at random moments lose nothing and double nothing", async () => {
    const proxy = await Proxy.to(gateway.port);
    let questions = 0;
    const c = await connect(`${proxy.url}/v2/rpc`, {
      ...options,
      retry: { firstDelayMs: 1, maxDelayMs: 20 },
      permission: async () => {
        questions++;
        return { outcome: { outcome: "selected", optionId: "allow" } };
      },
    });
    const session = await c.newSession();
    // Then no more: on a slow machine no connection would live until a turn has ended.
    const cutter = (async () => {
      while (proxy.cuts < 200) {
        await new Promise((resolve) => setTimeout(resolve, Math.random() * 30));
        proxy.cut();
      }
    })();
    const want: string[] = [];
    let turns = 0;
    for (; proxy.cuts < 200; turns++) {
      const n = 1 + Math.floor(Math.random() * 300);
      const from = c.updates.length;
      expect(await c.prompt(session, `stream ${n} 200`)).toBe("end_turn");
      const got = c.updates.slice(from).filter(({ update }) => update.sessionUpdate === "agent_message_chunk");
      want.push(String(n));
      expect(got, `turn ${turns} after ${proxy.cuts} cuts`).toHaveLength(n);
      const numbers = got.map(({ update }) => (update.sessionUpdate === "agent_message_chunk" && update.content.type === "text" ? Number.parseInt(update.content.text, 10) : -1));
      expect(numbers).toEqual(numbers.map((_, i) => (numbers[0] ?? 0) + i));
      expect(await c.prompt(session, "permission")).toBe("end_turn");
    }
    await cutter;
    expect(proxy.cuts).toBeGreaterThanOrEqual(200);
    expect(questions).toBe(turns);
    await c.stream.close();
    await proxy.stop();
  });

  test("a web page that something before the server answers with is no answer", async () => {
    let pages = 0; // that are still answered with
    const front = createServer((req, res) => {
      if (pages > 0) {
        pages--;
        req.resume();
        return void res.writeHead(200, { "Content-Type": "text/html; charset=utf-8" }).end("<title>Log in</title>");
      }
      const { method, headers, url } = req;
      const back = request({ port: gateway.port, method, headers, path: url }, (answer) => {
        if (method === "POST") answer.headers["content-type"] = "text/html; charset=utf-8"; // as some servers say of all that they answer
        res.writeHead(answer.statusCode!, answer.headers).flushHeaders();
        answer.pipe(res);
      });
      for (const broken of [back, res]) broken.on("error", () => {});
      res.on("close", () => back.destroy());
      req.pipe(back);
    });
    await new Promise<void>((resolve) => front.listen(0, "127.0.0.1", resolve));
    const c = await connect(`http://127.0.0.1:${(front.address() as AddressInfo).port}/v2/rpc`, { ...options, retry: { firstDelayMs: 1, maxDelayMs: 20, giveUpAfterMs: 1000 } });
    const session = await c.newSession();
    pages = 2;
    expect(await c.prompt(session, "echo on")).toBe("end_turn");
    pages = Infinity;
    front.closeAllConnections();
    await c.stream.closed;
    expect(c.stream.error).toMatchObject({ name: "ConnectionLostError", reason: "unreachable" });
    front.close();
    front.closeAllConnections();
  });

  test("a network that stays away ends the connection, and says what was open", async () => {
    const proxy = await Proxy.to(gateway.port);
    const states: string[] = [];
    const c = await connect(`${proxy.url}/v2/rpc`, { ...options, retry: { firstDelayMs: 1, maxDelayMs: 20, giveUpAfterMs: 300 }, onState: (s) => states.push(s) });
    const session = await c.newSession();
    const slow = c.prompt(session, "slow");
    await new Promise((resolve) => setTimeout(resolve, 50));
    proxy.refusing = true;
    proxy.cut();
    const error = await slow.catch((e: unknown) => e);
    expect(error).toBeInstanceOf(ConnectionLostError);
    expect(error).toMatchObject({ reason: "unreachable", recoverable: true, detail: { sessions: [session], unanswered: [{ method: "session/prompt" }] } });
    expect(states).toEqual(["connecting", "open", "reconnecting", "closed"]);
    await proxy.stop();
  });

  test("a stream that something before the server ends when there is nothing to say is opened again for ever", async () => {
    const proxy = await Proxy.to(gateway.port);
    const real = performance.now.bind(performance);
    let later = 0;
    vi.spyOn(performance, "now").mockImplementation(() => real() + later);
    onTestFinished(() => void vi.restoreAllMocks());
    let breaks = 0;
    const c = await connect(`${proxy.url}/v2/rpc`, { ...options, retry: { firstDelayMs: 1 }, onState: (state) => void (state === "reconnecting" && breaks++) });
    const session = await c.newSession();
    for (let i = 0; i < 4; i++) {
      await expect.poll(() => c.stream.state).toBe("open");
      const before = breaks;
      later += 30_000;
      proxy.cut();
      await expect.poll(() => breaks).toBeGreaterThan(before);
    }
    expect(await c.prompt(session, "echo on")).toBe("end_turn");
    await c.stream.close();
    await proxy.stop();
  });
});

test("a stream that is dead without an end is noticed, not before a comment is due, and nothing is lost by it", async () => {
  const proxy = await Proxy.to(gateway.port);
  let streams = 0;
  const c = await connect(`${proxy.url}/v2/rpc`, {
    silenceMs: 200, retry: { firstDelayMs: 1 },
    fetch: (input, init) => {
      if (new Headers(init?.headers).get("Accept") === "text/event-stream") streams++;
      return fetch(input, init);
    },
  });
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  onTestFinished(() => void vi.useRealTimers());
  const session = await c.newSession();
  for (let i = 1; i <= 3; i++) {
    expect(await c.prompt(session, "stream 20 20")).toBe("end_turn");
    const before = streams;
    await vi.advanceTimersByTimeAsync(19_000);
    expect(streams).toBe(before);
    await vi.advanceTimersByTimeAsync(2_000);
    await expect.poll(async () => {
      await vi.advanceTimersByTimeAsync(1); // what is opened again waits for a delay
      return streams;
    }).toBe(before + 2);
    expect(c.texts(session)).toHaveLength(20 * i);
  }
  await c.stream.close();
  await proxy.stop();
});

test("what follows a POST that has to be sent again does not overtake it", async () => {
  const taken: string[] = [];
  const [followed, passed] = [new AbortController(), new AbortController()];
  let tries = 0;
  const fetch: typeof globalThis.fetch = async (url, init) => {
    const { method } = JSON.parse(String(init?.body ?? "{}")) as { method?: string };
    if (method === "session/prompt" && ++tries < 3) {
      await sleep(60_000, followed.signal); // what follows it is on its way
      if (tries === 2) passed.abort();
      throw new TypeError("the network failed");
    }
    if (method === "session/cancel") {
      followed.abort();
      // A server waits for what it is to follow, but not for ever.
      if (tries < 3) await abortable(sleep(60_000, passed.signal), init?.signal ?? undefined);
    }
    if (method === "session/prompt" || method === "session/cancel") taken.push(method);
    return globalThis.fetch(url, init);
  };
  const c = await connect(gateway.rpc, { fetch, retry: { firstDelayMs: 1, maxDelayMs: 10 } });
  const session = await c.newSession();
  const turn = c.prompt(session, "echo hi");
  await c.connection.agent.notify(methods.agent.session.cancel, { sessionId: session });
  await turn;
  await expect.poll(() => taken).toEqual(["session/prompt", "session/cancel"]);
  await c.stream.close();
});

describe.each([["forth", 1], ["back", -1]] as const)("a clock that is set %s all the time", (_, direction) => {
  beforeEach(() => {
    let day = direction > 0 ? 10_000 : 50_000;
    vi.spyOn(Date, "now").mockImplementation(() => (day += direction) * 86_400_000);
  });
  afterEach(() => void vi.restoreAllMocks());

  test.each([{ transport: "http" }, { transport: "inline" }] as const)("$transport goes on when the network is back, and waits for nothing", async (options) => {
    const proxy = await Proxy.to(gateway.port);
    let failed = 0;
    const c = await connect(`${proxy.url}/v2/rpc`, {
      ...options, retry: { firstDelayMs: 1, maxDelayMs: 5 },
      fetch: (input, init) => fetch(input, init).catch((error: unknown) => {
        if (++failed === 4) proxy.refusing = false;
        throw error;
      }),
    });
    const session = await c.newSession();
    proxy.refusing = true;
    proxy.cut();
    expect(await c.prompt(session, "stream 20 20")).toBe("end_turn");
    expect(c.texts(session)).toHaveLength(20);
    expect(failed).toBeGreaterThanOrEqual(4);
    await c.stream.close();
    await proxy.stop();
  });

  test("a WebSocket that answers is no silent one", async () => {
    let heard: (() => void) | undefined;
    class Heard extends WebSocket {
      constructor(url: string, protocols: string[]) {
        super(url, protocols);
        this.on("pong", () => heard?.());
      }
    }
    const c = await connect(gateway.rpc, { transport: "websocket", WebSocket: Heard as never, silenceMs: 6000 });
    for (let i = 0; i < 2; i++) await new Promise<void>((resolve) => (heard = resolve));
    expect(c.stream.state).toBe("open");
    await c.stream.close();
  });
});

test.each(transports)("many requests under way at once are nothing to warn of: $transport", async (options) => {
  const proxy = await Proxy.to(gateway.port);
  const controller = new AbortController();
  const clients = await Promise.all(Array.from({ length: 12 }, () => connect(`${proxy.url}/v2/rpc`, { ...options, signal: controller.signal, retry: { firstDelayMs: 1, maxDelayMs: 20 } })));
  const [c] = clients;
  const seen = await warnings(async () => {
    const sessions = await Promise.all(Array.from({ length: 12 }, () => c!.newSession()));
    const slow = Promise.allSettled(sessions.map((session) => c!.prompt(session, "slow")));
    if (options.transport !== "websocket") {
      proxy.refusing = true; // else it is over before anybody looks
      proxy.cut();
      await expect.poll(() => c!.stream.state).toBe("reconnecting");
    }
    controller.abort(new Error("enough"));
    for (const { status } of await slow) expect(status).toBe("rejected");
  });
  await Promise.all(clients.map(({ stream }) => stream.closed));
  expect(seen).toEqual([]);
  await proxy.stop();
});

test("attempts that fail leave nothing behind", async () => {
  let attempts = 0;
  class Refused extends WebSocket {
    constructor(url: string, protocols: string[]) {
      super(++attempts > 15 ? url : "ws://127.0.0.1:1", protocols);
    }
  }
  const seen = await warnings(async () => {
    const c = await connect(gateway.rpc, { transport: "websocket", WebSocket: Refused as never, retry: { firstDelayMs: 1, maxDelayMs: 1 } });
    await c.stream.close();
  });
  expect([attempts, seen]).toEqual([16, []]);
});

/** A client whose event streams are counted while they are open. */
async function counted(capabilities: ClientCapabilities = {}): Promise<Connected & { open(): number }> {
  let open = 0;
  const c = await connect(gateway.rpc, {
    capabilities,
    fetch: (input, init) => {
      if (init?.method === "GET") {
        open++;
        init.signal?.addEventListener("abort", () => void open--, { once: true });
      }
      return fetch(input, init);
    },
  });
  return { ...c, open: () => open };
}

test("the stream of a session that was ended is given up, and opened again with it", async () => {
  const c = await counted();
  const sessions = await Promise.all(Array.from({ length: 12 }, () => c.newSession()));
  for (const s of sessions) expect(await c.prompt(s, "echo hi")).toBe("end_turn");
  expect(c.open()).toBe(13);
  for (const sessionId of sessions) await c.connection.agent.request(methods.agent.session.close, { sessionId });
  expect(c.open()).toBe(1);
  const [sessionId = ""] = sessions;
  await c.connection.agent.request(methods.agent.session.load, { sessionId, cwd: "/tmp", mcpServers: [] });
  expect(await c.prompt(sessionId, "stream 20 10")).toBe("end_turn");
  expect(c.texts(sessionId).filter((t) => t !== "hi")).toHaveLength(20);
  expect(c.open()).toBe(2);
  await c.stream.close();
  expect(c.open()).toBe(0);
});

test.each(["detach", "terminate"])("the stream of a session is given up behind %s, and opened again for who goes on with it", async (how) => {
  const c = await counted();
  const sessions = await Promise.all(Array.from({ length: 20 }, () => c.newSession()));
  for (const s of sessions) expect(await c.prompt(s, "echo hi")).toBe("end_turn");
  expect(c.open()).toBe(21);
  for (const sessionId of sessions) await c.connection.agent.request(`_sandboxagent/session/${how}`, { sessionId });
  expect(c.open()).toBe(1);
  const [sessionId = ""] = sessions;
  if (how === "terminate") await expect(c.prompt(sessionId, "echo there")).rejects.toThrow("has ended");
  else {
    // The gateway attaches who sends a prompt: the stream stays, also where it was sent before the answer to the other.
    expect(await c.prompt(sessionId, "echo there")).toBe("end_turn");
    const leaving = c.connection.agent.request(`_sandboxagent/session/${how}`, { sessionId });
    expect(await c.prompt(sessionId, "echo again")).toBe("end_turn");
    await leaving;
    expect(c.texts(sessionId)).toEqual(["hi", "there", "again"]);
  }
  expect(c.open()).toBe(2);
  await c.stream.close();
});

test("what is asked of sessions that are not followed leaves no stream behind, and a session that is opened keeps its own", async () => {
  const c = await counted();
  const other = await connect(gateway.rpc);
  const ended = await Promise.all(Array.from({ length: 20 }, () => c.newSession()));
  const others = await Promise.all(Array.from({ length: 20 }, () => other.newSession()));
  const ask = (method: string, sessionId: string, more: object = {}) => c.connection.agent.request(method, { sessionId, ...more });
  for (const s of ended) {
    for (let i = 0; i < 3; i++) expect(await c.prompt(s, `echo ${i}`)).toBe("end_turn");
    await ask("_sandboxagent/session/terminate", s);
    await ask("_sandboxagent/session/events", s);
    expect(c.texts(s)).toEqual(["0", "1", "2"]); // nothing comes twice
  }
  const [first = "", second = "", third = ""] = others;
  await Promise.all(others.flatMap((s) => [ask("_sandboxagent/session/get", s), ask("_sandboxagent/session/events", s)]));
  await expect(ask("no/such_method", first)).rejects.toMatchObject({ code: -32601 });
  await c.connection.agent.notify(methods.agent.session.cancel, { sessionId: first });
  await ask("_sandboxagent/session/get", first);
  expect(c.open()).toBe(1);
  const load = { cwd: "/tmp", mcpServers: [] };
  await Promise.all([ask("_sandboxagent/session/get", second), ask("session/load", second, load), ask("_sandboxagent/session/get", second)]);
  await Promise.all([ask("session/load", third, load), ask("_sandboxagent/session/get", third)]);
  expect(c.open()).toBe(3);
  expect(await c.prompt(second, "echo there")).toBe("end_turn");
  const { sessionId: fork } = (await ask("session/fork", first, load)) as { sessionId: string };
  expect(await c.prompt(fork, "echo forked")).toBe("end_turn");
  expect([c.texts(second), c.texts(fork), c.open()]).toEqual([["there"], ["forked"], 4]);
  await c.stream.close();
  await other.stream.close();
});

test("the stream of a session that another client deleted, or that is not there, is given up when all is answered", async () => {
  const c = await counted({ _meta: { "sandboxagent.dev": { notices: true } } });
  const sessionId = await c.newSession();
  expect(await c.prompt(sessionId, "echo hi")).toBe("end_turn");
  expect(c.open()).toBe(2);
  const other = await connect(gateway.rpc);
  await other.connection.agent.request(methods.agent.session.delete, { sessionId });
  await expect.poll(c.open).toBe(1);
  for (const { status } of await Promise.allSettled([1, 2, 3].map(() => c.prompt(sessionId, "echo hi")))) expect(status).toBe("rejected");
  await expect.poll(c.open).toBe(1);
  expect(c.stream.state).toBe("open");
  await c.stream.close();
  await other.stream.close();
});

test("a reader that is slow holds a WebSocket up, whose server is not silent then, and misses nothing", async () => {
  let pauses = () => {};
  const paused = new Promise<void>((resolve) => (pauses = resolve));
  class Held extends WebSocket {
    override pause(): void {
      super.pause();
      pauses();
    }
  }
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] }); // with which it looks whether the server is silent
  onTestFinished(() => void vi.useRealTimers());
  const stream = createAcpStream(gateway.rpc, { transport: "websocket", WebSocket: Held as never });
  const writer = stream.writable.getWriter();
  const reader = stream.readable.getReader();
  const call = (id: number, method: string, params: unknown) => writer.write({ jsonrpc: "2.0", id, method, params });
  await call(0, "initialize", { protocolVersion: 1, clientCapabilities: {} });
  await reader.read();
  await call(1, "session/new", { cwd: "/tmp", mcpServers: [] });
  const { value } = await reader.read();
  const { sessionId } = (value as { result: { sessionId: string } }).result;
  await call(2, "session/prompt", { sessionId, prompt: [{ type: "text", text: "stream 20000 50" }] });
  await paused; // nobody reads
  vi.advanceTimersByTime(10 * usualSilenceMs);
  let chunks = 0;
  for (;;) {
    const { value: message } = await reader.read();
    if (message === undefined || (!("method" in message) && message.id === 2)) break;
    chunks++;
  }
  expect(chunks).toBe(20000);
  expect(stream.error).toBeUndefined();
  await stream.close();
});

test("a gateway that was restarted does not know the connection", async () => {
  const own = await Gateway.start();
  const c = await connect(own.rpc, { retry: { firstDelayMs: 10 } });
  const session = await c.newSession();
  const slow = c.prompt(session, "slow").catch((e: unknown) => e); // it may end while the gateway starts
  await new Promise((resolve) => setTimeout(resolve, 50));
  await own.kill("SIGKILL");
  await own.restart();
  const error = await slow;
  expect(error).toBeInstanceOf(ConnectionLostError);
  expect(error).toMatchObject({ reason: "unknown_connection", detail: { sessions: [session] } });
  await own.stop();
});

test("an address that nobody serves, and one that is no ACP endpoint", async () => {
  await expect(connect("http://127.0.0.1:9/v2/rpc", { retry: { firstDelayMs: 1, giveUpAfterMs: 50 } })).rejects.toMatchObject({ name: "ConnectionLostError", reason: "unreachable", message: "http://127.0.0.1:9/v2/rpc cannot be reached: bad port" });
  await expect(connect(`${gateway.url}/v2/health`)).rejects.toMatchObject({ name: "ProblemError", status: 405 });
  await expect(connect(`${gateway.url}/v1/anything`)).rejects.toBeInstanceOf(ProblemError);
});

describe.each(transports)("$transport with a token", (options) => {
  test("headers come from a function, which is asked again when they are refused", async () => {
    const own = await Gateway.start([], { SANDBOX_AGENT_TOKEN: "right-token-0123456789" });
    let asked = 0;
    const c = await connect(own.rpc, {
      ...options,
      headers: ({ refused }) => {
        asked++;
        return { Authorization: `Bearer ${refused ? "right-token-0123456789" : "stale"}` };
      },
    });
    const session = await c.newSession();
    expect(await c.prompt(session, "stream 10 10")).toBe("end_turn");
    expect(asked).toBeGreaterThan(1);
    await c.stream.close();
    await expect(connect(own.rpc, { ...options, headers: { Authorization: "Bearer wrong" } })).rejects.toMatchObject({ name: "ProblemError", status: 401 });
    await own.stop();
  });
});
