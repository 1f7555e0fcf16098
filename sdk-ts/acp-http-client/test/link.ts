import { client, methods, PROTOCOL_VERSION, type ClientCapabilities, type ClientConnection, type RequestPermissionResponse, type SessionNotification } from "@agentclientprotocol/sdk";
import { createAcpStream, type AcpStream, type AcpStreamOptions } from "acp-http-client";

/** A connection of the official SDK on our stream. */
export interface Connected {
  readonly stream: AcpStream;
  readonly connection: ClientConnection;
  readonly updates: SessionNotification[];
  newSession(): Promise<string>;
  prompt(sessionId: string, text: string): Promise<string>;
  texts(sessionId?: string): string[];
}

export async function connect(
  url: string,
  options: AcpStreamOptions & { permission?: () => Promise<RequestPermissionResponse>; capabilities?: ClientCapabilities } = {},
): Promise<Connected> {
  const stream = createAcpStream(url, options);
  const updates: SessionNotification[] = [];
  const connection = client({ name: "test" })
    .onNotification(methods.client.session.update, ({ params }) => void updates.push(params))
    .onRequest(methods.client.session.requestPermission, () => options.permission?.() ?? { outcome: { outcome: "cancelled" as const } })
    .connect(stream);
  await connection.agent.request(methods.agent.initialize, { protocolVersion: PROTOCOL_VERSION, clientCapabilities: options.capabilities ?? {} });
  return {
    stream, connection, updates,
    async newSession() {
      return (await connection.agent.request(methods.agent.session.new, { cwd: "/tmp", mcpServers: [] })).sessionId;
    },
    async prompt(sessionId, text) {
      return (await connection.agent.request(methods.agent.session.prompt, { sessionId, prompt: [{ type: "text", text }] })).stopReason;
    },
    texts(sessionId) {
      return updates.flatMap(({ sessionId: of, update }) =>
        (sessionId === undefined || of === sessionId) && update.sessionUpdate === "agent_message_chunk" && update.content.type === "text" ? [update.content.text] : []);
    },
  };
}
