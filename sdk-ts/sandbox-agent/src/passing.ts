import { AcpRpcError, ConnectionLostError, ProblemError, type RetryOptions } from "acp-http-client";

const prefix = "urn:sandbox-agent:error:";
const passing = new Set(["unavailable", "node_offline", "too_many_requests", "insufficient_storage", "timeout"].map((kind) => prefix + kind));

/** Whether an error that the gateway has answered with, over ACP or HTTP, goes away by itself, as that of a gateway which is ending, and will be started again. */
export function passes(error: unknown): boolean {
  return passing.has(String(problemOf(error).type));
}

/** Whether a hub says that the node is not there, which may be about to come; `undone`: and not that it may have done what was asked. */
export function nodeIsAway(error: unknown, undone: boolean): boolean {
  const { type, done } = problemOf(error);
  return type === `${prefix}node_offline` && !(undone && done === "unknown");
}

/** Whether there is no such session. Its code alone says less: it is also that of one that has ended, or went elsewhere. */
export function isNotThere(error: unknown): boolean {
  return problemOf(error).type === `${prefix}session_not_found`;
}

/** How a node is waited for that is about to come to the next hub: as `nodeBound` of `acp/lasting` says, if not shorter. */
export function forNode(retry: RetryOptions = {}): RetryOptions {
  return { ...retry, giveUpAfterMs: Math.min(retry.giveUpAfterMs ?? Infinity, 30_000) };
}

/** The oldest event that a session has, where an error says that those before it are no longer kept. */
export function oldestKept(error: unknown): number | undefined {
  const { type, oldestSeq } = problemOf(error);
  return type === `${prefix}events_expired` && typeof oldestSeq === "number" ? oldestSeq : undefined;
}

/** What the gateway says of an error, over HTTP or ACP. */
function problemOf(error: unknown): { readonly type?: unknown; readonly oldestSeq?: unknown; readonly done?: unknown } {
  const problem = error instanceof ProblemError ? error.problem : postOf(error) ?? dataOf(error) ?? error;
  return typeof problem === "object" && problem ? problem : {};
}

/** What the POST was answered with that brought a request of ACP, where that is the request's error. */
function postOf(error: unknown): { readonly type?: unknown } | undefined {
  const problem = dataOf(error)?.problem ?? undefined;
  return typeof problem === "object" ? problem : undefined;
}

const dataOf = (error: unknown): { readonly problem?: unknown } | null | undefined => (error as { data?: { problem?: unknown } | null } | undefined)?.data;

/** Whether a session may be attached when that is asked once more: also where something before the gateway, such as a proxy, has answered the POST. */
export function attachesLater(error: unknown): boolean {
  const answer = postOf(error);
  return passes(error) || answer !== undefined && !String(answer.type).startsWith(prefix);
}

/** Whether the gateway itself refuses a request for good. What a proxy before it says, with any status, may be otherwise in a moment. */
export function isFinal(error: unknown): error is ProblemError {
  return error instanceof ProblemError && String(error.type).startsWith(prefix) && error.status >= 400 && error.status < 500 && !passes(error);
}

/**
 * Whether the connection that could not be opened in the place of a lost one may be there in a moment. What the gateway itself refuses, and a token
 * that is refused, stay so; one that was out of reach was looked for long enough.
 */
export function mayComeBack(error: unknown): boolean {
  if (error instanceof ConnectionLostError) return error.recoverable && error.reason !== "unreachable";
  return passes(error) || (error instanceof ProblemError && !error.refusesHeaders && !isFinal(error));
}

/** Errors of the protocol, without the official SDK's class around them. */
export function mapped(error: unknown): Error {
  if (error instanceof Error && "code" in error && typeof error.code === "number" && !(error instanceof DOMException)) {
    return new AcpRpcError(error.code, error.message, "data" in error ? error.data : undefined);
  }
  return asError(error);
}

export const asError = (error: unknown) => (error instanceof Error ? error : new Error(String(error)));
