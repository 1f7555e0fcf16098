// Drives a gateway with the unmodified official ACP SDK in version 2 of the protocol, and
// beside it, on the same session, in version 1.
//
//   node official2.mjs http|ws URL [TOKEN] [AGENT]
//   node official2.mjs stdio COMMAND [ARGS...]
//
// Prints one line per step and exits with 1 at the first thing that is wrong.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import * as one from "@agentclientprotocol/sdk";
import * as two from "@agentclientprotocol/sdk/experimental/v2";
import { createHttpStream } from "@agentclientprotocol/sdk/experimental/http-client";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import { WebSocket } from "ws";
import { Conversation } from "./fold.mjs";

const [transport, where, ...rest] = process.argv.slice(2);
const stdio = transport === "stdio";

const deadline = setTimeout(() => {
  console.error(`no end after 180 s, at step: ${step}`);
  process.exit(1);
}, 180_000);
let step = "start";
function begin(name) {
  step = name;
  console.log(name);
}

let child;
function stream() {
  if (stdio) {
    child = spawn(where, rest, { stdio: ["pipe", "pipe", "inherit"] });
    return one.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
  }
  const [token = "", agent = ""] = rest;
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const target = new URL(where);
  if (agent) target.searchParams.set("agent", agent);
  return transport === "ws"
    ? createWebSocketStream(target.href.replace(/^http/, "ws"), { headers, WebSocket })
    : createHttpStream(target.href, { headers });
}

/** Opens a connection in a version, and keeps what arrives on it by session. */
function open(sdk) {
  const seen = { updates: [], permissions: [], waits: [], choose: () => ({ outcome: "cancelled" }) };
  const app = sdk.client({ name: "e2e" })
    .onNotification(sdk.methods.client.session.update, ({ params }) => {
      seen.updates.push(params);
      for (const w of seen.waits.splice(0)) w();
    })
    .onRequest(sdk.methods.client.session.requestPermission, async ({ params, signal }) => {
      seen.permissions.push({ params, signal });
      return { outcome: await seen.choose(params) };
    });
  const connection = app.connect(stream());
  /** Waits for an update behind position from. */
  seen.until = async (session, match, from = 0) => {
    for (let i = from; ; i++) {
      while (i >= seen.updates.length) await new Promise((resolve) => seen.waits.push(resolve));
      const u = seen.updates[i];
      if (u.sessionId === session && match(u.update)) return i;
    }
  };
  return { connection, agent: connection.agent, seen };
}

const idle = (u) => u.sessionUpdate === "state_update" && u.state === "idle" && u.stopReason != null;
const states = (updates) => updates.filter((u) => u.update.sessionUpdate === "state_update").map((u) => u.update.state);
const say = (words) => [{ type: "text", text: words }];
const fold = (seen, session, version, from = 0) => {
  const c = new Conversation(version);
  for (const u of seen.updates.slice(from)) if (u.sessionId === session) c.take(u.update);
  return c.shown();
};
const info = { name: "e2e", version: "1" };

try {
  const cwd = process.cwd();
  const first = open(two);
  const { agent: gateway, seen } = first;

  begin("initialize");
  const hello = await gateway.request(two.methods.agent.initialize, { protocolVersion: 2, info, capabilities: {} });
  assert.equal(hello.protocolVersion, 2);
  assert.ok(hello.info.name);
  assert.ok(hello.capabilities.session.mcp.stdio);

  if (transport !== "http") begin("initialize again"); // over HTTP that is another connection
  if (transport !== "http") assert.equal((await gateway.request(two.methods.agent.initialize, { protocolVersion: 2, info, capabilities: {} })).protocolVersion, 2);

  begin("session/new");
  const created = await gateway.request(two.methods.agent.session.new, { cwd });
  const { sessionId } = created;
  assert.ok(created.configOptions.some((o) => o.category === "mode"), "modes are an option");

  /** Sends a prompt and waits for the end of its turn. */
  const prompt = async (words) => {
    const from = seen.updates.length;
    const { messageId } = await gateway.request(two.methods.agent.session.prompt, { sessionId, prompt: say(words) });
    const end = await seen.until(sessionId, idle, await seen.until(sessionId, (u) => u.messageId === messageId, from));
    const updates = seen.updates.slice(from, end + 1).filter((u) => u.sessionId === sessionId);
    assert.deepEqual(updates.find((u) => u.update.messageId === messageId).update, { sessionUpdate: "user_message", messageId, content: say(words) });
    return { messageId, updates, stopReason: updates.at(-1).update.stopReason };
  };

  begin("prompt hello");
  const greeting = await prompt("hello");
  assert.equal(greeting.stopReason, "end_turn");
  assert.deepEqual(states(greeting.updates), ["running", "idle"]);
  assert.ok(greeting.updates.some((u) => u.update.sessionUpdate === "agent_message_chunk" && u.update.messageId));

  begin("prompt stream");
  const streamed = await prompt("stream 2000");
  const parts = streamed.updates.filter((u) => u.update.sessionUpdate === "agent_message_chunk");
  assert.equal(parts.length, 2000);
  assert.equal(new Set(parts.map((u) => u.update.messageId)).size, 1, "one message");

  begin("prompt tool, plan, diff");
  for (const words of ["tool", "plan", "diff"]) assert.equal((await prompt(words)).stopReason, "end_turn");
  const kinds = new Set(seen.updates.map((u) => u.update.sessionUpdate));
  assert.ok(kinds.has("tool_call_update") && kinds.has("plan_update") && !kinds.has("tool_call") && !kinds.has("plan"), [...kinds].join());

  // An agent of version 2 has terminals of its own, which version 1 has as texts.
  const bridged = !process.argv.includes("mock2");
  let terminalId;
  if (bridged) {
    begin("prompt run");
    const ran = (await prompt("run")).updates.map((u) => u.update);
    ({ terminalId } = ran.find((u) => u.sessionUpdate === "terminal_update"));
    assert.deepEqual(ran.filter((u) => u.terminalId === terminalId).map((u) => u.sessionUpdate),
      ["terminal_update", "terminal_update", "terminal_output_chunk", "terminal_output_chunk", "terminal_update"]);
    const display = new Conversation(2);
    for (const u of ran) display.take(u);
    assert.equal(display.terminal(terminalId), "one\ntwo\nthree");
    assert.deepEqual(display.exit(terminalId), { exitCode: 3 });
    assert.ok(ran.some((u) => u.content?.some?.((c) => c.type === "terminal" && c.terminalId === terminalId)), "its call shows it");
  }

  for (const kind of ["allow_once", "reject_once"]) {
    begin(`prompt permission, ${kind}`);
    seen.choose = ({ options }) => ({ outcome: "selected", optionId: options.find((o) => o.kind === kind).optionId });
    const { updates } = await prompt("permission");
    assert.deepEqual(states(updates), ["running", "requires_action", "running", "idle"]);
    const asked = seen.permissions.at(-1).params;
    assert.ok(asked.title);
    assert.equal(asked.subject.type, "tool_call");
    assert.ok(fold(seen, sessionId, 2).at(-1).text.includes(`permission: ${kind}`), JSON.stringify(fold(seen, sessionId, 2).at(-1)));
  }

  begin("an option that was not offered is no approval");
  seen.choose = () => ({ outcome: "selected", optionId: "not offered" });
  const unoffered = await prompt("permission");
  assert.ok(!JSON.stringify(unoffered.updates).includes("permission: "), "it was taken for one");

  begin("cancel while a permission is open");
  const from = seen.updates.length;
  let answer;
  const asked = new Promise((resolve) => {
    seen.choose = () => new Promise((settle) => { answer = settle; resolve(); });
  });
  const interrupted = prompt("permission");
  await asked;
  await gateway.notify(two.methods.agent.session.cancel, { sessionId });
  assert.equal((await interrupted).stopReason, "cancelled");
  answer({ outcome: "cancelled" });
  assert.deepEqual(states(seen.updates.slice(from)).slice(0, 2), ["running", "requires_action"]);

  begin("a prompt that waits, and is cancelled");
  const slow = prompt("slow");
  await seen.until(sessionId, (u) => u.state === "running", seen.updates.length);
  const held = assert.rejects(gateway.request(two.methods.agent.session.prompt, { sessionId, prompt: say("never") }), (e) => e.code === -32800);
  await gateway.notify(two.methods.agent.session.cancel, { sessionId });
  await held;
  assert.equal((await slow).stopReason, "cancelled");

  begin("a prompt that waits, and is withdrawn");
  const slower = prompt("slow");
  await seen.until(sessionId, (u) => u.state === "running", seen.updates.length);
  const withdraw = new AbortController();
  const withdrawn = assert.rejects(gateway.request(two.methods.agent.session.prompt, { sessionId, prompt: say("never") }, { cancellationSignal: withdraw.signal }), (e) => e.code === -32800);
  withdraw.abort();
  await withdrawn;
  await gateway.notify(two.methods.agent.session.cancel, { sessionId });
  assert.equal((await slower).stopReason, "cancelled");

  begin("modes and options");
  const mode = created.configOptions.find((o) => o.category === "mode");
  const to = mode.options.find((o) => o.value !== mode.currentValue).value;
  const chosen = await gateway.request(two.methods.agent.session.setConfigOption, { sessionId, configId: mode.configId, type: "id", value: to });
  assert.equal(chosen.configOptions.find((o) => o.configId === mode.configId).currentValue, to);
  for (const o of created.configOptions.filter((o) => o.category === "model")) {
    const value = o.options.flatMap((x) => x.options ?? [x]).at(-1).value;
    const after = await gateway.request(two.methods.agent.session.setConfigOption, { sessionId, configId: o.configId, type: "id", value });
    assert.equal(after.configOptions.find((x) => x.configId === o.configId).currentValue, value);
    assert.equal(after.configOptions.find((x) => x.configId === mode.configId).currentValue, to, "the mode stays");
  }

  begin("what cannot be done");
  const refused = (method, params, code) => assert.rejects(gateway.request(method, params), (e) => e.code === code || assert.fail(`${method}: ${e.code} ${e.message}`));
  await refused(two.methods.agent.toolCall.cancel, { sessionId, toolCallId: "x" }, -32602);
  await refused(two.methods.agent.session.resume, { sessionId, cwd, replayFrom: { type: "_elsewhere" } }, -32602);
  await refused(two.methods.agent.session.prompt, { sessionId: "nobody's", prompt: say("x") }, -32002);
  await refused("session/load", { sessionId, cwd, mcpServers: [] }, -32601);

  begin("session/list");
  const { sessions } = await gateway.request(two.methods.agent.session.list, {});
  assert.ok(sessions.some((s) => s.sessionId === sessionId));

  const shown = fold(seen, sessionId, 2);
  assert.ok(shown.length > 10 && shown[0].entries.length > 0 && shown[0].mode === to, JSON.stringify(shown).slice(0, 2000));
  if (!stdio) {
    begin("the same session in version 1");
    const old = open(one);
    assert.equal((await old.agent.request(one.methods.agent.initialize, { protocolVersion: 1, clientCapabilities: {} })).protocolVersion, 1);
    await old.agent.request(one.methods.agent.session.load, { sessionId, cwd, mcpServers: [] });
    await old.seen.until(sessionId, (u) => u.sessionUpdate === "current_mode_update");
    assert.deepEqual(fold(old.seen, sessionId, 1), shown);

    begin("a prompt of version 1, seen by both");
    const start = seen.updates.length;
    old.seen.choose = ({ options }) => ({ outcome: "selected", optionId: options.find((o) => o.kind === "allow_once").optionId });
    const both = new Promise((resolve) => { seen.choose = () => new Promise((settle) => { answer = settle; resolve(); }); });
    const gated = old.seen.choose;
    old.seen.choose = async (p) => { await both; return gated(p); };
    const { stopReason } = await old.agent.request(one.methods.agent.session.prompt, { sessionId, prompt: say("permission") });
    assert.equal(stopReason, "end_turn");
    await seen.until(sessionId, idle, start);
    assert.ok(seen.permissions.at(-1).signal.aborted, "who was not first is told");
    answer({ outcome: "cancelled" });
    assert.deepEqual(states(seen.updates.slice(start)), ["running", "requires_action", "running", "idle"]);

    begin("a prompt of version 1, cancelled by version 2");
    const run = old.agent.request(one.methods.agent.session.prompt, { sessionId, prompt: say("slow") });
    await seen.until(sessionId, (u) => u.state === "running", seen.updates.length);
    await gateway.notify(two.methods.agent.session.cancel, { sessionId });
    assert.equal((await run).stopReason, "cancelled");

    begin("a prompt of version 2, cancelled by version 1");
    const before = seen.updates.length;
    const mine = prompt("slow");
    await old.seen.until(sessionId, (u) => u.sessionUpdate === "user_message_chunk", old.seen.updates.length);
    await seen.until(sessionId, (u) => u.state === "running", before);
    await old.agent.notify(one.methods.agent.session.cancel, { sessionId });
    assert.equal((await mine).stopReason, "cancelled");

    begin("session/resume from the start");
    const third = open(two);
    await third.agent.request(two.methods.agent.initialize, { protocolVersion: 2, info });
    const resumed = await third.agent.request(two.methods.agent.session.resume, { sessionId, cwd, replayFrom: { type: "start" } });
    assert.equal(resumed.configOptions.find((o) => o.configId === mode.configId).currentValue, to);
    await third.seen.until(sessionId, (u) => u.sessionUpdate === "state_update");
    assert.deepEqual(fold(third.seen, sessionId, 2), fold(seen, sessionId, 2));
    const again = third.seen.updates.map((u) => u.update).filter((u) => u.terminalId === terminalId);
    if (bridged) assert.ok(again.findIndex((u) => u.output) < again.findIndex((u) => u.sessionUpdate === "terminal_output_chunk"), "the output begins anew");
    assert.deepEqual(states(third.seen.updates), ["idle"], "the state, once");
    assert.equal(third.seen.updates.at(-1).update.sessionUpdate, "state_update");

    begin("the replay again, over what is shown already");
    const twice = third.seen.updates.length;
    await third.agent.request(two.methods.agent.session.resume, { sessionId, cwd, replayFrom: { type: "start" } });
    await third.seen.until(sessionId, (u) => u.sessionUpdate === "state_update", twice);
    assert.deepEqual(fold(third.seen, sessionId, 2), fold(seen, sessionId, 2));

    begin("session/resume without a replay");
    const fourth = open(two);
    await fourth.agent.request(two.methods.agent.initialize, { protocolVersion: 2, info });
    await fourth.agent.request(two.methods.agent.session.resume, { sessionId, cwd });
    await fourth.seen.until(sessionId, (u) => u.sessionUpdate === "state_update");
    assert.deepEqual(fourth.seen.updates.map((u) => u.update.sessionUpdate), ["state_update"]);
    for (const c of [fourth, third, old]) {
      c.connection.close();
      await c.connection.closed;
    }
  }

  begin("session/close while a turn runs");
  const last = prompt("slow");
  await seen.until(sessionId, (u) => u.state === "running", seen.updates.length);
  await gateway.request(two.methods.agent.session.close, { sessionId });
  assert.equal((await last).stopReason, "cancelled");

  begin("close");
  first.connection.close();
  await first.connection.closed;
  child?.stdin.end();
  console.log("ok");
  clearTimeout(deadline);
} catch (err) {
  console.error(`step "${step}":`, err);
  process.exit(1);
}
