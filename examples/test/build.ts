// Builds the examples, and the gateway's static program, once for all test files.
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { build } from "esbuild";
import { built, inPlace } from "./run.ts";

/** To compile them at each start, as their `npm start` does, would take a third of the time of all tests. The guide for E2B is run so. */
async function compile(): Promise<void> {
  const absWorkingDir = resolve(import.meta.dirname, "..");
  const programs = readdirSync(absWorkingDir).filter((one) => existsSync(join(absWorkingDir, one, "src/main.ts")))
    .flatMap((one) => readdirSync(join(absWorkingDir, one, "src")).filter((file) => file !== "worker.ts").map((file) => `${one}/src/${file}`));
  await build({
    absWorkingDir, entryPoints: ["test/network.ts", ...programs], outbase: ".", outdir: built, outExtension: { ".js": ".mjs" },
    bundle: true, platform: "node", target: "node20", format: "esm", logLevel: "error",
    external: ["e2b", "@daytona/sdk", "@vercel/sandbox"], // what is tested with the examples; the rest is their own, and the clients of this repository
    alias: { "sandbox-agent": "../sdk-ts/sandbox-agent/src/index.ts", "acp-http-client": "../sdk-ts/acp-http-client/src/index.ts" },
  });
}

function standIn(binary: string): void {
  writeFileSync(inPlace, `#!/bin/sh\nexec '${binary}' "$@"\n`, { mode: 0o755 });
}

export default async function setup(): Promise<() => void> {
  await compile();
  if (process.env.SANDBOX_AGENT_BIN) {
    standIn(process.env.SANDBOX_AGENT_BIN);
    return () => {};
  }
  const dir = mkdtempSync(join(tmpdir(), "sandbox-agent-examples-"));
  const binary = join(dir, "sandbox-agent");
  execFileSync("go", ["build", "-trimpath", "-o", binary, "./cmd/sandbox-agent"], {
    cwd: resolve(import.meta.dirname, "../.."), stdio: "inherit", env: { ...process.env, CGO_ENABLED: "0" },
  });
  process.env.SANDBOX_AGENT_BIN = binary;
  standIn(binary);
  return () => rmSync(dir, { recursive: true, force: true });
}
