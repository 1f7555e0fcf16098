// A double of Daytona: its API for sandboxes, and the toolbox that runs in each of them,
// as far as the SDK asks for it: upload, execute, sessions, previews, delete.
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { Cloud, type Call } from "./cloud.ts";
import { Machine } from "./machine.ts";

const DOMAIN = "proxy.daytona.example";

export class Daytona extends Cloud {
  env(): Record<string, string> {
    return { DAYTONA_API_KEY: "key", DAYTONA_API_URL: `${this.url}/api`, DAYTONA_TARGET: "us", DOUBLE_NAMES: DOMAIN };
  }

  protected door(call: Call): { machine: Machine; port: number } | undefined {
    const [, port, id] = /^(\d+)-(\w+)\.proxy\.daytona\.example$/.exec(call.url.hostname) ?? [];
    const machine = this.machines.get(id ?? "");
    // The sandbox is not public.
    return machine && call.headers["x-daytona-preview-token"] === `preview-${machine.id}` ? { machine, port: Number(port) } : undefined;
  }

  #describe(machine: Machine, state: string): object {
    return {
      id: machine.id, name: machine.id, organizationId: "organization", user: "daytona", env: {}, labels: {}, public: false, target: "us", state,
      cpu: 1, gpu: 0, memory: 1, disk: 3, networkBlockAll: false, toolboxProxyUrl: `${this.url}/toolbox`, autoStopInterval: 10, autoDeleteInterval: 0,
    };
  }

  protected async api(call: Call): Promise<boolean> {
    const route = `${call.method} ${call.path}`;
    if (call.path.startsWith("/api/socket.io")) return call.answer(404), true; // events are an extra: the SDK does without
    if (call.headers.authorization !== "Bearer key") return call.answer(401, { message: "no key" }), true;
    if (route === "POST /api/sandbox") {
      call.answer(200, this.#describe(this.add(new Machine("home/daytona")), "started"));
      return true;
    }
    const [, id, rest] = /^\/(?:api\/sandbox|toolbox)\/(\w+)(.*)$/.exec(call.path) ?? [];
    const machine = this.made.find((machine) => machine.id === id);
    if (!machine) return false;
    const [, session] = /^\/process\/session\/([^/]+)\/exec$/.exec(rest ?? "") ?? [];
    const [, port] = /^\/ports\/(\d+)\/preview-url$/.exec(rest ?? "") ?? [];
    switch (true) {
      case route === `GET /api/sandbox/${id}`:
        call.answer(200, this.#describe(machine, this.machines.has(machine.id) ? "started" : "destroyed"));
        return true;
      case route === `DELETE /api/sandbox/${id}`:
        await this.remove(machine.id);
        call.answer(200, this.#describe(machine, "destroyed"));
        return true;
      case port !== undefined:
        call.answer(200, { sandboxId: machine.id, url: `https://${port}-${machine.id}.${DOMAIN}`, token: `preview-${machine.id}` });
        return true;
      case rest === "/files/bulk-upload": {
        const form = await call.form();
        for (let i = 0; form.has(`files[${i}].path`); i++) {
          const name = resolve(machine.home, String(form.get(`files[${i}].path`)));
          const file = form.get(`files[${i}].file`);
          if (!(file instanceof Blob)) return false;
          mkdirSync(dirname(name), { recursive: true });
          writeFileSync(name, Buffer.from(await file.arrayBuffer()));
        }
        call.answer(200, {});
        return true;
      }
      case rest === "/process/execute": {
        const { command } = (await call.json()) as { command: string };
        const { child, wait } = machine.start("sh", ["-c", command]);
        let result = "";
        for (const stream of [child.stdout, child.stderr]) stream?.on("data", (data: Buffer) => (result += data.toString()));
        call.answer(200, { exitCode: await wait, result });
        return true;
      }
      case rest === "/process/session":
        call.answer(201);
        return true;
      case session !== undefined: {
        const { command, runAsync } = (await call.json()) as { command: string; runAsync?: boolean };
        if (!runAsync) return false;
        machine.start("sh", ["-c", command]);
        call.answer(202, { cmdId: "command" });
        return true;
      }
      default:
        return false;
    }
  }
}
