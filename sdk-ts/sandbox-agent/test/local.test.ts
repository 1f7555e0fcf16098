import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, expect, test } from "vitest";
import { SandboxAgentClient, StartError, findBinary } from "sandbox-agent/local";

const dir = mkdtempSync(join(tmpdir(), "sandbox-agent-sdk-local-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const alive = (pid: number) => {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
};

async function gone(pid: number): Promise<void> {
  for (let i = 0; i < 500 && alive(pid); i++) await new Promise((resolve) => setTimeout(resolve, 20));
  expect(alive(pid)).toBe(false);
}

test("starts a gateway with a token, which is in no argument, and ends it", async () => {
  const client = await SandboxAgentClient.start({ dataDir: join(dir, "one"), agent: "mock" });
  const { pid, token, url } = client.gateway;
  const session = await client.newSession({ cwd: dir });
  expect((await session.prompt("echo hi")).text).toBe("hi");
  expect((await fetch(`${url}/v2/sessions`)).status).toBe(401);
  if (process.platform === "linux") expect(readFileSync(`/proc/${pid}/cmdline`, "utf8")).not.toContain(token);
  await client.stop();
  await gone(pid);
});

test("what cannot be started says why, with the log", async () => {
  await expect(SandboxAgentClient.start({ binary: join(dir, "missing") })).rejects.toBeInstanceOf(StartError);
  await expect(SandboxAgentClient.start({ dataDir: join(dir, "two"), args: ["--no-such-flag"] })).rejects.toThrow(/no-such-flag/);
  expect(() => findBinary({ PATH: dir })).toThrow(/SANDBOX_AGENT_BIN/);
  writeFileSync(join(dir, "silent"), "#!/bin/sh\necho said before\nexec sleep 60 <&0\n", { mode: 0o755 });
  await expect(SandboxAgentClient.start({ binary: join(dir, "silent"), startTimeoutMs: 300 })).rejects.toThrow("not ready within 300 ms");
});

test("a gateway whose client has options that are none is ended again", async () => {
  const log: string[] = [];
  await expect(SandboxAgentClient.start({ dataDir: join(dir, "options"), acpVersion: 3 as never, onLog: (text) => log.push(text) })).rejects.toThrow("acpVersion is 1 or 2, not 3");
  expect(log.join("")).toContain("listening on");
  expect(existsSync(join(dir, "options", "started.json"))).toBe(false);
  const client = await SandboxAgentClient.start({ dataDir: join(dir, "options"), args: ["--default-agent", "mock"] }); // the directory is free for other ones
  await client.stop();
});

test("a second start on one data directory attaches to the first", async () => {
  const dataDir = join(dir, "shared");
  const [a, b] = await Promise.all([SandboxAgentClient.start({ dataDir, agent: "mock" }), SandboxAgentClient.start({ dataDir: `${dataDir}/`, agent: "mock" })]);
  expect(b.gateway).toEqual(a.gateway);
  const session = await a.newSession({ cwd: dir });
  await a.stop();
  await a.stop(); // counts once
  const c = await SandboxAgentClient.start({ dataDir });
  expect(c.gateway.pid).toBe(b.gateway.pid);
  expect((await b.api.sessions()).sessions.map((s) => s.sessionId)).toEqual([session.id]);
  for (const args of [["--data-dir", dataDir], [`--data-dir=${dataDir}`]]) {
    const other = await SandboxAgentClient.start({ args });
    expect(other.gateway.pid).toBe(c.gateway.pid);
    await other.stop();
  }
  await expect(SandboxAgentClient.start({ dataDir, args: ["--log-level", "debug"] })).rejects.toThrow("with other options");
  await b.stop();
  expect(alive(c.gateway.pid)).toBe(true);
  // Whoever comes while it ends, or just before, has a gateway that lives on.
  const stopped = c.stop();
  const between = await SandboxAgentClient.start({ dataDir });
  await stopped;
  expect((await between.api.health()).status).toBe("ok");
  await between.stop();
  const d = await SandboxAgentClient.start({ dataDir });
  expect(d.gateway.pid).not.toBe(c.gateway.pid);
  // One that died is not attached to.
  process.kill(d.gateway.pid, "SIGKILL");
  await gone(d.gateway.pid);
  const e = await SandboxAgentClient.start({ dataDir });
  expect((await e.api.health()).status).toBe("ok");
  await e.stop();
  await d.stop();
});

test("a start beside the stop of the last client has a gateway that goes on", async () => {
  const passes = async (ticks: number) => {
    for (let i = 0; i < ticks; i++) await null;
  };
  for (let ticks = 0; ticks < 6; ticks++) {
    const options = { dataDir: join(dir, `beside-${ticks}`), agent: "mock", autoConnect: false };
    const last = await SandboxAgentClient.start(options);
    const [next] = await Promise.all([passes(0).then(() => SandboxAgentClient.start(options)), passes(ticks).then(() => last.stop())]);
    expect((await next.health()).status, `${ticks} ticks later`).toBe("ok");
    await next.stop();
    await gone(next.gateway.pid);
  }
});

test("gateways without a directory of their own are not shared", async () => {
  const options = { args: ["--ephemeral"], agent: "mock" };
  const [a, b] = await Promise.all([SandboxAgentClient.start(options), SandboxAgentClient.start(options)]);
  expect(a.gateway.pid).not.toBe(b.gateway.pid);
  await Promise.all([a.stop(), b.stop()]);
});

/** Another process, which has started a gateway and says where it is. */
async function elsewhere(options: object): Promise<{ readonly gateway: { url: string; token: string; pid: number }; end(signal: NodeJS.Signals): void }> {
  const script = join(mkdtempSync(join(dir, "parent-")), "parent.mjs");
  writeFileSync(script, `
    import { SandboxAgentClient } from ${JSON.stringify(new URL("../dist/local.js", import.meta.url).href)};
    const client = await SandboxAgentClient.start(${JSON.stringify(options)});
    await client.newSession({ cwd: "/tmp" });
    console.log(JSON.stringify(client.gateway));
    setInterval(() => {}, 1000);
  `);
  const parent = spawn(process.execPath, [script], { stdio: ["ignore", "pipe", "inherit"] });
  const said = await new Promise<string>((resolve) => parent.stdout.once("data", (chunk: Buffer) => resolve(chunk.toString())));
  return { gateway: JSON.parse(said), end: (signal) => parent.kill(signal) };
}

test("a start of another process on one data directory attaches, too, and outlives nothing", async () => {
  const dataDir = join(dir, "of two");
  const other = await elsewhere({ dataDir, agent: "mock" });
  const [client, another] = await Promise.all([SandboxAgentClient.start({ dataDir, agent: "mock" }), SandboxAgentClient.start({ dataDir, agent: "mock" })]);
  expect(client.gateway).toEqual(other.gateway);
  expect(another.gateway).toEqual(other.gateway);
  expect((await client.api.sessions()).sessions.length).toBe(1);
  expect((await (await client.newSession({ cwd: dir })).prompt("echo together")).text).toBe("together");
  expect(statSync(join(dataDir, "started.json")).mode & 0o777).toBe(0o600);
  await client.stop();
  expect((await another.api.health()).status).toBe("ok");
  await another.stop();
  expect(alive(other.gateway.pid)).toBe(true); // it is the other process's
  await expect(SandboxAgentClient.start({ dataDir, agent: "mock", args: ["--log-level", "debug"] })).rejects.toThrow("of another process uses the data directory");
  // Killed, it leaves what it has said. Who comes then has a gateway of its own.
  other.end("SIGKILL");
  await gone(other.gateway.pid);
  const own = await SandboxAgentClient.start({ dataDir, agent: "mock" });
  expect((await own.api.sessions()).sessions.length).toBe(2);
  await own.stop();
  expect(existsSync(join(dataDir, "started.json"))).toBe(false);
});

test("Ctrl-C at a terminal leaves the gateway to its program", async () => {
  const script = join(mkdtempSync(join(dir, "terminal-")), "program.mjs");
  writeFileSync(script, `
    import { SandboxAgentClient } from ${JSON.stringify(new URL("../dist/local.js", import.meta.url).href)};
    const client = await SandboxAgentClient.start({ dataDir: ${JSON.stringify(join(dir, "terminal"))}, agent: "mock" });
    const turn = (await client.newSession({ cwd: "/tmp" })).prompt("slow");
    for await (const _ of turn) break;
    process.once("SIGINT", async () => {
      await turn.cancel();
      console.log((await turn).stopReason);
      await client.stop();
    });
    console.log(client.gateway.pid);
  `);
  const program = spawn(process.execPath, [script], { stdio: ["ignore", "pipe", "inherit"], detached: true });
  const lines = createInterface(program.stdout)[Symbol.asyncIterator]();
  const pid = Number((await lines.next()).value);
  expect(() => process.kill(-pid, 0)).not.toThrow(); // it is in a group of its own
  process.kill(-program.pid!, "SIGINT"); // as a terminal does
  expect((await lines.next()).value).toBe("cancelled");
  await gone(pid);
});

test("starts of two processes at the same time have one gateway, however long it takes", async () => {
  const dataDir = join(dir, "at once");
  // The gateway has the directory, and is heard of seconds later, as on a busy machine.
  const slow = join(dir, "slow");
  writeFileSync(slow, `#!/bin/bash\nexec ${JSON.stringify(findBinary())} "$@" 2> >(sleep 4; exec cat >&2)\n`, { mode: 0o755 });
  const other = elsewhere({ dataDir, agent: "mock", binary: slow });
  while (!existsSync(join(dataDir, "lock"))) await new Promise((later) => setTimeout(later, 20));
  const client = await SandboxAgentClient.start({ dataDir, agent: "mock" });
  expect(client.gateway).toEqual((await other).gateway);
  expect(readdirSync(dataDir).filter((file) => file.startsWith("starting."))).toEqual([]);
  await client.stop();
  (await other).end("SIGKILL");
  await gone(client.gateway.pid);
}, 30_000);

test("a gateway that was not started by this package is not attached to", async () => {
  const dataDir = join(dir, "foreign");
  const server = spawn(findBinary(), ["server", "--no-token", "--port", "0", "--data-dir", dataDir], { stdio: ["ignore", "ignore", "pipe"] });
  await new Promise<void>((resolve) => server.stderr.once("data", () => resolve()));
  await expect(SandboxAgentClient.start({ dataDir })).rejects.toThrow(new RegExp(`not started uses the data directory [^]* new SandboxAgentClient[^]*in use by another process .process ${server.pid}`));
  server.kill();
});

test("a gateway ends with the process that started it, also when that is killed", async () => {
  const parent = await elsewhere({ dataDir: join(dir, "three"), agent: "mock" });
  expect(alive(parent.gateway.pid)).toBe(true);
  parent.end("SIGKILL");
  await gone(parent.gateway.pid);
});
