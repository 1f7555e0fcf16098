import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { SandboxAgentClient, type WebSocketConstructor } from "sandbox-agent";
import { WebSocket } from "ws";
import { Cloudflare } from "./cloudflare.ts";
import { contract } from "./contract.ts";

contract("cloudflare", "Cloudflare's containers, its worker in the real workerd,", () => new Cloudflare(), (path) => path === "/api/process/start", "recovers");

describe("the worker, in the real workerd, its container doubled", () => {
  let cloud: Cloudflare;
  beforeEach(async () => {
    cloud = await new Cloudflare().listen();
  });
  afterEach(async () => {
    await cloud.close();
  });

  test("strangers and late requests start no container", async () => {
    const { WORKER_URL: worker, SANDBOX_AGENT_TOKEN: token } = cloud.env();
    const ask = async (method: string, path: string, authorization?: string): Promise<number> => {
      const response = await fetch(`${worker}${path}`, { method, headers: authorization ? { authorization } : {} });
      await response.arrayBuffer();
      return response.status;
    };
    expect(await ask("PUT", "/sandboxes/one")).toBe(401);
    expect(await ask("PUT", "/sandboxes/one", "Bearer wrong")).toBe(401);
    expect(await ask("GET", "/sandboxes/one/v2/health", `Bearer ${token}`)).toBe(404);
    expect(await ask("GET", "/", `Bearer ${token}`)).toBe(404);
    expect(cloud.made.length).toBe(0);

    const made = await Promise.all([1, 2, 3].map(() => ask("PUT", "/sandboxes/one", `Bearer ${token}`)));
    expect(made).toEqual([204, 204, 204]);
    expect(cloud.paths.filter((path) => path === "POST /api/process/start").length, "starts of the gateway").toBe(1);
    expect(await ask("GET", "/sandboxes/one/v2/health", `Bearer ${token}`)).toBe(200);
    expect(await ask("GET", "/sandboxes/two/v2/health", `Bearer ${token}`)).toBe(404);
    expect(await ask("DELETE", "/sandboxes/one", `Bearer ${token}`)).toBe(204);
    expect(await ask("GET", "/sandboxes/one/v2/health", `Bearer ${token}`)).toBe(404);
    expect([cloud.made.length, cloud.alive]).toEqual([1, 0]);
  });

  test("a sandbox that is taken away while it is made stays away", async () => {
    const { WORKER_URL: worker, SANDBOX_AGENT_TOKEN: token } = cloud.env();
    const ask = (method: string): Promise<Response> => fetch(`${worker}/sandboxes/one`, { method, headers: { authorization: `Bearer ${token}` } });
    let go = (): void => {};
    const held = new Promise<void>((resolve) => (go = resolve));
    const listing = new Promise<void>((resolve) => (cloud.listing = () => (resolve(), held)));
    const made = ask("PUT");
    await listing; // it is about to start the gateway
    const removed = ask("DELETE");
    await expect.poll(() => cloud.paths).toContain("DELETE /");
    go();
    expect((await removed).status).toBe(204);
    expect((await made).status).toBe(500);
    expect(cloud.paths).not.toContain("POST /api/process/start");
    expect(cloud.alive, "sandboxes left").toBe(0);
    cloud.listing = () => Promise.resolve();
    expect((await ask("PUT")).status, "made again").toBe(204);
  });

  test("WebSockets, with the token in a header and in a subprotocol", async () => {
    const { WORKER_URL: worker = "", SANDBOX_AGENT_TOKEN: token = "" } = cloud.env();
    const headers = { authorization: `Bearer ${token}` };
    expect((await fetch(`${worker}/sandboxes/one`, { method: "PUT", headers })).status).toBe(204);
    await using client = new SandboxAgentClient({ baseUrl: `${worker}/sandboxes/one`, token, agent: "mock", transport: "websocket", WebSocket: WebSocket as unknown as WebSocketConstructor });
    const session = await client.newSession({ cwd: "/tmp" });
    expect((await session.prompt("echo over a socket")).text).toContain("over a socket");

    const address = `${worker.replace("http", "ws")}/sandboxes/one/v2/rpc`;
    const page = new WebSocket(address, ["acp.sandboxagent.dev", `bearer.${Buffer.from(token).toString("base64url")}`]);
    await new Promise((resolve, reject) => page.once("open", resolve).once("error", reject));
    expect(page.protocol).toBe("acp.sandboxagent.dev");
    page.terminate();
    const stranger = new WebSocket(address, ["acp.sandboxagent.dev", "bearer.d3Jvbmc"]);
    await expect(new Promise((resolve, reject) => stranger.once("open", resolve).once("error", reject))).rejects.toThrow("401");
  });
});
