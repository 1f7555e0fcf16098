// A job for an agent in a Cloudflare sandbox, through the worker beside this file. Needs
// WORKER_URL and the worker's SANDBOX_AGENT_TOKEN.
import { randomUUID } from "node:crypto";
import { inSandbox, job, main, untilHealthy } from "../../gateway/gateway.ts";

const { WORKER_URL: worker, SANDBOX_AGENT_TOKEN: token } = process.env;
if (!worker || !token) throw new Error("set WORKER_URL and SANDBOX_AGENT_TOKEN to those of the worker");

await main(async (signal) => {
  const name = `example-${randomUUID()}`;
  const sandbox = new URL(`/sandboxes/${name}`, worker).href;
  const headers = { authorization: `Bearer ${token}` };
  console.log(`sandbox ${name}`);
  const remove = `curl -X DELETE -H "authorization: Bearer $SANDBOX_AGENT_TOKEN" ${sandbox}`;
  await inSandbox(remove, () => ask("DELETE", sandbox, headers), async () => {
    await ask("PUT", sandbox, headers);
    await untilHealthy(sandbox, signal, headers);
    // The worker wants the token from everybody, which a browser cannot send with a page.
    return await job({ url: sandbox, token, open: ["terminal"], remove }, signal);
  });
});

/** Asks the worker to make a sandbox, or to take it away. Both can be repeated. */
async function ask(method: string, sandbox: string, headers: Record<string, string>): Promise<void> {
  for (let left = 3; ; left--) {
    const response = await fetch(sandbox, { method, headers });
    if (response.ok) return;
    if (left === 0 || response.status < 500) throw new Error(`${method} ${sandbox}: ${response.status} ${await response.text()}`);
  }
}
