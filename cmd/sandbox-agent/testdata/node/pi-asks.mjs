// Scenarios of what is asked before Pi acts, and of what clients set.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { call, choose, env, failure, heard, methods, ownOf, script, Session } from "./claude-link.mjs";

const touching = (w, name, after = "went on") => script([[call("bash", { command: `touch ${w.dir}/${name}` })], [{ say: after }]]);
const valueOf = (options, id) => options.find((o) => o.id === id)?.currentValue;

const word = `const send = (o) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...o }) + "\\n");
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const m = JSON.parse(line);
  if (m.method === "initialize") send({ id: m.id, result: { protocolVersion: m.params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "near", version: "1" } } });
  else if (m.method === "tools/list") send({ id: m.id, result: { tools: [{ name: "word", description: "the word", inputSchema: { type: "object", properties: {} } }] } });
  else if (m.method === "tools/call") send({ id: m.id, result: { content: [{ type: "text", text: "the word is " + process.env.WORD }] } });
  else if (m.id !== undefined) send({ id: m.id, error: { code: -32601, message: "unknown" } });
});
`;

export default {
  async "permission allowed once is asked again"(w) {
    const s = await w.session({ answer: choose("allow_once") });
    for (const name of ["one", "two"]) {
      const turn = await s.prompt(touching(w, name));
      assert.equal(turn.asked.length, 1);
      assert.match(turn.asked[0].params.toolCall.title, new RegExp(`touch .*${name}`));
      assert.equal(turn.call("bash").status, "completed");
      assert.ok(existsSync(`${w.dir}/${name}`));
    }
  },
  async "permission allowed for the session is not asked again"(w) {
    const s = await w.session({ answer: choose("allow_always") });
    assert.equal((await s.prompt(touching(w, "same"))).asked.length, 1);
    assert.equal((await s.prompt(touching(w, "same"))).asked.length, 0);
    assert.equal((await s.prompt(touching(w, "another"))).asked.length, 1, "another command is asked for");
    const other = await w.session({ answer: choose("reject_once") });
    assert.equal((await other.prompt(touching(w, "same"))).asked.length, 1, "another session does not know of it");
  },
  async "permission rejected, and the turn goes on"(w) {
    const s = await w.session({ answer: choose("reject_once") });
    const turn = await s.prompt(touching(w, "never", "then so"));
    assert.deepEqual([turn.call("bash").status, turn.text, existsSync(`${w.dir}/never`)], ["failed", "then so", false]);
  },
  async "permission answered as cancelled ends the turn"(w) {
    const s = await w.session({ answer: () => ({ outcome: { outcome: "cancelled" } }) });
    const turn = await s.prompt(touching(w, "never"), "cancelled");
    assert.equal(turn.call("bash").status, "failed");
    assert.equal((await s.prompt("say after")).text, "after");
  },
  async "cancel while a permission is open"(w) {
    let release;
    const s = await w.session({ answer: () => new Promise((resolve) => { release = resolve; }) });
    const turn = s.begin(touching(w, "never"));
    await s.untilAsked();
    await s.cancel();
    assert.equal((await turn).stopReason, "cancelled");
    release({ outcome: { outcome: "selected", optionId: "allow" } });
    assert.equal((await s.prompt("say after")).text, "after");
    assert.ok(!existsSync(`${w.dir}/never`), "a late answer is no permission");
  },
  async "nobody answers until somebody comes"(w) {
    const s = await w.session({ answer: () => new Promise(() => {}) });
    s.begin(touching(w, "late", "went on at last"));
    await s.untilAsked();
    s.link.connection.close();
    const link = await w.connect();
    const again = new Session(w, link, s.id, undefined, choose("allow_once"));
    await link.agent.request(methods.agent.session.load, { sessionId: s.id, cwd: w.dir, mcpServers: [] });
    await again.untilText("went on at last");
    assert.ok(existsSync(`${w.dir}/late`));
  },
  async "mode by set_mode"(w) {
    const s = await w.session();
    assert.equal(s.result.modes.currentModeId, "default");
    assert.deepEqual(s.result.modes.availableModes.map((m) => m.id), ["default", "readonly", "write", "bypass"]);
    await s.setMode("bypass");
    await s.until("the mode", (u) => u.sessionUpdate === "current_mode_update" && u.currentModeId === "bypass");
    await s.prompt(touching(w, "made"));
    assert.ok(existsSync(`${w.dir}/made`));
    assert.match((await failure(s.setMode("nope"))).all, /default, readonly, write, bypass/);
  },
  async "mode by config option"(w) {
    const s = await w.session();
    assert.equal(valueOf((await s.set("mode", "readonly")).configOptions, "mode"), "readonly");
    const turn = await s.prompt(touching(w, "not-made"));
    assert.deepEqual([turn.asked.length, turn.call("bash").status, existsSync(`${w.dir}/not-made`)], [0, "failed", false]);
  },
  async "permissionMode of a new session"(w) {
    for (const permissionMode of ["write", "bypass", "readonly", "default"]) {
      const s = await w.session({ meta: { permissionMode } });
      assert.equal(s.result.modes.currentModeId, permissionMode);
    }
    const s = await w.session({ meta: { permissionMode: "write" }, answer: choose("reject_once") });
    assert.equal((await s.prompt(`write ${w.dir}/in.txt x`)).asked.length, 0);
    assert.equal((await s.prompt(`write ${w.dir}/../out-${process.pid}.txt x`)).asked.length, 1, "outside of the workspace");
    assert.ok(existsSync(`${w.dir}/in.txt`));
  },
  async "model and level in a running session"(w) {
    const s = await w.session();
    assert.equal(valueOf((await s.set("model", "scripted/two")).configOptions, "model"), "scripted/two");
    assert.equal(valueOf((await s.set("thought_level", "high")).configOptions, "thought_level"), "high");
    await s.prompt(`say with another ${w.name}`);
    const [r] = (await heard(`say with another ${w.name}`)).slice(-1);
    assert.deepEqual([r.model, r.effort], ["two", "high"]);
    assert.match((await failure(s.set("model", "nope"))).all, /scripted\/one, scripted\/two/);
    const started = await w.session({ meta: { model: "scripted/two", variant: "low" } });
    await started.prompt(`say from the start ${w.name}`);
    const [first] = (await heard(`say from the start ${w.name}`)).slice(-1);
    assert.deepEqual([first.model, first.effort], ["two", "low"]);
  },
  async "instructions, system prompt and skills"(w) {
    writeFileSync(`${w.dir}/AGENTS.md`, "FROM AGENTS\n");
    mkdirSync(`${w.dir}/skills/demo`, { recursive: true });
    writeFileSync(`${w.dir}/skills/demo/SKILL.md`, "---\nname: demo\ndescription: does demos\n---\nSKILL BODY\n");
    const s = await w.session({ meta: { instructions: "PROJECT RULES", appendSystemPrompt: "APPENDED", skills: { paths: [`${w.dir}/skills`] } } });
    await s.until("the skill", (u) => u.availableCommands?.some((c) => c.name === "skill:demo"));
    await s.prompt(`say told ${w.name}`);
    const [r] = await heard(`say told ${w.name}`);
    for (const part of ["FROM AGENTS", "PROJECT RULES", "APPENDED", "does demos"]) assert.ok(r.body.includes(part), part);
  },
  async "MCP server"(w) {
    writeFileSync(`${w.dir}/near.cjs`, word);
    const server = { name: "near", command: env.NODE, args: [`${w.dir}/near.cjs`], env: [{ name: "WORD", value: "heron" }] };
    const s = await w.session({ mcpServers: [server], answer: choose("allow_once") });
    const turn = await s.prompt(script([[call("mcp__near__word")], [{ result: true }]]));
    assert.match(turn.text, /the word is heron/);
    assert.deepEqual([turn.asked.length, turn.call("mcp__near__word").title], [1, "near: word"]);
  },
  async "what has no effect is listed"(w) {
    const s = await w.session({ meta: { permissionMode: "nope", agentSpecific: { pi: { nope: 1 } } } });
    assert.deepEqual(ownOf(s.result).unsupported.map((u) => u.field).sort(), ["agentSpecific.pi.nope", "permissionMode"]);
    assert.equal(ownOf(s.result).agentVersion, env.VERSION);
  },
  async "extension asks the client"(w) {
    writeFileSync(`${w.dir}/color.js`, `export default (pi) => pi.registerCommand("color", { description: "asks", handler: async (_a, ctx) => {
      ctx.ui.notify("you chose " + await ctx.ui.select("Which color?", ["Red", "Blue"]), "warning");
    } });`);
    const s = await w.session({
      capabilities: { session: { notices: {} } }, meta: { agentSpecific: { pi: { extensions: [`${w.dir}/color.js`] } } },
      answer: (params) => ({ outcome: { outcome: "selected", optionId: params.options.find((o) => o.name.startsWith("Blue")).optionId } }),
    });
    await s.prompt("/color");
    await s.until("the answer", (u) => u.sessionUpdate === "notice" && u.title === "you chose Blue");
  },
};
