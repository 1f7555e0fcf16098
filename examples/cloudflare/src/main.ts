// A turn of an agent in a Cloudflare sandbox, through the worker beside this file. Needs
// WORKER_URL and the worker's SANDBOX_AGENT_TOKEN.
import { randomUUID } from "node:crypto";
import { SandboxAgentClient } from "sandbox-agent";
import { converse, main, untilHealthy } from "../../gateway/gateway.ts";

const { WORKER_URL: worker, SANDBOX_AGENT_TOKEN: token } = process.env;
if (!worker || !token) throw new Error("set WORKER_URL and SANDBOX_AGENT_TOKEN to those of the worker");

await main(async (signal) => {
  const name = `example-${randomUUID()}`;
  const sandbox = new URL(`/sandboxes/${name}`, worker).href;
  const headers = { authorization: `Bearer ${token}` };
  console.log(`sandbox ${name}`);
  try {
    await ask("PUT", sandbox, headers);
    await untilHealthy(sandbox, signal, headers);
    await using client = new SandboxAgentClient({ baseUrl: sandbox, token, agent: process.env.AGENT ?? "mock" });
    await converse(client, process.env.PROMPT ?? "permission", signal);
  } finally {
    await ask("DELETE", sandbox, headers);
    console.log("the sandbox is gone");
  }
});

/** Asks the worker to make a sandbox, or to take it away. Both can be repeated. */
async function ask(method: string, sandbox: string, headers: Record<string, string>): Promise<void> {
  for (let left = 3; ; left--) {
    const response = await fetch(sandbox, { method, headers });
    if (response.ok) return;
    if (left === 0 || response.status < 500) throw new Error(`${method} ${sandbox}: ${response.status} ${await response.text()}`);
  }
}
