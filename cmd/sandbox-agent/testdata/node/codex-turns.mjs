// Scenarios of what a turn of Codex shows and how it ends.
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { call, callsOf, contentOf, dies, diffsOf, failure, heard, openGate, script } from "./claude-link.mjs";

const dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const full = { meta: { permissionMode: "bypass" } };
const notices = { session: { notices: {} } };
const shell = (cmd, more = {}) => call("exec_command", { cmd, ...more });

async function cancelled(session, turn) {
  await session.cancel();
  const end = await turn;
  assert.equal(end.stopReason, "cancelled");
  return end;
}

export default {
  async "text without duplicates"(w) {
    const s = await w.session();
    const words = Array.from({ length: 30 }, (_, i) => `w${i} `);
    const turn = await s.prompt(script([[{ chunks: words }]]));
    assert.equal(turn.text, words.join(""));
    assert.ok(turn.chunks.length > 5, `${turn.chunks.length} chunks`);
    assert.equal(turn.of("user_message_chunk").length, 0, "the sender is not told its own words");
  },
  async "thinking"(w) {
    const turn = await (await w.session()).prompt(script([[{ think: "Let me see. " }, { say: "seen" }]]));
    assert.equal(turn.thought, "Let me see. ");
    assert.equal(turn.text, "seen");
  },
  async "command output"(w) {
    const c = (await (await w.session(full)).prompt("run echo one two")).call("shell");
    assert.deepEqual([c.kind, c.status], ["execute", "completed"]);
    assert.match(c.title, /echo one two/);
    assert.match(contentOf(c), /one two/);
  },
  async "live output of a command"(w) {
    const turn = await (await w.session(full)).prompt("run for i in 1 2 3 4; do echo out $i; sleep 0.5; done");
    const live = turn.of("tool_call_update").filter((u) => u.status === "in_progress" && /out \d/.test(contentOf(u)));
    assert.ok(live.length > 0, "nothing was shown while it ran");
    assert.match(contentOf(turn.call("shell")), /out 1\nout 2\nout 3\nout 4/);
  },
  async "failed command"(w) {
    const c = (await (await w.session(full)).prompt("run ls /no/such/folder")).call("shell");
    assert.equal(c.status, "failed");
    assert.match(contentOf(c), /No such file/);
  },
  async "read is a read"(w) {
    writeFileSync(`${w.dir}/notes.txt`, "some notes\n");
    const turn = await (await w.session()).prompt(`read ${w.dir}/notes.txt`);
    const c = turn.call("shell");
    assert.deepEqual([c.kind, c.status, c.locations[0].path], ["read", "completed", `${w.dir}/notes.txt`]);
    assert.match(turn.text, /read: .*some notes/s);
  },
  async "large output is shortened"(w) {
    const c = (await (await w.session(full)).prompt("run head -c 350000 /dev/zero | tr '\\0' x; echo THE END")).call("shell");
    assert.match(contentOf(c), /bytes left out[^]*THE END/);
    assert.ok(contentOf(c).length < 70_000, `${contentOf(c).length}`);
  },
  async "patch shows diffs"(w) {
    writeFileSync(`${w.dir}/old.txt`, "one\ntwo\n");
    const s = await w.session({ meta: { permissionMode: "write" } });
    const patch = "*** Begin Patch\n*** Add File: new.txt\n+alpha\n*** Update File: old.txt\n*** Move to: moved.txt\n@@\n-two\n+TWO\n*** End Patch\n";
    const c = (await s.prompt(script([[{ call: "apply_patch", args: patch }], [{ say: "done" }]]))).call("apply_patch");
    assert.deepEqual([c.kind, c.status], ["edit", "completed"]);
    assert.deepEqual(diffsOf(c).map((d) => [d.path, d.oldText ?? null, d.newText]), [
      [`${w.dir}/new.txt`, null, "alpha\n"], [`${w.dir}/moved.txt`, "one\ntwo\n", "one\nTWO\n"],
    ]);
    assert.equal(readFileSync(`${w.dir}/moved.txt`, "utf8"), "one\nTWO\n");
  },
  async "plan"(w) {
    const steps = [{ step: "First", status: "completed" }, { step: "Second", status: "in_progress" }];
    const turn = await (await w.session()).prompt(script([[call("update_plan", { plan: steps })], [{ say: "ok" }]]));
    assert.deepEqual(turn.of("plan").at(-1)?.entries, [
      { content: "First", priority: "medium", status: "completed" }, { content: "Second", priority: "medium", status: "in_progress" },
    ]);
  },
  async "parallel commands"(w) {
    const s = await w.session(full);
    const turn = await s.prompt(script([[shell("sleep 1; echo slow"), shell("echo fast")], [{ say: "both" }]]));
    assert.deepEqual(turn.calls.map((c) => [c.status, contentOf(c).match(/slow|fast/)?.[0]]).sort(), [["completed", "fast"], ["completed", "slow"]]);
  },
  async "usage and title"(w) {
    const s = await w.session();
    const turn = await s.prompt(script([[{ usage: [1000, 50, 3000, 0] }, { say: "ok" }]]));
    const last = turn.of("usage_update").at(-1);
    assert.equal(last.used, 4050);
    assert.ok(last.size >= 100_000, `${last.size}`);
    assert.deepEqual([turn.result.usage.inputTokens, turn.result.usage.outputTokens, turn.result.usage.cachedReadTokens], [1000, 50, 3000]);
    assert.ok(turn.of("session_info_update").some((u) => u.title?.startsWith("script")));
  },
  async "image, resource and link in a prompt"(w) {
    const s = await w.session();
    await s.prompt([
      { type: "image", data: dot, mimeType: "image/png" }, { type: "resource", resource: { uri: "file:///w/a.txt", text: "EMBEDDED" } },
      { type: "resource_link", name: "linked", uri: "https://example.com/x" }, { type: "text", text: `say seen ${w.name}` },
    ]);
    const [r] = await heard(`say seen ${w.name}`);
    for (const part of [dot, "EMBEDDED", "https://example.com/x"]) assert.ok(r.body.includes(part), part);
  },
  async "bad key ends the prompt at once"(w) {
    const e = await failure((await w.session()).begin(script([[{ fail: 401, words: `bad key of ${w.name}` }]])));
    assert.equal(e.code, -32000, e.all);
    const attempts = (await heard(`bad key of ${w.name}`)).length;
    assert.ok(attempts === 1 || attempts === 2, `it was tried ${attempts} times`);
  },
  async "provider's refusal is quoted"(w) {
    const e = await failure((await w.session()).begin(script([[{ fail: 400, words: "the provider's own words" }]])));
    assert.match(e.all, /the provider's own words/);
  },
  async "max_tokens"(w) {
    const turn = await (await w.session()).prompt("stop max_tokens", "max_tokens");
    assert.match(turn.text, /so far/);
  },
  async "retry after a failure is noticed"(w) {
    const turn = await (await w.session({ capabilities: notices })).prompt(script([[{ fail: 500, times: 3, words: "broken" }, { say: "recovered" }]]));
    assert.equal(turn.text, "recovered");
    assert.ok(turn.of("notice").length > 0, "nobody was told");
  },
  async "cancel while streaming"(w) {
    const s = await w.session();
    const turn = s.begin("forever");
    await s.untilText("tick 3");
    await cancelled(s, turn);
    assert.equal((await s.prompt("say alive")).text, "alive");
  },
  async "cancel at once"(w) {
    const s = await w.session();
    for (let i = 0; i < 3; i++) await cancelled(s, s.begin("forever"));
    assert.equal((await s.prompt("say alive")).text, "alive");
  },
  async "cancel while a command runs"(w) {
    const s = await w.session(full);
    const turn = s.begin(`run echo $$ > ${w.dir}/pid; while true; do echo tock; sleep 0.2; done`);
    await s.until("output", (u) => u.sessionUpdate === "tool_call_update" && /tock/.test(contentOf(u)));
    const end = await cancelled(s, turn);
    assert.deepEqual(callsOf(end.updates).map((c) => c.status), ["failed"]);
    const pid = readFileSync(`${w.dir}/pid`, "utf8").trim();
    await dies(pid);
    assert.equal((await s.prompt("say alive")).calls.length, 0, "what comes late is dropped");
  },
  async "cancel when idle"(w) {
    const s = await w.session();
    await s.cancel();
    assert.equal((await s.prompt("say alive")).text, "alive");
  },
  async "a second prompt waits"(w) {
    const s = await w.session();
    const first = s.begin(script([[{ say: "one " }, { gate: w.name }, { say: "two" }]]));
    await s.untilText("one");
    const second = s.begin("say three");
    await openGate(w.name);
    assert.deepEqual([(await first).stopReason, (await second).stopReason], ["end_turn", "end_turn"]);
    assert.equal(s.updates.filter((u) => u.sessionUpdate === "agent_message_chunk").map((u) => u.content.text).join(""), "one twothree");
  },
  async "compaction"(w) {
    const s = await w.session({ capabilities: { session: { compaction: {} } } });
    await s.prompt("say before");
    const turn = await s.prompt("/compact");
    assert.deepEqual(turn.of("compaction_update").map((u) => u.status), ["in_progress", "completed"]);
  },
  async "review"(w) {
    const verdict = { findings: [], overall_correctness: "patch is correct", overall_explanation: "nothing is wrong", overall_confidence_score: 0.9 };
    const turn = await (await w.session()).prompt(`/review ${script([[{ say: JSON.stringify(verdict) }]])}`);
    assert.equal(turn.text.split("nothing is wrong").length, 2, turn.text);
    assert.doesNotMatch(turn.text, /findings/);
  },
  async "subagent belongs to its call"(w) {
    const s = await w.session(full);
    const turn = await s.prompt(script([
      [call("multi_agent_v1/spawn_agent", { message: "run echo child ran" })], [call("multi_agent_v1/wait_agent", { timeout_ms: 10000, targets: [] })], [{ say: "parent done" }],
    ]));
    assert.equal(turn.text, "parent done");
    const own = await s.until("the subagent's call", (u) => u.sessionUpdate === "tool_call" && u._meta?.["sandboxagent.dev"]?.parentToolCallId);
    const parent = own._meta["sandboxagent.dev"].parentToolCallId;
    await s.until("its end", (u) => u.toolCallId === parent && u.status === "completed");
    assert.match(contentOf(callsOf(s.updates).find((c) => c.toolCallId === parent)), /child ran/);
  },
  async "command left running ends behind its turn"(w) {
    const s = await w.session(full);
    const turn = await s.prompt(script([[shell(`sleep 2; echo over > ${w.dir}/over`, { yield_time_ms: 300 })], [{ say: "left" }]]));
    const c = turn.call("shell");
    await s.until("its end", (u) => u.toolCallId === c.toolCallId && u.status === "completed");
    assert.ok(existsSync(`${w.dir}/over`));
  },
  async "20 sessions at once"(w) {
    const link = await w.connect();
    const all = [];
    for (let i = 0; i < 20; i++) all.push(await w.session({ link }));
    const turns = await Promise.all(all.map((s, i) => s.prompt(`say I am number ${i} of them`)));
    turns.forEach((turn, i) => assert.equal(turn.text, `I am number ${i} of them`));
  },
};
