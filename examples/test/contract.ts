// What every example does, tried against the double of its provider.
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createConnection } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandboxAgentClient } from "sandbox-agent";
import type { Cloud } from "./cloud.ts";
import { freePort, run } from "./run.ts";

/** Gives a test a repository, and git in it. */
export async function withRepository(run: (dir: string, git: (...args: string[]) => string) => Promise<void>): Promise<void> {
  const dir = mkdtempSync(join(tmpdir(), "sandbox-agent-job-"));
  const git = (...args: string[]): string => execFileSync("git", ["-C", dir, "-c", "user.name=t", "-c", "user.email=t@example.com", ...args], { encoding: "utf8", maxBuffer: 64 << 20 });
  try {
    git("init", "--quiet");
    await run(dir, git);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

/**
 * The example against a double of the provider: nothing here reaches the provider's
 * cloud. A request of which `broken` says so fails once; the example then fails as
 * well, or gets there all the same.
 */
export function contract(example: string, provider: string, make: () => Cloud, broken: (path: string) => boolean, then: "fails" | "recovers" = "fails"): void {
  describe(`${example} example, its real SDK against a local double of ${provider} (not the provider's cloud)`, () => {
    let cloud: Cloud;
    beforeEach(async () => {
      cloud = await make().listen();
    });
    afterEach(async () => {
      await cloud.close();
      expect(cloud.unknown, "requests that the double does not know").toEqual([]);
    });

    /** Whatever happened, nothing of the sandbox is left. */
    async function gone(port: string): Promise<void> {
      expect(cloud.made.length, "sandboxes made").toBe(1);
      expect(cloud.alive, "sandboxes left").toBe(0);
      expect(cloud.made.flatMap((machine) => machine.processes()), "processes left").toEqual([]);
      for (const each of [Number(port), ...cloud.gatewayPorts()]) {
        const open = await new Promise<boolean>((resolve) => {
          const socket = createConnection(each, "127.0.0.1", () => {
            socket.destroy();
            resolve(true);
          }).on("error", () => resolve(false));
        });
        expect(open, `the gateway's port ${each} is open`).toBe(false);
      }
    }

    test("a turn with a permission, streamed", async () => {
      const port = String(await freePort());
      const program = await run(example, cloud, { GATEWAY_PORT: port, PROMPT: "permission" });
      await program.said("[permission]");
      expect(await program.code, program.output()).toBe(0);
      expect(program.output()).toContain("[end] end_turn");
      expect(program.output()).toContain("the sandbox is gone");
      await gone(port);
    });

    test("a whole job, whose change comes home; the sandbox stays until somebody takes it away", async () => {
      await withRepository(async (dir, git) => {
        git("commit", "--quiet", "--allow-empty", "--message", "first");
        const port = String(await freePort());
        const OUT = join(dir, "home.patch");
        const program = await run(example, cloud, { GATEWAY_PORT: port, REPO: `file://${dir}`, PROMPT: "write notes.txt from the sandbox", KEEP: "1", OUT, SANDBOX_AGENT_PROGRAM: process.env.SANDBOX_AGENT_BIN! });
        expect(await program.code, program.output()).toBe(0);
        expect(program.output()).toContain("+from the sandbox");
        expect(program.output()).toContain("Take it away: ");
        git("apply", OUT);
        expect(readFileSync(join(dir, "notes.txt"), "utf8")).toBe("from the sandbox\n");

        // The address in the output leads to this computer only within the program itself.
        const [, line = ""] = /new SandboxAgentClient\((\{.*\})\)\.loadSession/.exec(program.output()) ?? [];
        const { token } = JSON.parse(line) as { token: string };
        const [, sessionId = ""] = /sessionId: "([^"]+)"/.exec(program.output()) ?? [];
        await using client = new SandboxAgentClient({ baseUrl: `http://127.0.0.1:${cloud.gatewayPorts()[0] ?? port}`, token, agent: "mock" });
        const session = await client.loadSession({ sessionId });
        expect((await session.prompt("echo still here")).text).toContain("still here");
        expect(cloud.alive, "sandboxes left").toBe(1);
      });
    });

    test("an agent without its key costs no sandbox", async () => {
      const program = await run(example, cloud, { AGENT: "claude" });
      expect(await program.code, program.output()).toBe(1);
      expect(program.output()).toContain("AGENT=claude needs ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN");
      expect(cloud.made.length, "sandboxes made").toBe(0);
    });

    test("Ctrl-C in the middle of a turn", async () => {
      const port = String(await freePort());
      const program = await run(example, cloud, { GATEWAY_PORT: port, PROMPT: "slow" });
      await program.said("[turn]"); // it does not end by itself
      expect(cloud.made[0]?.processes().length).toBeGreaterThan(0);
      program.child.kill("SIGINT");
      expect(await program.code, program.output()).toBe(130);
      expect(program.output()).not.toContain("end_turn");
      await gone(port);
    });

    test("Ctrl-C, and the provider does not take the sandbox away: the program says so, and how it is done by hand", async () => {
      cloud.broken = (call) => call.method === "DELETE" || /\/(rm|stop)$/.test(call.path);
      const program = await run(example, cloud, { PROMPT: "slow" });
      await program.said("[turn]");
      const [, id = "none"] = /^(?:sandbox|container) (\S+)$/m.exec(program.output()) ?? [];
      program.child.kill("SIGINT");
      expect(await program.code, program.output()).toBe(1);
      expect(program.output()).toContain("THE SANDBOX MAY STILL RUN");
      expect(program.output()).toMatch(new RegExp(`Take it away: .*${id}`));
      expect(program.output()).not.toContain("the sandbox is gone");
      expect(cloud.alive, "sandboxes left").toBe(1);
    });

    test("the provider fails in the middle", async () => {
      const port = String(await freePort());
      cloud.failing = (call) => broken(call.path);
      const program = await run(example, cloud, { GATEWAY_PORT: port });
      expect(await program.code, program.output()).toBe(then === "fails" ? 1 : 0);
      expect(cloud.failing, "the double has failed").toBeUndefined();
      expect(program.output()).toContain(then === "fails" ? "the double was told to fail" : "[end] end_turn");
      await gone(port);
    });

    test("the agent is unknown", async () => {
      const port = String(await freePort());
      const program = await run(example, cloud, { GATEWAY_PORT: port, AGENT: "no-such-agent" });
      expect(await program.code, program.output()).toBe(1);
      expect(program.output()).toContain("no-such-agent");
      await gone(port);
    });
  });
}
