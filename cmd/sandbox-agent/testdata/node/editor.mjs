// Is an editor: starts an agent with the unmodified official ACP SDK and offers it
// files and terminals.
//
//   node editor.mjs FOLDER COMMAND [ARGS...]
//
// Prints one line per step, waits for a line on its input at "break", and exits
// with 1 at the first thing that is wrong.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline/promises";
import { Readable, Writable } from "node:stream";
import { client, methods, ndJsonStream, PROTOCOL_VERSION } from "@agentclientprotocol/sdk";

const [folder, command, ...args] = process.argv.slice(2);
const deadline = setTimeout(() => {
  console.error(`no end after 180 s, at step: ${step}`);
  process.exit(1);
}, 180_000);
let step = "start";
function begin(name) {
  step = name;
  console.log(name);
}
const input = createInterface({ input: process.stdin });
const lines = input[Symbol.asyncIterator]();

const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const exited = new Promise((resolve) => child.once("exit", (code) => resolve(code)));
const updates = [];
const permissions = [];
const reads = [];
const programs = new Map();
const app = client({ name: "editor" })
  .onNotification(methods.client.session.update, ({ params }) => { updates.push(params); })
  .onRequest(methods.client.session.requestPermission, ({ params }) => {
    permissions.push(params);
    return { outcome: { outcome: "selected", optionId: params.options[0].optionId } };
  })
  .onRequest(methods.client.fs.readTextFile, async ({ params }) => {
    reads.push(params.path);
    return { content: await readFile(params.path, "utf8") };
  })
  .onRequest(methods.client.terminal.create, ({ params }) => {
    const program = { output: "", exit: undefined };
    const started = spawn(params.command, params.args ?? [], { cwd: params.cwd ?? folder, shell: (params.args ?? []).length === 0 });
    started.stdout.on("data", (chunk) => { program.output += chunk; });
    program.exit = new Promise((resolve) => started.once("close", (exitCode, signal) => resolve({ exitCode, signal })));
    programs.set(`t${programs.size}`, program);
    return { terminalId: `t${programs.size - 1}` };
  })
  .onRequest(methods.client.terminal.waitForExit, ({ params }) => programs.get(params.terminalId).exit)
  .onRequest(methods.client.terminal.output, ({ params }) => ({ output: programs.get(params.terminalId).output, truncated: false }))
  .onRequest(methods.client.terminal.release, () => ({}));
const { agent } = app.connect(ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)));
const text = (session, from) => updates.slice(from)
  .filter((u) => u.sessionId === session && u.update.sessionUpdate === "agent_message_chunk").map((u) => u.update.content.text).join("");
const prompt = async (sessionId, words) => {
  const from = updates.length;
  const { stopReason } = await agent.request(methods.agent.session.prompt, { sessionId, prompt: [{ type: "text", text: words }] });
  return { stopReason, said: text(sessionId, from) };
};

try {
  begin("initialize");
  const hello = await agent.request(methods.agent.initialize, {
    protocolVersion: PROTOCOL_VERSION, clientInfo: { name: "editor", version: "1" },
    clientCapabilities: { fs: { readTextFile: true, writeTextFile: false }, terminal: true },
  });
  assert.equal(hello.agentCapabilities?.loadSession, true);
  begin("new");
  const { sessionId } = await agent.request(methods.agent.session.new, { cwd: folder, mcpServers: [] });
  begin("prompt");
  assert.deepEqual(await prompt(sessionId, "echo hello"), { stopReason: "end_turn", said: "hello" });
  begin("permission");
  assert.equal((await prompt(sessionId, "permission")).stopReason, "end_turn");
  assert.equal(permissions.length, 1);
  begin("file");
  const file = await prompt(sessionId, `fs ${folder}/notes.txt`);
  assert.deepEqual(reads, [`${folder}/notes.txt`]);
  assert.match(file.said, /what the editor has/);
  begin("terminal");
  const terminal = await prompt(sessionId, "terminal echo from the editor");
  assert.equal(terminal.stopReason, "end_turn");
  assert.match(JSON.stringify(updates), /from the editor/);
  begin("break");
  const running = prompt(sessionId, "stream 300 10");
  await lines.next();
  const { stopReason, said } = await running;
  assert.equal(stopReason, "end_turn");
  const numbers = [...said.matchAll(/(\d+) /g)].map((m) => Number(m[1]));
  assert.deepEqual(numbers, Array.from({ length: 300 }, (_, i) => i));
  begin("file again");
  assert.match((await prompt(sessionId, `fs ${folder}/notes.txt`)).said, /what the editor has/);
  begin("load");
  const from = updates.length;
  await agent.request(methods.agent.session.load, { sessionId, cwd: folder, mcpServers: [] });
  assert.match(text(sessionId, from), /^hello/);
  begin("end");
  child.stdin.end();
  assert.equal(await exited, 0);
  clearTimeout(deadline);
  input.close();
  console.log("ok");
} catch (error) {
  console.error(`at step ${step}:`, error);
  child.kill();
  process.exit(1);
}
