// A second reading of what scenarios leave behind: each session's history as a client of
// version 2 is told it is the same conversation as a client of version 1 is told; and so
// is what a client of version 2 was told while it happened.
import assert from "node:assert/strict";
import * as one from "@agentclientprotocol/sdk";
import * as two from "@agentclientprotocol/sdk/experimental/v2";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import { WebSocket } from "ws";
import { Conversation } from "./fold.mjs";
import { env } from "./link.mjs";

const never = () => new Promise(() => {});

class Reader {
  #conversations = new Map(); // by session, subagents included
  #children = new Map(); // whose they are
  states = new Map();

  constructor(sdk, version, url) {
    this.version = version;
    this.methods = sdk.methods.agent;
    const target = new URL(`${url}/v2/rpc`);
    target.searchParams.set("agent", env.AGENT);
    const app = sdk.client({ name: "second" })
      .onNotification(sdk.methods.client.session.update, ({ params }) => {
        if (params.update.sessionUpdate === "state_update") this.states.set(params.sessionId, params.update);
        this.of(params.sessionId).take(params.update);
        if (params.update.sessionUpdate === "subagent_update") this.#introduce(params.sessionId, params.update);
      })
      .onRequest(sdk.methods.client.session.requestPermission, never);
    this.connection = app.connect(createWebSocketStream(target.href, { WebSocket }));
    this.agent = this.connection.agent;
    const hello = version === 1 ? { clientCapabilities: { session: { notices: {}, compaction: {} } } } : { info: { name: "second", version: "1" }, capabilities: {} };
    this.ready = this.agent.request(this.methods.initialize, { protocolVersion: version, ...hello });
  }

  /** A subagent: nothing of its session may have come before. */
  #introduce(parent, { sessionId, _meta }) {
    if (!this.#children.has(sessionId)) assert.ok(!this.#conversations.has(sessionId), `${sessionId} was heard of before it was introduced`);
    this.#children.set(sessionId, parent);
    const call = _meta?.["sandboxagent.dev"]?.toolCallId;
    if (call) this.of(parent).adopt(call, this.of(sessionId));
  }

  #forget(session) {
    this.#conversations.delete(session);
    for (const [child, parent] of [...this.#children]) {
      if (parent !== session) continue;
      this.#children.delete(child);
      this.#forget(child);
    }
  }

  of(session) {
    if (!this.#conversations.has(session)) this.#conversations.set(session, new Conversation(this.version));
    return this.#conversations.get(session);
  }

  /** Attaches to a session, with or without its history. Everything up to then has been told when it returns. */
  async open(sessionId, cwd, history) {
    await this.ready;
    if (history) this.#forget(sessionId);
    const params = this.version === 1 ? { mcpServers: [] } : history ? { replayFrom: { type: "start" } } : {};
    const method = this.version === 1 ? this.methods.session.load : this.methods.session.resume;
    const { _meta, configOptions, modes } = await this.agent.request(method, { sessionId, cwd, ...params });
    // What was set before the history began is in the answer.
    const current = configOptions?.find((o) => o.category === "mode")?.currentValue ?? modes?.currentModeId;
    if (current) this.of(sessionId).take({ sessionUpdate: "current_mode_update", currentModeId: current });
    return _meta["sandboxagent.dev"].seq;
  }

  close() { this.connection.close(); }
}

/** Follows sessions in version 2 from their beginning. */
export class Follower {
  #reader;
  #followed = new Map(); // cwd by session

  async follow(id, cwd) {
    this.#reader ??= new Reader(two, 2, env.GATEWAY);
    await this.#reader.open(id, cwd, false);
    this.#followed.set(id, cwd);
  }

  /** What it was told of a session, undefined if it does not follow it. */
  async told(id) {
    if (!this.#followed.has(id)) return undefined;
    await this.#reader.open(id, this.#followed.get(id), false);
    return this.#reader.of(id).shown();
  }

  close() { this.#reader?.close(); }
}

/** Reads sessions, [id, cwd] each, in both versions, and compares. */
export async function readTwice(sessions, follower) {
  if (sessions.length === 0) return 0;
  const [old, young] = [new Reader(one, 1, env.GATEWAY), new Reader(two, 2, env.GATEWAY)];
  let read = 0;
  try {
    for (const [id, cwd] of sessions) {
      let before, after, live;
      try {
        do { // until nothing was said in between
          before = await old.open(id, cwd, true);
          after = await young.open(id, cwd, true);
          live = await follower?.told(id);
        } while (before !== after || after !== await young.open(id, cwd, false));
      } catch (error) {
        if (error.code === -32002 || error.code === -32000) continue; // deleted, or without its credentials
        throw error;
      }
      const shown = young.of(id).shown();
      assert.deepEqual(shown, old.of(id).shown(), `session ${id} in version 2, and in version 1`);
      if (live) assert.deepEqual(live, shown, `session ${id} as it happened, and as it is replayed`);
      read++;
    }
  } finally {
    old.close();
    young.close();
  }
  return read;
}
