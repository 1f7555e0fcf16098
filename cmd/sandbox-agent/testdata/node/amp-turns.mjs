// Scenarios of what a turn of Amp shows and how it ends.
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { alive, call, callsOf, contentOf, dies, diffsOf, eventually, failure, heard, openGate, script, textOf } from "./claude-link.mjs";
import codex from "./codex-turns.mjs";

export async function cancelled(session, turn) {
  const started = Date.now();
  await session.cancel();
  const end = await turn;
  assert.equal(end.stopReason, "cancelled");
  assert.ok(Date.now() - started < 10_000, `the end took ${Date.now() - started} ms`);
  for (const c of callsOf(end.updates)) assert.ok(["completed", "failed"].includes(c.status), `${c.title} is left ${c.status}`);
  return end;
}

export default {
  async "whole messages and thoughts, each once"(w) {
    const turn = await (await w.session()).prompt(script([[{ think: "Let me see." }, { chunks: ["one ", "two ", "three"] }]]));
    assert.equal(turn.thought, "Let me see.");
    assert.deepEqual(turn.chunks, ["one two three"]);
    assert.equal(turn.of("user_message_chunk").length, 0, "the sender is not told its own words");
    const [last] = turn.of("usage_update").slice(-1);
    assert.deepEqual([last.used, last.size > 1000, turn.result.usage.outputTokens], [120, true, 20]);
  },
  async "several prompts in one process, and the title"(w) {
    const s = await w.session();
    const turn = await s.prompt("say one");
    assert.equal(turn.of("session_info_update")[0]?.title, "say one");
    for (const word of ["two", "three"]) assert.equal((await s.prompt(`say ${word}`)).text, word);
    assert.match((await s.prompt("recall")).text, /say one.*say two.*say three/);
  },
  async "command output and exit code"(w) {
    const s = await w.session();
    const good = (await s.prompt("run echo one two")).call("Bash");
    assert.deepEqual([good.kind, good.status, good.title], ["execute", "completed", "echo one two"]);
    assert.match(contentOf(good), /one two/);
    const bad = (await s.prompt("run echo oops; exit 3")).call("Bash");
    assert.deepEqual([bad.status, bad.rawOutput.exitCode], ["failed", 3]);
    assert.match(contentOf(bad), /oops/);
  },
  async "read, write and edit with diffs"(w) {
    writeFileSync(`${w.dir}/old.txt`, "one\ntwo\nthree\n");
    const s = await w.session({ meta: { permissionMode: "write" } });
    const turn = await s.prompt(script([
      [call("Read", { path: `${w.dir}/old.txt` })],
      [call("create_file", { path: `${w.dir}/new.txt`, content: "alpha\n" })],
      [call("edit_file", { path: `${w.dir}/old.txt`, old_str: "two", new_str: "TWO" })],
      [{ say: "done" }],
    ]));
    const read = turn.call("Read");
    assert.deepEqual([read.kind, read.locations[0].path], ["read", `${w.dir}/old.txt`]);
    assert.match(contentOf(read), /two/);
    const [made] = diffsOf(turn.call("create_file"));
    assert.deepEqual([made.path, made.oldText ?? null, made.newText], [`${w.dir}/new.txt`, null, "alpha\n"]);
    const edit = turn.call("edit_file");
    const [changed] = diffsOf(edit);
    assert.deepEqual([changed.path, changed.oldText, changed.newText], [`${w.dir}/old.txt`, "one\ntwo\nthree\n", "one\nTWO\nthree\n"]);
    assert.deepEqual([edit.kind, edit.locations[0].line], ["edit", 2]);
    const [again] = diffsOf((await s.prompt(script([[call("create_file", { path: `${w.dir}/new.txt`, content: "beta\n" })], [{ say: "ok" }]]))).call("create_file"));
    assert.deepEqual([again.oldText, again.newText], ["alpha\n", "beta\n"], "the text that is replaced is shown");
  },
  async "parallel calls and an unknown tool"(w) {
    const turn = await (await w.session()).prompt(script([
      [call("Bash", { cmd: "echo slow; sleep 0.5" }), call("Bash", { cmd: "echo fast" }), call("no_such_tool", {})], [{ say: "all" }],
    ]));
    assert.deepEqual(turn.calls.map((c) => [c.name, c.status, contentOf(c).match(/slow|fast|no_such_tool/)?.[0]]).sort(),
      [["Bash", "completed", "fast"], ["Bash", "completed", "slow"], ["no_such_tool", "failed", "no_such_tool"]]);
  },
  async "resource and link in a prompt, images refused"(w) {
    const s = await w.session();
    await s.prompt([
      { type: "text", text: `say seen ${w.name}` }, { type: "resource", resource: { uri: "file:///w/a.txt", text: "EMBEDDED" } },
      { type: "resource_link", name: "elsewhere", uri: "https://example.com/x" },
    ]);
    const [r] = await heard(`say seen ${w.name}`);
    for (const part of ["EMBEDDED", "https://example.com/x"]) assert.ok(r.body.includes(part), part);
    assert.match((await failure(s.begin([{ type: "image", data: "AAAA", mimeType: "image/png" }]))).all, /no images/);
  },
  async "provider's refusal is quoted, and the session goes on"(w) {
    const s = await w.session();
    const e = await failure(s.begin(script([[{ fail: 400, words: "the provider's own words" }]])));
    assert.match(e.message, /the provider's own words/);
    assert.equal(e.data.status, 400);
    assert.equal((await failure(s.begin(script([[{ fail: 401, words: "bad key" }]])))).code, -32000);
    assert.equal((await s.prompt("say alive")).text, "alive");
  },
  async "max_tokens and refusal"(w) {
    const s = await w.session();
    assert.match((await s.prompt("stop max_tokens", "max_tokens")).text, /so far/);
    await s.prompt("stop refusal", "refusal");
  },
  async "cancel while the model thinks"(w) {
    const s = await w.session();
    const prompt = script([[{ gate: `never ${w.name}` }, { say: "x" }]]);
    const turn = s.begin(prompt);
    await eventually("the model's call", () => heard(prompt), (all) => all.length > 0);
    await cancelled(s, turn);
    await openGate(`never ${w.name}`);
    assert.equal((await s.prompt("say alive")).text, "alive");
    assert.ok(!textOf(s.updates).includes("x"), "what comes late is dropped");
  },
  async "cancel at once"(w) {
    const s = await w.session();
    for (let i = 0; i < 2; i++) await cancelled(s, s.begin("say too late"));
    assert.equal((await s.prompt("say alive")).text, "alive");
  },
  async "cancel while a command runs"(w) {
    const s = await w.session();
    const turn = s.begin(`run echo $$ > ${w.dir}/pid; sleep 600`);
    await eventually("the command", () => existsSync(`${w.dir}/pid`) && readFileSync(`${w.dir}/pid`, "utf8").trim(), Boolean);
    const end = await cancelled(s, turn);
    assert.deepEqual(callsOf(end.updates).map((c) => c.status), ["failed"]);
    await dies(readFileSync(`${w.dir}/pid`, "utf8").trim());
    assert.match((await s.prompt("recall")).text, /sleep 600/, "the thread goes on");
  },
  "cancel when idle": codex["cancel when idle"],
  async "a second prompt waits"(w) {
    const s = await w.session();
    const prompt = script([[{ gate: w.name }, { say: "two" }]]);
    const first = s.begin(prompt);
    await eventually("the model's call", () => heard(prompt), (all) => all.length > 0);
    const second = s.begin("say three");
    await openGate(w.name);
    assert.deepEqual([(await first).stopReason, (await second).stopReason], ["end_turn", "end_turn"]);
    assert.equal(textOf(s.updates), "twothree");
  },
  async "a server that a turn leaves running outlives it, not the session"(w) {
    const s = await w.session();
    await s.prompt(`run nohup sleep 900 >/dev/null 2>&1 & echo $! > ${w.dir}/server`);
    const pid = readFileSync(`${w.dir}/server`, "utf8").trim();
    await s.prompt("say between");
    assert.ok(alive(pid), "it has ended with its turn");
    await s.request("session/close");
    s.link.sessions.delete(s.id);
    await dies(pid);
  },
};
