// A double of Docker: a program `docker` that asks this server, and machines of which each
// runs the gateway, as the image does.
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { Cloud, type Call } from "./cloud.ts";
import { Machine } from "./machine.ts";
import { freePort } from "./run.ts";

const client = `#!/usr/bin/env node
const [command, ...args] = process.argv.slice(2);
const env = { SANDBOX_AGENT_TOKEN: process.env.SANDBOX_AGENT_TOKEN };
const answer = await fetch(process.env.DOUBLE + "/docker/" + command, { method: "POST", body: JSON.stringify({ args, env }) });
const said = await answer.json();
if (!answer.ok) console.error("docker: " + said.message);
else console.log(said.out);
process.exit(answer.ok ? 0 : 125);
`;

export class Docker extends Cloud {
  readonly #bin = mkdtempSync(join(tmpdir(), "sandbox-agent-docker-"));
  readonly #containers = new Map<string, { machine: Machine; port: number }>();
  readonly #ports: number[] = [];

  constructor() {
    super();
    writeFileSync(join(this.#bin, "package.json"), '{"type":"module"}');
    writeFileSync(join(this.#bin, "docker"), client);
    chmodSync(join(this.#bin, "docker"), 0o755);
  }

  env(): Record<string, string> {
    return { PATH: this.#bin + delimiter + (process.env.PATH ?? "") };
  }

  override gatewayPorts(): number[] {
    return this.#ports;
  }

  override async close(): Promise<void> {
    await super.close();
    rmSync(this.#bin, { recursive: true, force: true });
  }

  protected door(): undefined {
    return undefined; // a container's port is one of this machine
  }

  protected async api(call: Call): Promise<boolean> {
    const { args, env } = (await call.json()) as { args: string[]; env: Record<string, string> };
    const after = (flag: string): string | undefined => args[args.indexOf(flag) + 1];
    switch (`${call.method} ${call.path}`) {
      case "POST /docker/run": {
        if (!args.includes("--detach") || !args.includes("--rm") || after("--env") !== "SANDBOX_AGENT_TOKEN" || args.at(-1) !== "sandbox-agent:agents") return false;
        const [, inside] = /^127\.0\.0\.1::(\d+)$/.exec(after("--publish") ?? "") ?? [];
        if (!inside || args.join(" ").includes(env.SANDBOX_AGENT_TOKEN!)) return false;
        const machine = this.add(new Machine("/var/lib/sandbox-agent/home"));
        const port = await freePort();
        this.#ports.push(port);
        this.#containers.set(after("--name")!, { machine, port });
        machine.start(process.env.SANDBOX_AGENT_BIN!, ["server", "--port", String(port)], { env });
        call.answer(200, { out: machine.id });
        return true;
      }
      case "POST /docker/port": {
        const found = this.#containers.get(args[0]!);
        call.answer(found ? 200 : 404, found ? { out: `127.0.0.1:${found.port}` } : { message: `No such container: ${args[0]}` });
        return true;
      }
      case "POST /docker/rm": {
        const found = this.#containers.get(args.at(-1)!);
        if (found) await this.remove(found.machine.id);
        call.answer(200, { out: args.at(-1) }); // with --force it is no error that there is none
        return true;
      }
    }
    return false;
  }
}
