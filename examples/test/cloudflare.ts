// Runs the worker of the Cloudflare example in workerd, and doubles the containers: what
// runs in one, Cloudflare's server for commands, and what the ports lead to.
import { spawn, type ChildProcess } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createConnection } from "node:net";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { build } from "esbuild";
import { Cloud, type Call } from "./cloud.ts";
import { Machine } from "./machine.ts";
import { freePort } from "./run.ts";

const CONTROL = 3000; // the port of Cloudflare's server in a container
const GATEWAY = 2468;
const token = "a-token-of-the-worker";
const require = createRequire(join(import.meta.dirname, "../cloudflare/package.json"));

export class Cloudflare extends Cloud {
  readonly #ports = new Map<Machine, number>(); // of the gateway, on this computer
  readonly #objects = new Map<string, Machine>();
  readonly #processes = new Map<string, { machine: Machine; command: string; ended: boolean }>();
  readonly #dir = mkdtempSync(join(tmpdir(), "sandbox-agent-workerd-"));
  #workerd: ChildProcess | undefined;
  #orphan: () => void = () => {};
  #worker = "";
  stderr = "";
  /** Awaited before a list of processes is answered. */
  listing: () => Promise<void> = () => Promise.resolve();

  env(): Record<string, string> {
    return { WORKER_URL: this.#worker, SANDBOX_AGENT_TOKEN: token };
  }

  override gatewayPorts(): number[] {
    return [...this.#ports.values()];
  }

  override async listen(): Promise<this> {
    await super.listen();
    await build({
      entryPoints: [join(import.meta.dirname, "../cloudflare/test/worker.ts")], outfile: join(this.#dir, "worker.js"), bundle: true, format: "esm",
      platform: "browser", conditions: ["workerd", "worker", "import"], external: ["node:*", "cloudflare:*"], target: "es2022", logLevel: "error",
    });
    const port = await freePort();
    mkdirSync(join(this.#dir, "objects"));
    writeFileSync(join(this.#dir, "config.capnp"), `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = .worker), (name = "machines", external = (address = "${new URL(this.url).host}", http = ())), (name = "disk", disk = (path = "${join(this.#dir, "objects")}", writable = true))],
  sockets = [(name = "http", address = "127.0.0.1:${port}", http = (), service = "main")]
);
const worker :Workerd.Worker = (
  modules = [(name = "worker", esModule = embed "worker.js")],
  compatibilityDate = "2026-05-05", compatibilityFlags = ["nodejs_compat"],
  durableObjectNamespaces = [(className = "Gateway", uniqueKey = "gateway", enableSql = true)],
  durableObjectStorage = (localDisk = "disk"),
  bindings = [(name = "Sandbox", durableObjectNamespace = "Gateway"), (name = "MACHINES", service = "machines"), (name = "SANDBOX_AGENT_TOKEN", text = "${token}")]
);
`);
    const workerd = (this.#workerd = spawn(require.resolve("workerd/bin/workerd"), ["serve", "config.capnp", "--import-path", dirname(dirname(require.resolve("workerd/package.json")))], { cwd: this.#dir, stdio: ["ignore", "pipe", "pipe"] }));
    this.#orphan = () => workerd.kill("SIGKILL"); // also when this process ends without close
    process.once("exit", this.#orphan);
    for (const stream of [workerd.stdout, workerd.stderr]) stream?.setEncoding("utf8").on("data", (text: string) => (this.stderr += text));
    await listening(port, workerd, () => this.stderr);
    this.#worker = `http://127.0.0.1:${port}`;
    return this;
  }

  override async close(): Promise<void> {
    const workerd = this.#workerd;
    if (workerd && workerd.exitCode === null) {
      const ended = new Promise((resolve) => workerd.once("close", resolve));
      workerd.kill("SIGKILL");
      await ended;
    }
    process.off("exit", this.#orphan);
    await super.close();
    rmSync(this.#dir, { recursive: true, force: true });
  }

  #machine(call: Call): Machine {
    const object = String(call.headers["x-machine"]);
    let machine = this.#objects.get(object);
    if (!machine) {
      machine = this.add(new Machine("workspace"));
      const bin = join(machine.root, "usr/local/bin");
      mkdirSync(bin, { recursive: true });
      symlinkSync(process.env.SANDBOX_AGENT_BIN ?? "", join(bin, "sandbox-agent")); // as the Dockerfile does
      this.#objects.set(object, machine);
    }
    return machine;
  }

  protected door(call: Call): { machine: Machine; port: number } | undefined {
    if (call.headers["x-machine-port"] !== String(GATEWAY)) return undefined;
    const machine = this.#machine(call);
    call.headers.host = String(call.headers["x-machine-host"]);
    return { machine, port: this.#ports.get(machine) ?? 1 };
  }

  protected async api(call: Call): Promise<boolean> {
    if (call.method === "DELETE" && call.path === "/") {
      const object = String(call.headers["x-machine"]);
      const machine = this.#objects.get(object);
      this.#objects.delete(object);
      if (machine) await this.remove(machine.id);
      call.answer(204);
      return true;
    }
    if (call.headers["x-machine-port"] !== String(CONTROL)) return false;
    const machine = this.#machine(call);
    const timestamp = new Date().toISOString();
    const [, id] = /^GET \/api\/process\/([\w-]+)$/.exec(`${call.method} ${call.path}`) ?? [];
    const describe = (id: string): object => {
      const p = this.#processes.get(id);
      return { id, command: p?.command, status: p?.ended ? "failed" : "running", startTime: timestamp };
    };
    switch (`${call.method} ${call.path}`) {
      case "GET /": // whether it listens
      case "GET /api/ping":
        call.answer(200, { success: true, message: "pong", timestamp });
        return true;
      case "GET /api/version":
        call.answer(200, { success: true, version: "0.12.10", timestamp });
        return true;
      case "POST /api/session/create":
        call.answer(200, { success: true, id: (await call.json()).id, message: "created", timestamp });
        return true;
      case "GET /api/process/list": {
        const processes = [...this.#processes].filter(([, p]) => p.machine === machine).map(([id]) => describe(id));
        await this.listing();
        call.answer(200, { success: true, processes, timestamp });
        return true;
      }
      case "POST /api/process/start": {
        const { command, processId, env } = (await call.json()) as { command: string; processId: string; env?: Record<string, string> };
        // All containers share this computer's ports: the gateway gets one of its own.
        const port = await freePort();
        const { child, wait } = machine.start("sh", ["-c", `exec ${command.replace(`--port ${GATEWAY}`, `--port ${port}`)}`], {
          env: { ...env, PATH: `${join(machine.root, "usr/local/bin")}:${process.env.PATH}` },
        });
        this.#ports.set(machine, port);
        const process_ = { machine, command, ended: false };
        this.#processes.set(processId, process_);
        void wait.then(() => (process_.ended = true));
        call.answer(200, { success: true, processId, pid: child.pid, command, timestamp });
        return true;
      }
      case "POST /api/port-watch": {
        const { processId } = (await call.json()) as { processId: string };
        call.response.writeHead(200, { "content-type": "text/event-stream" });
        const port = this.#ports.get(machine) ?? 1;
        for (const p = this.#processes.get(processId); ; await new Promise((resolve) => setTimeout(resolve, 50))) {
          const ready = await fetch(`http://127.0.0.1:${port}/v2/health`).then((r) => r.ok, () => false);
          if (!ready && !p?.ended) continue;
          call.response.end(`data: ${JSON.stringify(ready ? { type: "ready", port } : { type: "process_exited", port, exitCode: 1 })}\n\n`);
          return true;
        }
      }
    }
    if (id && this.#processes.has(id)) return call.answer(200, { success: true, process: describe(id), timestamp }), true;
    return false;
  }
}

/** Resolves once somebody listens on a port. */
async function listening(port: number, child: ChildProcess, stderr: () => string): Promise<void> {
  for (;;) {
    if (child.exitCode !== null) throw new Error(`workerd ended with ${child.exitCode}:\n${stderr()}`);
    const open = await new Promise<boolean>((resolve) => {
      const socket = createConnection(port, "127.0.0.1", () => {
        socket.destroy();
        resolve(true);
      }).on("error", () => resolve(false));
    });
    if (open) return;
    await new Promise((resolve) => setTimeout(resolve, 20)); // workerd does not say when it listens
  }
}
