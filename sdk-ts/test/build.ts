// Builds the gateway once for all test files.
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { unpack } from "./browser.js";

export default async function setup(): Promise<() => void> {
  await unpack();
  if (process.env.SANDBOX_AGENT_BIN) return () => {};
  const dir = mkdtempSync(join(tmpdir(), "sandbox-agent-sdk-"));
  const binary = join(dir, "sandbox-agent");
  execFileSync("go", ["build", "-o", binary, "./cmd/sandbox-agent"], { cwd: resolve(import.meta.dirname, "../.."), stdio: "inherit" });
  process.env.SANDBOX_AGENT_BIN = binary;
  return () => rmSync(dir, { recursive: true, force: true });
}
