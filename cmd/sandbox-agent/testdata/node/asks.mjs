// Scenarios of what is asked, and of what clients set.
import assert from "node:assert/strict";
import { existsSync, mkdirSync } from "node:fs";
import { choose, contentOf, env, failure, heard, own, ownOf, place, script, valueOf } from "./link.mjs";

/** A session with wishes that have no effect, in which settings may be changed. */
const changing = (w, a, answer) => a.oneProcess ? w.session({ meta: a.noEffect.meta, answer }) : w.borrow({ meta: a.noEffect.meta }, answer);
const touching = (w, a, name, after = "went on") => script([[a.touch(`${w.dir}/${name}`)], [{ say: after }]]);
export const forms = { elicitation: { form: {} }, session: { notices: {} } };
const alive = async (s) => assert.equal((await s.prompt("say alive")).text, "alive");

/** A session in which an agent may ask questions. */
async function asker(w, a, capabilities, answer) {
  if (!a.asksInMode) return w.borrow(capabilities ? { capabilities } : {}, answer);
  const s = await w.session({ capabilities, answer });
  await s.setMode(a.asksInMode);
  return s;
}
const asking = (a) => script([[a.question], [{ result: true }]]);
const blueAndL = (params, kind) => {
  assert.equal(kind, "permission");
  return { outcome: { outcome: "selected", optionId: params.options.find((o) => /^(Blue|L)\b/.test(o.name)).optionId } };
};

/** An MCP server with the tools word and ask, as a session is given it. */
export function server(dir) {
  place(`${dir}/server.mjs`, `
    import { createInterface } from "node:readline";
    const send = (m) => console.log(JSON.stringify({ jsonrpc: "2.0", ...m }));
    let waiting;
    for await (const line of createInterface({ input: process.stdin })) {
      const { id, method, params, result } = JSON.parse(line);
      if (method === "initialize") send({ id, result: { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "near", version: "1" } } });
      else if (method === "tools/list") send({ id, result: { tools: ["word", "ask"].map((name) => ({ name, description: name, inputSchema: { type: "object", properties: {} } })) } });
      else if (method === "tools/call" && params.name === "word") send({ id, result: { content: [{ type: "text", text: "the word is " + process.env.WORD }] } });
      else if (method === "tools/call") { waiting = id; send({ id: "e1", method: "elicitation/create", params: { message: "Your name?", requestedSchema: { type: "object", properties: { name: { type: "string" } }, required: ["name"] } } }); }
      else if (id === "e1") send({ id: waiting, result: { content: [{ type: "text", text: "got " + JSON.stringify(result) }] } });
      else if (id !== undefined) send({ id, result: {} });
    }`);
  return { name: "near", command: process.execPath, args: [`${dir}/server.mjs`], env: [{ name: "WORD", value: "heron" }] };
}

/** Makes a skill in a folder. */
export function skill(dir, name, description, body) {
  mkdirSync(`${dir}/${name}`, { recursive: true });
  place(`${dir}/${name}/SKILL.md`, `---\nname: ${name}\ndescription: ${description}\n---\n${body}\n`);
}

/** Where that is: outside of other sessions' folder. */
export const equipment = `${env.WORK}/../equipped`;

/** A session that was given all that a session can be given at its start. */
export async function equipped(w, a, answer) {
  const dir = equipment;
  for (const name of ["in", "skills", "more", "even-more"]) mkdirSync(`${dir}/${name}`, { recursive: true });
  skill(`${dir}/skills`, "demo", "DOES DEMOS WELL", "say SKILL BODY for $ARGUMENTS");
  for (const name of ["more", "even-more"]) place(`${dir}/${name}/there.txt`, "it is there\n");
  if (a.memory) place(`${dir}/in/${a.memory}`, "FROM MEMORY\n");
  const { meta, ...settings } = a.equipment(dir);
  return w.borrow({
    cwd: `${dir}/in`, ...settings,
    meta: { instructions: "PROJECT RULES", appendSystemPrompt: "APPENDED PROMPT", skills: { paths: [`${dir}/skills`] }, ...meta },
  }, answer);
}

/** Goes through all modes of a session, shows what two of them do, and leaves the session in its first. */
async function throughModes(w, a, s, set) {
  const { all, open, closed } = a.modes;
  const change = (name) => s.prompt(script([[a.change(`${w.dir}/${name}`)], [{ say: "done" }]]));
  const offered = s.result.modes.availableModes.map((m) => m.id);
  assert.deepEqual(offered.filter((m) => !a.modes.perhaps?.includes(m)), all);
  assert.equal(s.result.modes.currentModeId, all[0]);
  for (const mode of [...(a.modes.through ?? offered.slice(1)).filter((m) => m !== open), open]) await set(mode);
  assert.equal((await change("made")).asked.length, 0);
  assert.ok(existsSync(`${w.dir}/made`));
  await set(closed);
  const turn = await change("not-made");
  assert.deepEqual([turn.asked.length, existsSync(`${w.dir}/not-made`)], [0, false]);
  assert.equal(turn.of("current_mode_update").length, 0, "a prompt does not change the mode");
  if (a.modes.fails !== false) assert.equal(turn.calls[0].status, "failed");
  if (closed !== all[0]) await set(all[0]);
}

export default {
  async "read is a read"(w, a) {
    place(`${w.dir}/notes.txt`, "some notes\n");
    const turn = await (await w.borrow()).prompt(`read ${w.dir}/notes.txt`);
    const c = turn.call(a.reads);
    assert.deepEqual([c.kind, c.status, c.locations[0].path], ["read", "completed", `${w.dir}/notes.txt`]);
    assert.match(contentOf(c), /some notes/);
    assert.match(turn.text, /read: .*some notes/s);
    assert.equal(turn.asked.length, 0);
  },
  async "permission allowed once is asked again"(w, a) {
    const s = await w.borrow({}, choose("allow_once"));
    for (const name of ["one", "two"]) {
      const turn = await s.prompt(touching(w, a, name));
      assert.equal(turn.asked.length, 1);
      const { toolCall, options } = turn.asked[0].params;
      assert.match(JSON.stringify(turn.asked[0].params), new RegExp(`touch .*${name}`));
      a.asked?.(toolCall, options, `${w.dir}/${name}`);
      const c = turn.call(a.shell);
      assert.deepEqual([c.status, c.toolCallId], ["completed", toolCall.toolCallId]);
      assert.ok(existsSync(`${w.dir}/${name}`));
    }
  },
  async "permission allowed for the session is not asked again"(w, a) {
    const move = a.allowed?.(w) ?? a.touch(`${w.dir}/same`);
    const same = () => script([[move], [{ say: "went on" }]]);
    const s = await changing(w, a, choose(a.allowAlways ?? "allow_always"));
    assert.equal((await s.prompt(same())).asked.length, 1);
    assert.equal((await s.prompt(same())).asked.length, 0);
    if (a.another !== undefined) assert.equal((await s.prompt(touching(w, a, "another"))).asked.length, a.another, "another command");
    await a.allowedMore?.(w, s);
    const other = await w.borrow({}, choose("reject_once"));
    assert.equal((await other.prompt(same())).asked.length, 1, "another session does not know of it");
    const ofPermissions = (method, more) => s.link.agent.request(`_sandboxagent/session/${method}`, { sessionId: s.id, ...more });
    const { permissions } = await ofPermissions("permissions");
    assert.ok(permissions.length > 0 && permissions.every((p) => p.revocable && p.title && p.where === (a.keepsAllowed ?? "session")), JSON.stringify(permissions));
    assert.deepEqual((await ofPermissions("forget_permissions", { ids: [permissions[0].id] })).forgotten, a.keepsAllowed === "process" ? permissions : permissions.slice(0, 1));
    await ofPermissions("forget_permissions", { all: true });
    assert.equal((await s.prompt(same())).asked.length, 1, "it is not asked about again");
    assert.equal((await s.prompt(same())).asked.length, 0, "it is not allowed again");
    assert.ok(!existsSync(`${w.place}/.${a.id}`), "something was written into the workspace");
  },
  async "permission rejected, and the turn goes on"(w, a) {
    const s = await w.borrow({}, (p) => ({ ...choose(a.reject ?? "reject_once")(p), _meta: own({ message: "not on a Sunday" }) }));
    const prompt = script([[a.touch(`${w.dir}/never`)], ...a.instead ? [[a.run("echo instead")]] : [], [{ say: "then so" }]]);
    const turn = await s.prompt(prompt);
    assert.deepEqual(turn.calls.map((c) => c.status), a.instead ? ["failed", "completed"] : ["failed"]);
    assert.deepEqual([turn.text, existsSync(`${w.dir}/never`)], ["then so", false]);
    if (a.hearsWhy) assert.match((await heard(prompt)).at(-1).body, /not on a Sunday/, "the model hears why");
    if (a.showsWhy) assert.match(contentOf(turn.calls[0]), /not on a Sunday/);
  },
  async "permission answered as cancelled ends the turn"(w, a) {
    const s = await w.borrow({}, () => ({ outcome: { outcome: "cancelled" } }));
    const turn = await s.prompt(touching(w, a, "never"), "cancelled");
    assert.deepEqual([turn.call(a.shell).status, existsSync(`${w.dir}/never`)], ["failed", false]);
    await alive(s);
  },
  async "cancel while a permission is open"(w, a) {
    let late;
    const s = await w.borrow({}, (params) => new Promise((resolve) => { late = () => resolve(choose("allow_once")(params)); }));
    const turn = s.begin(touching(w, a, "never"));
    await s.untilAsked();
    const end = await s.cancelled(turn);
    assert.deepEqual(end.calls.map((c) => c.status), ["failed"]);
    late();
    const after = await s.prompt("say after");
    assert.deepEqual([after.text, after.asked.length], ["after", 0]);
    assert.ok(!existsSync(`${w.dir}/never`), "a late answer is no permission");
  },
  async "permission inside a subagent"(w, a) {
    const s = await w.borrow({}, choose("allow_once"));
    const turn = await s.prompt(script([[a.task(touching(w, a, "by-sub", "child done"))], [{ say: "parent done" }]]));
    const [parent, child] = [turn.call(a.tasks), turn.call(a.shell)];
    assert.equal(turn.asked.length, 1);
    const { toolCall } = turn.asked[0].params;
    assert.equal(toolCall.toolCallId, child.toolCallId);
    if (a.asksForParent !== false) assert.equal(ownOf(toolCall).parentToolCallId, parent.toolCallId);
    assert.equal(ownOf(child).parentToolCallId, parent.toolCallId);
    assert.deepEqual([parent.status, child.status, turn.text], ["completed", "completed", "parent done"]);
    assert.ok(existsSync(`${w.dir}/by-sub`));
  },
  async "question as elicitation"(w, a) {
    const s = await asker(w, a, forms, (params, kind) => {
      assert.equal(kind, "elicitation");
      const { properties } = params.requestedSchema;
      const [one, two] = Object.keys(properties).filter((name) => !name.endsWith("_own"));
      assert.deepEqual(properties[one].oneOf?.map((o) => o.const).slice(0, 2), ["Red", "Blue"]);
      if (a.multiSelect) assert.equal(properties[two].type, "array");
      return { action: "accept", content: { [one]: "Blue", ...a.multiSelect ? { [two]: ["S", "L"] } : {} } };
    });
    assert.match((await s.prompt(asking(a))).text, a.multiSelect ? /Blue.*S.*L/s : /Blue/);
    if (!a.declined) return;
    s.answer = () => ({ action: "decline" });
    assert.match((await s.prompt(asking(a))).text, a.declined);
  },
  async "question by the gateway's extension"(w, a) {
    const s = await asker(w, a, { _meta: own({ requestQuestion: true }) }, (params, kind) => {
      assert.equal(kind, "question");
      assert.deepEqual(params.questions.map((q) => [q.question, q.multiSelect ?? false]), [["Which color?", false], ["Which sizes?", true]].slice(0, a.multiSelect ? 2 : 1));
      return { outcome: "answered", answers: [["Red"], ["L", "my own words"]].slice(0, a.multiSelect ? 2 : 1) };
    });
    assert.match((await s.prompt(asking(a))).text, a.multiSelect ? /Red.*L.*my own words/s : /Red/);
  },
  async "question as permission requests"(w, a) {
    const s = await asker(w, a, undefined, blueAndL);
    const turn = await s.prompt(asking(a));
    assert.deepEqual(turn.asked.map((x) => x.params.toolCall.title.match(/Which \w+\?/)?.[0]), ["Which color?", "Which sizes?"].slice(0, a.multiSelect ? 2 : 1));
    assert.match(turn.text, a.multiSelect ? /Blue.*L/s : /Blue/);
  },
  async "mode by set_mode"(w, a) {
    const s = await w.borrow();
    await throughModes(w, a, s, async (mode) => {
      const from = s.updates.length;
      await s.setMode(mode);
      await s.until(`mode ${mode}`, (u) => u.sessionUpdate === "current_mode_update" && u.currentModeId === mode, from);
    });
    const e = await failure(s.setMode("nonsense"));
    assert.equal(e.code, -32602);
    for (const mode of a.modes.all) assert.ok(e.all.includes(mode), e.all);
  },
  async "mode by config option"(w, a) {
    const s = await w.borrow();
    const { id } = s.result.configOptions.find((o) => o.category === "mode");
    await throughModes(w, a, s, async (mode) => assert.equal(valueOf((await s.set(id, mode)).configOptions, id), mode));
  },
  async "model and effort in a running session"(w, a) {
    const s = await changing(w, a);
    const [model, effort] = ["model", "thought_level"].map((c) => s.result.configOptions.find((o) => o.category === c));
    const said = async (what) => {
      await s.prompt(`say ${what} ${w.name}`);
      return (await heard(`say ${what} ${w.name}`)).at(-1);
    };
    const before = a.models.compacts ? undefined : await said("before");
    assert.equal(valueOf((await s.set(effort.id, a.models.effort)).configOptions, effort.id), a.models.effort);
    if (before) {
      const more = await said("with effort");
      assert.deepEqual([more.model, more.effort, before.effort === a.models.effort], [before.model, a.models.effort, false]);
    }
    const other = model.options.map((o) => o.value).find((v) => a.models.other.test(v) && v !== model.currentValue);
    const { configOptions } = await s.set(model.id, other);
    const levels = a.models.otherHasEffort !== false;
    assert.deepEqual([valueOf(configOptions, model.id), valueOf(configOptions, effort.id)], [other, levels ? a.models.effort : undefined]);
    const after = await said("after");
    assert.notEqual(before?.model, after.model);
    assert.match(after.model, a.models.otherHeard ?? a.models.heard);
    if (levels) assert.equal(after.effort, a.models.effort);
    assert.ok((await failure(s.set(model.id, "no-such-model"))).all.includes(other));
    if (levels) assert.match((await failure(s.set(effort.id, "enormous"))).all, /low/);
    assert.equal((await s.prompt("say still alive")).text, "still alive", "a wrong one does not stick");
  },
  async "model and effort at the start"(w, a) {
    const s = await equipped(w, a);
    const { model, variant, mode } = a.equipment("").meta;
    for (const [category, value] of [["model", model], ["thought_level", variant], ["mode", mode]]) {
      if (value) assert.equal(s.result.configOptions.find((o) => o.category === category).currentValue, value);
    }
    await s.prompt(`say chosen ${w.name}`);
    const [r] = await heard(`say chosen ${w.name}`);
    assert.match(r.model, a.models.heard);
    assert.equal(r.effort, variant);
  },
  async "instructions, system prompt and skills"(w, a) {
    const s = await equipped(w, a);
    await s.prompt(`say told ${w.name}`);
    const [r] = await heard(`say told ${w.name}`);
    for (const part of [a.memory ? "FROM MEMORY" : "", "PROJECT RULES", "APPENDED PROMPT", "DOES DEMOS WELL"]) assert.ok(r.body.includes(part), part);
    assert.equal(ownOf(s.result).unsupported, undefined);
  },
  async "a skill is used"(w, a) {
    const s = await equipped(w, a);
    const name = await s.untilCommand(/(^|:)demo$/);
    await a.useSkill(w, s, name);
  },
  async "additional directories"(w, a) {
    await a.reach(w, await equipped(w, a, choose("reject_once")), equipment);
  },
  async "what has no effect is listed"(w, a) {
    const s = await changing(w, a);
    assert.deepEqual(ownOf(s.result).unsupported.map((u) => u.field).sort(), a.noEffect.fields);
    if (env.VERSION) assert.equal(ownOf(s.result).agentVersion, env.VERSION);
  },
};
