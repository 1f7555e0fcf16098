import { usualSilenceMs } from "acp-http-client";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { ProblemError, SandboxAgentClient } from "sandbox-agent";
import { WebSocket } from "ws";
import { Gateway } from "../../test/gateway.js";
import { Proxy } from "../../test/proxy.js";

let gateway: Gateway;
let client: SandboxAgentClient;
beforeAll(async () => {
  gateway = await Gateway.start();
  client = new SandboxAgentClient({ baseUrl: gateway.url, autoConnect: false, WebSocket: WebSocket as never });
});
afterAll(() => gateway.stop());

const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);

test("a program is run to its end", async () => {
  const { processes } = client;
  expect(await processes.run({ command: "sh", args: ["-c", "cat; echo err >&2; exit 3"], stdin: "in" })).toMatchObject({
    exitCode: 3, timedOut: false, stdout: { data: "in", truncated: false }, stderr: { data: "err\n" },
  });
  await expect(processes.run({ command: "no-such-program" })).rejects.toBeInstanceOf(ProblemError);
  const controller = new AbortController();
  const endless = processes.run({ command: "sleep", args: ["60"] }, { signal: controller.signal });
  setTimeout(() => controller.abort(), 50);
  await expect(endless).rejects.toThrow();
});

test("output is followed through a hub that does not have the gateway for a moment", async () => {
  const away = { type: "urn:sandbox-agent:error:node_offline", title: "The node is offline", status: 503 };
  let refusals = 0;
  let cut = () => {};
  const far = new SandboxAgentClient({
    baseUrl: gateway.url, autoConnect: false, retry: { firstDelayMs: 1 },
    fetch: async (input, init) => {
      if (refusals > 0) {
        refusals--;
        return Response.json(away, { status: 503, headers: { "content-type": "application/problem+json" } });
      }
      const broken = new AbortController();
      cut = () => broken.abort(new TypeError("the network failed"));
      return globalThis.fetch(input, { ...init, signal: AbortSignal.any([broken.signal, ...(init?.signal ? [init.signal] : [])]) });
    },
  });
  const p = await client.processes.start({ command: "cat" });
  await client.processes.write(p.id, "one ");
  let seen = "";
  for await (const part of far.processes.follow(p.id)) {
    if ("data" in part) seen += text(part.data);
    if (seen !== "one ") continue;
    refusals = 2;
    cut();
    await client.processes.write(p.id, "two", { close: true });
  }
  expect(seen).toBe("one two");
  expect(refusals).toBe(0);
  refusals = 1;
  await expect(far.processes.follow(p.id).next()).rejects.toMatchObject({ status: 503 });
  await client.processes.delete(p.id);
});

test("output of a program that says nothing is followed through a hub that does not have the gateway for a moment", async () => {
  const away = () => Response.json({ type: "urn:sandbox-agent:error:node_offline", title: "The node is offline", status: 503 }, { status: 503, headers: { "content-type": "application/problem+json" } });
  const stream = (text: string) => () => new Response(text, { headers: { "content-type": "text/event-stream" } });
  let late = 0;
  const now = performance.now.bind(performance);
  using _ = vi.spyOn(performance, "now").mockImplementation(() => now() + late);
  const quiet = () => new Response(new ReadableStream({
    pull(controller) {
      late += 3_600_000; // so long the stream is open
      controller.error(new TypeError("the network failed"));
    },
  }, { highWaterMark: 0 }), { headers: { "content-type": "text/event-stream" } });
  const answers = [quiet, away, quiet, away, stream("event: exit\ndata: {}\n\n")];
  // Of each try 45 s count.
  const far = new SandboxAgentClient({ baseUrl: gateway.url, autoConnect: false, retry: { firstDelayMs: 1, giveUpAfterMs: 40_000 }, fetch: async () => answers.shift()!() });
  for await (const part of far.processes.follow("p")) expect(part).toBeUndefined();
  expect(answers).toEqual([]);
  answers.push(away);
  await expect(far.processes.follow("p").next()).rejects.toMatchObject({ status: 503 });
});

test("a program in the background: input, output as it comes over a network that breaks, signals, its end", async () => {
  const { processes } = client;
  const p = await processes.start({ command: "sh", args: ["-c", "while read line; do echo got $line; done; exit 5"] });
  expect((await processes.list()).map((x) => x.id)).toContain(p.id);
  const proxy = await Proxy.to(gateway.port);
  const far = new SandboxAgentClient({ baseUrl: proxy.url, autoConnect: false, retry: { firstDelayMs: 1 } });
  let seen = "";
  const following = (async () => {
    for await (const part of far.processes.follow(p.id)) if ("data" in part) seen += text(part.data);
  })();
  for (let i = 0; i < 50; i++) {
    await processes.write(p.id, `${i}\n`);
    if (i % 5 === 0) proxy.cut();
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await processes.write(p.id, "", { close: true });
  await following;
  expect(seen).toBe(Array.from({ length: 50 }, (_, i) => `got ${i}\n`).join(""));
  expect(await processes.get(p.id)).toMatchObject({ exitCode: 5 });
  const { chunks } = await processes.logs(p.id, { stream: "stdout" });
  expect(chunks.map((c) => text(c.data)).join("")).toBe(seen);
  const sleeper = await processes.start({ command: "sleep", args: ["60"] });
  await processes.signal(sleeper.id, "SIGINT");
  const stubborn = await processes.start({ command: "sh", args: ["-c", "trap '' TERM; sleep 60"] });
  await processes.stop(stubborn.id, { patienceMs: 50 });
  await Promise.all([p, sleeper, stubborn].map((x) => processes.delete(x.id)));
  await expect(processes.get(p.id)).rejects.toMatchObject({ status: 404 });
  const limits = await processes.limits();
  expect(await processes.setLimits({ runMs: limits.runMs })).toEqual(limits);
  await proxy.stop();
});

describe("a terminal", () => {
  test("is typed into, resized, left and looked at again from where it was", async () => {
    const p = await client.processes.start({ command: "sh", tty: true, cols: 80, rows: 24, env: { PS1: "$ " } });
    const one = await client.terminal(p.id);
    let seen = "";
    const reading = (async () => {
      for await (const chunk of one) seen += text(chunk);
    })().catch(() => {});
    one.resize(101, 33);
    one.write("stty size; echo do''ne\n");
    await expect.poll(() => seen).toContain("done");
    expect(seen).toContain("33 101");
    expect(one.shown).toBe(0); // it is the first that looks
    await one.close();
    await reading;
    const { position } = one; // behind the shell's next prompt, or before it
    const two = await client.terminal(p.id, { after: position });
    expect(two.shown).toBeGreaterThanOrEqual(position);
    two.write("echo sec''ond; exit 7\n");
    let rest = "";
    for await (const chunk of two) rest += text(chunk);
    expect(rest).toContain("second");
    expect(rest).not.toContain("33 101");
    expect(await two.exited).toEqual({ exitCode: 7 });
    const whole = await client.terminal(p.id);
    let all = "";
    for await (const chunk of whole) all += text(chunk);
    expect(all).toBe(seen + rest);
    await client.processes.delete(p.id);
    await expect(client.terminal(p.id)).rejects.toMatchObject({ name: "ProblemError", status: 404 });
    // A browser's WebSocket does not say why it is refused.
    class Mute extends WebSocket {
      override on(event: string, listener: never): this {
        return event === "unexpected-response" ? this : super.on(event, listener);
      }
    }
    const mute = new SandboxAgentClient({ baseUrl: gateway.url, autoConnect: false, WebSocket: Mute as never });
    await expect(mute.terminal(p.id)).rejects.toMatchObject({ name: "ProblemError", status: 404 });
  });

  test("says so when it is typed into behind its end", async () => {
    const p = await client.processes.start({ command: "cat", tty: true });
    const left = await client.terminal(p.id);
    const ended = await client.terminal(p.id);
    expect(() => ended.onMissed(undefined as never)).toThrow("must be a function, not undefined");
    await left.close();
    ended.write("\x04"); // cat ends
    await ended.exited;
    await expect.poll(() => throws(() => ended.write("x"))).toContain("nothing can be sent to it");
    for (const send of [() => left.write("x"), () => left.resize(80, 25), () => left.signal("SIGINT")]) {
      expect(throws(send)).toContain("nothing can be sent to it");
    }
    await client.processes.delete(p.id);
  });

  test("on a network that is dead without an end is given up", async () => {
    const proxy = await Proxy.to(gateway.port);
    const near = new SandboxAgentClient({ baseUrl: proxy.url, autoConnect: false, WebSocket: WebSocket as never });
    const p = await client.processes.start({ command: "cat", tty: true });
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] }); // with which it looks whether the gateway is silent
    onTestFinished(() => void vi.useRealTimers());
    const terminal = await near.terminal(p.id);
    proxy.hold(true);
    vi.advanceTimersByTime(2 * usualSilenceMs);
    await expect(terminal.exited).rejects.toMatchObject({ name: "ConnectionLostError", reason: "unreachable" });
    await expect.poll(() => proxy.open).toBe(0);
    await client.processes.delete(p.id);
    await proxy.stop();
  });

  test("that is refused, left or not wanted any more leaves nothing behind that keeps the program alive", async () => {
    const proxy = await Proxy.to(gateway.port);
    const near = new SandboxAgentClient({ baseUrl: proxy.url, autoConnect: false, WebSocket: WebSocket as never });
    await expect(near.terminal("none")).rejects.toBeInstanceOf(ProblemError);
    await expect.poll(() => proxy.open).toBe(0);
    const p = await client.processes.start({ command: "cat", tty: true });
    await expect(near.terminal(p.id, { signal: AbortSignal.abort() })).rejects.toThrow("aborted");
    const controller = new AbortController();
    const opening = near.terminal(p.id, { signal: controller.signal });
    controller.abort();
    await expect(opening).rejects.toThrow("aborted");
    const terminal = await near.terminal(p.id);
    const made = vi.spyOn(globalThis, "setTimeout");
    const cleared = vi.spyOn(globalThis, "clearTimeout");
    try {
      await terminal.close();
      for (const { value } of made.mock.results) expect(cleared).toHaveBeenCalledWith(value);
    } finally {
      vi.restoreAllMocks();
    }
    await expect.poll(() => proxy.open).toBe(0);
    await client.processes.delete(p.id);
    await proxy.stop();
  });
});

/** What f throws, "" for nothing. */
function throws(f: () => void): string {
  try {
    f();
    return "";
  } catch (error) {
    return String(error);
  }
}
