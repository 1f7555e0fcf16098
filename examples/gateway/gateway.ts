// What all of these programs do alike, whoever runs the sandbox.
import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { setTimeout as pause } from "node:timers/promises";
import type { SandboxAgentClient } from "sandbox-agent";

/** The port of the gateway in the sandbox. */
export const port = Number(process.env.GATEWAY_PORT ?? 2468);

/** A token for one sandbox; nobody else needs to know it. */
export function newToken(): string {
  return randomBytes(32).toString("base64url");
}

/** The gateway's static program for the sandbox's system, which is Linux on amd64 mostly. */
export async function program(): Promise<Buffer> {
  const file = process.env.SANDBOX_AGENT_PROGRAM;
  if (!file) throw new Error("SANDBOX_AGENT_PROGRAM is not set: name the program sandbox-agent for Linux, of a release or of ./task build");
  return readFile(file);
}

/** Resolves when the gateway answers. Its health needs no token. */
export async function untilHealthy(url: string, signal: AbortSignal, headers: Record<string, string> = {}): Promise<void> {
  const end = Date.now() + 60_000;
  for (let last = "no answer"; ; ) {
    try {
      const response = await fetch(new URL("v2/health", url.endsWith("/") ? url : `${url}/`), { headers, signal: AbortSignal.any([signal, AbortSignal.timeout(5_000)]) });
      if (response.ok) return;
      last = `${response.status} ${await response.text()}`;
    } catch (error) {
      signal.throwIfAborted();
      last = String(error);
    }
    if (Date.now() > end) throw new Error(`the gateway at ${url} is not healthy after a minute: ${last}`);
    await pause(200, undefined, { signal });
  }
}

/** Runs one turn, shows it as it comes, and answers what the agent asks for. */
export async function converse(client: SandboxAgentClient, prompt: string, signal: AbortSignal): Promise<void> {
  client.onPermission((request) => {
    console.log(`\n[permission] ${request.toolCall.title}: allowed once`);
    return request.options.find((option) => option.kind === "allow_once")?.optionId;
  });
  const session = await client.newSession({ cwd: "/tmp", permissionMode: "default" }, { signal });
  const turn = session.prompt(prompt, { signal });
  console.log(`[turn] ${prompt}`);
  for await (const update of turn) {
    if (update.sessionUpdate === "agent_message_chunk" && update.content.type === "text") process.stdout.write(update.content.text);
    if (update.sessionUpdate === "tool_call") console.log(`\n[tool] ${update.title}`);
  }
  const { stopReason } = await turn;
  console.log(`\n[end] ${stopReason}`);
}

/**
 * Runs a program until it ends, or until Ctrl-C or SIGTERM. It is told by the signal
 * and must take away what it has made; a second Ctrl-C ends it at once.
 */
export async function main(run: (signal: AbortSignal) => Promise<void>): Promise<void> {
  const ended = new AbortController();
  const codes = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 } as const;
  let code = 0;
  for (const name of Object.keys(codes) as (keyof typeof codes)[]) {
    process.once(name, () => {
      code = codes[name];
      console.error(`\n${name}: taking the sandbox away`);
      ended.abort(new Error(name));
    });
  }
  try {
    await run(ended.signal);
  } catch (error) {
    if (!ended.signal.aborted) {
      console.error(error);
      code = 1;
    }
  }
  process.exit(code); // clients of providers keep connections open
}
