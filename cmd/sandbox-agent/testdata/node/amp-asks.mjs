// Scenarios of what Amp asks and of what clients set.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { call, callsOf, choose, env, failure, heard, methods, ownOf, own, script, Session } from "./claude-link.mjs";
import { cancelled } from "./amp-turns.mjs";

const touch = (path) => script([[call("Bash", { cmd: `touch ${path}` })], [{ say: "touched" }]]);
const settings = `${env.HOME_OF_AMP}/.config/amp/settings.json`;

export default {
  async "permission allowed once is asked again"(w) {
    const s = await w.session({ answer: choose("allow_once") });
    const turn = await s.prompt(touch(`${w.dir}/one`));
    assert.equal(turn.call("Bash").status, "completed");
    const { toolCall, options } = turn.asked[0].params;
    assert.equal(toolCall.toolCallId, turn.call("Bash").toolCallId);
    assert.deepEqual([toolCall.kind, toolCall.title, options.map((o) => o.kind)], ["execute", `touch ${w.dir}/one`, ["allow_once", "allow_always", "reject_once"]]);
    assert.ok(existsSync(`${w.dir}/one`));
    assert.equal((await s.prompt(touch(`${w.dir}/one`))).asked.length, 1);
  },
  async "permission allowed always is not asked again"(w) {
    const s = await w.session({ answer: choose("allow_always") });
    assert.equal((await s.prompt(touch(`${w.dir}/one`))).asked.length, 1);
    assert.equal((await s.prompt(touch(`${w.dir}/one`))).asked.length, 0);
    assert.equal((await s.prompt(touch(`${w.dir}/two`))).asked.length, 1, "another command");
  },
  async "permission rejected, and the model hears why"(w) {
    const s = await w.session({ answer: (p) => ({ ...choose("reject_once")(p), _meta: own({ message: "not on a Sunday" }) }) });
    const prompt = script([[call("Bash", { cmd: `touch ${w.dir}/no` })], [{ result: true }]]);
    const turn = await s.prompt(prompt);
    assert.equal(turn.call("Bash").status, "failed");
    assert.match(turn.text, /not on a Sunday/);
    assert.ok(!existsSync(`${w.dir}/no`));
  },
  async "permission answered as cancelled ends the turn"(w) {
    const s = await w.session({ answer: () => ({ outcome: { outcome: "cancelled" } }) });
    const turn = await s.begin(touch(`${w.dir}/no`));
    assert.equal(turn.stopReason, "cancelled");
    assert.deepEqual(turn.calls.map((c) => c.status), ["failed"]);
    assert.equal((await s.prompt("say alive")).text, "alive");
  },
  async "permission answered late"(w) {
    // Longer than the ten seconds of which the program's own words speak.
    const s = await w.session({ answer: async (p) => { await new Promise((r) => setTimeout(r, 11_000)); return choose("allow_once")(p); } });
    assert.equal((await s.prompt(touch(`${w.dir}/late`))).call("Bash").status, "completed");
  },
  async "cancel while a permission is open"(w) {
    const s = await w.session({ answer: () => new Promise(() => {}) });
    const turn = s.begin(touch(`${w.dir}/never`));
    await s.untilAsked();
    const end = await cancelled(s, turn);
    assert.deepEqual(callsOf(end.updates).map((c) => c.status), ["failed"]);
    assert.ok(!existsSync(`${w.dir}/never`));
    assert.equal((await s.prompt("say alive")).text, "alive");
  },
  async "another client answers"(w) {
    const first = await w.session({ answer: () => new Promise(() => {}) });
    const link = await w.connect();
    const result = await link.agent.request(methods.agent.session.load, { sessionId: first.id, cwd: w.dir, mcpServers: [] });
    const second = new Session(w, link, first.id, result, choose("allow_once"));
    const turn = await first.prompt(touch(`${w.dir}/by-the-other`));
    assert.equal(turn.call("Bash").status, "completed");
    assert.equal(second.asked.length, 1);
    await second.untilText("touched");
    assert.ok(existsSync(`${w.dir}/by-the-other`));
  },
  async "parallel permissions"(w) {
    const s = await w.session({ answer: choose("allow_once") });
    const turn = await s.prompt(script([[call("Bash", { cmd: `touch ${w.dir}/a` }), call("Bash", { cmd: `touch ${w.dir}/b` })], [{ say: "both" }]]));
    assert.deepEqual(turn.calls.map((c) => c.status), ["completed", "completed"]);
    assert.deepEqual(turn.asked.map((a) => a.params.toolCall.title).sort(), [`touch ${w.dir}/a`, `touch ${w.dir}/b`]);
  },
  async "permission of a subagent"(w) {
    const s = await w.session({ answer: choose("allow_once") });
    const turn = await s.prompt(script([[call("Task", { description: "Sub job", prompt: `run touch ${w.dir}/sub` })], [{ say: "parent done" }]]));
    const task = turn.calls.find((c) => c.name === "Task");
    const child = turn.calls.find((c) => c.name === "Bash");
    assert.deepEqual([task.status, child.status, ownOf(child).parentToolCallId], ["completed", "completed", task.toolCallId]);
    assert.ok(existsSync(`${w.dir}/sub`));
  },
  async "readonly and bypass"(w) {
    const closed = await w.session({ meta: { permissionMode: "readonly" } });
    const refused = await closed.prompt(script([[call("create_file", { path: `${w.dir}/no`, content: "x" })], [{ result: true }]]));
    assert.equal(refused.call("create_file").status, "failed");
    assert.match(refused.text, /read-only/);
    const open = await w.session({ meta: { permissionMode: "bypass" } });
    assert.equal((await open.prompt(touch(`${w.dir}/yes`))).call("Bash").status, "completed");
  },
  async "the user's settings are honoured and unchanged"(w) {
    const sum = () => createHash("sha256").update(readFileSync(settings)).digest("hex");
    const before = sum();
    const s = await w.session({ answer: choose("allow_once") });
    assert.equal((await s.prompt("run echo allowed by the user")).asked.length, 0);
    const turn = await s.prompt(script([[call("Bash", { cmd: "ls -a" })], [{ say: "listed" }]]));
    assert.equal(turn.asked.length, 1, "a rule that asks is put to the client");
    assert.equal(sum(), before);
  },
  async "settings of a workspace that decide are refused"(w) {
    mkdirSync(`${w.dir}/.amp`);
    writeFileSync(`${w.dir}/.amp/settings.json`, `{"amp.dangerouslyAllowAll": true}`);
    assert.match((await failure(w.session())).all, /dangerouslyAllowAll.*permissionMode bypass/);
  },
  async "mode at the start, and one that is not allowed"(w) {
    const link = await w.connect();
    const s = await w.session({ link });
    assert.deepEqual([s.result.modes.currentModeId, s.result.modes.availableModes.some((m) => m.id === "rush")], ["smart", true]);
    assert.match((await failure(s.setMode("rush"))).message, /not permitted with 'rush' mode/);
    assert.equal((await s.prompt("say still smart")).text, "still smart");
    const team = await w.session({ link, meta: { credentials: { apiKey: "sgamp_team" } } });
    await team.setMode("rush");
    await team.prompt(`say in a rush ${w.name}`);
    const [rush] = await heard(`say in a rush ${w.name}`);
    const [smart] = await heard("say still smart");
    assert.notEqual(rush.model, smart.model);
  },
  async "instructions, appended system prompt and skills"(w) {
    mkdirSync(`${w.dir}/skills/greeting`, { recursive: true });
    writeFileSync(`${w.dir}/skills/greeting/SKILL.md`, "---\nname: greeting\ndescription: GREET PEOPLE WELL\n---\nsay hello\n");
    const s = await w.session({ meta: { instructions: "BE INSTRUCTED", appendSystemPrompt: "AND MORE", skills: { paths: [`${w.dir}/skills`] } } });
    await s.prompt(`say told ${w.name}`);
    const [r] = await heard(`say told ${w.name}`);
    for (const part of ["BE INSTRUCTED", "AND MORE", "GREET PEOPLE WELL"]) assert.ok(r.body.includes(part), part);
  },
  async "what has no effect is listed"(w) {
    const s = await w.session({ meta: { additionalDirectories: ["/tmp"], agentSpecific: { amp: { noSuchThing: 1 } } } });
    assert.deepEqual(ownOf(s.result).unsupported.map((u) => u.field).sort(), ["additionalDirectories", "agentSpecific.amp.noSuchThing"]);
  },
};
