// What is sent again after a break: the list of cases that all clients run which connect again by themselves. It says what its words mean.
import { readFileSync } from "node:fs";
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { AcpRpcError, ProblemError, SandboxAgentClient, TurnInterruptedError, type Turn } from "sandbox-agent";
import { describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";

const { cases } = JSON.parse(readFileSync(new URL("../../../acp/lasting/testdata/repeats.json", import.meta.url), "utf8")) as { cases: { name: string; steps: string[]; sdks?: string[] }[] };
const turnEnded = "_sandboxagent/session/turn_ended";
type Json = Record<string, unknown>;
interface Message { id?: number; method: string; params?: { prompt?: { text: string }[]; _meta?: Record<string, { promptId: string; after: number }> } }

/** What comes, and who waits for it. */
class Queue {
  readonly #come: string[] = [];
  #wake = () => {};
  put(one: string): void {
    this.#come.push(one);
    this.#wake();
  }
  async next(): Promise<string> {
    while (this.#come.length === 0) await new Promise<void>((resolve) => (this.#wake = resolve));
    return this.#come.shift()!;
  }
  get empty(): boolean {
    return this.#come.length === 0;
  }
}

/** A gateway with one session, in which happens what a test says. */
class Scripted {
  readonly frames = new Queue(); // what it was sent of the session
  readonly #opens = new Queue(); // has one when a client wants a connection and does not get it yet
  readonly #looks = new Queue(); // and when it asks about its prompts and is not answered yet
  readonly #server: Server;
  readonly #log: { message: Json; frames: Json[] }[] = []; // events
  readonly #names = new Map<string, string>(); // what the client calls its prompts
  #asked = new Map<string, unknown>(); // the requests that prompts came with on this connection
  #socket: WebSocket | undefined; // on which the client is attached to the session
  #waits: (() => void)[] = []; // what is not answered yet
  #asking = new Set<ServerResponse>();
  #away = false;
  #holds = false;
  #refuses = ""; // to say what became of prompts, always, "once" or "bare once"
  #gone = false;
  #later = false; // the node comes later: the next close is refused
  #runs = ""; // whose turn

  private constructor(private readonly version: 1 | 2) {
    this.#server = createServer((request, response) => {
      const url = new URL(request.url ?? "", "http://gateway");
      this.#asking.add(response.once("close", () => this.#asking.delete(response)));
      if (this.#refuses) {
        const [status, kind] = this.#refuses === "once" ? [503, "unavailable"] : [403, "permission_denied"];
        const bare = this.#refuses === "bare once";
        if (this.#refuses !== "always") this.#refuses = "";
        if (bare) {
          response.writeHead(503).end("no upstream");
          return;
        }
        response.writeHead(status, { "content-type": "application/problem+json" }).end(JSON.stringify({ type: `urn:sandbox-agent:error:${kind}`, title: "it is refused", status }));
        return;
      }
      this.#when(!this.#holds, this.#looks, () => {
        const after = Number(url.searchParams.get("after"));
        const events = this.#log.slice(after).map(({ message }, i) => ({ seq: after + 1 + i, message }));
        response.setHeader("content-type", "application/json").end(JSON.stringify(url.pathname.endsWith("/events") ? { events, hasMore: false } : { state: this.#runs ? "running" : "idle" }));
      });
    });
    new WebSocketServer({ server: this.#server }).on("connection", (socket) => socket.on("message", (data: Buffer) => this.#takes(socket, JSON.parse(data.toString()) as Message)));
  }

  static async start(version: 1 | 2): Promise<Scripted> {
    const g = new Scripted(version);
    await new Promise<void>((resolve) => g.#server.listen(0, "127.0.0.1", resolve));
    return g;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  #says(socket: WebSocket, message: Json): void {
    socket.send(JSON.stringify({ jsonrpc: "2.0", ...message }));
  }

  #takes(socket: WebSocket, { id, method, params }: Message): void {
    const answer = (result: Json) => this.#says(socket, { id, result });
    const own = params?._meta?.["sandboxagent.dev"];
    if (method === "initialize") this.#when(!this.#away, this.#opens, () => answer({ protocolVersion: this.version, agentCapabilities: {}, capabilities: {}, info: { name: "g", version: "1" } }));
    else if (this.#gone && ["session/resume", "session/prompt", "_sandboxagent/session/get"].includes(method)) this.#says(socket, { id, error: { code: -32002, message: "it is gone" } });
    else if (method === "session/new") {
      this.#socket = socket;
      answer({ sessionId: "s" });
    } else if (method === "session/resume") {
      this.#socket = socket;
      for (const { frames } of this.#log.slice(own?.after)) this.#shows(frames);
      answer({});
    } else if (method === "_sandboxagent/session/pending") answer({ pending: [] });
    else if (method === "_sandboxagent/session/get") answer({ state: this.#runs ? "running" : "idle" });
    else if (method === "session/prompt") {
      const name = params?.prompt?.[0]?.text ?? "";
      this.#names.set(name, own?.promptId ?? "");
      this.#asked.set(name, id);
      this.frames.put(`prompt ${name}`);
    } else {
      this.frames.put(method.replace("session/", ""));
      if (this.#later && method === "session/close") {
        this.#later = false;
        this.#says(socket, { id, error: { code: -32603, message: "it is away", data: { type: "urn:sandbox-agent:error:node_offline" } } });
        return;
      }
      if (method === "session/close" || method === "session/delete") {
        for (const name of [...this.#asked.keys()]) this.#drops(name);
        if (this.#runs) this.#ends(this.#runs, "cancelled");
      }
      if (id !== undefined) answer(method === "session/list" ? { sessions: [] } : {});
    }
  }

  /** Answers now, or later, of which it gives notice. */
  #when(now: boolean, later: Queue, answer: () => void): void {
    if (now) return answer();
    if (this.#waits.push(answer) === 1) later.put("");
  }

  #shows(frames: Json[]): void {
    for (const frame of frames) this.#says(this.#socket!, frame);
  }

  async does(what: string): Promise<void> {
    const [verb, name = "", why = "", how = "", ...often] = what.split(" ");
    if (verb === "breaks") {
      [this.#away, this.#holds, this.#refuses, this.#waits] = [true, false, "", []];
      this.#asked.clear();
      for (const response of this.#asking) response.destroy();
      const socket = this.#socket;
      this.#socket = undefined;
      socket?.terminate();
      await this.#opens.next();
    } else if (/^is back( and (holds|refuses(( bare)? once)?))?$/.test(what)) {
      [this.#away, this.#holds, this.#refuses] = [false, how === "holds", how === "refuses" ? often.join(" ") || "always" : ""];
      this.#answers();
      if (this.#holds) await this.#looks.next();
    } else if (what === "is back before its node") {
      [this.#away, this.#later] = [false, true];
      this.#answers();
    } else if (verb === "answers") {
      this.#holds = false;
      this.#answers();
    } else if (verb === "restarts") this.#runs = "";
    else if (verb === "loses") this.#gone = true;
    else if (verb === "begins") this.#begins(name);
    else if (verb === "ends") this.#ends(name, why);
    else if (verb === "drops") this.#drops(name);
    else throw new Error(`unknown: gateway ${what}`);
  }

  #answers(): void {
    for (const answer of this.#waits.splice(0)) answer();
  }

  /** Adds an event, which is told in frames. A prompt that came on this connection has its answer besides, or in their place. */
  #happens(name: string, method: string, params: Json, answer: Json | undefined, besides: boolean, ...updates: Json[]): void {
    const promptId = this.#names.get(name) ?? name;
    const place = { sessionId: "s", _meta: { "sandboxagent.dev": { seq: this.#log.length + 1, promptId } } };
    const message = { method, params: { ...params, ...place, promptId } };
    const frames: Json[] = [...(method === turnEnded ? [message] : []), ...updates.map((update) => ({ method: "session/update", params: { ...place, update } }))];
    this.#log.push({ message, frames });
    if (this.#socket === undefined) return;
    if (!this.#asked.has(name) || besides) this.#shows(frames);
    if (!this.#asked.has(name) || answer === undefined) return;
    this.#says(this.#socket, { id: this.#asked.get(name), ...answer });
    this.#asked.delete(name);
  }

  #begins(name: string): void {
    this.#runs = name;
    const messageId = `sa.${this.#log.length + 1}`;
    if (this.version === 1) this.#happens(name, "session/prompt", {}, undefined, false, { sessionUpdate: "user_message_chunk", content: { type: "text", text: name }, _meta: { "sandboxagent.dev": { prompt: true } } });
    else this.#happens(name, "session/prompt", {}, { result: { messageId } }, true, { sessionUpdate: "user_message", messageId, content: [] }, { sessionUpdate: "state_update", state: "running" });
  }

  #ends(name: string, stopReason: string): void {
    this.#runs = "";
    const end = { result: { stopReason } };
    if (this.version === 1) this.#happens(name, turnEnded, end, end, false);
    else this.#happens(name, turnEnded, end, undefined, true, { sessionUpdate: "state_update", state: "idle", stopReason });
  }

  /** Ends a prompt that has not begun. */
  #drops(name: string): void {
    const answer = this.version === 1 ? { result: { stopReason: "cancelled", _meta: { "sandboxagent.dev": { began: false } } } } : { error: { code: -32800, message: "it was cancelled before it began" } };
    this.#happens(name, turnEnded, { began: false, ...answer }, answer, false);
  }
}

const outcome = (turn: Turn<1 | 2> | undefined) => Promise.resolve(turn).then((end) => end?.stopReason, (error: unknown) => {
  if (error instanceof TurnInterruptedError) return "interrupted";
  if (error instanceof AcpRpcError || error instanceof ProblemError) return "failed";
  throw error;
});

describe.each([1, 2] as const)("version %i", (acpVersion) => {
  test.each(cases.map(({ name, steps, sdks = steps }) => ({ name, steps: sdks })))("$name", async ({ steps }) => {
    const g = await Scripted.start(acpVersion);
    await using c = new SandboxAgentClient({ baseUrl: g.url, acpVersion, transport: "websocket", WebSocket: WebSocket as never, retry: { firstDelayMs: 1, maxDelayMs: 20 } });
    const session = await c.newSession({ cwd: "/" });
    const turns = new Map<string, Turn<1 | 2>>();
    const calls: Promise<unknown>[] = [];
    const ways: Record<string, () => Promise<unknown>> = { cancel: () => c.cancel("s"), close: () => session.close(), delete: () => session.delete(), list: () => c.listSessions() };
    for (const step of [...steps, "client list", "wire list"]) {
      const [who = "", verb = "", name = ""] = step.split(" ");
      const what = step.slice(who.length + 1);
      if (who === "client" && verb === "prompt") turns.set(name, session.prompt(name));
      else if (who === "client") calls.push(ways[what]!());
      else if (who === "told") {
        expect(`${verb} ${await outcome(turns.get(verb))}`, step).toBe(what);
        turns.delete(verb);
      } else if (who === "wire") expect(await g.frames.next(), step).toBe(what);
      else if (who === "gateway") await g.does(what);
      else throw new Error(`unknown: ${step}`);
    }
    await Promise.all(calls);
    expect([turns.size, g.frames.empty]).toEqual([0, true]);
    g.close();
  }, 30_000);
});
