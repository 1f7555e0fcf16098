// Scenarios of what a turn shows and how it ends. What only looks at a turn
// borrows a session in which nothing is asked for.
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { api, call, callsOf, contentOf, dies, diffsOf, eventually, failure, heard, methods, openGate, ownOf, script, textOf } from "./link.mjs";

export const dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/** The settings of sessions in which nothing is asked for and everything is told. */
export const free = (a) => ({ capabilities: { session: { notices: {}, compaction: {} } }, ...a.free });

/** The number that a command has written into a file. */
export const pidIn = (file) => eventually("the command's process", () => existsSync(file) ? readFileSync(file, "utf8").trim() : "", Boolean);

/** Waits until the model is asked what to do after a prompt. */
export const thinks = (prompt) => eventually("the model's call", () => heard(prompt), (all) => all.length > 0);

async function alive(s) {
  const turn = await s.prompt("say alive");
  assert.deepEqual([turn.text, turn.calls.length], ["alive", 0], "what comes late is dropped");
}

export default {
  async "usage and title"(w, a) {
    const s = await w.fresh(free(a)); // only the first prompt makes a title
    if (a.freeMode) assert.equal(s.result.modes.currentModeId, a.freeMode);
    const { tokens, used, size, cost, result } = a.usage;
    const turn = await s.prompt(script([[{ usage: tokens }, { say: "ok" }]]));
    const last = turn.of("usage_update").at(-1);
    assert.equal(last.used, used);
    assert.ok(last.size >= size, `${last.size}`);
    if (cost) assert.ok(last.cost.amount > cost && last.cost.currency === "USD", JSON.stringify(last.cost));
    for (const [name, value] of Object.entries(result)) assert.equal(turn.result.usage[name], value, name);
    const named = (u) => u.sessionUpdate === "session_info_update" && u.title;
    const { title } = a.titleComesLate ? await s.until("a title", named) : turn.updates.find(named) ?? {};
    assert.match(title ?? "", a.title ?? /^script/);
    if (a.listsTitles) {
      const { sessions } = await s.link.agent.request(methods.agent.session.list, {});
      assert.equal(sessions.find((x) => x.sessionId === s.id)?.title, title);
    }
  },
  async "compaction"(w, a) {
    const { before, gone } = a.compacts;
    const s = await (a.compacts.repeats ? w.session(free(a)) : w.fresh(free(a)));
    for (const words of before) await s.prompt(`say ${words}`);
    const turn = await s.prompt("/compact");
    assert.deepEqual(turn.of("compaction_update").map((u) => u.status), ["in_progress", "completed"]);
    if (a.compacts.summary) assert.ok(turn.of("compaction_summary_chunk").length > 0 && turn.text === "", "a summary is no answer");
    assert.match((await s.prompt("say and on")).text, a.compacts.repeats ? /and on/ : /^and on$/);
    if (!gone) return;
    const last = (await heard("say and on")).at(-1);
    assert.ok(!last.prompts.includes(`say ${gone}`), "the conversation is shorter now");
    assert.match(last.body, new RegExp(gone), "and its summary is there");
  },
  async "a command is listed and run"(w, a) {
    const { name, folder, prompt = `/${name}`, says, file } = a.command;
    if (folder) w.moveIn();
    file?.(w.dir);
    const s = await (folder ? w.session(free(a)) : w.borrow(free(a)));
    for (const one of [name, ...a.command.beside ?? []]) await s.untilCommand(new RegExp(`^${one}$`));
    assert.match((await s.prompt(prompt)).text, says);
  },
  async "text without duplicates"(w, a) {
    const s = await w.borrow(free(a));
    const words = Array.from({ length: 30 }, (_, i) => `w${i} `);
    const turn = await s.prompt(script([[{ chunks: words }]]));
    assert.equal(a.trims ? turn.text.trim() : turn.text, a.trims ? words.join("").trim() : words.join(""));
    if (a.streams) assert.ok(turn.chunks.length > 5, `${turn.chunks.length} chunks`);
    else assert.equal(turn.chunks.length, 1, "a whole message");
    assert.equal(turn.of("user_message_chunk").length, 0, "the sender is not told its own words");
  },
  async "thinking"(w, a) {
    const turn = await (await w.borrow(free(a))).prompt(script([[{ think: "Let me see. " }, { say: "seen" }]]));
    assert.equal(a.trims ? turn.thought.trim() : turn.thought, a.trims ? "Let me see." : "Let me see. ");
    assert.equal(turn.text, "seen");
  },
  async "command output"(w, a) {
    const c = (await (await w.borrow(free(a))).prompt("run echo one two")).call(a.shell);
    assert.deepEqual([c.kind, c.status], ["execute", "completed"]);
    assert.match(c.title, a.longTitles ? /echo one two/ : /^echo one two$/);
    assert.match(contentOf(c), /one two/);
  },
  async "live output of a command"(w, a) {
    const s = await w.borrow(free(a));
    const turn = s.begin(`run i=0; until [ -e ${w.dir}/seen ]; do i=$((i+1)); echo out $i; sleep 0.1; done; echo out over`);
    await s.until("output of a command that runs", (u) => u.sessionUpdate === "tool_call_update" && u.status === "in_progress" && /out \d/.test(contentOf(u)));
    writeFileSync(`${w.dir}/seen`, "");
    const c = (await turn).call(a.shell);
    assert.match(contentOf(c), a.console ? /^```console\nout 1\n[^]*out over\n```$/ : /out 1\n[^]*out over/);
    assert.match(c.title, /echo out/);
  },
  async "failed command"(w, a) {
    const { command, says, exitCode } = a.fails;
    const c = (await (await w.borrow(free(a))).prompt(`run ${command}`)).call(a.shell);
    assert.equal(c.status, "failed");
    assert.match(contentOf(c), says);
    if (exitCode) assert.equal(c.rawOutput.exitCode, exitCode);
  },
  async "large output is shortened"(w, a) {
    const { command, shows, most } = a.large;
    const turn = await (await w.borrow(free(a))).prompt(`run ${command}; echo THE END`);
    assert.match(contentOf(turn.call(a.shell)), shows);
    const longest = Math.max(...turn.of("tool_call_update").map((u) => contentOf(u).length));
    assert.ok(longest < most, `an update of ${longest}`);
  },
  async "changed files are shown as diffs"(w, a) {
    writeFileSync(`${w.dir}/old.txt`, "one\ntwo\nthree\n");
    const { settings = free(a), answer, rounds, diffs } = a.edits(w);
    const s = await w.borrow(settings, answer);
    const turn = await s.prompt(script([...rounds.map((r) => [r]), [{ say: "done" }]]));
    const found = (calls) => calls.flatMap((c) => diffsOf(c).map((d) => [d.path, d.oldText ?? null, d.newText]));
    assert.deepEqual(found(turn.calls), diffs);
    for (const c of turn.calls.filter((c) => diffsOf(c).length)) assert.deepEqual([c.kind, c.status], ["edit", "completed"]);
    assert.deepEqual(found(turn.asked.map((x) => x.params.toolCall)), answer ? diffs : [], "before the decision as well");
    for (const [path, , text] of diffs.slice(-1)) assert.equal(readFileSync(path, "utf8"), text);
    a.edited?.(turn);
  },
  async "plan"(w, a) {
    for (const { settings = free(a), rounds, plans } of a.plans) {
      const turn = await (await w.borrow(settings)).prompt(script([...rounds, [{ say: "ok" }]]));
      assert.deepEqual(turn.of("plan").at(-1)?.entries.map((e) => [e.content, e.priority, e.status]), [
        ["First", a.priorities?.[0] ?? "medium", "completed"], ["Second", a.priorities?.[1] ?? "medium", "in_progress"],
      ]);
      if (plans) assert.equal(turn.of("plan").length, plans);
      if (a.planIsNoCall) assert.equal(turn.calls.length, 0, "the plan is shown once");
    }
  },
  async "parallel calls"(w, a) {
    const turn = await (await w.borrow(free(a))).prompt(script([[a.run("echo slow; sleep 0.5"), a.run("echo fast")], [{ say: "both" }]]));
    const shown = turn.calls.map((c) => [c.status, contentOf(c).match(/slow|fast/)?.[0]]);
    assert.deepEqual(a.inOrder ? shown.reverse() : shown.sort(), [["completed", "fast"], ["completed", "slow"]]);
    assert.equal(turn.text, "both");
  },
  async "unknown tool is a failed call"(w, a) {
    const turn = await (await w.borrow(free(a))).prompt(script([[call("no_such_tool", {})], [{ say: "went on" }]]));
    assert.deepEqual(turn.calls.map((c) => c.status), ["failed"]);
    assert.match(contentOf(turn.calls[0]), /no_such_tool/);
    assert.equal(turn.text, "went on");
  },
  async "image, resource and link in a prompt"(w, a) {
    const s = await w.borrow(free(a));
    await s.prompt([
      { type: "text", text: `say seen ${w.name}` }, ...a.images ? [{ type: "image", data: dot, mimeType: "image/png" }] : [],
      { type: "resource", resource: { uri: "file:///w/a.txt", mimeType: "text/plain", text: "EMBEDDED" } },
      { type: "resource_link", name: "linked", uri: "https://example.com/x" },
    ]);
    const [r] = await heard(`seen ${w.name}`);
    for (const part of [a.images ? dot : "", "EMBEDDED", "https://example.com/x"]) assert.ok(r.body.includes(part), part);
    if (a.refuses) assert.match((await failure(s.begin([a.refuses.block]))).all, a.refuses.says);
  },
  async "bad key ends the prompt at once"(w, a) {
    const s = await w.borrow(free(a));
    const e = await failure(s.begin(script([[{ fail: 401, words: `bad key of ${w.name}` }]])));
    assert.equal(e.code, -32000, e.all);
    assert.match(e.all, a.badKey);
    const attempts = (await heard(`bad key of ${w.name}`)).length;
    assert.ok(attempts === 1 || attempts === 2, `it was tried ${attempts} times`);
    await alive(s);
  },
  async "provider's refusal is quoted"(w, a) {
    const s = await w.borrow(free(a));
    const e = await failure(s.begin(script([[{ fail: 400, words: "the provider's own words" }]])));
    assert.match(e.message, /the provider's own words/);
    if (a.refusal?.code) assert.equal(e.code, a.refusal.code, e.all);
    if (a.refusal?.status) assert.equal(e.data.status, a.refusal.status);
    assert.doesNotMatch(s.text, /own words/);
    await alive(s);
  },
  async "retry is noticed"(w, a) {
    const { fail, times = 1, says } = a.retry;
    const turn = await (await w.borrow(free(a))).prompt(script([[{ fail, times, words: "the server is broken" }, { say: "recovered" }]]));
    assert.equal(turn.text, "recovered");
    assert.match(turn.of("notice")[0]?.title ?? "", says);
  },
  async "cancel while streaming"(w, a) {
    const s = await w.borrow(free(a));
    const turn = s.begin("forever");
    await s.untilText("tick 3");
    const end = await s.cancelled(turn);
    assert.ok(end.text.match(/\d+/g).map(Number).every((n, i) => n === i + 1), `each once, in order: ${end.text.slice(-200)}`);
    await alive(s);
  },
  async "cancel at once"(w, a) {
    const s = await w.borrow(free(a));
    for (let i = 0; i < (a.startsAfterCancel ? 1 : 3); i++) await s.cancelled(s.begin("forever"));
    await alive(s);
  },
  async "cancel while a command runs"(w, a) {
    const { settings = free(a), command } = a.endless(w);
    const s = await w.borrow(settings);
    const from = s.updates.length;
    const turn = s.begin(`run ${command}`);
    const pid = await pidIn(`${w.dir}/pid`);
    await s.until("its call", (u) => u.sessionUpdate === "tool_call", from);
    if (a.showsLive) await s.until("output", (u) => u.sessionUpdate === "tool_call_update" && /tock/.test(contentOf(u)));
    const end = await s.cancelled(turn);
    assert.deepEqual(callsOf(end.updates).map((c) => [c.name, c.status]), [[a.shell, "failed"]]);
    await dies(pid);
    await alive(s);
  },
  async "cancel when idle"(w, a) {
    const s = await w.borrow(free(a));
    for (let i = 0; i < 2; i++) {
      await s.cancel();
      await alive(s);
    }
  },
  async "a second prompt waits"(w, a) {
    const s = await w.borrow(free(a));
    const prompt = script([[...a.streams ? [{ say: "one " }] : [], { gate: w.name }, { say: "two " }]]);
    const first = s.begin(prompt);
    await (a.streams ? s.untilText("one ") : thinks(prompt));
    const second = s.begin("say three");
    await openGate(w.name);
    const ends = await Promise.all([first, second]);
    assert.deepEqual(ends.map((t) => t.stopReason), ["end_turn", "end_turn"]);
    assert.equal(ends[1].text.replaceAll(/\s/g, ""), "twothree", "from when it was sent");
    assert.equal(s.text.replaceAll(/\s/g, ""), a.streams ? "onetwothree" : "twothree");
  },
  async "subagent belongs to its call"(w, a) {
    const s = await w.borrow(free(a));
    const turn = await s.prompt(script([[a.task("run echo child ran")], [{ say: "parent done" }]]));
    assert.equal(turn.text, "parent done");
    const [parent, child] = [turn.call(a.tasks), turn.call(a.shell)];
    assert.equal(ownOf(turn.of("tool_call").find((u) => u.toolCallId === child.toolCallId)).parentToolCallId, parent.toolCallId);
    assert.deepEqual([parent.status, child.status], ["completed", "completed"]);
    assert.match(contentOf(parent), /child ran/);
    const { children } = await api(`/v2/sessions/${encodeURIComponent(s.id)}`);
    const { toolCallId, parentSessionId, state } = children.at(-1);
    assert.deepEqual({ toolCallId, parentSessionId, state }, { toolCallId: parent.toolCallId, parentSessionId: s.id, state: "idle" });
  },
  async "sessions at once"(w, a) {
    const link = a.oneProcess && await w.connect(free(a).capabilities);
    const all = await Promise.all(Array.from({ length: a.atOnce }, () => link ? w.session({ link, ...a.free }) : w.borrow(free(a))));
    const turns = await Promise.all(all.map((s, i) => s.prompt(script([
      [...a.streams ? [{ say: `number ${i} begins. ` }] : [], a.run(`echo number ${i}; sleep 0.3`)], [{ say: `I am number ${i} of them` }],
    ]))));
    turns.forEach((turn, i) => {
      assert.ok(turn.text.endsWith(`I am number ${i} of them`), turn.text);
      assert.match(contentOf(turn.call(a.shell)), new RegExp(`^number ${i}$`, "m"));
      assert.equal(turn.call(a.shell).status, "completed");
    });
    if (!a.oneProcess) return;
    const { processes } = (await api("/v2/agents")).agents.find((x) => x.id === a.id);
    assert.ok(processes.some((p) => p.sessions >= a.atOnce), JSON.stringify(processes));
  },
};

export const last = {
  async "max_tokens and refusal"(w, a) {
    const s = await w.take(free(a)); // its history stops the model for good
    assert.match((await s.prompt("stop max_tokens", "max_tokens")).text, /so far/);
    if (a.stopsWithRefusal) await s.prompt("stop refusal", "refusal");
  },
};
