// Builds the page and the gateway around it, once for all test files.
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { unpack } from "../../sdk-ts/test/browser.js";

export default async function setup(): Promise<() => void> {
  await unpack();
  const root = resolve(import.meta.dirname, "../..");
  if (process.env.SANDBOX_AGENT_BIN && process.env.SANDBOX_HUB_BIN) return () => {};
  execFileSync("npm", ["run", "--silent", "build", "--", "--logLevel", "warn"], { cwd: join(root, "inspector"), stdio: "inherit", env: { ...process.env, NODE_ENV: "production" } });
  const dir = mkdtempSync(join(tmpdir(), "sandbox-agent-inspector-"));
  const binary = join(dir, "sandbox-agent");
  execFileSync("go", ["build", "-o", binary, "./cmd/sandbox-agent"], { cwd: root, stdio: "inherit" });
  process.env.SANDBOX_AGENT_BIN = binary;
  process.env.SANDBOX_HUB_BIN = join(dir, "sandbox-hub");
  execFileSync("go", ["build", "-o", process.env.SANDBOX_HUB_BIN, "./cmd/sandbox-hub"], { cwd: root, stdio: "inherit" });
  return () => rmSync(dir, { recursive: true, force: true });
}
