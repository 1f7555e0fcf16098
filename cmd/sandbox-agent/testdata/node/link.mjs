// What the scenarios share: connections of the unmodified official SDK, sessions
// that note what they are shown, and the test's controls.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, readlinkSync, writeFileSync } from "node:fs";
import { client, methods, PROTOCOL_VERSION } from "@agentclientprotocol/sdk/unstable";
import { createHttpStream } from "@agentclientprotocol/sdk/experimental/http-client";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import { WebSocket } from "ws";

export const env = process.env;
export { methods };

const QUESTION = "_sandboxagent/session/request_question";
const OWN = "sandboxagent.dev";

/** Our _meta. */
export const own = (fields) => ({ [OWN]: fields });
export const ownOf = (thing) => thing?._meta?.[OWN] ?? {};

/** A prompt that scripts the model; see playScript in the Go test. The mark keeps it apart from others. */
let marks = 0;
export function script(steps, notified) {
  return `script ${JSON.stringify({ mark: `m${++marks}-${process.pid}`, steps, ...(notified ? { notified } : {}) })}`;
}
export const call = (tool, args = {}) => ({ call: tool, args });

export async function control(method, path, params = {}) {
  const response = await fetch(`${env.CONTROL}/${path}?${new URLSearchParams(params)}`, { method });
  assert.ok(response.ok, `${path}: ${response.status}`);
  const body = await response.text();
  return body.startsWith("{") || body.startsWith("[") ? JSON.parse(body) : body;
}
/** The model calls that have the text in a prompt. */
export const heard = (text) => control("GET", "heard", { text });
export const openGate = (gate) => control("POST", "open", { gate });

/** Writes a file that scenarios share, unless it is there: another one may be reading it. */
export function place(file, content) {
  if (!existsSync(file)) writeFileSync(file, content);
}

/** Calls get until ok(value), for what nobody announces. */
export async function eventually(what, get, ok, limit = 120_000) {
  for (const end = Date.now() + limit; ;) {
    const value = await get();
    if (ok(value)) return value;
    if (Date.now() > end) assert.fail(`${what} does not come; at last: ${JSON.stringify(value)?.slice(0, 500)}`);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}

/** What read finds out about a process, "" when that has ended: in any moment, and with more than one kind of error. */
function fact(read) {
  try {
    return read();
  } catch {
    return "";
  }
}

export const alive = (pid) => !["", "Z"].includes(fact(() => readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) (.).*$/s, "$1")));
export const dies = (pid) => eventually(`the end of process ${pid}`, () => alive(pid), (x) => !x);

/** The process of an agent that works in a folder, and has a variable in its environment if one is named. */
export async function servedBy(agent, dir, variable) {
  const { processes } = (await api("/v2/agents")).agents.find((a) => a.id === agent);
  const mine = processes.map((p) => p.pid).filter((pid) => fact(() => readlinkSync(`/proc/${pid}/cwd`)) === dir &&
    (variable === undefined || fact(() => readFileSync(`/proc/${pid}/environ`, "utf8")).split("\0").includes(variable)));
  assert.equal(mine.length, 1, `the processes of ${agent}: ${JSON.stringify(processes)}`);
  return mine[0];
}

/** The gateway's HTTP API. */
export async function api(path, url = env.GATEWAY) {
  const response = await fetch(url + path);
  assert.ok(response.ok, `${path}: ${response.status}`);
  return response.json();
}

/** The error of a request that must fail. */
export async function failure(promise) {
  const started = Date.now();
  let result;
  try {
    result = await promise;
  } catch (error) {
    return { code: error.code, message: error.message, data: error.data, all: `${error.message} ${JSON.stringify(error.data)}`, took: Date.now() - started };
  }
  assert.fail(`no error, but ${JSON.stringify(result).slice(0, 300)}`);
}

/** Sessions that scenarios have left for others, by their settings. */
const idle = new Map();
const returned = new Set();

const folders = (sessions) => sessions.filter((s) => s.cwd).map((s) => [s.id, s.cwd]);

/** One scenario's world: a folder, connections, sessions. All but what is borrowed are closed with it. */
export class World {
  static heard = 0; // when any client was last told anything
  static follower; // of new sessions, in version 2 of the protocol
  static read; // reads sessions, [id, cwd] each, once more; see run.mjs
  place = env.WORK; // where its sessions work; dir, below it, is its own
  links = [];
  borrowed = [];

  /** A place of its own, for what looks at whole folders. */
  moveIn() { this.place = this.dir; }

  constructor(name) {
    this.name = name;
    this.dir = `${env.WORK}/${name.replaceAll(/\W+/g, "-")}`;
    mkdirSync(this.dir, { recursive: true });
  }

  async connect(capabilities = {}, { url = env.GATEWAY, transport = env.TRANSPORT } = {}) {
    const target = new URL(`${url}/v2/rpc`);
    target.searchParams.set("agent", env.AGENT);
    const stream = transport === "ws"
      ? createWebSocketStream(target.href.replace(/^http/, "ws"), { WebSocket })
      : createHttpStream(target.href);
    const link = new Link();
    const app = client({ name: "e2e" })
      .onNotification(methods.client.session.update, ({ params }) => { link.update(params); })
      .onRequest(methods.client.session.requestPermission, ({ params }) => link.ask("permission", params))
      .onRequest(methods.client.elicitation.create, ({ params }) => link.ask("elicitation", params))
      .onRequest(QUESTION, (params) => params, ({ params }) => link.ask("question", params));
    link.connection = app.connect(stream);
    link.agent = link.connection.agent;
    this.links.push(link);
    link.hello = await link.agent.request(methods.agent.initialize, {
      protocolVersion: PROTOCOL_VERSION, clientCapabilities: capabilities, clientInfo: { name: "e2e", version: "1" },
    });
    return link;
  }

  /** A session on a new connection, or on the one given. */
  async session({ link, capabilities, meta, mcpServers = [], cwd = this.place, answer, ...more } = {}) {
    link ??= await this.connect(capabilities);
    const result = await link.agent.request(methods.agent.session.new, {
      cwd, mcpServers, ...more, ...(meta ? { _meta: own(meta) } : {}),
    });
    await World.follower?.follow(result.sessionId, cwd);
    const s = new Session(this, link, result.sessionId, result, answer);
    s.cwd = cwd;
    return s;
  }

  /** The open sessions that end with the scenario, and their folders. */
  ends() { return folders(this.links.flatMap((l) => [...l.sessions.values()])); }

  /** Those that scenarios have given back since they were asked for the last time, likewise. */
  static returned() {
    const all = [...returned];
    returned.clear();
    return folders(all);
  }

  /**
   * A session for a scenario that leaves it as it was: one with these settings that
   * another scenario has left, or a new one. Its folder is the parent of all
   * scenarios' folders. What it was shown before is forgotten.
   */
  async borrow(settings = {}, answer = undefined) {
    const key = JSON.stringify(settings);
    const s = idle.get(key)?.pop() ?? await new World("borrowed").session(settings);
    s.forget(answer);
    this.borrowed.push([key, s]);
    return s;
  }

  /** A new session that is left for others, see borrow. */
  async fresh(settings = {}, answer = undefined) {
    const s = await new World("borrowed").session({ ...settings, answer });
    this.borrowed.push([JSON.stringify(settings), s]);
    return s;
  }

  /** A borrowed session that does not go back: it ends with the scenario. */
  async take(settings = {}, answer = undefined) {
    const s = await this.borrow(settings, answer);
    this.borrowed.pop();
    if (returned.delete(s)) await World.read(folders([s]));
    this.links.push(s.link);
    return s;
  }

  /** Ends the scenario. Sessions go back if it went well. */
  async close(well) {
    for (const [key, s] of this.borrowed) {
      if (well) {
        idle.set(key, [...idle.get(key) ?? [], s]);
        returned.add(s);
      } else {
        returned.delete(s);
        this.links.push(s.link);
      }
    }
    for (const link of this.links) {
      for (const id of link.sessions.keys()) {
        await link.agent.request(methods.agent.session.close, { sessionId: id }).catch(() => {});
      }
      link.connection.close();
      await link.connection.closed.catch(() => {});
    }
  }
}

class Link {
  updates = new Map(); // by session
  sessions = new Map();
  waiting = new Set();

  commands = new Map(); // the last list, by session

  update({ sessionId, update }) {
    World.heard = Date.now();
    if (update.availableCommands) this.commands.set(sessionId, update.availableCommands);
    if (!this.updates.has(sessionId)) this.updates.set(sessionId, []);
    this.updates.get(sessionId).push(update);
    for (const wake of this.waiting) wake();
  }

  async ask(kind, params) {
    const session = this.sessions.get(params.sessionId);
    const answer = session?.answer;
    session?.asked.push({ kind, params });
    for (const wake of this.waiting) wake();
    const none = { permission: { outcome: { outcome: "cancelled" } }, elicitation: { action: "cancel" }, question: { outcome: "cancelled", answers: [] } };
    if (!answer) {
      session?.unexpected.push(`${kind} ${JSON.stringify(params).slice(0, 300)}`);
      return none[kind];
    }
    try {
      return await answer(params, kind) ?? none[kind];
    } catch (error) {
      session.unexpected.push(String(error.message));
      return none[kind];
    }
  }

  /** Waits until get returns something. */
  async until(what, get, limit = 120_000) {
    let timer;
    const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`no ${what}`)), limit); });
    try {
      for (;;) {
        let wake;
        const woken = new Promise((resolve) => { wake = resolve; });
        this.waiting.add(wake);
        const value = get();
        if (value === undefined || value === false) await Promise.race([woken, late]);
        this.waiting.delete(wake);
        if (value !== undefined && value !== false) return value;
      }
    } finally {
      clearTimeout(timer);
      late.catch(() => {});
    }
  }
}

/** Answers permission requests with the option of this kind or id. */
export const choose = (wanted) => ({ options }) => {
  const option = options?.find((o) => o.optionId === wanted) ?? options?.find((o) => o.kind === wanted);
  assert.ok(option, `no option ${wanted} among ${JSON.stringify(options)}`);
  return { outcome: { outcome: "selected", optionId: option.optionId } };
};

export class Session {
  asked = [];
  unexpected = [];

  constructor(world, link, id, result, answer) {
    Object.assign(this, { world, link, id, result, answer });
    link.sessions.set(id, this);
  }

  get updates() { return this.link.updates.get(this.id) ?? []; }
  get text() { return textOf(this.updates); }
  forget(answer) {
    Object.assign(this, { asked: [], unexpected: [], answer });
    this.link.updates.set(this.id, []);
  }
  request(method, params = {}) { return this.link.agent.request(method, { sessionId: this.id, ...params }); }
  cancel() { return this.link.agent.notify(methods.agent.session.cancel, { sessionId: this.id }); }

  /** Starts a prompt: text or blocks. */
  begin(prompt) {
    const from = this.updates.length;
    const asked = this.asked.length;
    const blocks = typeof prompt === "string" ? [{ type: "text", text: prompt }] : prompt;
    const done = this.request(methods.agent.session.prompt, { prompt: blocks })
      .then((result) => new Turn(result, this.updates.slice(from), this.asked.slice(asked)));
    done.catch(() => {});
    return done;
  }

  /** A whole turn, which must end as said and ask only what the answer covers. */
  async prompt(prompt, stop = "end_turn") {
    const turn = await this.begin(prompt);
    assert.deepEqual(this.unexpected, [], "requests that nobody expected");
    assert.equal(turn.stopReason, stop, `the turn ended so; it said ${turn.text}`);
    return turn;
  }

  /** Waits for an update, from a position on. */
  until(what, match, from = 0) {
    return this.link.until(what, () => this.updates.slice(from).find(match));
  }
  untilText(text, from = 0) {
    return this.link.until(`text ${text}`, () => textOf(this.updates.slice(from)).includes(text));
  }
  /** The name of a listed command, when there is one. */
  untilCommand(pattern) {
    return this.link.until(`command ${pattern}`, () => this.link.commands.get(this.id)?.find((c) => pattern.test(c.name))?.name);
  }
  untilAsked(n = 1) { return this.link.until(`request ${n}`, () => this.asked.length >= n); }

  async close() {
    await this.request(methods.agent.session.close);
    this.link.sessions.delete(this.id);
  }
  async cancelled(turn) {
    await this.cancel();
    const end = await turn;
    assert.equal(end.stopReason, "cancelled");
    for (const c of end.calls) assert.ok(["completed", "failed"].includes(c.status), `${c.title} is left ${c.status}`);
    return end;
  }
  setMode(modeId) { return this.request(methods.agent.session.setMode, { modeId }); }
  set(configId, value) { return this.request(methods.agent.session.setConfigOption, { configId, value }); }
}

const chunks = (updates, kind) => updates.filter((u) => u.sessionUpdate === kind && u.content.type === "text").map((u) => u.content.text);
export const textOf = (updates) => chunks(updates, "agent_message_chunk").join("");
export const userTextOf = (updates) => chunks(updates, "user_message_chunk").join("\n");

/** The tool calls of updates, each as it is at the end. */
export function callsOf(updates) {
  const all = new Map();
  for (const u of updates) {
    if (u.sessionUpdate === "tool_call") {
      assert.ok(!all.has(u.toolCallId), `call ${u.toolCallId} is announced twice`);
      all.set(u.toolCallId, { ...u, history: [u.status] });
    } else if (u.sessionUpdate === "tool_call_update") {
      const known = all.get(u.toolCallId);
      assert.ok(known, `an update of call ${u.toolCallId}, which nobody announced`);
      const { sessionUpdate, ...changes } = u;
      for (const [k, v] of Object.entries(changes)) if (v !== undefined && v !== null) known[k] = v;
      if (u.status) known.history.push(u.status);
    }
  }
  return [...all.values()];
}

class Turn {
  constructor(result, updates, asked) {
    Object.assign(this, result, { result, updates, asked });
  }
  get text() { return textOf(this.updates); }
  get chunks() { return chunks(this.updates, "agent_message_chunk"); }
  get thought() { return chunks(this.updates, "agent_thought_chunk").join(""); }
  get calls() { return callsOf(this.updates); }
  of(kind) { return this.updates.filter((u) => u.sessionUpdate === kind); }
  /** The only call, or the one of a tool. */
  call(name) {
    const found = this.calls.filter((c) => !name || c.name === name);
    assert.equal(found.length, 1, `one call of ${name ?? "a tool"} among ${JSON.stringify(this.calls).slice(0, 500)}`);
    return found[0];
  }
}

export const valueOf = (options, id) => options.find((o) => o.id === id)?.currentValue;
export const withoutAnswer = () => new Promise(() => {});

/** The texts of a call's content. */
export const contentOf = (c) => (c.content ?? []).filter((x) => x.type === "content" && x.content.type === "text").map((x) => x.content.text).join("\n");
export const diffsOf = (c) => (c.content ?? []).filter((x) => x.type === "diff");
