// Scenarios of what a turn of OpenCode shows and how it ends.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { call, callsOf, contentOf, dies, diffsOf, failure, heard, script } from "./claude-link.mjs";
import codex from "./codex-turns.mjs";

const dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const notices = { session: { notices: {} } };
const shell = (command, more = {}) => call("bash", { command, description: "runs", ...more });
const task = (prompt) => call("task", { description: "Sub job", prompt, subagent_type: "general" });
const parentOf = (u) => u._meta?.["sandboxagent.dev"]?.parentToolCallId;

async function cancelled(session, turn) {
  const started = Date.now();
  await session.cancel();
  const end = await turn;
  assert.equal(end.stopReason, "cancelled");
  assert.ok(Date.now() - started < 10_000, `the end took ${Date.now() - started} ms`);
  for (const c of callsOf(end.updates)) assert.ok(["completed", "failed"].includes(c.status), `${c.title} is left ${c.status}`);
  return end;
}
export default {
  async "text without duplicates"(w) {
    const s = await w.session();
    const words = Array.from({ length: 30 }, (_, i) => `w${i} `);
    const turn = await s.prompt(script([[{ chunks: words }]]));
    assert.equal(turn.text.trimEnd(), words.join("").trimEnd());
    assert.ok(turn.chunks.length > 5, `${turn.chunks.length} chunks`);
    assert.equal(turn.of("user_message_chunk").length, 0, "the sender is not told its own words");
  },
  async "thinking"(w) {
    const turn = await (await w.session()).prompt(script([[{ think: "Let me see. " }, { say: "seen" }]]));
    assert.equal(turn.thought.trim(), "Let me see.");
    assert.equal(turn.text, "seen");
  },
  async "command output"(w) {
    const c = (await (await w.session()).prompt("run echo one two")).call("bash");
    assert.deepEqual([c.kind, c.status, c.title], ["execute", "completed", "echo one two"]);
    assert.match(contentOf(c), /one two/);
  },
  async "live output of a command"(w) {
    const s = await w.session();
    const turn = await s.prompt("run for i in 1 2 3 4; do echo out $i; sleep 0.4; done");
    const live = turn.of("tool_call_update").filter((u) => u.status === "in_progress" && /out \d/.test(contentOf(u)));
    assert.ok(live.length >= 2, `${live.length} updates while it ran`);
    assert.match(contentOf(turn.call("bash")), /out 1\nout 2\nout 3\nout 4/);
  },
  async "failed command"(w) {
    const c = (await (await w.session()).prompt("run echo oops >&2; exit 3")).call("bash");
    assert.equal(c.status, "failed");
    assert.match(contentOf(c), /oops/);
    assert.equal(c.rawOutput.exitCode, 3);
  },
  async "read is a read"(w) {
    writeFileSync(`${w.dir}/notes.txt`, "the secret word\n");
    const c = (await (await w.session()).prompt(`read ${w.dir}/notes.txt`)).call("read");
    assert.deepEqual([c.kind, c.status, c.locations[0].path], ["read", "completed", `${w.dir}/notes.txt`]);
    assert.match(contentOf(c), /the secret word/);
  },
  async "large output is shortened"(w) {
    const turn = await (await w.session()).prompt("run head -c 350000 /dev/zero | tr '\\0' x; echo THE END");
    const all = turn.of("tool_call_update").map((u) => JSON.stringify(u).length);
    assert.ok(Math.max(...all) < 160_000, `an update of ${Math.max(...all)} bytes`);
  },
  async "write and edit show diffs"(w) {
    writeFileSync(`${w.dir}/old.txt`, "one\ntwo\nthree\n");
    const s = await w.session();
    const turn = await s.prompt(script([
      [call("write", { filePath: `${w.dir}/new.txt`, content: "alpha\n" })],
      [call("read", { filePath: `${w.dir}/old.txt` })],
      [call("edit", { filePath: `${w.dir}/old.txt`, oldString: "two", newString: "TWO" })],
      [{ say: "done" }],
    ]));
    const [made] = diffsOf(turn.call("write"));
    assert.deepEqual([made.path, made.oldText ?? null, made.newText], [`${w.dir}/new.txt`, null, "alpha\n"]);
    const [changed] = diffsOf(turn.call("edit"));
    assert.deepEqual([changed.path, changed.oldText, changed.newText], [`${w.dir}/old.txt`, "one\ntwo\nthree\n", "one\nTWO\nthree\n"]);
    assert.equal(turn.call("edit").kind, "edit");
  },
  async "plan"(w) {
    const todos = [{ content: "First", status: "completed", priority: "high" }, { content: "Second", status: "in_progress", priority: "low" }];
    const turn = await (await w.session()).prompt(script([[call("todowrite", { todos })], [{ say: "ok" }]]));
    assert.deepEqual(turn.of("plan").at(-1)?.entries, [
      { content: "First", priority: "high", status: "completed" }, { content: "Second", priority: "low", status: "in_progress" },
    ]);
    assert.equal(turn.calls.length, 0, "the plan is shown once");
  },
  async "parallel calls"(w) {
    const turn = await (await w.session()).prompt(script([[shell("sleep 1; echo slow"), shell("echo fast")], [{ say: "both" }]]));
    assert.deepEqual(turn.calls.map((c) => [c.status, contentOf(c).match(/slow|fast/)?.[0]]).sort(), [["completed", "fast"], ["completed", "slow"]]);
  },
  async "usage, cost and title"(w) {
    const s = await w.session();
    const turn = await s.prompt(script([[{ usage: [1000, 50, 0, 0] }, { say: "ok" }]]));
    const last = turn.of("usage_update").at(-1);
    assert.deepEqual([last.used, last.size], [1050, 200_000]);
    assert.ok(last.cost.amount > 0 && last.cost.currency === "USD", JSON.stringify(last.cost));
    assert.deepEqual([turn.result.usage.inputTokens, turn.result.usage.outputTokens], [1000, 50]);
    await s.until("a title", (u) => u.sessionUpdate === "session_info_update" && u.title === "Scripted title");
  },
  async "image, resource and link in a prompt"(w) {
    writeFileSync(`${w.dir}/linked.txt`, "LINKED FILE\n");
    const s = await w.session();
    await s.prompt([
      { type: "image", data: dot, mimeType: "image/png" }, { type: "resource", resource: { uri: "file:///w/a.txt", text: "EMBEDDED" } },
      { type: "resource_link", name: "elsewhere", uri: "https://example.com/x" }, { type: "resource_link", name: "linked.txt", uri: `file://${w.dir}/linked.txt` },
      { type: "text", text: `say seen ${w.name}` },
    ]);
    const [r] = await heard(`say seen ${w.name}`);
    for (const part of [dot, "EMBEDDED", "https://example.com/x", "LINKED FILE"]) assert.ok(r.body.includes(part), part);
    assert.match((await failure(s.begin([{ type: "audio", data: "AAAA", mimeType: "audio/wav" }]))).all, /text, images/);
  },
  async "bad key ends the prompt at once"(w) {
    const s = await w.session();
    const e = await failure(s.begin(script([[{ fail: 401, words: "bad key" }]])));
    assert.equal(e.code, -32000, e.all);
    assert.match(e.all, /bad key/);
    assert.equal((await s.prompt("say alive")).text, "alive");
  },
  async "provider's refusal is quoted"(w) {
    const s = await w.session();
    const e = await failure(s.begin(script([[{ fail: 400, words: "the provider's own words" }]])));
    assert.match(e.message, /the provider's own words/);
    assert.equal(e.data.status, 400);
    assert.equal((await s.prompt("say alive")).text, "alive");
  },
  async "content filter is a refusal"(w) {
    await (await w.session()).prompt("stop refusal", "refusal");
  },
  async "max_tokens"(w) {
    const turn = await (await w.session()).prompt("stop max_tokens", "max_tokens");
    assert.match(turn.text, /so far/);
  },
  async "unknown tool is a failed call"(w) {
    const turn = await (await w.session()).prompt(script([[call("no_such_tool", {})], [{ say: "went on" }]]));
    assert.equal(turn.calls.length, 1);
    assert.equal(turn.calls[0].status, "failed");
    assert.match(contentOf(turn.calls[0]), /no_such_tool/);
    assert.equal(turn.text, "went on");
  },
  async "retry after a failure is noticed"(w) {
    const turn = await (await w.session({ capabilities: notices })).prompt(script([[{ fail: 500, times: 1, words: "the server is broken" }, { say: "recovered" }]]));
    assert.equal(turn.text, "recovered");
    assert.match(turn.of("notice")[0]?.title ?? "", /the server is broken/);
  },
  async "text is not repeated after a broken stream"(w) {
    const turn = await (await w.session({ capabilities: notices })).prompt(`drops ${w.name}`);
    assert.equal(turn.text, "first words, then the rest");
    assert.equal(turn.of("notice").length, 1);
  },
  async "cancel while streaming"(w) {
    const s = await w.session();
    const turn = s.begin("forever");
    await s.untilText("tick 3");
    await cancelled(s, turn);
    const shown = s.updates.length;
    assert.equal((await s.prompt("say alive")).text, "alive");
    assert.equal(s.updates.slice(shown).filter((u) => /tick/.test(u.content?.text ?? "")).length, 0, "what comes late is dropped");
  },
  async "cancel at once"(w) {
    const s = await w.session();
    for (let i = 0; i < 3; i++) await cancelled(s, s.begin("forever"));
    assert.equal((await s.prompt("say alive")).text, "alive");
  },
  async "cancel while a command runs"(w) {
    const s = await w.session();
    const turn = s.begin(`run echo $$ > ${w.dir}/pid; while true; do echo tock; sleep 0.2; done`);
    await s.until("output", (u) => /tock/.test(contentOf(u)));
    const end = await cancelled(s, turn);
    assert.deepEqual(callsOf(end.updates).map((c) => c.status), ["failed"]);
    await dies(readFileSync(`${w.dir}/pid`, "utf8").trim());
    assert.equal((await s.prompt("say alive")).calls.length, 0);
  },
  async "cancel during a retry"(w) {
    const s = await w.session({ capabilities: notices });
    const turn = s.begin(script([[{ fail: 503, words: "overloaded" }]]));
    await s.until("a notice", (u) => u.sessionUpdate === "notice");
    await cancelled(s, turn);
    assert.equal((await s.prompt("say alive")).text, "alive");
  },
  "cancel when idle": codex["cancel when idle"],
  "a second prompt waits": codex["a second prompt waits"],
  async "compaction"(w) {
    const s = await w.session({ capabilities: { session: { compaction: {} } } });
    await s.prompt("say before");
    const turn = await s.prompt("/compact");
    assert.deepEqual(turn.of("compaction_update").map((u) => u.status), ["in_progress", "completed"]);
    assert.ok(turn.of("compaction_summary_chunk").length > 0, "no summary");
    assert.equal(turn.text, "", "a summary is no answer");
    assert.equal((await s.prompt("say after")).text, "after");
  },
  async "command of the workspace"(w) {
    mkdirSync(`${w.dir}/.opencode/command`, { recursive: true });
    writeFileSync(`${w.dir}/.opencode/command/greet.md`, "---\ndescription: greets\n---\nsay greetings to $ARGUMENTS\n");
    const s = await w.session();
    const u = await s.until("commands", (u) => u.availableCommands?.some((c) => c.name === "greet"));
    assert.ok(u.availableCommands.some((c) => c.name === "compact"));
    assert.equal((await s.prompt("/greet all of you")).text, "greetings to all of you");
  },
  async "undo and redo"(w) {
    const s = await w.session();
    await s.prompt("say the first");
    await s.prompt("say the second");
    await s.prompt("/undo");
    await s.prompt("/redo");
    assert.match((await s.prompt("recall")).text, /the second/);
    await s.prompt("/undo");
    await s.prompt("/undo");
    const turn = await s.prompt("recall");
    assert.match(turn.text, /the first/);
    assert.doesNotMatch(turn.text, /the second/);
  },
  async "subagent belongs to its call"(w) {
    const s = await w.session();
    const turn = await s.prompt(script([[task("run echo child ran")], [{ say: "parent done" }]]));
    assert.equal(turn.text, "parent done");
    const parent = turn.calls.find((c) => c.name === "task");
    const child = turn.calls.find((c) => c.name === "bash");
    assert.equal(parentOf(turn.of("tool_call").find((u) => u.toolCallId === child.toolCallId)), parent.toolCallId);
    assert.deepEqual([parent.status, child.status], ["completed", "completed"]);
    assert.match(contentOf(parent), /ran: child ran/);
  },
  async "cancel reaches a subagent"(w) {
    const s = await w.session();
    const turn = s.begin(script([[task(`run echo $$ > ${w.dir}/pid; sleep 600`)], [{ say: "never" }]]));
    for (const limit = Date.now() + 20_000; !existsSync(`${w.dir}/pid`);) {
      assert.ok(Date.now() < limit, "the subagent runs nothing");
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    const end = await cancelled(s, turn);
    assert.deepEqual(end.calls.map((c) => c.status), ["failed", "failed"]);
    await dies(readFileSync(`${w.dir}/pid`, "utf8").trim());
    assert.equal((await s.prompt("say alive")).text, "alive");
  },
};
