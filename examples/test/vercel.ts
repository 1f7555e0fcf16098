// A double of Vercel's API for sandboxes: create, write files from a tar archive, run a
// command in the background, stop, delete. A port of a sandbox has a name of vercel.run.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { Cloud, type Call } from "./cloud.ts";
import { Machine } from "./machine.ts";

const CWD = "/vercel/sandbox";

export class Vercel extends Cloud {
  readonly #ports = new Map<string, number[]>();

  env(): Record<string, string> {
    return { VERCEL_TOKEN: "token", VERCEL_TEAM_ID: "team", VERCEL_PROJECT_ID: "project", VERCEL_TELEMETRY_DISABLED: "1", DOUBLE_NAMES: "vercel.com,vercel.run" };
  }

  protected door(call: Call): { machine: Machine; port: number } | undefined {
    const [, id, port] = /^sb-(\w+)-(\d+)\.vercel\.run$/.exec(call.url.hostname) ?? [];
    const machine = this.machines.get(id ?? "");
    return machine && this.#ports.get(machine.id)?.includes(Number(port)) ? { machine, port: Number(port) } : undefined;
  }

  #describe(machine: Machine, status: string): { session: object; sandbox: object; routes: object[] } {
    const now = Date.now();
    const common = { status, region: "iad1", memory: 2048, vcpus: 1, timeout: 600_000, createdAt: now, updatedAt: now, cwd: CWD };
    return {
      session: { ...common, id: machine.id, requestedAt: now, startedAt: now },
      sandbox: { ...common, name: machine.id, persistent: false, currentSessionId: machine.id },
      routes: (this.#ports.get(machine.id) ?? []).map((port) => ({ port, subdomain: `sb-${machine.id}-${port}`, url: `https://sb-${machine.id}-${port}.vercel.run` })),
    };
  }

  protected async api(call: Call): Promise<boolean> {
    if (call.headers.authorization !== "Bearer token") return call.answer(401, { error: { code: "forbidden", message: "no token" } }), true;
    const route = `${call.method} ${call.path}`;
    if (route === "POST /api/v3/sandboxes") {
      const { ports, timeout = 0 } = (await call.json()) as { ports?: number[]; timeout?: number };
      if (timeout > 45 * 60_000) return call.answer(400, { error: { code: "bad_request", message: "the timeout is longer than the plan has" } }), true;
      const machine = this.add(new Machine(CWD));
      this.#ports.set(machine.id, ports ?? []);
      call.answer(200, this.#describe(machine, "running"));
      return true;
    }
    const [, deleted] = /^DELETE \/api\/v2\/sandboxes\/(\w+)$/.exec(route) ?? [];
    if (deleted) {
      const machine = this.made.find(({ id }) => id === deleted);
      if (!machine) return false;
      await this.remove(deleted);
      call.answer(200, this.#describe(machine, "stopped"));
      return true;
    }
    const [, id, action] = /^\w+ \/api\/v2\/sandboxes\/sessions\/(\w+)\/?(.*)$/.exec(route) ?? [];
    const machine = this.made.find((machine) => machine.id === id);
    if (!machine) return false;
    switch (`${call.method} ${action}`) {
      case "GET ":
        call.answer(200, this.#describe(machine, this.machines.has(machine.id) ? "running" : "stopped"));
        return true;
      case "POST fs/write": {
        const tar = spawn("tar", ["-xzf", "-", "-C", join(machine.root, String(call.headers["x-cwd"] ?? "/"))], { stdio: ["pipe", "inherit", "inherit"] });
        tar.stdin.end(await call.body());
        const code = await new Promise<number>((resolve) => tar.once("close", (code) => resolve(code ?? 1)));
        call.answer(code === 0 ? 200 : 500, {});
        return true;
      }
      case "POST cmd": {
        const wanted = (await call.json()) as { command: string; args: string[]; cwd?: string; env?: Record<string, string>; wait?: boolean };
        if (wanted.wait) return false;
        machine.start(wanted.command, wanted.args, { cwd: join(machine.root, wanted.cwd ?? CWD), env: wanted.env });
        call.answer(200, { command: { id: "cmd_1", name: wanted.command, args: wanted.args, cwd: wanted.cwd ?? CWD, sessionId: machine.id, exitCode: null, startedAt: Date.now() } });
        return true;
      }
      case "POST stop": {
        await this.remove(machine.id);
        call.answer(200, this.#describe(machine, "stopped"));
        return true;
      }
      default:
        return false;
    }
  }
}
