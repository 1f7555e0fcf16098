// Builds the gateway's static program once for all test files.
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

export default function setup(): () => void {
  if (process.env.SANDBOX_AGENT_BIN) return () => {};
  const dir = mkdtempSync(join(tmpdir(), "sandbox-agent-examples-"));
  const binary = join(dir, "sandbox-agent");
  execFileSync("go", ["build", "-trimpath", "-o", binary, "./cmd/sandbox-agent"], {
    cwd: resolve(import.meta.dirname, "../.."), stdio: "inherit", env: { ...process.env, CGO_ENABLED: "0" },
  });
  process.env.SANDBOX_AGENT_BIN = binary;
  return () => rmSync(dir, { recursive: true, force: true });
}
