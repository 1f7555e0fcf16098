// What all of these programs do alike, whoever runs the sandbox.
import { randomBytes } from "node:crypto";
import { access, constants, readFile, rename, stat, writeFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
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

/** Rejects if the patch could not be written here: better before the agent has worked for it. */
async function patchCanBeWritten(): Promise<void> {
  try {
    await access(dirname(resolve(patch)), constants.W_OK);
    const there = await stat(patch).catch(() => undefined);
    if (there && !there.isFile()) throw new Error(`${patch} is no file`);
  } catch (error) {
    throw new Error(`OUT=${patch} cannot be written: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** Something went wrong that is already told; the program's exit code says so. */
let failed = false;

/**
 * The whole job: clones the repository if there is one, runs a turn in it, shows what has
 * changed and brings it home as a patch. It says whether the sandbox is to stay, and then
 * how to come in. What the agent has done is in the sandbox alone until it is home: with
 * KEEP=1 the sandbox stays after an error, too.
 */
export async function job(place: Place, signal: AbortSignal): Promise<boolean> {
  await using client = new SandboxAgentClient({ baseUrl: place.url, token: place.token, agent, ...(place.headers && { headers: place.headers }) });
  const work = repository ? await clone(client, repository, signal) : undefined;
  const key = credentials();
  const session = await client.newSession({ cwd: work?.cwd ?? "/tmp", permissionMode: "default", ...(key && { credentials: key }) }, { signal });
  try {
    await converse(client, session, signal);
    if (work) await bringHome(client, work, signal);
  } catch (error) {
    if (!keep || signal.aborted) throw error;
    console.error("the job is not complete:", error);
    failed = true;
  }
  if (!keep) return false;
  console.log(`\nThe sandbox stays ${place.stays ?? `for at most ${minutes} minutes`}. Come in:`);
  if (place.open.includes("page")) console.log(`  ${place.url.replace(/\/$/, "")}/ui/#token=${place.token}`);
  if (place.open.includes("terminal")) console.log(`  SANDBOX_AGENT_TOKEN=${place.token} sandbox-agent chat --endpoint ${place.url} --session ${session.id}`);
  console.log(`  new SandboxAgentClient(${JSON.stringify({ baseUrl: place.url, token: place.token, headers: place.headers })}).loadSession({ sessionId: "${session.id}" })`);
  console.log(`Take it away: ${place.remove}`);
  return true;
}

/**
 * Runs a command in the sandbox and returns what it printed. It may take as long as the
 * sandbox lives: a request that waits for its end would be cut on the way.
 */
async function command(client: SandboxAgentClient, cwd: string | undefined, line: readonly [string, ...string[]], signal: AbortSignal): Promise<string> {
  const [name, ...args] = line;
  const { id } = await client.processes.start({ command: name, args, ...(cwd && { cwd }) }, { signal });
  const printed: Uint8Array[] = [];
  const complaints: Uint8Array[] = [];
  for await (const part of client.processes.follow(id, {}, { signal })) {
    if ("missed" in part) throw new Error(`${line.join(" ")} has printed more than the gateway keeps`);
    (part.stream === "stderr" ? complaints : printed).push(part.data);
  }
  const ended = await client.processes.get(id, { signal });
  if (ended.exitCode !== 0) throw new Error(`${line.join(" ")}: ${Buffer.concat(complaints).toString() || `it ended with ${ended.exitCode ?? ended.signal}`}`);
  return Buffer.concat(printed).toString();
}

/** A repository in the sandbox. */
interface Work {
  /** Its folder, absolute and as the gateway names it. */
  readonly cwd: string;
  readonly folder: string;
  /** What was there before the agent: a commit, or the empty tree. */
  readonly base: string;
}

async function clone(client: SandboxAgentClient, url: string, signal: AbortSignal): Promise<Work> {
  console.log(`[clone] ${url}`);
  const folder = `job-${randomBytes(4).toString("hex")}`;
  await command(client, undefined, ["git", "clone", "--quiet", "--depth", "1", "--", url, folder], signal);
  const cwd = (await command(client, folder, ["pwd"], signal)).trim();
  const base = "git rev-parse --verify --quiet HEAD || git hash-object -t tree /dev/null";
  return { cwd, folder, base: (await command(client, folder, ["sh", "-c", base], signal)).trim() };
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

/** How much of a change is shown. */
const shown = 64 * 1024;

/**
 * Takes new files into git's index as far as it can, and prints what no patch will have:
 * what git refuses, and repositories within the repository, of which it has the name alone.
 */
const addAll = `said=$(git -c advice.addEmbeddedRepo=false add --all --intent-to-add --ignore-errors 2>&1) || printf '%s\\n' "$said"
git diff --raw "$1" | grep '^:[0-7]* 160000 ' | cut -f 2-`;

/**
 * Shows what has changed since the clone, also what the agent has staged or committed and
 * new files, and writes it to a file here. The sandbox makes a file of it first: a patch
 * can be larger than what a command may print. It rejects when that is not all there is.
 */
async function bringHome(client: SandboxAgentClient, { cwd, folder, base }: Work, signal: AbortSignal): Promise<void> {
  const left = await command(client, cwd, ["sh", "-c", addAll, "sh", base], signal);
  await command(client, cwd, ["git", "diff", "--binary", "--no-color", "--no-ext-diff", "--no-textconv", "--output=.git/changes.patch", base], signal);
  const diff = Buffer.from(await client.fs.read(`${folder}/.git/changes.patch`, { signal }));
  if (diff.length === 0) console.log("[diff] nothing has changed");
  else await keepPatch(diff, signal);
  if (left) throw new Error(`the patch is not the whole change, it is without what is in\n${left}With KEEP=1 the sandbox stays`);
}

async function keepPatch(diff: Buffer, signal: AbortSignal): Promise<void> {
  console.log(`[diff]\n${diff.subarray(0, shown).toString()}${diff.length > shown ? `\n... and ${diff.length - shown} bytes more` : ""}`);
  await writeFile(`${patch}.part`, diff, { signal });
  await rename(`${patch}.part`, patch); // an earlier patch is replaced by a whole one
  console.log(`[patch] ${patch}: git apply ${patch}`);
}

/**
 * Does the work in a sandbox, and takes that away behind it, unless the work says that it is
 * to stay. A sandbox that cannot be taken away goes on and costs: that is said whatever
 * else went wrong, and the program's exit code is 1.
 */
export async function inSandbox(remove: string, takeAway: () => Promise<unknown>, work: () => Promise<boolean>): Promise<void> {
  let stays = false;
  try {
    stays = await work();
  } finally {
    if (!stays) {
      try {
        await takeAway();
        console.log("the sandbox is gone");
      } catch (error) {
        console.error("THE SANDBOX MAY STILL RUN, it could not be taken away:", error);
        console.error(`Take it away: ${remove}`);
        failed = true;
      }
    }
  }
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
    if (repository) await patchCanBeWritten();
    await run(ended.signal);
  } catch (error) {
    const told = ended.signal.aborted && (error === ended.signal.reason || (error instanceof Error && (error.name === "AbortError" || error.cause === ended.signal.reason)));
    if (!told) console.error(error);
    if (!ended.signal.aborted) failed = true;
  }
  process.exit(failed ? 1 : code); // clients of providers keep connections open
}
