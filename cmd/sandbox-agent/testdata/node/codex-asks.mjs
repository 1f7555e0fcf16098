// Scenarios of what Codex asks, and of what clients set.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { call, choose, failure, heard, ownOf, script } from "./claude-link.mjs";

/** A command that needs a permission in every mode that asks. */
const touch = (w, name) => call("exec_command", {
  cmd: `touch ${w.dir}/${name}`, sandbox_permissions: "require_escalated", justification: `because of ${name}`,
});
const touching = (w, name, after = "went on") => script([[touch(w, name)], [{ say: after }]]);
const asking = () => script([[call("request_user_input", { questions: [{
  id: "color", header: "Color", question: "Which color?", options: [{ label: "Red", description: "warm" }, { label: "Blue", description: "cold" }],
}] })], [{ result: true }]]);
const modesOf = (turn) => turn.of("current_mode_update").map((u) => u.currentModeId).join(" ");
const valueOf = (options, id) => options.find((o) => o.id === id)?.currentValue;

export default {
  async "permission allowed once is asked again"(w) {
    const s = await w.session({ answer: choose("allow_once") });
    for (const name of ["one", "two"]) {
      const turn = await s.prompt(touching(w, name));
      assert.equal(turn.asked.length, 1);
      assert.match(JSON.stringify(turn.asked[0].params), new RegExp(`because of ${name}`));
      assert.equal(turn.call("shell").status, "completed");
      assert.ok(existsSync(`${w.dir}/${name}`));
    }
  },
  async "permission allowed for the session is not asked again"(w) {
    const s = await w.session({ answer: choose("allow_session") });
    assert.equal((await s.prompt(touching(w, "same"))).asked.length, 1);
    assert.equal((await s.prompt(touching(w, "same"))).asked.length, 0);
    const other = await w.session({ answer: choose("reject_once") });
    assert.equal((await other.prompt(touching(w, "same"))).asked.length, 1, "another session does not know of it");
  },
  async "permission rejected, and the turn goes on"(w) {
    const s = await w.session({ answer: choose("reject_once") });
    const turn = await s.prompt(touching(w, "never", "then so"));
    assert.deepEqual([turn.call("shell").status, turn.text, existsSync(`${w.dir}/never`)], ["failed", "then so", false]);
  },
  async "permission answered as cancelled ends the turn"(w) {
    const s = await w.session({ answer: () => ({ outcome: { outcome: "cancelled" } }) });
    const turn = await s.prompt(touching(w, "never"), "cancelled");
    assert.equal(turn.call("shell").status, "failed");
    assert.equal((await s.prompt("say after")).text, "after");
  },
  async "cancel while a permission is open"(w) {
    let release;
    const s = await w.session({ answer: () => new Promise((resolve) => { release = resolve; }) });
    const turn = s.begin(touching(w, "never"));
    await s.untilAsked();
    await s.cancel();
    assert.equal((await turn).stopReason, "cancelled");
    release({ outcome: { outcome: "selected", optionId: "allow_once" } });
    assert.equal((await s.prompt("say after")).text, "after");
    assert.ok(!existsSync(`${w.dir}/never`), "a late answer is no permission");
  },
  async "patch outside the workspace asks with its diff"(w) {
    const file = `${w.dir}/../outside-${process.pid}.txt`;
    const s = await w.session({ answer: choose("allow_once") });
    const patch = `*** Begin Patch\n*** Add File: ${file}\n+outside\n*** End Patch\n`;
    const turn = await s.prompt(script([[{ call: "apply_patch", args: patch }], [{ say: "done" }]]));
    const [diff] = turn.asked[0].params.toolCall.content.filter((c) => c.type === "diff");
    assert.equal(diff.newText, "outside\n");
    assert.equal(turn.call("apply_patch").status, "completed");
    assert.equal(readFileSync(file, "utf8"), "outside\n");
  },
  async "question as elicitation"(w) {
    const s = await w.session({ capabilities: { elicitation: { form: {} } }, answer: (params, kind) => {
      assert.equal(kind, "elicitation");
      const [name] = Object.keys(params.requestedSchema.properties);
      return { action: "accept", content: { [name]: "Blue" } };
    } });
    await s.setMode("plan");
    assert.match((await s.prompt(asking())).text, /Blue/);
  },
  async "question by the gateway's extension"(w) {
    const s = await w.session({ capabilities: { _meta: { "sandboxagent.dev": { requestQuestion: true } } }, answer: (params, kind) => {
      assert.equal(kind, "question");
      return { outcome: "answered", answers: [["Blue"]] };
    } });
    await s.setMode("plan");
    assert.match((await s.prompt(asking())).text, /Blue/);
  },
  async "question as permission requests"(w) {
    const s = await w.session({ answer: (params, kind) => {
      assert.equal(kind, "permission");
      return { outcome: { outcome: "selected", optionId: params.options.find((o) => o.name.startsWith("Blue")).optionId } };
    } });
    await s.setMode("plan");
    assert.match((await s.prompt(asking())).text, /Blue/);
  },
  async "mode by set_mode"(w) {
    const s = await w.session();
    assert.equal(s.result.modes.currentModeId, "read-only");
    assert.deepEqual(s.result.modes.availableModes.map((m) => m.id), ["read-only", "agent", "full-access", "plan"]);
    await s.setMode("full-access");
    await s.until("the mode", (u) => u.sessionUpdate === "current_mode_update" && u.currentModeId === "full-access");
    await s.prompt(`run touch ${w.dir}/made`);
    assert.ok(existsSync(`${w.dir}/made`));
    const e = await failure(s.setMode("nope"));
    assert.match(e.all, /read-only, agent, full-access, plan/);
  },
  async "mode by config option"(w) {
    const s = await w.session();
    assert.equal(valueOf((await s.set("mode", "agent")).configOptions, "mode"), "agent");
    await s.prompt(`run touch ${w.dir}/made`);
    assert.ok(existsSync(`${w.dir}/made`), "the workspace can be written");
    assert.equal(valueOf((await s.set("mode", "read-only")).configOptions, "mode"), "read-only");
    await s.prompt(`run touch ${w.dir}/not-made`);
    assert.ok(!existsSync(`${w.dir}/not-made`), "and cannot any more");
    assert.equal(modesOf(await s.prompt("say x")), "");
  },
  async "permissionMode write and bypass"(w) {
    for (const [permissionMode, mode] of [["write", "agent"], ["bypass", "full-access"], ["readonly", "read-only"]]) {
      const s = await w.session({ meta: { permissionMode } });
      assert.equal(s.result.modes.currentModeId, mode);
    }
  },
  async "model and effort in a running session"(w) {
    const s = await w.session();
    const options = (await s.set("model", "gpt-6.1-sol")).configOptions;
    assert.equal(valueOf(options, "model"), "gpt-6.1-sol");
    assert.equal(valueOf((await s.set("reasoning_effort", "high")).configOptions, "reasoning_effort"), "high");
    await s.prompt(`say with another ${w.name}`);
    const [r] = (await heard(`say with another ${w.name}`)).slice(-1);
    assert.deepEqual([r.model, r.effort], ["gpt-6.1-sol", "high"]);
    assert.match((await failure(s.set("model", "nope"))).all, /gpt-6.1-sol/);
    const started = await w.session({ meta: { model: "gpt-6.1-sol", variant: "low" } });
    await started.prompt(`say from the start ${w.name}`);
    const [first] = (await heard(`say from the start ${w.name}`)).slice(-1);
    assert.deepEqual([first.model, first.effort], ["gpt-6.1-sol", "low"]);
  },
  async "instructions and appended system prompt"(w) {
    writeFileSync(`${w.dir}/AGENTS.md`, "FROM AGENTS\n");
    const s = await w.session({ meta: { instructions: "PROJECT RULES", appendSystemPrompt: "APPENDED" } });
    await s.prompt(`say told ${w.name}`);
    const [r] = await heard(`say told ${w.name}`);
    for (const part of ["FROM AGENTS", "PROJECT RULES", "APPENDED"]) assert.ok(r.body.includes(part), part);
  },
  async "skills"(w) {
    mkdirSync(`${w.dir}/skills/demo`, { recursive: true });
    writeFileSync(`${w.dir}/skills/demo/SKILL.md`, "---\nname: demo\ndescription: does demos\n---\nSKILL BODY\n");
    const s = await w.session({ meta: { skills: { paths: [`${w.dir}/skills`] } } });
    await s.until("the skill", (u) => u.availableCommands?.some((c) => c.name === "demo"));
    await s.prompt(`$demo say skilled ${w.name}`);
    const [r] = await heard(`skilled ${w.name}`);
    assert.ok(r.body.includes("SKILL BODY"));
  },
  async "additional directories"(w) {
    mkdirSync(`${w.dir}/in`);
    mkdirSync(`${w.dir}/more`);
    const s = await w.session({ cwd: `${w.dir}/in`, additionalDirectories: [`${w.dir}/more`], meta: { permissionMode: "write" } });
    await s.prompt(`run echo x > ${w.dir}/more/made; true`);
    assert.ok(existsSync(`${w.dir}/more/made`));
  },
  async "what has no effect is listed"(w) {
    const s = await w.session({ meta: { permissionMode: "nope", agentSpecific: { codex: { nope: 1 } } } });
    assert.deepEqual(ownOf(s.result).unsupported.map((u) => u.field).sort(), ["agentSpecific.codex.nope", "permissionMode"]);
  },
};
