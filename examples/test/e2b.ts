// A double of E2B: its API for sandboxes, and of envd, which runs in each of them, what
// the SDK needs for files and commands (the latter by the Connect protocol, in JSON).
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { Cloud, type Call } from "./cloud.ts";
import { Machine } from "./machine.ts";

const DOMAIN = "e2b.example";

interface Built {
  readonly name: string;
  readonly steps: readonly { type: string; args: string[] }[];
}

export class E2B extends Cloud {
  /** What sandboxes were asked for with. */
  readonly wanted: Record<string, unknown>[] = [];
  /** Templates, with the steps of which they were to be built. */
  readonly templates: Built[] = [];

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
      const wanted = await call.json();
      this.wanted.push(wanted);
      if (wanted.templateID !== "base") { // it has the program in it
        const programs = join(machine.root, "usr/local/bin");
        mkdirSync(programs, { recursive: true });
        symlinkSync(process.env.SANDBOX_AGENT_BIN ?? "", join(programs, "sandbox-agent"));
        writeFileSync(join(machine.home, ".profile"), `PATH="${programs}:$PATH"\n`); // the SDK runs login shells
      }
      call.answer(201, this.#told(machine));
      return true;
    }
    const [, again] = /^POST \/v2\/sandboxes\/(\w+)\/connect$/.exec(route) ?? [];
    if (again) {
      const machine = this.machines.get(again);
      call.answer(machine ? 201 : 404, machine ? this.#told(machine) : { code: 404, message: "no such sandbox" });
      return true;
    }
    if (this.#template(call, route)) return true;
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

  #told(machine: Machine): Record<string, string> {
    return { sandboxID: machine.id, templateID: "base", clientID: "double", envdVersion: "0.4.0", envdAccessToken: `envd-${machine.id}`, domain: DOMAIN };
  }

  /** The API by which templates are built; nothing is built, the steps are kept. */
  #template(call: Call, route: string): boolean {
    if (route === "POST /v3/templates") {
      void call.json().then(({ name }) => {
        const at = this.templates.push({ name: String(name), steps: [] }) - 1;
        call.answer(202, { templateID: `template${at}`, buildID: "build", names: [name], tags: [], public: false, aliases: [] });
      });
      return true;
    }
    const [, verb, at, rest] = /^(POST|GET) (?:\/v2)?\/templates\/template(\d+)\/builds\/build(\/status)?$/.exec(route) ?? [];
    const template = this.templates[Number(at)];
    if (!template) return false;
    if (verb === "GET" && rest) call.answer(200, { templateID: `template${at}`, buildID: "build", status: "ready", logEntries: [], logs: [] });
    else {
      void call.json().then(({ fromImage, steps }) => {
        this.templates[Number(at)] = { ...template, steps: [{ type: "FROM", args: [String(fromImage)] }, ...(steps as Built["steps"])] };
        call.answer(202, {});
      });
    }
    return true;
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
