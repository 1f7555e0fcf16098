// Scenarios of what the agent asks, and of what clients set.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { call, choose, env, failure, heard, own, ownOf, script } from "./claude-link.mjs";

const touch = (w, name) => `run touch ${w.dir}/${name}`;
const question = call("AskUserQuestion", { questions: [
  { question: "Which color?", header: "Color", multiSelect: false, options: [{ label: "Red", description: "warm" }, { label: "Blue", description: "cold" }] },
  { question: "Which sizes?", header: "Sizes", multiSelect: true, options: [{ label: "S", description: "small" }, { label: "L", description: "large" }] },
] });
const asking = () => script([[question], [{ result: true }]]);
const planning = (say = "done") => script([[call("EnterPlanMode")], [{ plan: "# The plan\n1. Do it" }], [call("ExitPlanMode")], [{ say }]]);
const modesOf = (turn) => turn.of("current_mode_update").map((u) => u.currentModeId).join(" ");
const valueOf = (options, id) => options.find((o) => o.id === id)?.currentValue;
const forms = { elicitation: { form: {} } };

/** Accepts a plan by an option and returns the modes that the session went through. */
async function approve(w, option, more = {}) {
  const s = await w.session({ answer: choose(option), ...more });
  const turn = await s.prompt(planning());
  const ask = turn.asked.find((a) => a.params.toolCall.name === "ExitPlanMode");
  assert.match(JSON.stringify(ask.params.toolCall.content), /# The plan/);
  assert.equal(turn.text, "done");
  return { s, turn, options: ask.params.options.map((o) => o.optionId) };
}

const mcp = (w) => {
  const file = `${w.dir}/server.mjs`;
  writeFileSync(file, `
    import { createInterface } from "node:readline";
    const send = (m) => console.log(JSON.stringify({ jsonrpc: "2.0", ...m }));
    let waiting;
    for await (const line of createInterface({ input: process.stdin })) {
      const { id, method, params, result } = JSON.parse(line);
      if (method === "initialize") send({ id, result: { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "demo", version: "1" } } });
      else if (method === "tools/list") send({ id, result: { tools: ["greet", "ask"].map((name) => ({ name, description: name, inputSchema: { type: "object", properties: { who: { type: "string" } } } })) } });
      else if (method === "tools/call" && params.name === "greet") send({ id, result: { content: [{ type: "text", text: "hello " + params.arguments.who + process.env.MARK }] } });
      else if (method === "tools/call") { waiting = id; send({ id: "e1", method: "elicitation/create", params: { message: "Your name?", requestedSchema: { type: "object", properties: { name: { type: "string" } }, required: ["name"] } } }); }
      else if (id === "e1") send({ id: waiting, result: { content: [{ type: "text", text: "got " + JSON.stringify(result) }] } });
      else if (id !== undefined) send({ id, result: {} });
    }`);
  return [{ name: "demo", command: process.execPath, args: [file], env: [{ name: "MARK", value: "!" }] }];
};

export default {
  async "permission allowed once is asked again"(w) {
    const s = await w.session({ answer: choose("allow_once") });
    for (const name of ["one", "two"]) {
      const turn = await s.prompt(touch(w, name));
      assert.equal(turn.asked.length, 1);
      assert.equal(turn.call("Bash").status, "completed");
      assert.ok(existsSync(`${w.dir}/${name}`));
    }
  },
  async "permission allowed always is not asked again"(w) {
    const s = await w.session({ answer: choose("allow_always") });
    assert.equal((await s.prompt(`run mkdir -p ${w.dir}/made`)).asked.length, 1);
    assert.equal((await s.prompt(`run mkdir -p ${w.dir}/made`)).asked.length, 0);
    const other = await w.session({ answer: choose("reject_once") });
    assert.equal((await other.prompt(`run mkdir -p ${w.dir}/made`)).asked.length, 1, "another session does not know of it");
    assert.ok(!existsSync(`${w.dir}/.claude`), "nothing was written into the workspace");
  },
  async "permission rejected"(w) {
    const s = await w.session({ answer: choose("reject_once") });
    const turn = await s.prompt(touch(w, "never"));
    assert.equal(turn.call("Bash").status, "failed");
    assert.ok(!existsSync(`${w.dir}/never`));
  },
  async "rejected, and the turn goes on"(w) {
    const s = await w.session({ answer: choose("reject_once") });
    const turn = await s.prompt(script([
      [call("Bash", { command: `touch ${w.dir}/never` })], [call("Bash", { command: "echo instead" })], [{ say: "then so" }],
    ]));
    assert.deepEqual(turn.calls.map((c) => c.status), ["failed", "completed"]);
    assert.equal(turn.text, "then so");
  },
  async "permission answered as cancelled ends the turn"(w) {
    const s = await w.session({ answer: () => ({ outcome: { outcome: "cancelled" } }) });
    await s.prompt(touch(w, "never"), "cancelled");
    assert.equal((await s.prompt("say after")).text, "after");
  },
  async "question as elicitation"(w) {
    const s = await w.session({ capabilities: forms, answer: (params, kind) => {
      assert.equal(kind, "elicitation");
      const [color, sizes] = Object.values(params.requestedSchema.properties);
      assert.deepEqual(color.oneOf.map((o) => o.const), ["Red", "Blue"]);
      assert.equal(sizes.type, "array");
      const [one, two] = Object.keys(params.requestedSchema.properties);
      return { action: "accept", content: { [one]: "Blue", [two]: ["S", "L"] } };
    } });
    const turn = await s.prompt(asking());
    assert.match(turn.text, /Blue/);
    assert.match(turn.text, /S, L/);
    s.answer = () => ({ action: "decline" });
    assert.match((await s.prompt(asking())).text, /does not want to answer/);
  },
  async "question by the gateway's extension"(w) {
    const s = await w.session({ capabilities: { _meta: own({ requestQuestion: true }) }, answer: (params, kind) => {
      assert.equal(kind, "question");
      assert.deepEqual(params.questions.map((q) => [q.question, q.multiSelect]), [["Which color?", false], ["Which sizes?", true]]);
      return { outcome: "answered", answers: [["Red"], ["L", "my own words"]] };
    } });
    const turn = await s.prompt(asking());
    assert.match(turn.text, /Red/);
    assert.match(turn.text, /L, my own words/);
  },
  async "question as permission requests"(w) {
    const s = await w.session({ answer: (params, kind) => {
      assert.equal(kind, "permission");
      const option = params.options.find((o) => ["Blue", "L"].includes(o.name));
      return { outcome: { outcome: "selected", optionId: option.optionId } };
    } });
    const turn = await s.prompt(asking());
    assert.deepEqual(turn.asked.map((a) => a.params.toolCall.title), ["Which color?", "Which sizes?"]);
    assert.match(turn.text, /Blue.*L/s);
  },
  async "plan accepted, each edit is asked for"(w) {
    const { s, turn, options } = await approve(w, "default");
    assert.equal(modesOf(turn), "plan default");
    assert.deepEqual(options.filter((o) => o !== "auto"), ["default", "acceptEdits", "reject"]);
    s.answer = choose("reject_once");
    assert.equal((await s.prompt(`write ${w.dir}/x.txt x`)).asked.length, 1);
  },
  async "plan accepted with all edits"(w) {
    const { s, turn } = await approve(w, "acceptEdits");
    assert.equal(modesOf(turn), "plan acceptEdits");
    assert.equal((await s.prompt(`write ${w.dir}/x.txt x`)).asked.length, 0);
    assert.ok(existsSync(`${w.dir}/x.txt`));
  },
  async "plan accepted, the model decides"(w) {
    const { turn } = await approve(w, "auto");
    assert.equal(modesOf(turn), "plan auto");
  },
  async "plan rejected"(w) {
    const s = await w.session({ answer: choose("reject_once") });
    const turn = await s.prompt(planning("I shall revise it"));
    assert.equal(modesOf(turn), "plan");
    assert.equal(turn.text, "I shall revise it");
    assert.equal(turn.call("ExitPlanMode").status, "failed");
  },
  async "mode by set_mode"(w) {
    const s = await w.session();
    const offered = s.result.modes.availableModes.map((m) => m.id);
    assert.deepEqual(offered.filter((m) => m !== "auto" && m !== "bypassPermissions"), ["default", "acceptEdits", "plan", "dontAsk"]);
    for (const mode of [...offered.slice(1), "default"]) {
      const from = s.updates.length;
      await s.setMode(mode);
      await s.until(`mode ${mode}`, (u) => u.sessionUpdate === "current_mode_update" && u.currentModeId === mode, from);
    }
    const e = await failure(s.setMode("nonsense"));
    assert.equal(e.code, -32602);
    assert.match(e.message, /acceptEdits/);
    await s.setMode("acceptEdits");
    assert.equal((await s.prompt(`write ${w.dir}/x.txt x`)).asked.length, 0);
  },
  async "mode by config option"(w) {
    const s = await w.session();
    const option = s.result.configOptions.find((o) => o.category === "mode");
    assert.equal(option.currentValue, "default");
    for (const { value } of option.options) assert.equal(valueOf((await s.set(option.id, value)).configOptions, option.id), value);
    await s.set(option.id, "dontAsk");
    const turn = await s.prompt(touch(w, "never"));
    assert.equal(turn.asked.length, 0);
    assert.equal(turn.call("Bash").status, "failed");
  },
  async "bypass as root needs a sandbox"(w) {
    const s = await w.session();
    if (process.getuid() === 0) {
      assert.match((await failure(s.setMode("bypassPermissions"))).message, /IS_SANDBOX/);
    }
    const free = await w.session({ meta: { env: { IS_SANDBOX: "1" } } });
    await free.setMode("bypassPermissions");
    assert.equal((await free.prompt(touch(w, "made"))).asked.length, 0);
    assert.ok(existsSync(`${w.dir}/made`));
    const { turn } = await approve(w, "bypassPermissions", { meta: { env: { IS_SANDBOX: "1" } } });
    assert.equal(modesOf(turn), "plan bypassPermissions");
  },
  async "model and effort in a running session"(w) {
    const s = await w.session();
    const model = s.result.configOptions.find((o) => o.category === "model");
    const effort = s.result.configOptions.find((o) => o.category === "thought_level");
    await s.prompt("say before the change");
    const other = model.options.find((o) => o.value.startsWith("sonnet") && o.value !== model.currentValue).value;
    assert.equal(valueOf((await s.set(model.id, other)).configOptions, model.id), other);
    assert.equal(valueOf((await s.set(effort.id, "low")).configOptions, effort.id), "low");
    await s.prompt("say after the change");
    const [before] = await heard("say before the change");
    const [after] = await heard("say after the change");
    assert.notEqual(before.model, after.model);
    assert.match(after.model, /sonnet/);
    assert.deepEqual([before.effort === "low", after.effort], [false, "low"]);
    assert.match((await failure(s.set(model.id, "no-such-model"))).message, /sonnet/);
    assert.match((await failure(s.set(effort.id, "enormous"))).message, /low/);
  },
  async "model, effort and mode at the start"(w) {
    const s = await w.session({ meta: { model: "sonnet", variant: "low", mode: "plan" } });
    for (const [id, value] of [["model", "sonnet"], ["effort", "low"], ["mode", "plan"]]) assert.equal(valueOf(s.result.configOptions, id), value);
    await s.prompt("say chosen at the start");
    const [r] = await heard("say chosen at the start");
    assert.match(r.model, /sonnet/);
    assert.equal(r.effort, "low");
    assert.equal(ownOf(s.result).unsupported, undefined);
  },
  async "MCP server on stdio"(w) {
    const s = await w.session({ mcpServers: mcp(w), answer: choose("allow_once") });
    const turn = await s.prompt(script([[call("mcp__demo__greet", { who: "Ada" })], [{ result: true }]]));
    assert.match(turn.text, /hello Ada!/);
    assert.equal(turn.calls[0].status, "completed");
    assert.match(JSON.stringify(turn.calls[0].content), /hello Ada!/);
  },
  async "MCP server asks the user"(w) {
    const s = await w.session({ capabilities: forms, mcpServers: mcp(w), answer: (params, kind) => {
      if (kind === "permission") return choose("allow_once")(params);
      assert.equal(params.message, "Your name?");
      return { action: "accept", content: { name: "Ada" } };
    } });
    const turn = await s.prompt(script([[call("mcp__demo__ask")], [{ result: true }]]));
    assert.match(turn.text, /"action":"accept".*Ada/s);
  },
  async "skills"(w) {
    const file = `${w.dir}/skills/greeting/SKILL.md`;
    mkdirSync(`${w.dir}/skills/greeting`, { recursive: true });
    writeFileSync(file, "---\nname: greeting\ndescription: GREET PEOPLE WELL\n---\nsay SKILL BODY for $ARGUMENTS\n");
    const s = await w.session({ meta: { skills: { paths: [`${w.dir}/skills`] } } });
    await s.prompt("say with a skill");
    assert.match((await heard("say with a skill"))[0].body, /GREET PEOPLE WELL/);
    const names = s.updates.filter((u) => u.sessionUpdate === "available_commands_update").flatMap((u) => u.availableCommands.map((c) => c.name));
    const name = names.find((n) => n === "session:greeting" || n === "greeting"); // as the program's version has it
    assert.ok(name, names.join(" "));
    await s.prompt(`/${name} Bob`);
    assert.match((await heard("say with a skill")).at(-1).body, /SKILL BODY for Bob/);
  },
  async "instructions and appended system prompt"(w) {
    const s = await w.session({ meta: { instructions: "PROJECT INSTRUCTIONS", appendSystemPrompt: "APPENDED PROMPT" } });
    await s.prompt("say instructed");
    const { body } = (await heard("say instructed"))[0];
    assert.match(body, /PROJECT INSTRUCTIONS/);
    assert.match(body, /APPENDED PROMPT/);
    assert.equal(ownOf(s.result).unsupported, undefined);
  },
  async "additional directories"(w) {
    const extra = `${env.WORK}/extra-directory`;
    mkdirSync(extra, { recursive: true });
    writeFileSync(`${extra}/there.txt`, "it is there\n");
    const reject = choose("reject_once");
    const closed = await w.session({ answer: reject });
    assert.equal((await closed.prompt(`read ${extra}/there.txt`)).asked.length, 1, "otherwise it must be asked for");
    for (const more of [{ meta: { additionalDirectories: [extra] } }, { additionalDirectories: [extra] }]) {
      const s = await w.session(more);
      assert.match((await s.prompt(`read ${extra}/there.txt`)).text, /it is there/);
    }
  },
  async "environment"(w) {
    const s = await w.session({ meta: { env: { SESSIONS_OWN: "of this session" } }, answer: choose("allow_once") });
    assert.match((await s.prompt("run printenv SESSIONS_OWN")).text, /of this session/);
  },
  async "what has no effect is listed"(w) {
    const s = await w.session({ meta: { permissionMode: "whatever", skills: { paths: ["/no/such"] }, agentSpecific: { claude: { noSuchThing: 1 } } } });
    const fields = ownOf(s.result).unsupported.map((u) => u.field);
    for (const f of ["permissionMode", "skills", "agentSpecific.claude.noSuchThing"]) assert.ok(fields.includes(f), `${f} among ${fields}`);
  },
};
