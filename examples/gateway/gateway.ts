// What all of these programs do alike, whoever runs the sandbox.
import { randomBytes } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { setTimeout as pause } from "node:timers/promises";
import { SandboxAgentClient, type Session } from "sandbox-agent";

/** What the program is to do, and for how long: its environment. */
const agent = process.env.AGENT ?? "mock";
const repository = process.env.REPO;
const prompt = process.env.PROMPT ?? (repository ? "write hello.txt Hello from the sandbox" : "permission");
const patch = process.env.OUT ?? "changes.patch";
/** Whether the sandbox is to stay when the job is done. */
export const keep = process.env.KEEP === "1";

/** How long the sandbox may live, whatever becomes of this program. */
export const minutes = keep ? 60 : 10;

/** The port of the gateway in the sandbox. */
export const port = Number(process.env.GATEWAY_PORT ?? 2468);

/** A gateway in a sandbox, and the ways to it. */
export interface Place {
  readonly url: string;
  readonly token: string;
  /** What the provider's front door wants from every request besides. */
  readonly headers?: Record<string, string>;
  /** Who else gets through the front door: a browser to the page, the program sandbox-agent. */
  readonly open: readonly ("page" | "terminal")[];
  /** The command that takes the sandbox away by hand. */
  readonly remove: string;
  /** How long it stays, if not for the minutes above. */
  readonly stays?: string;
}

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

/** The variables in which each agent's key may be, the first that is set counts. */
const keys: Record<string, readonly string[]> = {
  claude: ["ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"],
  codex: ["OPENAI_API_KEY"],
  opencode: ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"],
  pi: ["ANTHROPIC_API_KEY", "OPENAI_API_KEY"],
  amp: ["AMP_API_KEY"],
};

/**
 * The agent's key, as the session gets it: the gateway keeps it in memory and shows it to
 * this session's agent only. It is asked for first, before a sandbox costs anything.
 */
export function credentials(of = agent, env = process.env): { apiKey: string } | { oauthToken: string } | undefined {
  const names = keys[of];
  if (!names) return undefined; // an agent without a key, or one that has its own in the image
  for (const name of names) {
    const value = env[name];
    if (value) return name.endsWith("_OAUTH_TOKEN") ? { oauthToken: value } : { apiKey: value };
  }
  throw new Error(`AGENT=${of} needs ${names.join(" or ")}`);
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

/**
 * The whole job: clones the repository if there is one, runs a turn in it, shows what has
 * changed and brings it home as a patch. It says whether the sandbox is to stay, and then
 * how to come in.
 */
export async function job(place: Place, signal: AbortSignal): Promise<boolean> {
  await using client = new SandboxAgentClient({ baseUrl: place.url, token: place.token, agent, ...(place.headers && { headers: place.headers }) });
  const cwd = repository ? await clone(client, repository, signal) : "/tmp";
  const key = credentials();
  const session = await client.newSession({ cwd, permissionMode: "default", ...(key && { credentials: key }) }, { signal });
  await converse(client, session, signal);
  if (repository) await bringHome(client, cwd, signal);
  if (!keep) return false;
  console.log(`\nThe sandbox stays ${place.stays ?? `for at most ${minutes} minutes`}. Come in:`);
  if (place.open.includes("page")) console.log(`  ${place.url.replace(/\/$/, "")}/ui/#token=${place.token}`);
  if (place.open.includes("terminal")) console.log(`  SANDBOX_AGENT_TOKEN=${place.token} sandbox-agent chat --endpoint ${place.url} --session ${session.id}`);
  console.log(`  new SandboxAgentClient(${JSON.stringify({ baseUrl: place.url, token: place.token, headers: place.headers })}).loadSession({ sessionId: "${session.id}" })`);
  console.log(`Take it away: ${place.remove}`);
  return true;
}

/** Runs a command in the sandbox and returns its output, which need not be text. */
async function command(client: SandboxAgentClient, cwd: string | undefined, line: readonly [string, ...string[]], signal: AbortSignal): Promise<Buffer> {
  const [name, ...args] = line;
  const ended = await client.processes.run({ command: name, args, ...(cwd && { cwd }), encoding: "base64" }, { signal });
  const [out, err] = [ended.stdout, ended.stderr].map(({ data }) => Buffer.from(data, "base64")) as [Buffer, Buffer];
  if (ended.exitCode !== 0) throw new Error(`${line.join(" ")}: ${err.toString() || `it ended with ${ended.exitCode ?? ended.signal}`}`);
  if (ended.stdout.truncated) throw new Error(`${line.join(" ")} has written more than the gateway keeps`);
  return out;
}

async function clone(client: SandboxAgentClient, url: string, signal: AbortSignal): Promise<string> {
  console.log(`[clone] ${url}`);
  const folder = `job-${randomBytes(4).toString("hex")}`;
  await command(client, undefined, ["git", "clone", "--quiet", "--depth", "1", "--", url, folder], signal);
  return (await command(client, folder, ["pwd"], signal)).toString().trim();
}

/** Runs one turn, shows it as it comes, and answers what the agent asks for. */
async function converse(client: SandboxAgentClient, session: Session, signal: AbortSignal): Promise<void> {
  client.onPermission((request) => {
    console.log(`\n[permission] ${request.toolCall.title}: allowed once`);
    return request.options.find((option) => option.kind === "allow_once")?.optionId;
  });
  const turn = session.prompt(prompt, { signal });
  console.log(`[turn] ${prompt}`);
  for await (const update of turn) {
    if (update.sessionUpdate === "agent_message_chunk" && update.content.type === "text") process.stdout.write(update.content.text);
    if (update.sessionUpdate === "tool_call") console.log(`\n[tool] ${update.title}`);
  }
  const { stopReason } = await turn;
  console.log(`\n[end] ${stopReason}`);
}

/** Shows what has changed, new files too, and writes it to a file here. */
async function bringHome(client: SandboxAgentClient, cwd: string, signal: AbortSignal): Promise<void> {
  await command(client, cwd, ["git", "add", "--all", "--intent-to-add"], signal);
  const diff = await command(client, cwd, ["git", "diff", "--binary"], signal);
  if (diff.length === 0) return console.log("[diff] nothing has changed");
  console.log(`[diff]\n${diff.toString()}`);
  await writeFile(patch, diff);
  console.log(`[patch] ${patch}: git apply ${patch}`);
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
    credentials();
    await run(ended.signal);
  } catch (error) {
    if (!ended.signal.aborted) {
      console.error(error);
      code = 1;
    }
  }
  process.exit(code); // clients of providers keep connections open
}
