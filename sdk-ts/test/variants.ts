// How a client of sandbox-agent may talk to a gateway that has the mock agent in both versions of ACP.
import { WebSocket } from "ws";

export const ws = WebSocket as never;

/** Each version and transport; `mock` speaks version 1, `mock2` version 2 itself. */
export const variants = [
  { acpVersion: 1, agent: "mock", transport: "http" },
  { acpVersion: 1, agent: "mock", transport: "inline" },
  { acpVersion: 1, agent: "mock", transport: "websocket", WebSocket: ws },
  { acpVersion: 2, agent: "mock", transport: "http" },
  { acpVersion: 2, agent: "mock2", transport: "http" },
  { acpVersion: 2, agent: "mock2", transport: "websocket", WebSocket: ws },
] as const;
