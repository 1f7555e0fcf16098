// A gateway behind a hub is a gateway at another address.
import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { ProblemError, SandboxAgentClient } from "sandbox-agent";
import { WebSocket } from "ws";
import { Gateway } from "../../test/gateway.js";

const dir = mkdtempSync(join(tmpdir(), "sandbox-hub-sdk-"));
const binary = process.env.SANDBOX_HUB_BIN ?? join(dir, "sandbox-hub");
const adminToken = "the-admin-token-of-this-test";
let hub: ChildProcess;
let url = "";
let gateway: Gateway;

/** A token of the hub. */
function token(...args: string[]): string {
  const env = { ...process.env, SANDBOX_HUB_ENDPOINT: url, SANDBOX_HUB_TOKEN: adminToken };
  return execFileSync(binary, ["token", "create", ...args], { env, encoding: "utf8" }).trim();
}

beforeAll(async () => {
  if (!process.env.SANDBOX_HUB_BIN) execFileSync("go", ["build", "-o", binary, "./cmd/sandbox-hub"], { cwd: resolve(import.meta.dirname, "../../.."), stdio: "inherit" });
  writeFileSync(join(dir, "admin"), adminToken);
  hub = spawn(binary, ["serve", "--port", "0", "--data-dir", join(dir, "data"), "--admin-token-file", join(dir, "admin")], { stdio: ["ignore", "ignore", "pipe"] });
  let said = "";
  url = await new Promise<string>((found, failed) => {
    hub.stderr?.setEncoding("utf8").on("data", (text: string) => {
      said += text;
      const at = /listening on (http\S+)/.exec(said);
      if (at?.[1]) found(at[1]);
    });
    hub.once("exit", (code) => failed(new Error(`the hub ended with ${code}: ${said}`)));
  });
  writeFileSync(join(dir, "join"), token("--kind", "join"));
  gateway = await Gateway.start(["--new-token", "--join", url, "--join-token-file", join(dir, "join"), "--node-name", "box"]);
  await vi.waitFor(() => expect(said).toContain('msg="a node has joined" node=box'), { timeout: 20_000 });
}, 300_000);

afterAll(async () => {
  await gateway?.stop();
  if (hub) {
    const ended = new Promise((done) => hub.once("exit", done));
    hub.kill("SIGTERM");
    await ended;
  }
  rmSync(dir, { recursive: true, force: true });
});

const transports = [{ transport: "http" }, { transport: "inline" }, { transport: "websocket", WebSocket: WebSocket as never }] as const;

describe.each(transports)("$transport", (options) => {
  test("a turn, events and files of a node", async () => {
    await using agent = new SandboxAgentClient({ baseUrl: `${url}/nodes/box`, token: token("--kind", "client", "--scope", "drive"), agent: "mock", ...options });
    const session = await agent.newSession({ cwd: dir });
    expect(await session.prompt("echo through the hub")).toMatchObject({ stopReason: "end_turn", text: "through the hub" });
    const streamed = await session.prompt("stream 500 10");
    expect(streamed.stopReason).toBe("end_turn");
    expect((await agent.listSessions()).sessions.map((s) => s.sessionId)).toContain(session.id);
  });
});

// The hub's own answer says how far it has shown the session.
test.each(transports.filter(({ transport }) => transport !== "inline"))("a session is opened at the hub of all nodes: $transport", async (options) => {
  const connect = () => new SandboxAgentClient({ baseUrl: url, token: token("--kind", "client", "--scope", "drive"), agent: "mock", ...options });
  await using other = connect();
  await using agent = connect();
  const { id } = await other.newSession({ cwd: dir });
  await other.prompt({ sessionId: id, prompt: "echo before" });
  for (const open of ["loadSession", "resumeSession", "loadSession", "resumeSession"] as const) {
    const session = await agent[open]({ sessionId: id, cwd: dir });
    expect((await session.prompt("echo mine")).text).toBe("mine");
  }
});

test("a token that may only read, and a node that is not there", async () => {
  for (const [node, scope, status] of [["box", "read", 403], ["nobody", "drive", 404]] as const) {
    const c = new SandboxAgentClient({ baseUrl: `${url}/nodes/${node}`, token: token("--kind", "client", "--scope", scope), agent: "mock", autoConnect: false });
    const error = await c.connect().catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(ProblemError);
    expect(error).toMatchObject({ status });
  }
});
