import { ProblemError } from "acp-http-client";

const prefix = "urn:sandbox-agent:error:";
const passing = new Set(["unavailable", "node_offline", "too_many_requests", "insufficient_storage", "timeout"].map((kind) => prefix + kind));

/** Whether an error is one that goes away by itself, as that of a gateway which is ending, and will be started again. */
export function passes(error: unknown): boolean {
  const problem = error instanceof Error && !(error instanceof ProblemError) && "data" in error ? error.data : error;
  return typeof problem === "object" && problem !== null && "type" in problem && passing.has(String(problem.type));
}

/** Whether the gateway itself refuses a request for good. What a proxy before it says, with any status, may be otherwise in a moment. */
export function isFinal(error: unknown): error is ProblemError {
  return error instanceof ProblemError && error.type.startsWith(prefix) && error.status >= 400 && error.status < 500 && !passes(error);
}
