// Against the server of the official SDK, which numbers no events and knows no keys.
import { createServer, type Server } from "node:http";
import { agent, methods, PROTOCOL_VERSION } from "@agentclientprotocol/sdk";
import { createNodeHttpHandler, createNodeWebSocketUpgradeHandler } from "@agentclientprotocol/sdk/experimental/node";
import { AcpServer } from "@agentclientprotocol/sdk/experimental/server";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { connect } from "./link.js";

let http: Server;
let acp: AcpServer;
let url: string;

function echoAgent() {
  const cancelled = new Map<string, () => void>();
  let sessions = 0;
  return agent({ name: "echo" })
    .onRequest(methods.agent.initialize, () => ({ protocolVersion: PROTOCOL_VERSION, agentCapabilities: {} }))
    .onRequest(methods.agent.session.new, () => ({ sessionId: `s${++sessions}` }))
    .onNotification(methods.agent.session.cancel, ({ params }) => cancelled.get(params.sessionId)?.())
    .onRequest(methods.agent.session.prompt, async ({ params, client }) => {
      const [block] = params.prompt;
      const text = block?.type === "text" ? block.text : "";
      const say = (t: string) => client.notify(methods.client.session.update, {
        sessionId: params.sessionId, update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text: t } },
      });
      if (text === "ask") {
        const { outcome } = await client.request(methods.client.session.requestPermission, {
          sessionId: params.sessionId, toolCall: { toolCallId: "t" }, options: [{ optionId: "yes", name: "Yes", kind: "allow_once" }],
        });
        await say(outcome.outcome === "selected" ? outcome.optionId : outcome.outcome);
      } else if (text === "wait") {
        const end = new Promise<void>((resolve) => cancelled.set(params.sessionId, resolve));
        await say("waiting");
        await end;
        return { stopReason: "cancelled" as const };
      } else {
        for (let i = 0; i < 100; i++) await say(`${text}${i}`);
      }
      return { stopReason: "end_turn" as const };
    });
}

beforeAll(async () => {
  acp = new AcpServer({ createAgent: echoAgent });
  http = createServer(createNodeHttpHandler(acp));
  http.on("upgrade", createNodeWebSocketUpgradeHandler(acp, new WebSocketServer({ noServer: true }) as never));
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const address = http.address();
  url = `http://127.0.0.1:${typeof address === "object" && address ? address.port : 0}/acp`;
});
afterAll(async () => {
  await acp.close();
  http.closeAllConnections();
  await new Promise((resolve) => http.close(resolve));
});

describe.each([{ transport: "http" }, { transport: "websocket", WebSocket: WebSocket as never }] as const)("$transport", (options) => {
  test("turns, permissions, cancel and several sessions", async () => {
    const c = await connect(url, { ...options, permission: async () => ({ outcome: { outcome: "selected", optionId: "yes" } }) });
    const [one, two] = await Promise.all([c.newSession(), c.newSession()]);
    expect(await Promise.all([c.prompt(one, "a"), c.prompt(two, "b")])).toEqual(["end_turn", "end_turn"]);
    expect(c.texts(one)).toEqual(Array.from({ length: 100 }, (_, i) => `a${i}`));
    expect(c.texts(two)).toEqual(Array.from({ length: 100 }, (_, i) => `b${i}`));
    expect(await c.prompt(one, "ask")).toBe("end_turn");
    expect(c.texts(one).at(-1)).toBe("yes");
    const waiting = c.prompt(two, "wait");
    await expect.poll(() => c.texts(two).at(-1)).toBe("waiting");
    await c.connection.agent.notify(methods.agent.session.cancel, { sessionId: two });
    expect(await waiting).toBe("cancelled");
    await c.stream.close();
    expect(c.stream.error).toBeUndefined();
  });
});

test("a server that ends tells it as lost", async () => {
  const own = new AcpServer({ createAgent: echoAgent });
  const server = createServer(createNodeHttpHandler(own));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  const c = await connect(`http://127.0.0.1:${typeof address === "object" && address ? address.port : 0}/acp`, { retry: { firstDelayMs: 5, giveUpAfterMs: 300 } });
  const session = await c.newSession();
  const waiting = c.prompt(session, "wait");
  await expect.poll(() => c.texts(session)).toEqual(["waiting"]);
  await own.close();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await expect(waiting).rejects.toMatchObject({ name: "ConnectionLostError", detail: { sessions: [session] } });
});
