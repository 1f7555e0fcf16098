// Any two events that meet while an agent waits for an answer: everything that was asked is settled, the turn ends once, and the client is of use behind it.
import { AcpRpcError, ConnectionLostError, NotConnectedError, SandboxAgentClient } from "sandbox-agent";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebSocket } from "ws";
import { Gateway } from "../../test/gateway.js";
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
type Client = SandboxAgentClient<1 | 2>;

/** What the events act on. */
interface Scene {
  readonly proxy: Proxy;
  readonly client: Client;
  readonly other: Client;
  readonly session: string;
  readonly abort: AbortController;
  answer(): void;
  answerOther(): void;
}
const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));
const events: Record<string, (_: Scene) => unknown> = {
  "the connection is cut": ({ proxy }) => proxy.cut(),
  "the gateway is away": async ({ proxy }) => {
    proxy.refusing = true;
    proxy.cut();
    await pause(30);
    proxy.refusing = false;
  },
  "cancel": ({ client, session }) => client.cancel(session),
  "abort": ({ abort }) => abort.abort(),
  "answer": (scene) => scene.answer(),
  "another client answers": (scene) => scene.answerOther(),
  "another client deletes": ({ other, session }) => other.deleteSession(session),
  "another client closes": ({ other, session }) => other.closeSession(session),
  "another client ends": ({ other, session }) => other.terminateSession(session),
  "close": ({ client, session }) => client.closeSession(session),
  "delete": ({ client, session }) => client.deleteSession(session),
  "detach": ({ client, session }) => client.detachSession(session),
  "load": ({ client, session }) => client.loadSession({ sessionId: session }),
  "resume": ({ client, session }) => client.resumeSession({ sessionId: session }),
  "prompt": ({ client, session }) => client.prompt({ sessionId: session, prompt: "echo more" }),
  "fork": ({ client, session }) => client.forkSession({ sessionId: session }),
  "a title": ({ client, session }) => client.setTitle(session, "title"),
  "a new session": ({ client }) => client.newSession({ cwd: "/tmp" }),
  "disconnect": ({ client }) => client.disconnect(),
  "dispose": ({ client }) => client[Symbol.asyncDispose](),
};

/** Numbers from a seed. */
function random(seed: number): () => number {
  let x = seed >>> 0 || 1;
  return () => ((x ^= x << 13), (x ^= x >>> 17), (x ^= x << 5), (x >>> 0) / 2 ** 32);
}

async function meet(options: (typeof variants)[number], first: string, second: string, gap: number): Promise<void> {
  const proxy = await Proxy.to(gateway.port);
  const client: Client = new SandboxAgentClient<1 | 2>({ baseUrl: proxy.url, ...options, retry: { firstDelayMs: 1, maxDelayMs: 20 } });
  const other: Client = new SandboxAgentClient<1 | 2>({ baseUrl: gateway.url, agent: options.agent, acpVersion: options.acpVersion });
  const scene = { proxy, client, other, session: (await client.newSession({ cwd: "/tmp" })).id, abort: new AbortController(), answer: () => {}, answerOther: () => {} };
  await other.resumeSession({ sessionId: scene.session });
  const asked = (by: Client, how: "answer" | "answerOther") => new Promise<void>((shown) => by.onPermission(() => new Promise((resolve) => {
    scene[how] = () => resolve("allow_once");
    shown();
  })));
  const both = [asked(client, "answer"), asked(other, "answerOther")];
  const turn = client.prompt({ sessionId: scene.session, prompt: "permission", signal: scene.abort.signal });
  const iterated = (async () => {
    for await (const _ of turn);
  })();
  const settled: Promise<unknown>[] = [];
  const settle = (one: Promise<unknown>) => settled.push(one.then(() => undefined, (error: unknown) => error));
  settle(turn.then(() => {}));
  settle(iterated);
  await Promise.all(both);
  for (const name of [first, second]) {
    settle((async () => events[name]!(scene))());
    if (gap > 0) await pause(gap);
  }
  await pause(10); // whoever cancels comes first
  scene.answerOther(); // else it may be open for ever
  scene.answer();
  for (const error of await Promise.all(settled)) {
    if (error !== undefined) expect([AcpRpcError, ConnectionLostError, NotConnectedError].some((kind) => error instanceof kind), String(error)).toBe(true);
  }
  const ends = await other.getEvents(scene.session, { limit: 1000 }).then(({ events }) => events.filter(({ message }) => JSON.stringify(message).includes('"_sandboxagent/session/turn_ended"')).length, () => undefined);
  if (ends !== undefined) expect(ends).toBeLessThanOrEqual([first, second].filter((name) => name === "prompt").length + 1);
  if (first === "dispose" || second === "dispose") await expect(client.connect()).rejects.toBeInstanceOf(NotConnectedError);
  else {
    if (client.state === "idle") await client.connect();
    const { id } = await client.newSession({ cwd: "/tmp" });
    expect((await client.prompt({ sessionId: id, prompt: "echo on" })).text).toBe("on");
  }
  await client[Symbol.asyncDispose]();
  await other[Symbol.asyncDispose]();
  await proxy.stop();
}

test.each(variants)("version $acpVersion, $agent, $transport", async (options) => {
  const seed = Number(process.env.SANDBOX_AGENT_SEED ?? Date.now() % 2 ** 31);
  const next = random(seed);
  const names = Object.keys(events);
  const all = names.flatMap((first) => names.map((second) => ({ first, second, gap: Math.floor(next() * 3) * 2, at: next() }))).sort((a, b) => a.at - b.at);
  const some = process.env.SANDBOX_AGENT_LONG ? all : all.slice(0, 8);
  for (const { first, second, gap } of some) {
    await meet(options, first, second, gap).catch((cause: unknown) => {
      throw new Error(`seed ${seed}: ${first}, ${gap} ms, ${second}`, { cause });
    });
  }
});
