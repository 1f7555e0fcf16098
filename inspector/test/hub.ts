// A hub with the page in it, and gateways that have joined it.
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Gateway } from "../../sdk-ts/test/gateway.js";

export class Hub {
  readonly dir = mkdtempSync(join(tmpdir(), "sandbox-hub-inspector-"));
  /** A token that may do everything. */
  token = "";
  url = "";
  readonly nodes = new Map<string, Gateway>();
  #child: ChildProcess | undefined;

  /** With a gateway for each name, which has these labels. */
  static async start(nodes: Readonly<Record<string, readonly string[]>>): Promise<Hub> {
    const hub = new Hub();
    await hub.#launch();
    const file = join(hub.dir, "join-token");
    writeFileSync(file, await hub.newToken({ kind: "join" }), { mode: 0o600 });
    await Promise.all(Object.entries(nodes).map(async ([name, labels]) => {
      hub.nodes.set(name, await Gateway.start(["--no-token", "--join", hub.url, "--join-token-file", file, "--node-name", name, ...labels.flatMap((l) => ["--label", l])]));
    }));
    return hub;
  }

  async #launch(): Promise<void> {
    const child = spawn(process.env.SANDBOX_HUB_BIN ?? "sandbox-hub", ["serve", "--port", "0", "--data-dir", join(this.dir, "hub")], { env: { ...process.env, HOME: this.dir }, stdio: ["ignore", "pipe", "pipe"] });
    this.#child = child;
    let said = "";
    await new Promise<void>((resolve, reject) => {
      const there = () => this.url !== "" && this.token !== "" && resolve();
      child.stdout!.setEncoding("utf8").on("data", (text: string) => {
        this.token += text.trim();
        there();
      });
      child.stderr!.setEncoding("utf8").on("data", (text: string) => {
        said += text;
        this.url = /listening on (http\S+)/.exec(said)?.[1] ?? this.url;
        there();
      });
      child.once("exit", (code) => reject(new Error(`the hub ended with ${code}: ${said}`)));
    });
  }

  async ask<T>(method: string, path: string, body?: unknown): Promise<T> {
    const answer = await fetch(`${this.url}${path}`, { method, headers: { Authorization: `Bearer ${this.token}`, "Content-Type": "application/json" }, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
    return (answer.status === 204 ? undefined : await answer.json()) as T;
  }

  /** A token of the hub. */
  async newToken(of: Record<string, unknown>): Promise<string> {
    return (await this.ask<{ token: string }>("POST", "/v2/tokens", of)).token;
  }

  async stop(): Promise<void> {
    await Promise.all([...this.nodes.values()].map((node) => node.stop()));
    const child = this.#child;
    if (child && child.exitCode === null && child.signalCode === null) {
      const ended = new Promise((resolve) => child.once("exit", resolve));
      child.kill("SIGTERM");
      await ended;
    }
    rmSync(this.dir, { recursive: true, force: true });
  }
}
