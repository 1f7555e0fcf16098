export { AcpRpcError, ConnectionLostError, ProblemError, type LossReason, type Problem } from "acp-http-client";

/** A method needs a connection, and there is none: call `connect()`. Or a session was detached from it while a turn went on. */
export class NotConnectedError extends Error {
  override readonly name = "NotConnectedError";

  constructor(options?: ErrorOptions, message = "the client is not connected: call connect()") {
    super(message, options);
  }
}

/** The gateway does not speak the version of ACP that the client was made for. */
export class ProtocolVersionError extends Error {
  override readonly name = "ProtocolVersionError";

  constructor(readonly wanted: number, readonly offered: unknown) {
    super(`the gateway speaks version ${String(offered)} of ACP, not ${wanted}: leave acpVersion out`);
  }
}

/** `connect()` was called on a client that is connected already. */
export class AlreadyConnectedError extends Error {
  override readonly name = "AlreadyConnectedError";

  constructor() {
    super("the client is connected already");
  }
}

/** The gateway ended in the middle of a turn. The session goes on with its next prompt. */
export class TurnInterruptedError extends Error {
  override readonly name = "TurnInterruptedError";

  constructor(readonly sessionId: string) {
    super("the gateway ended in the middle of the turn: the session goes on with its next prompt");
  }
}
