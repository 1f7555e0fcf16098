// Drives a gateway with the unmodified official ACP SDK.
//
//   node official.mjs http|ws URL [TOKEN] [AGENT]
//
// Prints one line per step and exits with 1 at the first thing that is wrong.
import assert from "node:assert/strict";
import { client, methods, PROTOCOL_VERSION } from "@agentclientprotocol/sdk";
import { createHttpStream } from "@agentclientprotocol/sdk/experimental/http-client";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import { WebSocket } from "ws";

const [transport, url, token = "", agent = ""] = process.argv.slice(2);
const headers = token ? { Authorization: `Bearer ${token}` } : {};
const target = new URL(url);
if (agent) target.searchParams.set("agent", agent);

const deadline = setTimeout(() => {
  console.error(`no end after 180 s, at step: ${step}`);
  process.exit(1);
}, 180_000);

let step = "start";
function begin(name) {
  step = name;
  console.log(name);
}

/** Opens one connection and keeps what arrives on it. */
function open() {
  const stream = transport === "ws"
    ? createWebSocketStream(target.href.replace(/^http/, "ws"), { headers, WebSocket })
    : createHttpStream(target.href, { headers });
  const seen = { updates: [], permissions: [], choose: () => ({ outcome: "cancelled" }) };
  const app = client({ name: "e2e" })
    .onNotification(methods.client.session.update, ({ params }) => { seen.updates.push(params); })
    .onRequest(methods.client.session.requestPermission, ({ params }) => {
      seen.permissions.push(params);
      return { outcome: seen.choose(params) };
    });
  return { connection: app.connect(stream), seen };
}

const text = (update) => update.content?.type === "text" ? update.content.text : "";
const chunks = (updates, session) => updates
  .filter((u) => u.sessionId === session && u.update.sessionUpdate === "agent_message_chunk")
  .map((u) => text(u.update));
const say = (words) => [{ type: "text", text: words }];

try {
  const first = open();
  const { agent: gateway } = first.connection;
  const { seen } = first;

  begin("initialize");
  const hello = await gateway.request(methods.agent.initialize, {
    protocolVersion: PROTOCOL_VERSION,
    clientCapabilities: {},
    clientInfo: { name: "e2e", version: "1" },
  });
  assert.equal(hello.protocolVersion, 1);
  assert.equal(hello.agentCapabilities?.loadSession, true, "loadSession is offered");

  begin("session/new");
  const cwd = process.cwd();
  const { sessionId } = await gateway.request(methods.agent.session.new, { cwd, mcpServers: [] });
  assert.equal(typeof sessionId, "string");
  const prompt = async (words) => {
    const from = seen.updates.length;
    const result = await gateway.request(methods.agent.session.prompt, { sessionId, prompt: say(words) });
    return { ...result, updates: seen.updates.slice(from) };
  };

  begin("prompt hello");
  const greeting = await prompt("hello");
  assert.equal(greeting.stopReason, "end_turn");
  assert.ok(chunks(greeting.updates, sessionId).length > 0, "an answer arrived before the result");

  begin("prompt stream");
  const streamed = await prompt("stream 2000");
  assert.equal(streamed.stopReason, "end_turn");
  const numbers = chunks(streamed.updates, sessionId).map((s) => Number(/\d+/.exec(s)?.[0]));
  assert.equal(numbers.length, 2000);
  assert.ok(numbers.every((n, i) => n === numbers[0] + i), "in order, each once");

  begin("prompt tool");
  const tool = await prompt("tool");
  assert.equal(tool.stopReason, "end_turn");
  const kinds = tool.updates.map((u) => u.update.sessionUpdate);
  assert.ok(kinds.includes("tool_call"), `a tool call among ${kinds}`);
  assert.equal(tool.updates.filter((u) => u.update.sessionUpdate.startsWith("tool_call")).at(-1).update.status, "completed");

  for (const kind of ["allow_once", "reject_once"]) {
    begin(`prompt permission, ${kind}`);
    const asked = seen.permissions.length;
    seen.choose = ({ options }) => ({ outcome: "selected", optionId: options.find((o) => o.kind === kind).optionId });
    const permission = await prompt("permission");
    assert.equal(permission.stopReason, "end_turn");
    assert.equal(seen.permissions.length, asked + 1);
    assert.equal(seen.permissions.at(-1).sessionId, sessionId);
  }

  begin("cancel while a permission is open");
  const opened = new Promise((resolve) => {
    seen.choose = () => {
      resolve();
      return { outcome: "cancelled" };
    };
  });
  const interrupted = prompt("permission");
  await opened;
  await gateway.notify(methods.agent.session.cancel, { sessionId });
  assert.ok(["cancelled", "end_turn"].includes((await interrupted).stopReason));

  begin("cancel");
  const slow = prompt("slow");
  await gateway.notify(methods.agent.session.cancel, { sessionId });
  assert.equal((await slow).stopReason, "cancelled");

  begin("two prompts on two sessions");
  const other = await gateway.request(methods.agent.session.new, { cwd, mcpServers: [] });
  assert.notEqual(other.sessionId, sessionId);
  const from = seen.updates.length;
  const both = await Promise.all([sessionId, other.sessionId].map((id) =>
    gateway.request(methods.agent.session.prompt, { sessionId: id, prompt: say("stream 300") })));
  assert.deepEqual(both.map((r) => r.stopReason), ["end_turn", "end_turn"]);
  for (const id of [sessionId, other.sessionId]) assert.equal(chunks(seen.updates.slice(from), id).length, 300);

  begin("session/load on a second connection");
  const second = open();
  await second.connection.agent.request(methods.agent.initialize, { protocolVersion: PROTOCOL_VERSION, clientCapabilities: {} });
  await second.connection.agent.request(methods.agent.session.load, { sessionId, cwd, mcpServers: [] });
  // Over HTTP response and replay come on two sockets; what was written first
  // may be read last. On one socket the order holds.
  const original = chunks(seen.updates, sessionId).join("");
  const replayed = () => chunks(second.seen.updates, sessionId).join("");
  while (transport === "http" && replayed().length < original.length) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.ok(replayed() === original, `the replay has ${replayed().length} characters, want ${original.length}`);
  assert.ok(second.seen.updates.some((u) => u.update.sessionUpdate === "user_message_chunk"), "prompts are replayed");

  begin("prompt on the loaded session");
  const again = await second.connection.agent.request(methods.agent.session.prompt, { sessionId, prompt: say("echo once more") });
  assert.equal(again.stopReason, "end_turn");
  assert.ok(chunks(second.seen.updates, sessionId).join("").endsWith("once more"));

  begin("session/close");
  await second.connection.agent.request(methods.agent.session.close, { sessionId: other.sessionId });
  await second.connection.agent.request(methods.agent.session.close, { sessionId });

  begin("close");
  for (const c of [second.connection, first.connection]) {
    c.close();
    await c.closed;
  }
  console.log("ok");
  clearTimeout(deadline);
} catch (err) {
  console.error(`step "${step}":`, err);
  process.exit(1);
}
