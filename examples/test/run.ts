// Runs an example as a user does: as a program of its own.
import { spawn, type ChildProcess } from "node:child_process";
import { createServer } from "node:net";
import { join } from "node:path";
import type { Cloud } from "./cloud.ts";

const examples = join(import.meta.dirname, "..");
/** Where the examples are as JavaScript, in folders like theirs: below the packages that they need. */
export const built = join(import.meta.dirname, ".programs");
/** A program of one line that becomes the gateway's: to bring that one, of 40 MB, into each sandbox would take a third of the time of all tests. A whole job has it. */
export const inPlace = join(built, "sandbox-agent");
const compiled = (source: string): string => join(built, source.replace(/\.ts$/, ".mjs"));

export interface Run {
  readonly child: ChildProcess;
  readonly output: () => string;
  /** Resolves once the output has this. */
  said(text: string): Promise<void>;
  readonly code: Promise<number>;
}

// Below the ports that systems give to those who ask for any: nobody else on this
// computer gets one of these between the moment it is chosen and the end of a test.
const first = 20_000;
const perWorker = 400;
let next = process.pid % perWorker;

/** A port that nobody listens on: all machines of the double share this computer's. */
export async function freePort(): Promise<number> {
  const worker = Number(process.env.VITEST_POOL_ID ?? 0) % 25;
  for (let tried = 0; tried < perWorker; tried++) {
    const port = first + worker * perWorker + (next++ % perWorker);
    const server = createServer();
    const free = await new Promise<boolean>((resolve) => server.once("error", () => resolve(false)).listen(port, "127.0.0.1", () => resolve(true)));
    if (!free) continue;
    await new Promise((resolve) => server.close(resolve));
    return port;
  }
  throw new Error(`no port is free from ${first + worker * perWorker} on`);
}

export async function run(example: string, cloud: Cloud, env: Record<string, string> = {}, program: readonly [string, ...string[]] = ["src/main.ts"]): Promise<Run> {
  const [source, ...args] = program;
  const child = spawn(process.execPath, ["--import", compiled("test/network.ts"), compiled(join(example, source)), ...args], {
    cwd: join(examples, example),
    env: {
      PATH: process.env.PATH ?? "", HOME: examples,
      SANDBOX_AGENT_PROGRAM: inPlace, GATEWAY_PORT: String(await freePort()),
      DOUBLE: cloud.url, ...cloud.env(), ...env,
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  const waiting = new Set<() => void>();
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
      for (const look of waiting) look();
    });
  }
  const code = new Promise<number>((resolve) => child.once("close", (code, signal) => resolve(code ?? (signal ? 128 : -1))));
  const said = (text: string): Promise<void> => new Promise((resolve, reject) => {
    const look = (): void => {
      if (!output.includes(text)) return;
      waiting.delete(look);
      resolve();
    };
    waiting.add(look);
    look();
    void code.then((n) => reject(new Error(`the example ended with ${n} and did not say ${text}:\n${output}`)));
  });
  return { child, output: () => output, said, code };
}
