// An agent for tests, which runs its prompt with the shell in the session's folder: what
// agents do to a repository that nobody has asked the mock agent to do.
import { spawnSync } from "node:child_process";
import { createInterface } from "node:readline";

const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
const folders = new Map();

const answers = {
  initialize: () => ({ protocolVersion: 1, agentCapabilities: {} }),
  "session/new": ({ cwd }) => {
    const sessionId = crypto.randomUUID();
    folders.set(sessionId, cwd);
    return { sessionId };
  },
  "session/prompt": ({ sessionId, prompt }) => {
    const { stdout, stderr, status } = spawnSync("sh", ["-c", prompt.map((part) => part.text ?? "").join("")], { cwd: folders.get(sessionId), encoding: "utf8" });
    send({ method: "session/update", params: { sessionId, update: { sessionUpdate: "agent_message_chunk", content: { type: "text", text: `${stdout}${stderr}exit code ${status}` } } } });
    return { stopReason: "end_turn" };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined || method === undefined) continue; // a notification, or an answer
  const answer = answers[method];
  send(answer ? { id, result: answer(params) } : { id, error: { code: -32601, message: `there is no ${method}` } });
}
