// Any two events that meet while an agent waits for an answer: everything that was asked is settled, the turn ends once, and the client is of use behind it.
import { AcpRpcError, ConnectionLostError, NotConnectedError, SandboxAgentClient } from "sandbox-agent";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
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
const events: Record<string, (_: Scene) => unknown> = {
  "the connection is cut": ({ proxy }) => proxy.cut(),
  "the gateway is away": ({ proxy }) => {
    proxy.refuses = 2;
    proxy.cut();
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

const ending = ["another client deletes", "delete"];

/** When the second event comes. */
const gaps = ["with", "behind the first message of", "behind"] as const;

/** Numbers from a seed. */
function random(seed: number): () => number {
  let x = seed >>> 0 || 1;
  return () => ((x ^= x << 13), (x ^= x >>> 17), (x ^= x << 5), (x >>> 0) / 2 ** 32);
}

async function meet(options: (typeof variants)[number], first: string, second: string, gap: (typeof gaps)[number]): Promise<void> {
  const proxy = await Proxy.to(gateway.port);
  let passed = () => {}; // called with each message of the client
  const client: Client = new SandboxAgentClient<1 | 2>({ baseUrl: proxy.url, ...options, retry: { firstDelayMs: 1, maxDelayMs: 20 }, onEnvelope: () => passed() });
  const other: Client = new SandboxAgentClient<1 | 2>({ baseUrl: gateway.url, agent: options.agent, acpVersion: options.acpVersion });
  const watching: Client = new SandboxAgentClient<1 | 2>({ baseUrl: gateway.url, agent: options.agent, acpVersion: options.acpVersion });
  const scene = { proxy, client, other, session: (await client.newSession({ cwd: "/tmp" })).id, abort: new AbortController(), answer: () => {}, answerOther: () => {} };
  const ended = new Promise<void>((resolve) => void watching.onTurnEnded(() => resolve()));
  for (const one of [other, watching]) await one.resumeSession({ sessionId: scene.session });
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
  const settle = (one: Promise<unknown>) => {
    const done = one.then(() => undefined, (error: unknown) => error);
    settled.push(done);
    return done;
  };
  settle(turn.then(() => {}));
  settle(iterated);
  await Promise.all(both);
  const moved = new Promise<void>((resolve) => (passed = resolve));
  const happens = (name: string) => {
    const done = settle((async () => events[name]!(scene))());
    if (name !== "prompt") return done;
    return options.transport === "inline" ? undefined : Promise.race([done, moved]); // it waits for the turn before: there it is not even sent
  };
  const begun = happens(first);
  if (gap === "behind the first message of") await Promise.race([begun, moved]);
  if (gap === "behind") await begun;
  await Promise.all([begun, happens(second)]);
  scene.answerOther(); // else it may be open for ever
  scene.answer();
  for (const error of await Promise.all(settled)) {
    if (error !== undefined) expect([AcpRpcError, ConnectionLostError, NotConnectedError].some((kind) => error instanceof kind), String(error)).toBe(true);
  }
  if (![first, second].some((name) => ending.includes(name))) {
    await ended;
    const ends = (await watching.getEvents(scene.session, { limit: 1000 })).events.filter(({ message }) => JSON.stringify(message).includes('"_sandboxagent/session/turn_ended"')).length;
    const prompts = [first, second].filter((name) => name === "prompt").length; // may be taken back before their turns begin
    expect(ends).toBeGreaterThanOrEqual(1);
    expect(ends).toBeLessThanOrEqual(1 + prompts);
  }
  proxy.refuses = 0;
  if (first === "dispose" || second === "dispose") await expect(client.connect()).rejects.toBeInstanceOf(NotConnectedError);
  else {
    if (client.state === "idle") await client.connect();
    await client.listSessions(); // a session is not made once more where its connection was cut before the client has heard of that
    const { id } = await client.newSession({ cwd: "/tmp" });
    expect((await client.prompt({ sessionId: id, prompt: "echo on" })).text).toBe("on");
  }
  for (const one of [client, other, watching]) await one[Symbol.asyncDispose]();
  await proxy.stop();
}

/** What meets: in the long tier all of it, else a few that a seed chooses. */
function meetings(seed: number) {
  const next = random(seed);
  const names = Object.keys(events);
  const all = names.flatMap((first) => names.flatMap((second) => gaps.map((gap) => ({ first, second, gap }))));
  if (process.env.SANDBOX_AGENT_LONG) return all;
  for (let i = 0; i < 5; i++) next(); // the first ones are near each other
  return Array.from({ length: 3 }, () => all[Math.floor(next() * all.length)]!);
}

describe.each(variants.map((options, at) => ({ options, at })))("version $options.acpVersion, $options.agent, $options.transport", ({ options, at }) => {
  test.each(meetings(at + 1))("$second, $gap $first", ({ first, second, gap }) => meet(options, first, second, gap));
});
