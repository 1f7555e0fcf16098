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

const command = (...args: string[]): string =>
  execFileSync(binary, args, { env: { ...process.env, SANDBOX_HUB_ENDPOINT: url, SANDBOX_HUB_TOKEN: adminToken }, encoding: "utf8" }).trim();

/** A token of the hub. */
const token = (...args: string[]): string => command("token", "create", ...args);

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
  gateway = await Gateway.start(["--no-token", "--join", url, "--join-token-file", join(dir, "join"), "--node-name", "box"]);
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

// What another client has made of a session before it is opened, and how that is brought to an end.
type Other = SandboxAgentClient;
const states: Record<string, (other: Other, id: string) => Promise<() => Promise<unknown>>> = {
  "nothing has happened": async () => async () => {},
  "a turn is over": async (other, sessionId) => {
    await other.prompt({ sessionId, prompt: "echo before" });
    return async () => {};
  },
  "a turn runs": async (other, sessionId) => {
    const turn = other.prompt({ sessionId, prompt: "slow" });
    for await (const _ of turn) break;
    return () => Promise.all([other.cancel(sessionId), turn]);
  },
  "the agent waits for an answer": async (other, sessionId) => {
    const asked = new Promise<(option: string) => void>((shown) => void other.onPermission(() => new Promise((answer) => shown(answer))));
    const turn = other.prompt({ sessionId, prompt: "permission" });
    const answer = await asked;
    return async () => (answer("allow_once"), await turn);
  },
  "a prompt waits": async (other, sessionId) => {
    const turn = other.prompt({ sessionId, prompt: "slow" });
    for await (const _ of turn) break;
    const next = other.prompt({ sessionId, prompt: "echo next" });
    return () => Promise.all([other.cancel(sessionId), turn, next.catch(() => {})]);
  },
  "it is closed": async (other, sessionId) => {
    await other.prompt({ sessionId, prompt: "echo before" });
    await other.closeSession(sessionId);
    return async () => {};
  },
};
const places = ["the hub", "a node at the hub", "the gateway"] as const;
const openers = transports.flatMap((options) => ([1, 2] as const).map((acpVersion) => ({ ...options, acpVersion }))).filter(({ transport, acpVersion }) => transport !== "inline" || acpVersion === 1);

// The answer to opening says how far the session was shown, which the client waits for: in each state, at each place.
describe.each(places.flatMap((place) => openers.map((options) => ({ place, ...options }))))("a session is opened: $place, version $acpVersion, $transport", ({ place, ...options }) => {
  const at = () => (place === "the gateway" ? { baseUrl: gateway.url } : { baseUrl: place === "the hub" ? url : `${url}/nodes/box`, token: token("--kind", "client", "--scope", "drive") });
  test.each(Object.keys(states))("%s", async (state) => {
    const where = at();
    await using other = new SandboxAgentClient({ ...where, agent: "mock", WebSocket: WebSocket as never, transport: "websocket" });
    await using agent = new SandboxAgentClient({ ...where, agent: "mock", ...(options as object) });
    const { id } = await other.newSession({ cwd: dir });
    const end = await states[state]!(other, id);
    for (const open of ["loadSession", "resumeSession", "loadSession", "resumeSession"] as const) await agent[open]({ sessionId: id, cwd: dir });
    await end();
    const turn = await agent.prompt({ sessionId: id, prompt: "echo mine" });
    expect(turn).toMatchObject({ stopReason: "end_turn", text: "mine" });
    await agent.loadSession({ sessionId: id, cwd: dir });
    expect((await agent.prompt({ sessionId: id, prompt: "echo again" })).text).toBe("again");
  });
});

test("the list of sessions is followed at the hub, until the token is revoked", async () => {
  const text = token("--kind", "client", "--scope", "drive");
  await using agent = new SandboxAgentClient({ baseUrl: url, token: text, agent: "mock" });
  const { position } = await agent.api.sessions();
  const { id } = await agent.newSession({ cwd: dir });
  let last: unknown;
  const followed = (async () => {
    for await (const change of agent.api.followSessions(position)) {
      expect(change.type).not.toBe("reset");
      if (change.session?.sessionId !== id || last !== undefined) continue;
      last = change.session;
      command("token", "revoke", text.split("-")[1]!);
    }
  })();
  await expect(followed).rejects.toMatchObject({ status: 401 });
  expect(last).toMatchObject({ node: "box", agent: "mock" });
});

test("a token that may only read, and a node that is not there", async () => {
  for (const [node, scope, status] of [["box", "read", 403], ["nobody", "drive", 404]] as const) {
    const c = new SandboxAgentClient({ baseUrl: `${url}/nodes/${node}`, token: token("--kind", "client", "--scope", scope), agent: "mock", autoConnect: false });
    const error = await c.connect().catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(ProblemError);
    expect(error).toMatchObject({ status });
  }
});
