// A machine of a provider's cloud, as far as these tests need one: a folder and real
// processes on this computer, all of which end with it.
import { spawn, type ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const MARK = "SANDBOX_AGENT_EXAMPLE_MACHINE";

export class Machine {
  readonly id = randomBytes(8).toString("hex");
  readonly root = mkdtempSync(join(tmpdir(), "sandbox-agent-machine-"));
  readonly home: string;
  readonly #children = new Map<ChildProcess, Promise<number>>();

  /** home is the folder, in the machine, in which commands begin. */
  constructor(home: string) {
    this.home = join(this.root, home);
    const data = join(this.home, ".local/share/sandbox-agent");
    mkdirSync(data, { recursive: true });
    const agent = { command: process.execPath, args: [join(import.meta.dirname, "shell_agent.mjs")] };
    writeFileSync(join(data, "agents.toml"), `[agents.shell]\ncommand = ${JSON.stringify(agent.command)}\nargs = ${JSON.stringify(agent.args)}\n`);
    process.once("exit", this.#kill); // also when this process ends without destroy
  }

  readonly #kill = (): void => {
    for (const pid of this.processes()) {
      try {
        process.kill(pid, "SIGKILL");
      } catch {
        // it has ended
      }
    }
    for (const child of this.#children.keys()) child.kill("SIGKILL");
  };

  /** Starts a program; `wait` resolves with its exit code. */
  start(command: string, args: readonly string[], options: { cwd?: string | undefined; env?: Record<string, string> | undefined } = {}): { child: ChildProcess; wait: Promise<number> } {
    const child = spawn(command, args, {
      cwd: options.cwd ?? this.home, detached: true, stdio: ["pipe", "pipe", "pipe"],
      env: { PATH: process.env.PATH ?? "", HOME: this.home, ...options.env, [MARK]: this.id },
    });
    child.stdout?.resume();
    child.stderr?.resume();
    const wait = new Promise<number>((resolve) => {
      child.once("error", () => resolve(127));
      child.once("close", (code) => resolve(code ?? 137));
    });
    this.#children.set(child, wait);
    return { child, wait };
  }

  /** The processes of the machine, as /proc knows them; none where there is no /proc. */
  processes(): number[] {
    let names: string[];
    try {
      names = readdirSync("/proc");
    } catch {
      return [];
    }
    return names.filter((name) => {
      if (!/^\d+$/.test(name)) return false;
      try {
        return readFileSync(`/proc/${name}/environ`, "latin1").includes(`${MARK}=${this.id}`);
      } catch {
        return false; // it has ended
      }
    }).map(Number);
  }

  /** Switches the machine off: nobody in it is asked. */
  async destroy(): Promise<void> {
    for (this.#kill(); this.processes().length > 0; this.#kill()) {
      await new Promise((resolve) => setTimeout(resolve, 5)); // nobody tells of the end of a process that is no child
    }
    await Promise.all(this.#children.values());
    process.off("exit", this.#kill);
    rmSync(this.root, { recursive: true, force: true });
  }
}
