// A real gateway in a process of its own.
import { spawn, type ChildProcess } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "./freeport.js";

/** Flags of a gateway that keeps 8 MiB of what was said in all sessions, an eighth of its memory, and no files. */
export const forgets = ["--no-token", "--ephemeral", "--max-memory", "64MiB"] as const;

/** Has an agent say more than such a gateway keeps, and not more at a time than is read. */
export async function sayMuch(session: { prompt(text: string): PromiseLike<unknown> }): Promise<void> {
  for (let i = 0; i < 4; i++) await session.prompt("stream 40 100000");
}

export class Gateway {
  #child: ChildProcess | undefined;
  #stderr = "";
  url = "";
  readonly dir = mkdtempSync(join(tmpdir(), "sandbox-agent-sdk-test-"));

  private constructor(private readonly args: readonly string[], private readonly env: Record<string, string>) {}

  static async start(args: readonly string[] = ["--no-token"], env: Record<string, string> = {}): Promise<Gateway> {
    const g = new Gateway(args, env);
    await g.#launch(await freePort());
    return g;
  }

  /** As start, with files that are there before the gateway is. */
  static async startWith(prepare: (dir: string) => void, args: readonly string[] = ["--no-token"]): Promise<Gateway> {
    const g = new Gateway(args, {});
    prepare(g.dir);
    await g.#launch(await freePort());
    return g;
  }

  /** With the mock agent in both versions of ACP: `mock` and `mock2`. */
  static async startWithBoth(args?: readonly string[]): Promise<Gateway> {
    return Gateway.startWith((dir) => {
      const data = join(dir, "data");
      mkdirSync(data, { recursive: true });
      const program = process.env.SANDBOX_AGENT_BIN ?? "sandbox-agent";
      const args = ["mock-agent", "--acp", "2", "--state-dir", mkdtempSync(join(dir, "mock-"))];
      writeFileSync(join(data, "agents.toml"), `[agents.mock2]\ncommand = ${JSON.stringify(program)}\nargs = ${JSON.stringify(args)}\nacp = 2\n`);
    }, args);
  }

  get rpc(): string {
    return `${this.url}/v2/rpc`;
  }

  get port(): number {
    return Number(new URL(this.url).port);
  }

  async #launch(port: number): Promise<void> {
    const child = spawn(process.env.SANDBOX_AGENT_BIN ?? "sandbox-agent", ["server", "--end-with-stdin", "--port", String(port), "--data-dir", join(this.dir, "data"), "--default-agent", "mock", ...this.args], {
      env: { ...process.env, HOME: this.dir, ...this.env },
      stdio: ["pipe", "ignore", "pipe"], // it ends with the tests, however those end
    });
    this.#child = child;
    this.#stderr = "";
    await new Promise<void>((resolve, reject) => {
      child.stderr?.setEncoding("utf8").on("data", (text: string) => {
        this.#stderr += text;
        const at = /listening on (http\S+)/.exec(this.#stderr);
        if (at?.[1]) {
          this.url = at[1];
          resolve();
        }
      });
      child.once("exit", (code) => reject(new Error(`the gateway ended with ${code}: ${this.#stderr}`)));
    });
  }

  async kill(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill(signal);
    await ended;
  }

  /** Starts it again with the same data on the same port. */
  async restart(): Promise<void> {
    await this.#launch(this.port);
  }

  async stop(): Promise<void> {
    await this.kill("SIGTERM");
    rmSync(this.dir, { recursive: true, force: true });
  }
}
