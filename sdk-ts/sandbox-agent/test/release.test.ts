import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, expect, test } from "vitest";

const run = promisify(execFile);
const root = resolve(import.meta.dirname, "../..");
const dir = mkdtempSync(join(tmpdir(), "sandbox-agent-sdk-release-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

test("a release is made, and installed into an empty project it finds its program", async () => {
  const platform = `${process.platform}-${process.arch}`;
  const out = join(dir, "out");
  // It is packed and unpacked as it is: what the program does when it is asked for is what counts.
  const programs = mkdtempSync(join(dir, "programs-"));
  writeFileSync(join(programs, `sandbox-agent-${process.platform}-${process.arch.replace("x64", "amd64")}`), `#!/bin/sh\nexec '${process.env.SANDBOX_AGENT_BIN}' "$@"\n`);
  const { stdout } = await run(process.execPath, [join(root, "scripts/release.mjs"), "--version", "1.2.3-test.1", "--programs", programs, "--out", out, "--platform", platform]);
  expect(stdout).toContain("nothing was published");
  const tarballs = readdirSync(out).filter((f) => f.endsWith(".tgz"));
  expect(tarballs.sort()).toEqual([`sandbox-agent-${platform}-1.2.3-test.1.tgz`, "acp-http-client-1.2.3-test.1.tgz", "sandbox-agent-1.2.3-test.1.tgz"].sort());
  const project = mkdtempSync(join(dir, "project-"));
  const local = (name: string) => `file:${join(out, `${name}-1.2.3-test.1.tgz`)}`;
  writeFileSync(join(project, "package.json"), JSON.stringify({
    name: "project", private: true, type: "module",
    dependencies: { "sandbox-agent": local("sandbox-agent"), "acp-http-client": local("acp-http-client"), [`@sandbox-agent/${platform}`]: local(`sandbox-agent-${platform}`) },
    overrides: { "acp-http-client": "$acp-http-client" },
  }));
  await run("npm", ["install", "--no-audit", "--no-fund", "--prefer-offline"], { cwd: project });
  writeFileSync(join(project, "main.mjs"), `
    import { SandboxAgentClient } from "sandbox-agent/local";
    const client = await SandboxAgentClient.start({ agent: "mock", args: ["--ephemeral"] });
    const session = await client.newSession({ cwd: "/tmp" });
    console.log((await session.prompt("echo found it")).text);
    await client.stop();
  `);
  const { SANDBOX_AGENT_BIN: _, ...env } = process.env;
  const result = await run(process.execPath, ["main.mjs"], { cwd: project, env: { ...env, PATH: "/usr/bin:/bin", HOME: project } });
  expect(result.stdout.trim()).toBe("found it");
});

test("a release of what is no version, for an unknown platform, or without programs, is refused", async () => {
  const script = join(root, "scripts/release.mjs");
  await expect(run(process.execPath, [script, "--version", "latest"])).rejects.toMatchObject({ code: 2 });
  await expect(run(process.execPath, [script, "--version", "1.0.0", "--platform", "plan9-x64"])).rejects.toMatchObject({ code: 2 });
  await expect(run(process.execPath, [script, "--version", "1.0.0"])).rejects.toMatchObject({ code: 2, stderr: expect.stringContaining("--programs") });
  await expect(run(process.execPath, [script, "--version", "1.0.0", "--programs", dir])).rejects.toMatchObject({ code: 2, stderr: expect.stringContaining("is missing") });
});
