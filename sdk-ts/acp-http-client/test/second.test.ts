// Version 2 of the protocol on our stream: against the server of the official SDK, and the
// gateway with an agent of either version.
import { createServer, type Server } from "node:http";
import { tmpdir } from "node:os";
import { createNodeHttpHandler, createNodeWebSocketUpgradeHandler } from "@agentclientprotocol/sdk/experimental/node";
import { AcpServer } from "@agentclientprotocol/sdk/experimental/server";
import { agent, agentProtocolRouter, client, methods, type SessionUpdate } from "@agentclientprotocol/sdk/experimental/v2/unstable";
import { createAcpStream, type AcpStreamOptions } from "acp-http-client";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { Gateway } from "../../test/gateway.js";

const info = { name: "test", version: "1" };

const textOf = (block: unknown) => (block as { text?: string } | undefined)?.text ?? "";

/** An agent of version 2 and of nothing else. */
function echoAgent() {
  let sessions = 0;
  let messages = 0;
  const cancelled = new Map<string, () => void>();
  const two = agent({ name: "echo" })
    .onRequest(methods.agent.initialize, () => ({ protocolVersion: 2, info, capabilities: { session: {} } }))
    .onRequest(methods.agent.session.new, () => ({ sessionId: `s${++sessions}`, configOptions: [] }))
    .onNotification(methods.agent.session.cancel, ({ params }) => cancelled.get(params.sessionId)?.())
    .onRequest(methods.agent.session.prompt, ({ params, client }) => {
      const { sessionId } = params;
      const [block] = params.prompt;
      const text = textOf(block);
      const tell = (update: SessionUpdate) => client.notify(methods.client.session.update, { sessionId, update });
      const say = (t: string) => tell({ sessionUpdate: "agent_message_chunk", messageId: `m${messages}`, content: { type: "text", text: t } });
      void (async () => {
        await tell({ sessionUpdate: "state_update", state: "running" });
        let stopped = false;
        if (text === "ask") {
          const { outcome } = await client.request(methods.client.session.requestPermission, {
            sessionId, title: "May I?", options: [{ optionId: "yes", name: "Yes", kind: "allow_once" }],
          });
          await say(outcome.outcome === "selected" && "optionId" in outcome ? String(outcome.optionId) : outcome.outcome);
        } else if (text === "slow") {
          const end = new Promise<void>((resolve) => cancelled.set(sessionId, resolve));
          await say("waiting");
          await end;
          stopped = true;
        } else {
          await say(text.replace(/^echo /, ""));
        }
        if (stopped) await tell({ sessionUpdate: "state_update", state: "idle", stopReason: "cancelled" });
        else await tell({ sessionUpdate: "state_update", state: "idle", stopReason: "end_turn" });
      })();
      return { messageId: `u${++messages}` };
    });
  return agentProtocolRouter().withV2(two);
}

/** A connection of the official SDK in version 2 on our stream. */
async function connect(url: string, options: AcpStreamOptions) {
  const stream = createAcpStream(url, options);
  const updates: { sessionId: string; update: SessionUpdate }[] = [];
  const asked: { sessionId: string; title: string }[] = [];
  const connection = client({ name: "test" })
    .onNotification(methods.client.session.update, ({ params }) => void updates.push(params))
    .onRequest(methods.client.session.requestPermission, ({ params }) => {
      asked.push(params);
      return { outcome: { outcome: "selected" as const, optionId: params.options[0]?.optionId ?? "" } };
    })
    .connect(stream);
  const hello = await connection.agent.request(methods.agent.initialize, { protocolVersion: 2, info, capabilities: {} });
  const of = (session: string, from = 0) => updates.slice(from).filter((u) => u.sessionId === session).map((u) => u.update);
  return {
    hello, stream, connection, updates, asked, of,
    async newSession() {
      return (await connection.agent.request(methods.agent.session.new, { cwd: tmpdir() })).sessionId;
    },
    /** Prompts, and waits for the end of the turn. */
    async prompt(sessionId: string, text: string) {
      const from = updates.length;
      await connection.agent.request(methods.agent.session.prompt, { sessionId, prompt: [{ type: "text", text }] });
      const end = () => of(sessionId, from).find((u) => u.sessionUpdate === "state_update" && "stopReason" in u && u.stopReason != null);
      await expect.poll(end).toBeDefined();
      return (end() as { stopReason?: string }).stopReason;
    },
    said: (session: string) => of(session).flatMap((u) => u.sessionUpdate === "agent_message_chunk" && "content" in u ? [textOf(u.content)] : []).join(""),
  };
}

let http: Server;
let acp: AcpServer;
let gateway: Gateway;
const urls = new Map<string, string>();

beforeAll(async () => {
  acp = new AcpServer({ createAgent: echoAgent });
  http = createServer(createNodeHttpHandler(acp));
  http.on("upgrade", createNodeWebSocketUpgradeHandler(acp, new WebSocketServer({ noServer: true }) as never));
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const address = http.address();
  urls.set("the SDK's own server", `http://127.0.0.1:${typeof address === "object" && address ? address.port : 0}/acp`);
  gateway = await Gateway.startWithBoth();
  urls.set("the gateway, an agent of version 1", `${gateway.rpc}?agent=mock`);
  urls.set("the gateway, an agent of version 2", `${gateway.rpc}?agent=mock2`);
});
afterAll(async () => {
  await gateway.stop();
  await acp.close();
  http.closeAllConnections();
  await new Promise((resolve) => http.close(resolve));
});

const transports = [{ transport: "http" }, { transport: "websocket", WebSocket: WebSocket as never }] as const;

describe.each(["the SDK's own server", "the gateway, an agent of version 1", "the gateway, an agent of version 2"])("%s", (server) => {
  test.each(transports)("turns, permissions, cancel and several sessions over $transport", async (options) => {
    const c = await connect(urls.get(server) ?? "", options);
    expect(c.hello.protocolVersion).toBe(2);
    const [one, two] = await Promise.all([c.newSession(), c.newSession()]);
    expect(await Promise.all([c.prompt(one, "echo a"), c.prompt(two, "echo b")])).toEqual(["end_turn", "end_turn"]);
    expect([c.said(one), c.said(two)]).toEqual(["a", "b"]);
    expect(await c.prompt(one, server.startsWith("the SDK") ? "ask" : "permission")).toBe("end_turn");
    expect(c.asked.map((a) => a.sessionId)).toEqual([one]);
    expect(c.asked[0]?.title).toBeTruthy();
    const slow = c.prompt(two, "slow");
    await expect.poll(() => c.of(two).filter((u) => u.sessionUpdate === "agent_message_chunk").length).toBeGreaterThan(1);
    await c.connection.agent.notify(methods.agent.session.cancel, { sessionId: two });
    expect(await slow).toBe("cancelled");
    await c.stream.close();
    expect(c.stream.error).toBeUndefined();
  });
});

test.each(transports)("a command of an agent of version 1 is a terminal, over $transport", async (options) => {
  const c = await connect(urls.get("the gateway, an agent of version 1") ?? "", options);
  const session = await c.newSession();
  expect(await c.prompt(session, "run")).toBe("end_turn");
  let output = "";
  let exit: unknown;
  for (const u of c.of(session)) {
    const told = u as { output?: { data: string }; data?: string; exitStatus?: unknown };
    if (u.sessionUpdate === "terminal_update" && told.output) output = atob(told.output.data);
    if (u.sessionUpdate === "terminal_output_chunk") output += atob(told.data ?? "");
    if (u.sessionUpdate === "terminal_update") exit = told.exitStatus ?? exit;
  }
  expect([output, exit]).toEqual(["one\ntwo\nthree", { exitCode: 3 }]);
  await c.stream.close();
});

test.each(transports)("a child, what it asks, and what is cancelled by itself, over $transport", async (options) => {
  const c = await connect(urls.get("the gateway, an agent of version 2") ?? "", options);
  const session = await c.newSession();
  expect(await c.prompt(session, "child-permission")).toBe("end_turn");
  const child = c.asked[0]?.sessionId ?? "";
  expect(child).not.toBe(session);
  expect(c.said(child)).toBe("permission: allow_once");
  const waiting = c.prompt(session, "cancellable");
  const open = () => c.of(session).flatMap((u) => u.sessionUpdate === "tool_call_update" && "toolCallId" in u && "title" in u && u.title === "Wait" ? [String(u.toolCallId)] : [])[0];
  await expect.poll(open).toBeDefined();
  await c.connection.agent.request(methods.agent.toolCall.cancel, { sessionId: session, toolCallId: open() ?? "" });
  expect(await waiting).toBe("end_turn");
  await c.stream.close();
});
