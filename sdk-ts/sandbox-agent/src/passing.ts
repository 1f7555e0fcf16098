import { ProblemError } from "acp-http-client";

const passing = new Set(["unavailable", "node_offline", "too_many_requests", "insufficient_storage", "timeout"].map((kind) => `urn:sandbox-agent:error:${kind}`));

/** Whether an error is one that goes away by itself, as that of a gateway which is ending, and will be started again. */
export function passes(error: unknown): boolean {
  const problem = error instanceof Error && !(error instanceof ProblemError) && "data" in error ? error.data : error;
  return typeof problem === "object" && problem !== null && "type" in problem && passing.has(String(problem.type));
}
