import type { AnyMessage } from "@agentclientprotocol/sdk";
import type { RetryOptions } from "./clock.js";

/** Headers, or a function that is asked for them before every request. */
export type HeaderSource =
  | Record<string, string>
  | ((ask: {
      /** The server has just refused the headers of before: get new ones. */
      readonly refused: boolean;
      readonly signal: AbortSignal;
    }) => Record<string, string> | Promise<Record<string, string>>);

/** What the connection is doing. */
export type ConnectionState = "idle" | "connecting" | "open" | "reconnecting" | "closed";

/** One message as it passed by, for logs. */
export interface Envelope {
  readonly direction: "sent" | "received";
  readonly message: AnyMessage;
  /** How it travelled. */
  readonly via: "post" | "response" | "events" | "websocket";
  /** The event's id on its stream, where it has one. */
  readonly eventId?: string;
}

/** The part of the WebSocket API that is used; `ws` and browsers have it. */
export type WebSocketConstructor = new (url: string, protocols?: string[], options?: { headers?: Record<string, string> }) => WebSocket;

/** How to connect. */
export interface AcpStreamOptions {
  /**
   * - `http`: the standard streamable HTTP transport of ACP: responses come on event streams.
   * - `inline`: HTTP with responses in the answers to POSTs, and one event stream.
   * - `websocket`: one socket. A broken one cannot be taken up again; load or resume the sessions.
   */
  readonly transport?: "http" | "inline" | "websocket";
  /** Sent with every request, such as `Authorization`. */
  readonly headers?: HeaderSource;
  /** Subprotocols of the WebSocket, or a function that is asked for them before each try; browsers have no other way to send a token. */
  readonly protocols?: readonly string[] | ((context: { readonly signal: AbortSignal }) => Promise<readonly string[] | undefined>);
  /** Ends the connection when it aborts. */
  readonly signal?: AbortSignal;
  readonly retry?: RetryOptions;
  /**
   * A server that is silent for so long is taken for gone: on a stream, where it sends a comment every 15 s and 20 s are the least, and at a
   * request that it does not answer, if it answers no other one, either. Default 45 s, 0 for never.
   */
  readonly silenceMs?: number;
  /** The largest message, in UTF-16 units. Default 32 Mi. */
  readonly maxMessageLength?: number;
  readonly fetch?: typeof globalThis.fetch;
  readonly WebSocket?: WebSocketConstructor;
  /** Sees every message. What it throws is ignored. */
  readonly onEnvelope?: (envelope: Envelope) => void;
  readonly onState?: (state: ConnectionState) => void;
}
