// Scenarios of what a turn of Pi shows and how it ends.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { call, callsOf, contentOf, dies, diffsOf, failure, heard, openGate, script } from "./claude-link.mjs";

const dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const free = { meta: { permissionMode: "bypass" } };
const notices = { session: { notices: {} } };
const bash = (command) => call("bash", { command });

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
  async "command output comes live"(w) {
    const turn = await (await w.session(free)).prompt("run for i in 1 2 3 4; do echo out $i; sleep 0.3; done");
    const live = turn.of("tool_call_update").filter((u) => u.status === "in_progress" && /out \d/.test(contentOf(u)));
    assert.ok(live.length > 1, "nothing was shown while it ran");
    const c = turn.call("bash");
    assert.deepEqual([c.kind, c.status, contentOf(c)], ["execute", "completed", "```console\nout 1\nout 2\nout 3\nout 4\n```"]);
    assert.match(c.title, /for i in/);
  },
  async "failed command"(w) {
    const c = (await (await w.session(free)).prompt("run ls /no/such/folder")).call("bash");
    assert.equal(c.status, "failed");
    assert.match(contentOf(c), /No such file/);
  },
  async "read is a read, and not asked for"(w) {
    writeFileSync(`${w.dir}/notes.txt`, "some notes\n");
    const turn = await (await w.session()).prompt(`read ${w.dir}/notes.txt`);
    const c = turn.call("read");
    assert.deepEqual([c.kind, c.status, c.locations[0].path], ["read", "completed", `${w.dir}/notes.txt`]);
    assert.match(contentOf(c), /some notes/);
    assert.equal(turn.asked.length, 0);
  },
  async "large output is shortened"(w) {
    const c = (await (await w.session(free)).prompt("run seq 1 200000; echo THE END")).call("bash");
    assert.match(contentOf(c), /THE END/);
    assert.ok(contentOf(c).length < 70_000, `${contentOf(c).length}`);
  },
  async "edit and write show diffs"(w) {
    writeFileSync(`${w.dir}/old.txt`, "one\ntwo\n");
    const s = await w.session({ meta: { permissionMode: "write" } });
    const turn = await s.prompt(script([
      [call("edit", { path: "old.txt", edits: [{ oldText: "two", newText: "TWO" }] })],
      [call("write", { path: `${w.dir}/old.txt`, content: "instead\n" })], [call("write", { path: "new.txt", content: "alpha\n" })], [{ say: "done" }],
    ]));
    assert.equal(turn.asked.length, 0, "edits in the workspace are not asked for");
    assert.deepEqual(turn.calls.flatMap((c) => diffsOf(c).map((d) => [c.kind, c.status, d.path, d.oldText ?? null, d.newText])), [
      ["edit", "completed", `${w.dir}/old.txt`, "one\ntwo\n", "one\nTWO\n"], ["edit", "completed", `${w.dir}/old.txt`, "one\nTWO\n", "instead\n"],
      ["edit", "completed", `${w.dir}/new.txt`, null, "alpha\n"],
    ]);
  },
  async "parallel calls"(w) {
    const turn = await (await w.session(free)).prompt(script([[bash("sleep 0.5; echo slow"), bash("echo fast")], [{ say: "both" }]]));
    assert.deepEqual(turn.calls.map((c) => [c.status, contentOf(c).match(/slow|fast/)?.[0]]), [["completed", "slow"], ["completed", "fast"]]);
  },
  async "usage, cost and title"(w) {
    const s = await w.session();
    const turn = await s.prompt(script([[{ usage: [1000, 50, 3000, 0] }, { say: "ok" }]]));
    const last = turn.of("usage_update").at(-1);
    assert.deepEqual([last.used, last.size, last.cost.currency], [4050, 128000, "USD"]);
    assert.ok(last.cost.amount > 0.001);
    assert.deepEqual([turn.result.usage.inputTokens, turn.result.usage.outputTokens, turn.result.usage.cachedReadTokens], [1000, 50, 3000]);
    assert.ok(turn.of("session_info_update").some((u) => u.title?.startsWith("script")));
  },
  async "image, resource and link in a prompt"(w) {
    const s = await w.session();
    await s.prompt([
      { type: "text", text: `say seen ${w.name}` }, { type: "image", data: dot, mimeType: "image/png" },
      { type: "resource", resource: { uri: "file:///w/a.txt", text: "EMBEDDED" } }, { type: "resource_link", name: "linked", uri: "https://example.com/x" },
    ]);
    const [r] = await heard(`seen ${w.name}`);
    for (const part of [dot, "EMBEDDED", "https://example.com/x"]) assert.ok(r.body.includes(part), part);
  },
  async "bad key ends the prompt at once"(w) {
    const e = await failure((await w.session()).begin(script([[{ fail: 401, words: `bad key of ${w.name}` }]])));
    assert.equal(e.code, -32000, e.all);
    assert.match(e.message, /bad key.*login/);
    const attempts = (await heard(`bad key of ${w.name}`)).length;
    assert.ok(attempts === 1 || attempts === 2, `it was tried ${attempts} times`);
  },
  async "provider's refusal is quoted"(w) {
    const e = await failure((await w.session()).begin(script([[{ fail: 400, words: "the provider's own words" }]])));
    assert.match(e.all, /the provider's own words/);
  },
  async "max_tokens"(w) {
    assert.match((await (await w.session()).prompt("stop max_tokens", "max_tokens")).text, /so far/);
  },
  async "retry is noticed and says nothing twice"(w) {
    const s = await w.session({ capabilities: notices });
    const turn = await s.prompt(script([[{ fail: 500, times: 1, words: "broken" }, { say: "recovered" }]]));
    assert.equal(turn.text, "recovered");
    assert.match(turn.of("notice")[0]?.title, /attempt 1 of 2/);
    // An error in the middle of the stream: what was said before it comes again.
    await failure(s.begin(script([[{ say: "once only " }, { fail: 500, words: "in the middle" }]])));
    assert.equal(s.updates.filter((u) => u.sessionUpdate === "agent_message_chunk").map((u) => u.content.text).join(""), "recoveredonce only ");
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
    const s = await w.session(free);
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
    for (const n of ["one", "two"]) await s.prompt(`say ${n} ${"word ".repeat(25_000)}`);
    const turn = await s.prompt("/compact");
    assert.deepEqual(turn.of("compaction_update").map((u) => u.status), ["in_progress", "completed"]);
    assert.equal((await s.prompt("say and on")).text, "and on");
  },
  async "a command of the user's"(w) {
    const s = await w.session();
    const c = (await s.prompt("/bash echo typed here")).call("bash");
    assert.deepEqual([c.status, contentOf(c)], ["completed", "```console\ntyped here\n```"]);
    await s.prompt(`say told ${w.name}`);
    const [r] = await heard(`told ${w.name}`);
    assert.ok(r.body.includes("typed here"), "the model is shown it");
  },
  async "prompt template"(w) {
    const s = await w.session();
    await s.until("the commands", (u) => u.availableCommands?.some((c) => c.name === "greet" && c.description === "Greets"));
    assert.equal((await s.prompt("/greet you")).text, "greetings to you");
  },
  async "8 sessions at once"(w) {
    const link = await w.connect();
    const all = await Promise.all(Array.from({ length: 8 }, () => w.session({ link })));
    const turns = await Promise.all(all.map((s, i) => s.prompt(`say I am number ${i} of them`)));
    turns.forEach((turn, i) => assert.equal(turn.text, `I am number ${i} of them`));
  },
};
