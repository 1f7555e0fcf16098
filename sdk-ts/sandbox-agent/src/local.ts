/**
 * Starts a gateway on this machine. Node only.
 *
 * @module
 */
import { spawn, type ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { accessSync, constants, existsSync, mkdirSync, readFileSync, realpathSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { delimiter, isAbsolute, join, resolve as resolvePath } from "node:path";
import { SandboxAgentClient as Client, type SandboxAgentClientOptions } from "./client.js";
import type { AcpVersion } from "./versions.js";

/** How to start a gateway. */
export interface StartOptions<V extends AcpVersion = 1> extends Omit<SandboxAgentClientOptions<V>, "baseUrl" | "token"> {
  /** The program; otherwise `SANDBOX_AGENT_BIN`, the platform's package, then PATH. */
  binary?: string;
  /** 0, the default, takes a free port. */
  port?: number;
  host?: string;
  /** Where sessions and agents are kept; the gateway's own default otherwise. */
  dataDir?: string;
  /** Further arguments of `sandbox-agent server`. */
  args?: readonly string[];
  /** Environment of the gateway and its agents, instead of this process's own. */
  env?: Record<string, string | undefined>;
  /** How long it may take until it answers. Default 15 s. */
  startTimeoutMs?: number;
  /** Gets what the gateway writes to its log. */
  onLog?: (text: string) => void;
}

/** What of it concerns the gateway alone. */
type GatewayOptions = Omit<StartOptions, keyof SandboxAgentClientOptions>;

export * from "./index.js";

/** A gateway that could not be started; the message ends with its log. */
export class StartError extends Error {
  override readonly name = "StartError";

  constructor(message: string, readonly log: string, options?: ErrorOptions) {
    super(log.trim() === "" ? message : `${message}\n${log.trim()}`, options);
  }
}

/** Finds the gateway's program. */
export function findBinary(env: Record<string, string | undefined> = process.env): string {
  const name = process.platform === "win32" ? "sandbox-agent.exe" : "sandbox-agent";
  if (env.SANDBOX_AGENT_BIN) return env.SANDBOX_AGENT_BIN;
  try {
    return createRequire(import.meta.url).resolve(`@sandbox-agent/${process.platform}-${process.arch}/bin/${name}`);
  } catch {
    // That package is optional.
  }
  for (const dir of (env.PATH ?? "").split(delimiter)) {
    const file = join(dir, name);
    try {
      accessSync(file, constants.X_OK);
      return file;
    } catch {
      // The next one.
    }
  }
  throw new StartError(`no program sandbox-agent: set SANDBOX_AGENT_BIN, install @sandbox-agent/${process.platform}-${process.arch}, or put it into PATH`, "");
}

const maxLog = 64 << 10;

/** The gateway behind a client that started it. */
export interface LocalGateway {
  readonly url: string;
  readonly token: string;
  readonly pid: number;
}

/** A gateway that clients of this process use, and how many of them. */
interface Shared extends LocalGateway {
  /** Nothing where another process has started it, and ends it. */
  readonly child?: ChildProcess;
  readonly dataDir?: string;
  readonly how: string;
  users: number;
  /** Settles when it has ended, once nobody uses it any more. */
  leaving?: Promise<void>;
}

/** The gateways of this process by their data directory, also where this module is loaded twice. */
const running: Map<string, Promise<Shared>> = ((globalThis as Record<symbol, unknown>)[Symbol.for("sandbox-agent.local")] ??= new Map()) as Map<string, Promise<Shared>>;

/** The options with the data directory in its place where the arguments name it; the last one counts, as on a command line. */
function withDataDir<T extends GatewayOptions>(options: T): T {
  const { args = [] } = options;
  const rest: string[] = [];
  let dataDir = options.dataDir;
  for (let i = 0; i < args.length; i++) {
    const arg = args[i] ?? "";
    const alone = /^--?data-dir$/.test(arg);
    const value = alone ? args[i + 1] : /^--?data-dir=([^]+)$/.exec(arg)?.[1];
    if (value) {
      dataDir = value;
      if (alone) i++;
    } else {
      rest.push(arg); // another one, or one that the gateway refuses
    }
  }
  return { ...options, ...(dataDir && { dataDir }), args: rest };
}

/** Where the gateway keeps its data; nothing when it keeps none, or nobody can tell. */
function dataDirOf({ dataDir, args = [], env = process.env }: GatewayOptions): string | undefined {
  if (args.some((a) => /^--?ephemeral(=true)?$/.test(a)) || /^(1|t|true)$/i.test(env.SANDBOX_AGENT_EPHEMERAL ?? "")) return undefined;
  const home = env.HOME ?? env.USERPROFILE;
  const base = env.XDG_DATA_HOME && isAbsolute(env.XDG_DATA_HOME) ? env.XDG_DATA_HOME : home && join(home, ".local", "share");
  const dir = dataDir ?? (env.SANDBOX_AGENT_DATA_DIR || (base && join(base, "sandbox-agent")));
  if (!dir) return undefined;
  try {
    return realpathSync(dir);
  } catch {
    return resolvePath(dir); // it does not exist yet
  }
}

/**
 * A client with a gateway of its own on this machine. The gateway ends with `stop()`,
 * and at the latest with this process, however that ends.
 *
 * One data directory has one gateway: a second `start()` of this process attaches to
 * the first one's, which ends when the last of its clients has stopped. A `start()` of another
 * process attaches, too; the gateway still ends with the process that has started it.
 */
export class SandboxAgentClient<V extends AcpVersion = 1> extends Client<V> {
  readonly #leave: () => Promise<void>;

  private constructor(options: SandboxAgentClientOptions<V>, readonly gateway: LocalGateway, leave: () => Promise<void>) {
    super(options);
    this.#leave = leave;
  }

  /** Starts a gateway and waits until it answers. */
  static async start<V extends AcpVersion = 1>(given: StartOptions<V> = {}): Promise<SandboxAgentClient<V>> {
    const options = withDataDir(given);
    const { binary, port, host, dataDir, args, env, startTimeoutMs, onLog, ...clientOptions } = options;
    const key = dataDirOf(options);
    const how = JSON.stringify([binary, port || 0, host, args ?? [], env]);
    const used = await gatewayFor(options, key, how);
    let left = false;
    const leave = async () => {
      if (!left && --used.users === 0) used.leaving = end(used);
      left = true;
      await used.leaving;
    };
    const { url, token, pid } = used;
    try {
      return new SandboxAgentClient({ ...clientOptions, baseUrl: url, token }, { url, token, pid }, leave);
    } catch (error) {
      await leave(); // nobody else would end it
      throw error;
    }
  }

  /** Ends the connection, and the gateway with its agents if no other client of `start()` uses it. */
  async stop(): Promise<void> {
    await super[Symbol.asyncDispose]();
    await this.#leave();
  }

  override async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

/**
 * The gateway that runs for a data directory, or a new one, which others find from
 * that moment on. One that ends is waited for. Who asks is counted as one of its users
 * in the same moment, so that it does not end before they know of it.
 */
async function gatewayFor(options: GatewayOptions, key: string | undefined, how: string): Promise<Shared> {
  if (key === undefined) return counted(await spawnGateway(options, how));
  for (let other = running.get(key); other; other = running.get(key)) {
    const found = await other.catch(() => undefined); // why it failed is told to who started it
    await found?.leaving;
    if (found && !found.leaving && (found.child ? found.child.exitCode === null && found.child.signalCode === null : await answers(found))) {
      if (found.child && found.how !== how) throw new StartError(`a gateway of this process uses the data directory ${key} already, with other options: give both the same, or another dataDir`, "");
      return counted(found);
    }
    if (running.get(key) === other) running.delete(key);
  }
  const begun = ownOrOther(options, how, key).then(counted);
  running.set(key, begun); // nothing is awaited between the look and this
  return begun;
}

function counted(used: Shared): Shared {
  used.users++;
  return used;
}

/** What a process that has started a gateway leaves in its data directory, for others of the same user. */
interface Left extends LocalGateway {
  readonly args: readonly string[];
}

const leftIn = (dataDir: string) => join(dataDir, "started.json");

/** Is there while a process of this package waits for the gateway that it has started. */
const startingIn = (dataDir: string, pid: number | string) => join(dataDir, `starting.${pid}`);

/** How long a data directory may be in use by what nobody of this package has started: it may be about to end. */
const patienceMs = 1_500;

/** A gateway of its own, or that of another process which has the data directory. */
async function ownOrOther(options: GatewayOptions, how: string, dataDir: string): Promise<Shared> {
  const { args = [], startTimeoutMs = startMs } = options;
  const began = performance.now();
  for (;;) {
    let starting: string | undefined;
    try {
      const own = await spawnGateway(options, how, (pid) => (starting = announce(dataDir, pid)));
      leave(dataDir, { url: own.url, token: own.token, pid: own.pid, args });
      return { ...own, dataDir };
    } catch (error) {
      if (!(error instanceof StartError)) throw error;
      const holder = /in use by another process(?: \(process (\d+)\))?/.exec(error.log);
      if (!holder) throw error;
      const left = look(dataDir);
      if (left && await answers(left)) {
        if (JSON.stringify(left.args) !== JSON.stringify(args)) throw new StartError(`a gateway of another process uses the data directory ${dataDir} already, with other args: give both the same, or another dataDir`, "");
        return { url: left.url, token: left.token, pid: left.pid, how, users: 0 };
      }
      const theirs = holder[1] !== undefined && existsSync(startingIn(dataDir, holder[1]));
      if (performance.now() > began + (theirs ? startTimeoutMs : patienceMs)) {
        throw new StartError(`a gateway that this package has not started uses the data directory ${dataDir}: connect to that one with new SandboxAgentClient({ baseUrl }), or give another dataDir`, error.log);
      }
      await new Promise((later) => setTimeout(later, 200));
    } finally {
      if (starting) rmSync(starting, { force: true });
    }
  }
}

/** Says that a gateway is being started, so that others wait for it. */
function announce(dataDir: string, pid: number): string | undefined {
  const file = startingIn(dataDir, pid);
  try {
    mkdirSync(dataDir, { recursive: true, mode: 0o700 });
    writeFileSync(file, "", { mode: 0o600 });
    return file;
  } catch {
    return undefined; // others wait for a moment all the same
  }
}

function leave(dataDir: string, left: Left): void {
  const file = leftIn(dataDir);
  try {
    // Nobody reads half of it, and nobody else reads it at all.
    writeFileSync(`${file}.${process.pid}`, JSON.stringify(left), { mode: 0o600 });
    renameSync(`${file}.${process.pid}`, file);
  } catch {
    // The gateway is there all the same; others are told that the directory is in use.
  }
}

function look(dataDir: string): Left | undefined {
  try {
    return JSON.parse(readFileSync(leftIn(dataDir), "utf8")) as Left;
  } catch {
    return undefined; // it has not come so far, or was not started by this package
  }
}

/** Whether the gateway is there, and takes the token. */
async function answers({ url, token }: LocalGateway): Promise<boolean> {
  try {
    return (await fetch(`${url}/v2/ready`, { headers: { authorization: `Bearer ${token}` }, signal: AbortSignal.timeout(2_000) })).ok;
  } catch {
    return false;
  }
}

const startMs = 15_000;

async function spawnGateway(options: GatewayOptions, how: string, spawned?: (pid: number) => void): Promise<Shared> {
  const { binary, port = 0, host = "127.0.0.1", dataDir, args = [], env = process.env, startTimeoutMs = startMs, onLog } = options;
  const program = binary ?? findBinary(env);
  const token = randomBytes(24).toString("base64url");
  const child = spawn(program, ["server", "--end-with-stdin", "--host", host, "--port", String(port), ...(dataDir ? ["--data-dir", dataDir] : []), ...args], {
    // The token travels in the environment: arguments can be read by everybody.
    env: { ...env, SANDBOX_AGENT_TOKEN: token },
    // Its input ends with this process, and the gateway with its input.
    stdio: ["pipe", "ignore", "pipe"],
    // Not told of the terminal's Ctrl-C, so that this program can still cancel and close what it has there. On Windows it would get a console of its own.
    detached: process.platform !== "win32",
    windowsHide: true,
  });
  if (child.pid !== undefined) spawned?.(child.pid);
  let log = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    log = (log + text).slice(-maxLog);
    onLog?.(text);
  });
  try {
    const url = await listening(child, () => log, startTimeoutMs);
    return { url, token, pid: child.pid ?? 0, child, how, users: 0 };
  } catch (error) {
    await end({ child });
    throw error;
  }
}

function listening(child: ChildProcess, log: () => string, ms: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const finish = (settle: () => void) => {
      clearTimeout(timer);
      child.stderr?.off("data", look);
      child.off("error", failed);
      child.off("exit", exited);
      settle();
    };
    const look = () => {
      const at = /listening on (https?:\/\/\S+)/.exec(log());
      if (at?.[1]) {
        const url = at[1];
        finish(() => resolve(url));
      }
    };
    const failed = (error: Error) => finish(() => reject(new StartError(`sandbox-agent cannot be started: ${error.message}`, log(), { cause: error })));
    const exited = (code: number | null, signal: string | null) => finish(() => reject(new StartError(`sandbox-agent ended with ${signal ?? `exit code ${code}`} before it was ready`, log())));
    const timer = setTimeout(() => finish(() => reject(new StartError(`sandbox-agent was not ready within ${ms} ms`, log()))), Math.min(ms, 2 ** 31 - 1)); // a longer timer ends at once
    child.stderr?.on("data", look);
    child.on("error", failed);
    child.on("exit", exited);
    look();
  });
}

/** Ends the process, if it is this one's: it is asked to, and after a while made to. */
async function end({ child, dataDir }: Pick<Shared, "child" | "dataDir">): Promise<void> {
  if (!child) return;
  if (dataDir && look(dataDir)?.pid === child.pid) rmSync(leftIn(dataDir), { force: true }); // before the directory is another's
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  child.kill("SIGTERM");
  const force = setTimeout(() => child.kill("SIGKILL"), 20_000);
  await ended;
  clearTimeout(force);
}
