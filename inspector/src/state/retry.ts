import { AcpRpcError, ConnectionLostError, passes, ProblemError } from "sandbox-agent";

/** The longest time until something is tried again. */
export const longestMs = 15_000;

/** Until something is tried again that has failed, and failed so often before: doubled with each time, up to the longest. */
export const retryMs = (before: number) => Math.min(500 * 2 ** before, longestMs);

/**
 * Whether an error is one that goes away by itself: a network that is down, which says why; a connection that broke in the
 * middle, which the client replaces; a server that is about to come back. Other TypeErrors are mistakes of this page. An agent
 * that hangs when it is started would be started again and again: a person tries that.
 */
export const mayPass = (error: unknown): boolean =>
  (error instanceof TypeError && error.cause !== undefined) || (error instanceof ProblemError && (error.status >= 500 || error.status === 429)) || (error instanceof ConnectionLostError && error.recoverable) || (passes(error) && !hangs(error));

const hangs = (error: unknown) => error instanceof AcpRpcError && (error.data as { type?: unknown } | undefined)?.type === "urn:sandbox-agent:error:timeout";
