// Scenarios of what a turn shows and how it ends.
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { alive, call, callsOf, choose, contentOf, control, dies, diffsOf, eventually, failure, heard, methods, openGate, ownOf, script } from "./claude-link.mjs";

const dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const allowed = (...allowedTools) => ({ agentSpecific: { claude: { allowedTools } } });
const notices = { session: { notices: {} } };
const todos = (a, b) => ({ todos: [
  { content: "First", status: a, activeForm: "Doing first" }, { content: "Second", status: b, activeForm: "Doing second" },
] });
const wantedPlan = [
  { content: "First", priority: "medium", status: "completed" }, { content: "Second", priority: "medium", status: "in_progress" },
];

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
    const s = await w.session();
    const turn = await s.prompt(script([[{ think: "Let me see. " }, { say: "seen" }]]));
    assert.equal(turn.thought, "Let me see. ");
    assert.equal(turn.text, "seen");
  },
  async "read tool"(w) {
    writeFileSync(`${w.dir}/notes.txt`, "some notes\n");
    const s = await w.session();
    const turn = await s.prompt(`read ${w.dir}/notes.txt`);
    const c = turn.call("Read");
    assert.deepEqual([c.kind, c.status], ["read", "completed"]);
    assert.equal(c.locations[0].path, `${w.dir}/notes.txt`);
    assert.match(contentOf(c), /some notes/);
    assert.match(turn.text, /read: .*some notes/s);
  },
  async "write tool shows a diff of a new file"(w) {
    const s = await w.session({ answer: choose("allow_once") });
    const turn = await s.prompt(`write ${w.dir}/new.txt one`);
    const [diff] = diffsOf(turn.call("Write"));
    assert.equal(diff.path, `${w.dir}/new.txt`);
    assert.equal(diff.oldText ?? null, null);
    assert.equal(diff.newText, "one");
    assert.deepEqual(diffsOf(turn.asked[0].params.toolCall).map((d) => [d.oldText ?? null, d.newText]), [[null, "one"]], "before the decision as well");
    assert.equal(readFileSync(`${w.dir}/new.txt`, "utf8"), "one");
  },
  async "edit tool shows the right old text"(w) {
    const file = `${w.dir}/a.txt`;
    writeFileSync(file, "alpha\nbeta\ngamma\n");
    const s = await w.session({ answer: choose("allow_once") });
    const turn = await s.prompt(script([
      [call("Read", { file_path: file })],
      [call("Edit", { file_path: file, old_string: "beta", new_string: "BETA" })],
      [{ say: "edited" }],
    ]));
    const c = turn.call("Edit");
    assert.deepEqual([c.kind, c.status], ["edit", "completed"]);
    for (const d of [...diffsOf(c), ...diffsOf(turn.asked[0].params.toolCall)]) {
      assert.deepEqual([d.path, d.oldText, d.newText], [file, "alpha\nbeta\ngamma\n", "alpha\nBETA\ngamma\n"]);
    }
    assert.equal(diffsOf(c).length, 1);
  },
  async "command output"(w) {
    const s = await w.session();
    const turn = await s.prompt("run echo one two");
    const c = turn.call("Bash");
    assert.deepEqual([c.kind, c.status], ["execute", "completed"]);
    assert.match(c.title, /echo one two/);
    assert.match(contentOf(c), /one two/);
  },
  async "failed command"(w) {
    const s = await w.session();
    const turn = await s.prompt("run ls no-such-file");
    const c = turn.call("Bash");
    assert.equal(c.status, "failed");
    assert.match(contentOf(c), /No such file/);
  },
  async "parallel calls with results out of order"(w) {
    const s = await w.session({ meta: allowed("Bash") });
    const turn = await s.prompt(script([
      [call("Bash", { command: "sleep 2; echo slow", description: "slow" }), call("Bash", { command: "echo fast", description: "fast" })],
      [{ say: "both" }],
    ]));
    const results = turn.calls.map((c) => [c.rawInput.description, c.status, contentOf(c).match(/slow|fast/)?.[0]]);
    assert.deepEqual(results, [["slow", "completed", "slow"], ["fast", "completed", "fast"]]);
    const agents = await s.prompt(script([[
      call("Agent", { description: "slow", prompt: "run sleep 2", subagent_type: "general-purpose", run_in_background: false }),
      call("Agent", { description: "fast", prompt: "say quick", subagent_type: "general-purpose", run_in_background: false }),
    ], [{ say: "both" }]]));
    const names = new Map(agents.calls.filter((c) => c.name === "Agent").map((c) => [c.toolCallId, c.rawInput.description]));
    const order = agents.of("tool_call_update").filter((u) => u.status === "completed" && names.has(u.toolCallId)).map((u) => names.get(u.toolCallId));
    assert.deepEqual(order, ["fast", "slow"], "the results come as they are ready");
  },
  async "image result"(w) {
    writeFileSync(`${w.dir}/dot.png`, Buffer.from(dot, "base64"));
    const s = await w.session();
    const c = (await s.prompt(`read ${w.dir}/dot.png`)).call("Read");
    const image = c.content.find((x) => x.type === "content" && x.content.type === "image");
    assert.ok(image, JSON.stringify(c.content));
    assert.equal(image.content.mimeType, "image/png");
  },
  async "todo list as plan"(w) {
    const s = await w.session({ meta: { env: { CLAUDE_CODE_ENABLE_TASKS: "0", ANTHROPIC_MODEL: "claude-sonnet-4-5" } } });
    const turn = await s.prompt(script([
      [call("TodoWrite", todos("in_progress", "pending"))], [call("TodoWrite", todos("completed", "in_progress"))], [{ say: "ok" }],
    ]));
    assert.deepEqual(turn.of("plan").at(-1)?.entries, wantedPlan);
    assert.equal(turn.of("plan").length, 2);
  },
  async "tasks as plan"(w) {
    const s = await w.session({ meta: { env: { CLAUDE_CODE_ENABLE_TASKS: "1", ANTHROPIC_MODEL: "claude-sonnet-4-5" } } });
    const turn = await s.prompt(script([
      [call("TaskCreate", { subject: "First", description: "d" })], [call("TaskCreate", { subject: "Second", description: "d" })],
      [call("TaskUpdate", { taskId: "1", status: "completed" }), call("TaskUpdate", { taskId: "2", status: "in_progress" })], [{ say: "ok" }],
    ]));
    assert.deepEqual(turn.of("plan").at(-1)?.entries, wantedPlan);
  },
  async "commands are listed and run"(w) {
    const s = await w.session();
    const { availableCommands } = await s.until("commands", (u) => u.sessionUpdate === "available_commands_update");
    assert.ok(availableCommands.some((c) => c.name === "context"), availableCommands.map((c) => c.name).join(" "));
    assert.match((await s.prompt("/context")).text, /Context Usage/);
  },
  async "usage with size, tokens and cost"(w) {
    const s = await w.session();
    const turn = await s.prompt(script([[{ usage: [1000, 50, 3000, 200] }, { say: "ok" }]]));
    const last = turn.of("usage_update").at(-1);
    assert.equal(last.used, 4250);
    assert.ok(last.size >= 100_000, `${last.size}`);
    assert.ok(last.cost.amount > 0 && last.cost.currency === "USD");
  },
  async "session title"(w) {
    const s = await w.session();
    const turn = await s.prompt("say a title is made of this");
    const title = turn.of("session_info_update").find((u) => u.title)?.title;
    assert.match(title ?? "", /a title is made/);
    const { sessions } = await s.link.agent.request(methods.agent.session.list, {});
    assert.equal(sessions.find((x) => x.sessionId === s.id)?.title, title);
  },
  async "compaction"(w) {
    const s = await w.session({ capabilities: { session: { compaction: {} } } });
    for (const words of ["remember the sea", "and the sky", "and the wind"]) await s.prompt(`say ${words}`);
    const turn = await s.prompt("/compact");
    assert.deepEqual(turn.of("compaction_update").map((u) => u.status), ["in_progress", "completed"]);
    await s.prompt("say and on");
    const last = (await heard("say and on")).at(-1);
    assert.ok(!last.prompts.includes("say remember the sea"), "the conversation is shorter now");
    assert.match(last.body, /remember the sea/, "and its summary is there");
  },
  async "retry after 429 is noticed"(w) {
    const s = await w.session({ capabilities: notices });
    const turn = await s.prompt(script([[{ fail: 429, times: 1, words: "slow down" }, { say: "done" }]]));
    assert.equal(turn.text, "done");
    assert.match(turn.of("notice")[0]?.title ?? "", /429/);
  },
  async "retry after 529 is a thought without notices"(w) {
    const s = await w.session();
    const turn = await s.prompt(script([[{ fail: 529, times: 1, words: "overloaded" }, { say: "done" }]]));
    assert.equal(turn.text, "done");
    assert.match(turn.thought, /overloaded.*529/);
    assert.equal(turn.of("notice").length, 0);
  },
  async "bad key ends the prompt at once"(w) {
    const s = await w.session();
    const e = await failure(s.begin("fail 401"));
    assert.equal(e.code, -32000, e.all);
    assert.match(e.message, /ANTHROPIC_API_KEY/);
    assert.ok(e.took < 15_000, `${e.took} ms`);
    await s.prompt("say still here");
  },
  async "provider's refusal of a request is quoted"(w) {
    const s = await w.session();
    const e = await failure(s.begin(script([[{ fail: 400, words: "the widget is too wide" }]])));
    assert.equal(e.code, -32603, e.all);
    assert.match(e.message, /the widget is too wide/);
    assert.doesNotMatch(JSON.stringify(s.updates.filter((u) => u.sessionUpdate === "agent_message_chunk")), /widget/);
    assert.equal((await s.prompt("say next")).text, "next");
  },
  async "max_tokens"(w) {
    const s = await w.session();
    const turn = await s.prompt("stop max_tokens", "max_tokens");
    assert.match(turn.text, /so far/);
  },
  async "refusal"(w) {
    const s = await w.session();
    await s.prompt("stop refusal", "refusal");
  },
  async "max turns"(w) {
    const s = await w.session({ meta: { agentSpecific: { claude: { maxTurns: 1 } } } });
    await s.prompt(script(Array.from({ length: 5 }, (_, i) => [call("Bash", { command: `echo ${i}` })])), "max_turn_requests");
  },
  async "cancel while streaming"(w) {
    const s = await w.session();
    const turn = s.begin("forever");
    await s.untilText("tick 3");
    const end = await cancelled(s, turn);
    const numbers = end.text.match(/\d+/g).map(Number);
    assert.ok(numbers.every((n, i) => n === i + 1), `each once, in order: ${end.text.slice(-200)}`);
    assert.equal((await s.prompt("say after")).text, "after");
  },
  async "cancel while a tool runs"(w) {
    writeFileSync(`${w.dir}/long.sh`, `setsid sh -c 'echo $$ > ${w.dir}/pid; exec sleep 1000'\n`);
    const s = await w.session({ meta: allowed("Bash(sh:*)") });
    const turn = s.begin(`run sh ${w.dir}/long.sh`);
    const pid = Number(await eventually("the tool's process", () => existsSync(`${w.dir}/pid`) ? readFileSync(`${w.dir}/pid`, "utf8").trim() : "", Boolean));
    assert.ok(alive(pid));
    const end = await cancelled(s, turn);
    assert.equal(end.call("Bash").status, "failed");
    await dies(pid);
    assert.equal((await s.prompt("say after")).text, "after");
  },
  async "cancel while a permission is open"(w) {
    const s = await w.session();
    let answer;
    s.answer = () => new Promise((resolve) => { answer = resolve; });
    const turn = s.begin(`run touch ${w.dir}/never`);
    await s.untilAsked();
    await cancelled(s, turn);
    answer({ outcome: { outcome: "selected", optionId: "allow" } }); // too late
    assert.equal((await s.prompt("say after")).text, "after");
    assert.ok(!existsSync(`${w.dir}/never`));
  },
  async "cancel when idle"(w) {
    const s = await w.session();
    await s.cancel();
    assert.equal((await s.prompt("say fine")).text, "fine");
    await s.cancel();
    assert.equal((await s.prompt("say again")).text, "again");
  },
  async "a second prompt waits"(w) {
    const s = await w.session();
    const first = s.begin(script([[{ say: "one " }, { gate: "second prompt" }, { say: "two " }]]));
    await s.untilText("one ");
    const second = s.begin("say three");
    await openGate("second prompt");
    const ends = await Promise.all([first, second]);
    assert.deepEqual(ends.map((t) => t.stopReason), ["end_turn", "end_turn"]);
    assert.equal(ends[1].text, "two three"); // from when it was sent
  },
  async "a turn that nobody prompted"(w) {
    const s = await w.session({ meta: allowed("Bash") });
    const background = call("Bash", { command: "sleep 1; echo over", description: "Wait", run_in_background: true });
    const turn = await s.prompt(script([[background], [{ say: "started " }]], [[background], [{ say: "it is over " }, { gate: "unprompted" }, { say: "now " }]]));
    assert.equal(turn.text, "started ");
    await s.untilText("it is over ");
    const next = s.begin("say next");
    await openGate("unprompted");
    assert.equal((await next).stopReason, "end_turn");
    const all = s.updates.filter((u) => u.sessionUpdate === "agent_message_chunk").map((u) => u.content.text).join("");
    assert.equal(all, "started it is over now next");
    assert.equal(callsOf(s.updates)[0].status, "completed");
  },
  async "image, resource and link in a prompt"(w) {
    const s = await w.session();
    const turn = await s.prompt([
      { type: "text", text: "say I looked at attachments" },
      { type: "image", data: dot, mimeType: "image/png" },
      { type: "resource", resource: { uri: "file:///w/notes.md", mimeType: "text/markdown", text: "EMBEDDED TEXT" } },
      { type: "resource_link", name: "linked.go", uri: "file:///w/linked.go" },
    ]);
    assert.match(turn.text, /I looked/);
    const { body } = (await heard("say I looked at attachments"))[0];
    for (const part of [dot, "EMBEDDED TEXT", "linked.go"]) assert.ok(body.includes(part), `${part.slice(0, 20)} is missing`);
  },
  async "subagent belongs to its call"(w) {
    const s = await w.session();
    const turn = await s.prompt(script([
      [call("Agent", { description: "Look", prompt: script([[{ say: "looking" }, call("Bash", { command: "echo by-sub" })], [{ say: "the report" }]]), subagent_type: "general-purpose", run_in_background: false })],
      [{ say: "delegated" }],
    ]));
    const parent = turn.call("Agent");
    const child = turn.call("Bash");
    assert.equal(ownOf(child).parentToolCallId, parent.toolCallId);
    assert.deepEqual([parent.status, child.status], ["completed", "completed"]);
    assert.match(contentOf(parent), /the report/);
    assert.equal(turn.text, "delegated");
  },
  async "permission inside a subagent"(w) {
    const s = await w.session({ answer: choose("allow_once") });
    const turn = await s.prompt(script([
      [call("Agent", { description: "Touch", prompt: `run touch ${w.dir}/by-sub`, subagent_type: "general-purpose", run_in_background: false })],
      [{ say: "delegated" }],
    ]));
    const parent = turn.call("Agent");
    assert.equal(turn.asked.length, 1);
    assert.equal(ownOf(turn.asked[0].params.toolCall).parentToolCallId, parent.toolCallId);
    assert.equal(turn.call("Bash").toolCallId, turn.asked[0].params.toolCall.toolCallId);
    assert.ok(existsSync(`${w.dir}/by-sub`));
  },
};
