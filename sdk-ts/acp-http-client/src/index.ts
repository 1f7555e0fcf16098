/**
 * The Agent Client Protocol over HTTP and WebSocket.
 *
 * `createAcpStream` makes the stream that the official SDK's `connect` takes. It
 * takes up what the network breaks: no event is lost and none comes twice.
 *
 * @module
 */
import { addressOf } from "./address.js";
import { HttpLink } from "./http.js";
import type { AcpStream } from "./link.js";
import type { AcpStreamOptions } from "./options.js";
import { WebSocketLink } from "./websocket.js";

export { addressOf } from "./address.js";
export { AcpRpcError, ConnectionLostError, ProblemError, reasonOf, type LossReason, type Problem } from "./errors.js";
export { abortable, Backoff, follow, heard, inTime, ofStream, SilentError, usualSilenceMs, type RetryOptions } from "./clock.js";
export type { AcpStream } from "./link.js";
export type { AcpStreamOptions, ConnectionState, Envelope, HeaderSource, WebSocketConstructor } from "./options.js";
export { EventDecoder, type ServerEvent } from "./sse.js";
export { hangUp, keepAlive, whyNotOpen } from "./websocket.js";

/**
 * Makes a stream to an ACP endpoint. Nothing is sent before the first message,
 * which must be `initialize`.
 *
 * ```ts
 * import { client, methods, PROTOCOL_VERSION } from "@agentclientprotocol/sdk";
 * const connection = client({ name: "example" }).connect(createAcpStream("http://127.0.0.1:2468/v2/rpc"));
 * await connection.agent.request(methods.agent.initialize, { protocolVersion: PROTOCOL_VERSION });
 * ```
 */
export function createAcpStream(url: string | URL, options: AcpStreamOptions = {}): AcpStream {
  const { transport = "http", fetch, WebSocket } = options;
  if (!["http", "inline", "websocket"].includes(transport)) throw new TypeError(`transport is http, inline or websocket, not ${String(transport)}`);
  for (const [name, given] of Object.entries({ fetch, WebSocket })) {
    if (given !== undefined && typeof given !== "function") throw new TypeError(`${name} is no function but of type ${typeof given}`);
  }
  const target = addressOf("url", String(url).replace(/^ws/, "http"));
  if (transport === "websocket") {
    target.protocol = target.protocol.replace(/^http/, "ws");
    return new WebSocketLink(target.href, options);
  }
  return new HttpLink(target.href, options);
}
