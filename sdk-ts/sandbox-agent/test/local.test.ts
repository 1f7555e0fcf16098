import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
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

test("a gateway ends with the process that started it, also when that is killed", async () => {
  const script = join(dir, "parent.mjs");
  writeFileSync(script, `
    import { SandboxAgentClient } from ${JSON.stringify(new URL("../dist/local.js", import.meta.url).href)};
    const client = await SandboxAgentClient.start({ dataDir: ${JSON.stringify(join(dir, "three"))}, agent: "mock" });
    await client.newSession({ cwd: "/tmp" });
    console.log(client.gateway.pid);
    setInterval(() => {}, 1000);
  `);
  const parent = spawn(process.execPath, [script], { stdio: ["ignore", "pipe", "inherit"] });
  const pid = await new Promise<number>((resolve) => parent.stdout.once("data", (chunk: Buffer) => resolve(Number(chunk.toString()))));
  expect(alive(pid)).toBe(true);
  parent.kill("SIGKILL");
  await gone(pid);
});
