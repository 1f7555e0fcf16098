// A double of E2B: its API for sandboxes, and of envd, which runs in each of them, what
// the SDK needs for files and commands (the latter by the Connect protocol, in JSON).
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { Cloud, type Call } from "./cloud.ts";
import { Machine } from "./machine.ts";

const DOMAIN = "e2b.example";

export class E2B extends Cloud {
  env(): Record<string, string> {
    return { E2B_API_KEY: `e2b_${"0".repeat(40)}`, E2B_API_URL: this.url, E2B_SANDBOX_URL: this.url, DOUBLE_NAMES: DOMAIN };
  }

  protected door(call: Call): { machine: Machine; port: number } | undefined {
    const [, port, id] = /^(\d+)-(\w+)\.e2b\.example$/.exec(call.url.hostname) ?? [];
    const machine = this.machines.get(id ?? "");
    return machine && { machine, port: Number(port) };
  }

  protected async api(call: Call): Promise<boolean> {
    const route = `${call.method} ${call.path}`;
    if (route === "POST /v2/sandboxes") {
      if (!call.headers["x-api-key"]) return call.answer(401, { code: 401, message: "no key" }), true;
      const machine = this.add(new Machine("home/user"));
      call.answer(201, { sandboxID: machine.id, templateID: "base", clientID: "double", envdVersion: "0.4.0", envdAccessToken: `envd-${machine.id}`, domain: DOMAIN });
      return true;
    }
    const [, doomed] = /^DELETE \/sandboxes\/(\w+)$/.exec(route) ?? [];
    if (doomed) {
      call.answer((await this.remove(doomed)) ? 204 : 404);
      return true;
    }
    const machine = this.machines.get(String(call.headers["e2b-sandbox-id"]));
    if (!machine) return false;
    if (call.headers["x-access-token"] !== `envd-${machine.id}`) return call.answer(401, { code: 401, message: "not your sandbox" }), true;
    switch (route) {
      case "GET /health":
        call.response.writeHead(204).end();
        return true;
      case "POST /files": {
        const name = resolve(machine.home, call.url.searchParams.get("path") ?? "");
        const file = (await call.form()).get("file");
        if (!(file instanceof Blob)) return false;
        mkdirSync(dirname(name), { recursive: true });
        writeFileSync(name, Buffer.from(await file.arrayBuffer()));
        call.answer(200, [{ name: call.url.searchParams.get("path"), type: "file", path: name }]);
        return true;
      }
      case "POST /process.Process/Start":
        await this.#start(call, machine);
        return true;
      default:
        return false;
    }
  }

  async #start(call: Call, machine: Machine): Promise<void> {
    const body = await call.body(); // one enveloped message: flags, length, JSON
    const { process: wanted } = JSON.parse(body.subarray(5).toString()) as { process: { cmd: string; args: string[]; envs?: Record<string, string>; cwd?: string } };
    call.response.writeHead(200, { "content-type": "application/connect+json" });
    const send = (value: unknown, flags = 0): void => {
      const text = Buffer.from(JSON.stringify(value));
      const head = Buffer.alloc(5);
      head.writeUInt8(flags, 0);
      head.writeUInt32BE(text.length, 1);
      call.response.write(Buffer.concat([head, text]));
    };
    const { child, wait } = machine.start(wanted.cmd, wanted.args, { cwd: wanted.cwd && resolve(machine.home, wanted.cwd), env: wanted.envs });
    send({ event: { start: { pid: child.pid } } });
    child.stdout?.on("data", (data: Buffer) => send({ event: { data: { stdout: data.toString("base64") } } }));
    child.stderr?.on("data", (data: Buffer) => send({ event: { data: { stderr: data.toString("base64") } } }));
    child.stdin?.end();
    void wait.then((code) => {
      send({ event: { end: { exitCode: code, exited: true, status: `exit status ${code}` } } });
      send({}, 2);
      call.response.end();
    });
  }
}
