// Scenarios of what OpenCode asks, and of what clients set.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { call, choose, contentOf, diffsOf, env, failure, heard, ownOf, script } from "./claude-link.mjs";

const touch = (w, name) => call("bash", { command: `touch ${w.dir}/${name}`, description: `because of ${name}` });
const touching = (w, name, after = "went on") => script([[touch(w, name)], [{ say: after }]]);
const task = (prompt) => call("task", { description: "Sub job", prompt, subagent_type: "general" });
const color = { question: "Which color?", header: "Color", options: [{ label: "Red", description: "warm" }, { label: "Blue", description: "cold" }] };
const asking = (questions = [color]) => script([[call("question", { questions })], [{ result: true }]]);
const modesOf = (turn) => turn.of("current_mode_update").map((u) => u.currentModeId).join(" ");
const valueOf = (options, id) => options.find((o) => o.id === id)?.currentValue;
const questions = { _meta: { "sandboxagent.dev": { requestQuestion: true } } };

export default {
  async "permission allowed once is asked again"(w) {
    const s = await w.session({ answer: choose("allow_once") });
    for (const name of ["one", "two"]) {
      const turn = await s.prompt(touching(w, name));
      assert.equal(turn.asked.length, 1);
      const { toolCall, options } = turn.asked[0].params;
      assert.equal(toolCall.title, `touch ${w.dir}/${name}`);
      assert.match(options.find((o) => o.kind === "allow_always").name, /in this session: commands like touch \*/);
      assert.equal(turn.call("bash").status, "completed");
      assert.equal(turn.call("bash").toolCallId, toolCall.toolCallId);
      assert.ok(existsSync(`${w.dir}/${name}`));
    }
  },
  async "permission allowed for the session is not asked again"(w) {
    const s = await w.session({ answer: choose("allow_always") });
    assert.equal((await s.prompt(touching(w, "same"))).asked.length, 1);
    assert.equal((await s.prompt(touching(w, "other"))).asked.length, 0);
    assert.equal((await s.prompt(script([[task(touching(w, "child"))], [{ say: "done" }]]))).asked.length, 0, "a subagent asks for what is allowed");
    assert.ok(existsSync(`${w.dir}/child`));
    const other = await w.session({ answer: choose("reject_once") });
    assert.equal((await other.prompt(touching(w, "same"))).asked.length, 1, "another session does not know of it");
  },
  async "permission rejected, and the turn goes on"(w) {
    const s = await w.session({ answer: (params) => ({ ...choose("reject")(params), _meta: { "sandboxagent.dev": { message: "not on a Sunday" } } }) });
    const turn = await s.prompt(touching(w, "never", "then so"));
    assert.deepEqual([turn.call("bash").status, turn.text, existsSync(`${w.dir}/never`)], ["failed", "then so", false]);
    assert.match(contentOf(turn.call("bash")), /not on a Sunday/);
  },
  async "permission rejected, and the turn ends"(w) {
    const s = await w.session({ answer: choose("reject_stop") });
    const turn = await s.prompt(touching(w, "never", "then so"));
    assert.deepEqual([turn.call("bash").status, turn.text], ["failed", ""]);
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
    release({ outcome: { outcome: "selected", optionId: "once" } });
    const after = await s.prompt("say after");
    assert.deepEqual([after.text, after.asked.length], ["after", 0]);
    assert.ok(!existsSync(`${w.dir}/never`), "a late answer is no permission");
  },
  async "one of two permissions is rejected"(w) {
    const s = await w.session({ answer: async (params) => {
      if (/bad/.test(params.toolCall.title)) return choose("reject")(params);
      await new Promise((resolve) => setTimeout(resolve, 700)); // the other is decided first
      return choose("once")(params);
    } });
    const turn = await s.prompt(script([[touch(w, "bad"), touch(w, "good")], [{ say: "went on" }]]));
    assert.equal(turn.asked.length, 2);
    assert.deepEqual([existsSync(`${w.dir}/bad`), existsSync(`${w.dir}/good`), turn.text], [false, true, "went on"]);
  },
  async "edit asks with its diff"(w) {
    writeFileSync(`${w.dir}/guarded.txt`, "one\ntwo\n");
    const s = await w.session({ answer: choose("once") });
    const turn = await s.prompt(script([
      [call("read", { filePath: `${w.dir}/guarded.txt` })], [call("write", { filePath: `${w.dir}/guarded.txt`, content: "one\nTWO\n" })], [{ say: "done" }],
    ]));
    const [diff] = diffsOf(turn.asked[0].params.toolCall);
    assert.deepEqual([diff.path, diff.oldText, diff.newText], [`${w.dir}/guarded.txt`, "one\ntwo\n", "one\nTWO\n"]);
    assert.deepEqual(diffsOf(turn.call("write")).map((d) => d.newText), ["one\nTWO\n"]);
  },
  async "outside of the workspace asks"(w) {
    const s = await w.session({ answer: choose("reject") });
    const turn = await s.prompt(`read /etc/hostname`);
    assert.equal(turn.asked.length, 1);
    assert.match(turn.asked[0].params.toolCall.title, /Outside of the workspace: \/etc\/hostname/);
    assert.equal(turn.call("read").status, "failed");
  },
  async "subagent's permission"(w) {
    const s = await w.session({ answer: choose("once") });
    const turn = await s.prompt(script([[task(touching(w, "child", "child done"))], [{ say: "parent done" }]]));
    assert.equal(turn.asked.length, 1);
    const { toolCall } = turn.asked[0].params;
    assert.match(toolCall.title, /^Subagent: touch/);
    assert.equal(ownOf(toolCall).parentToolCallId, turn.calls.find((c) => c.name === "task").toolCallId);
    assert.ok(existsSync(`${w.dir}/child`));
    assert.equal(turn.text, "parent done");
  },
  async "subagent's permission is rejected"(w) {
    const s = await w.session({ answer: choose("reject") });
    const turn = await s.prompt(script([[task(touching(w, "child", "child went on"))], [{ say: "parent done" }]]));
    assert.ok(!existsSync(`${w.dir}/child`));
    assert.equal(turn.text, "parent done");
    assert.match(contentOf(turn.calls.find((c) => c.name === "task")), /child went on/);
  },
  async "question as elicitation"(w) {
    const s = await w.session({ capabilities: { elicitation: { form: {} } }, answer: (params, kind) => {
      assert.equal(kind, "elicitation");
      const [name] = Object.keys(params.requestedSchema.properties);
      return { action: "accept", content: { [name]: "Blue" } };
    } });
    assert.match((await s.prompt(asking())).text, /Blue/);
  },
  async "question by the gateway's extension"(w) {
    const s = await w.session({ capabilities: questions, answer: (params, kind) => {
      assert.equal(kind, "question");
      assert.equal(params.questions[0].question, "Which color?");
      return { outcome: "answered", answers: [["Blue"]] };
    } });
    assert.match((await s.prompt(asking())).text, /Blue/);
  },
  async "question as permission requests"(w) {
    const s = await w.session({ answer: (params, kind) => {
      assert.equal(kind, "permission");
      return { outcome: { outcome: "selected", optionId: params.options.find((o) => o.name.startsWith("Blue")).optionId } };
    } });
    assert.match((await s.prompt(asking())).text, /Blue/);
  },
  async "several answers"(w) {
    const toppings = { question: "Which toppings?", header: "Toppings", multiple: true, options: ["Ham", "Corn", "Egg"].map((label) => ({ label, description: label })) };
    const s = await w.session({ capabilities: questions, answer: () => ({ outcome: "answered", answers: [["Red"], ["Ham", "Egg"]] }) });
    const turn = await s.prompt(asking([color, toppings]));
    assert.equal(turn.asked[0].params.questions[1].multiSelect, true);
    assert.match(turn.text, /Red/);
    assert.match(turn.text, /Ham.*Egg/);
  },
  async "question is rejected"(w) {
    const s = await w.session({ capabilities: questions, answer: () => ({ outcome: "rejected", answers: [] }) });
    const turn = await s.prompt(asking());
    assert.equal(turn.call("question").status, "failed");
    assert.equal((await s.prompt("say after")).text, "after");
  },
  async "cancel while a question is open"(w) {
    const s = await w.session({ capabilities: questions, answer: () => new Promise(() => {}) });
    const turn = s.begin(asking());
    await s.untilAsked();
    await s.cancel();
    assert.equal((await turn).stopReason, "cancelled");
    assert.equal((await s.prompt("say after")).asked.length, 0);
  },
  async "mode by set_mode"(w) {
    const s = await w.session();
    assert.equal(s.result.modes.currentModeId, "build");
    assert.deepEqual(s.result.modes.availableModes.map((m) => m.id), ["build", "plan"]);
    await s.setMode("plan");
    await s.until("the mode", (u) => u.sessionUpdate === "current_mode_update" && u.currentModeId === "plan");
    const turn = await s.prompt(script([[call("write", { filePath: `${w.dir}/made`, content: "x" })], [{ say: "planned" }]]));
    assert.ok(!existsSync(`${w.dir}/made`), "the mode plan changes nothing");
    assert.equal(turn.calls[0].status, "failed");
    assert.match((await failure(s.setMode("nope"))).all, /build, plan/);
  },
  async "mode by config option"(w) {
    const s = await w.session();
    assert.equal(valueOf((await s.set("mode", "plan")).configOptions, "mode"), "plan");
    assert.equal(valueOf((await s.set("mode", "build")).configOptions, "mode"), "build");
    const turn = await s.prompt(script([[call("write", { filePath: `${w.dir}/made`, content: "x" })], [{ say: "done" }]]));
    assert.ok(existsSync(`${w.dir}/made`));
    assert.equal(modesOf(turn), "", "a prompt does not change the mode");
  },
  async "permissionMode readonly"(w) {
    const s = await w.session({ meta: { permissionMode: "readonly" } });
    const write = call("write", { filePath: `${w.dir}/made`, content: "x" });
    await s.prompt(script([[write], [{ say: "done" }]]));
    await s.prompt(script([[task(script([[write, touch(w, "made")], [{ say: "child" }]]))], [{ say: "done" }]]));
    assert.ok(!existsSync(`${w.dir}/made`));
  },
  async "permissionMode write reaches subagents"(w) {
    const s = await w.session({ meta: { permissionMode: "write" }, answer: choose("once") });
    const turn = await s.prompt(script([
      [call("write", { filePath: `${w.dir}/guarded`, content: "x" }), call("bash", { command: `echo 1 > ${w.dir}/ran`, description: "writes" })],
      [task(script([[call("bash", { command: `echo 2 > ${w.dir}/child`, description: "writes" })], [{ say: "child" }]]))], [{ say: "done" }],
    ]));
    assert.deepEqual(turn.asked.map((a) => a.params.toolCall.title), [`echo 1 > ${w.dir}/ran`, `Subagent: echo 2 > ${w.dir}/child`]);
    for (const name of ["guarded", "ran", "child"]) assert.ok(existsSync(`${w.dir}/${name}`), name);
  },
  async "permissionMode bypass"(w) {
    const s = await w.session({ meta: { permissionMode: "bypass" } });
    await s.prompt(touching(w, "one"));
    await s.prompt(script([[task(touching(w, "two"))], [{ say: "done" }]]));
    await s.prompt("read /etc/hostname");
    assert.ok(existsSync(`${w.dir}/one`) && existsSync(`${w.dir}/two`));
    await s.setMode("plan");
    await s.prompt(script([[call("write", { filePath: `${w.dir}/made`, content: "x" })], [{ say: "planned" }]]));
    assert.ok(!existsSync(`${w.dir}/made`), "what the mode plan denies stays denied");
  },
  async "model and effort in a running session"(w) {
    const s = await w.session();
    assert.equal(valueOf(s.result.configOptions, "model"), "scripted/large");
    assert.equal(valueOf((await s.set("effort", "high")).configOptions, "effort"), "high");
    await s.prompt(`say with effort ${w.name}`);
    const [first] = (await heard(`say with effort ${w.name}`)).slice(-1);
    assert.deepEqual([first.model, first.effort], ["large", "high"]);
    const options = (await s.set("model", "scripted/small")).configOptions;
    assert.equal(valueOf(options, "model"), "scripted/small");
    assert.equal(valueOf(options, "effort"), undefined, "this model has no levels");
    await s.prompt(`say with another ${w.name}`);
    const [r] = (await heard(`say with another ${w.name}`)).slice(-1);
    assert.equal(r.model, "small");
    assert.match((await failure(s.set("model", "scripted/nope"))).all, /scripted\/large/);
    assert.equal((await s.prompt("say still alive")).text, "still alive", "a wrong model does not stick");
    const started = await w.session({ meta: { model: "scripted/large", variant: "low" } });
    await started.prompt(`say from the start ${w.name}`);
    const [at] = (await heard(`say from the start ${w.name}`)).slice(-1);
    assert.deepEqual([at.model, at.effort], ["large", "low"]);
  },
  async "keys do not leak"(w) {
    const s = await w.session();
    await s.prompt("say x");
    const everything = JSON.stringify([s.result, s.updates]);
    assert.ok(!everything.includes("key-of-the-provider"));
    const log = await fetch(`${env.CONTROL}/log`).then((r) => r.text());
    assert.ok(!log.includes("key-of-the-provider"), "it stands in the log");
  },
  async "instructions and appended system prompt"(w) {
    writeFileSync(`${w.dir}/AGENTS.md`, "FROM AGENTS\n");
    const s = await w.session({ meta: { instructions: "PROJECT RULES", appendSystemPrompt: "APPENDED" } });
    await s.prompt(`say told ${w.name}`);
    const [r] = await heard(`say told ${w.name}`);
    for (const part of ["FROM AGENTS", "PROJECT RULES", "APPENDED"]) assert.ok(r.body.includes(part), part);
    assert.equal(readFileSync(`${w.dir}/AGENTS.md`, "utf8"), "FROM AGENTS\n");
  },
  async "skills"(w) {
    mkdirSync(`${w.dir}/in`);
    mkdirSync(`${w.dir}/skills/demo`, { recursive: true });
    writeFileSync(`${w.dir}/skills/demo/SKILL.md`, "---\nname: demo\ndescription: does demos\n---\nSKILL BODY\n");
    mkdirSync(`${w.dir}/in/.opencode/skills/own`, { recursive: true });
    writeFileSync(`${w.dir}/in/.opencode/skills/own/SKILL.md`, "---\nname: own\ndescription: of the workspace\n---\nOWN BODY\n");
    const s = await w.session({ cwd: `${w.dir}/in`, meta: { skills: { paths: [`${w.dir}/skills`] } } });
    await s.until("the skills", (u) => ["demo", "own"].every((n) => u.availableCommands?.some((c) => c.name === n)));
    const turn = await s.prompt(script([[call("read", { filePath: `${w.dir}/skills/demo/SKILL.md` })], [{ say: `skilled ${w.name}` }]]));
    assert.equal(turn.asked.length, 0, "a session may read its skills");
    const all = await heard(w.name);
    assert.match(all[0].body, /does demos/);
    assert.match(contentOf(turn.call("read")), /SKILL BODY/);
    await s.prompt(`/own say owned ${w.name}`);
    assert.match((await heard(`owned ${w.name}`))[0].body, /OWN BODY/);
  },
  async "additional directories"(w) {
    for (const name of ["in", "more", "other"]) mkdirSync(`${w.dir}/${name}`);
    writeFileSync(`${w.dir}/more/a.txt`, "MORE\n");
    writeFileSync(`${w.dir}/other/a.txt`, "OTHER\n");
    const s = await w.session({ cwd: `${w.dir}/in`, additionalDirectories: [`${w.dir}/more`], answer: choose("reject") });
    assert.equal((await s.prompt(`read ${w.dir}/more/a.txt`)).asked.length, 0);
    assert.equal((await s.prompt(script([[task(`read ${w.dir}/more/a.txt`)], [{ say: "done" }]]))).asked.length, 0, "a subagent asks for it");
    assert.equal((await s.prompt(`read ${w.dir}/other/a.txt`)).asked.length, 1);
  },
  async "mcp servers belong to their session"(w) {
    const server = { name: "tools", command: process.execPath, args: [`${w.dir}/mcp.mjs`], env: [{ name: "WORD", value: "shibboleth" }] };
    writeFileSync(`${w.dir}/mcp.mjs`, `
      import { createInterface } from "node:readline";
      for await (const line of createInterface({ input: process.stdin })) {
        const m = JSON.parse(line);
        if (m.id === undefined) continue;
        const result = m.method === "initialize" ? { protocolVersion: m.params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "t", version: "1" } }
          : m.method === "tools/list" ? { tools: [{ name: "word", description: "says the word", inputSchema: { type: "object", properties: {} } }] }
          : m.method === "tools/call" ? { content: [{ type: "text", text: "the word is " + process.env.WORD }] } : {};
        console.log(JSON.stringify({ jsonrpc: "2.0", id: m.id, result }));
      }`);
    const before = await w.session();
    const s = await w.session({ mcpServers: [server, { name: "broken", command: "/bin/false", args: [], env: [] }], capabilities: { session: { notices: {} } } });
    await s.until("a notice of the broken one", (u) => u.sessionUpdate === "notice" && /broken/.test(u.title));
    const use = script([[call("tools_word", {})], [{ say: "used" }]]);
    const c = (await s.prompt(use)).call("tools_word");
    assert.equal(c.status, "completed");
    assert.match(contentOf(c), /the word is shibboleth/);
    const after = await w.session();
    for (const other of [before, after]) {
      const [used] = (await other.prompt(use)).calls;
      assert.equal(used.status, "failed", "another session uses it");
    }
  },
  async "what has no effect is listed"(w) {
    const s = await w.session({ meta: { permissionMode: "nope", agentSpecific: { opencode: { nope: 1 } } } });
    assert.deepEqual(ownOf(s.result).unsupported.map((u) => u.field).sort(), ["agentSpecific.opencode.nope", "permissionMode"]);
  },
  async "a directory that does not exist"(w) {
    const e = await failure(w.session({ cwd: `${w.dir}/no/such` }));
    assert.match(e.all, /not a directory/);
  },
};
