import type { SessionEvent } from "sandbox-agent";
import { expect, test } from "vitest";
import { History } from "./history.js";
import type { Item, TextItem, ToolItem } from "./items.js";
import { Raise } from "./raise.js";
import { Transcript } from "./transcript.js";
import type { Update } from "./updates.js";

const text = (words: string) => ({ type: "text", text: words });
const say = (words: string, messageId = "m"): Update => ({ sessionUpdate: "agent_message_chunk", messageId, content: text(words) });
const think = (words: string, messageId = "t"): Update => ({ sessionUpdate: "agent_thought_chunk", messageId, content: text(words) });
const user = (words: string, messageId = `u-${words}`): Update => ({ sessionUpdate: "user_message", messageId, content: [text(words)] });
const call = (toolCallId: string, rest: Partial<Update> = {}): Update => ({ sessionUpdate: "tool_call_update", toolCallId, ...rest });
const state = (doing: string, rest: Partial<Update> = {}): Update => ({ sessionUpdate: "state_update", state: doing, ...rest });
const ended = state("idle", { stopReason: "end_turn" });
const base64 = (words: string) => btoa(words);

/** An update, or one of another session: a subagent. */
type Step = Update | readonly [session: string, update: Update];

function play(...steps: Step[]): Transcript {
  const t = new Transcript("S");
  for (const step of steps) "sessionUpdate" in step ? t.apply(step, 1000) : t.apply(step[1], 1000, step[0]);
  return t;
}

const kinds = (t: Transcript) => t.rows.map((r) => r.item.kind);
const words = (t: Transcript) => t.rows.flatMap(({ item, segment }) => (item.kind === "text" ? [item.segments.all[segment]?.text.trim()] : []));

test("chunks join, and another kind begins another row", () => {
  const t = play(user("hi"), think("a"), think("b"), say("one "), say("two"), say("\n\nthree"));
  expect(kinds(t)).toEqual(["user", "thought", "text", "text"]);
  expect(words(t)).toEqual(["one two", "three"]);
});

test("messages are told apart by their ids", () => {
  expect(words(play(say("one", "1"), say("two", "2")))).toEqual(["one", "two"]);
  // One that goes on behind a call is shown where it goes on.
  expect(kinds(play(say("one", "1"), call("c"), say("two", "1")))).toEqual(["text", "tool", "text"]);
});

test("a message that is told whole takes the place of what it was", () => {
  const whole = (said: string, messageId = "m"): Update => ({ sessionUpdate: "agent_message", messageId, content: [text(said)] });
  expect(words(play(say("one"), whole("one and more"), say("!")))).toEqual(["one and more!"]);
  expect(words(play(say("one"), whole("another")))).toEqual(["another"]);
  expect(words(play(whole("one"), whole("one"), whole("one")))).toEqual(["one"]);
  // Others follow it, and keep their places: what comes for them later finds them.
  const t = play(say("first"), call("c", { title: "Read" }), say("more", "m"), call("d", { title: "Write" }), whole("a\n\nb\n\nc"), call("c", { status: "completed" }), say("end", "n"), call("d", { status: "failed" }));
  expect(t.rows.map(({ item }) => (item.kind === "tool" ? item.title + item.status : item.kind))).toEqual(["text", "text", "text", "Readcompleted", "Writefailed", "text"]);
  expect(words(t)).toEqual(["a", "b", "c", "end"]);
  expect(new Set(t.rows.map((r) => r.key)).size).toBe(t.rows.length);
  // A replay begins each message empty.
  const anew: Update = { sessionUpdate: "agent_message", messageId: "m", content: [] };
  expect(words(play(say("one"), anew, say("one")))).toEqual(["one"]);
  const replayed = play(say("one"), call("c"), say("two", "n"), anew, say("on"), say("e"), call("c"), { ...anew, messageId: "n" }, say("two", "n"), say("!", "n"));
  expect(kinds(replayed)).toEqual(["text", "tool", "text"]);
  expect(words(replayed)).toEqual(["one", "two!"]);
});

test("a thought that is told whole is one row", () => {
  const t = play(think("a"), say("x"), { sessionUpdate: "agent_thought", messageId: "t", content: [text("b")] });
  expect(kinds(t)).toEqual(["thought", "text"]);
  expect((t.rows[0]!.item as TextItem).segments.whole).toBe("b");
});

test("long texts are cut, and nothing of them is lost", () => {
  const long = Array.from({ length: 500 }, (_, i) => `paragraph ${i}\n\n`).join("");
  const t = play(say(long));
  expect(t.rows.length).toBeGreaterThan(10);
  expect((t.rows[0]!.item as TextItem).segments.whole).toBe(long);
});

test("calls change in their place, also unannounced ones", () => {
  const t = play(call("1", { title: "Read", kind: "read", status: "pending" }), say("meanwhile"), call("1", { status: "completed", content: [{ type: "content", content: text("x") }] }), call("2", { title: "Unannounced", status: "in_progress" }));
  expect(kinds(t)).toEqual(["tool", "text", "tool"]);
  expect(t.rows[0]?.item).toMatchObject({ title: "Read", status: "completed", content: [{}] });
  expect(t.rows[2]?.item).toMatchObject({ title: "Unannounced", status: "in_progress" });
});

test("what a call is not told stays, null clears, and content may come in pieces", () => {
  const item = (...steps: Step[]) => play(...steps).rows[0]!.item as ToolItem;
  expect(item(call("1", { title: "a", rawInput: 1 }), call("1", { title: null }))).toMatchObject({ title: "", rawInput: 1 });
  expect(item(call("1", { content: [{ type: "content", content: text("a") }] }), { sessionUpdate: "tool_call_content_chunk", toolCallId: "1", content: { type: "content", content: text("b") } }).content).toHaveLength(2);
  expect(item(call("1", { status: "cancelled" })).status).toBe("cancelled");
  expect(item(call("1", { status: "paused" })).status).toBe("in_progress");
});

test("a patch is shown as what each file was and is", () => {
  const content = (t: Transcript) => (t.rows[0]!.item as ToolItem).content;
  const patch = "diff --git /w/a.ts /w/a.ts\n--- /w/a.ts\n+++ /w/a.ts\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n\\ No newline at end of file\n";
  expect(content(play(call("1", { content: [{ type: "diff", changes: [{ operation: "modify", path: "/w/a.ts" }], patch: { format: "git_patch", text: patch } }] })))).toEqual([{ type: "diff", path: "/w/a.ts", oldText: "one\ntwo\n", newText: "one\nthree", change: { operation: "modify", path: "/w/a.ts" } }]);
  expect(content(play(call("1", { content: [{ type: "diff", changes: [{ operation: "delete", path: "/w/b" }, { operation: "move", oldPath: "/w/c", path: "/w/d" }] }] })))).toEqual([{ type: "change", change: { operation: "delete", path: "/w/b" } }, { type: "change", change: { operation: "move", path: "/w/d", from: "/w/c" } }]);
  // What the patch shows stands at its change, and the others are told of, too; so is what only the patch has.
  const some = `${patch}diff --git /w/new /w/new\nnew file mode 100644\n--- /dev/null\n+++ /w/new\n@@ -0,0 +1 @@\n+x\n`;
  expect(content(play(call("1", { content: [{ type: "diff", changes: [{ operation: "delete", path: "/w/b" }, { operation: "modify", path: "/w/a.ts" }, { operation: "copy", oldPath: "/w/c", path: "/w/d", fileType: "binary" }], patch: { format: "git_patch", text: some } }] })))).toMatchObject([
    { type: "change", change: { operation: "delete", path: "/w/b" } },
    { type: "diff", path: "/w/a.ts", change: { operation: "modify" } },
    { type: "change", change: { operation: "copy", path: "/w/d", from: "/w/c", fileType: "binary" } },
    { type: "diff", path: "/w/new", oldText: undefined, newText: "x\n", change: { operation: "add" } },
  ]);
  expect(content(play(call("1", { content: [{ type: "diff", changes: [{ operation: "modify", path: "/w/b" }], patch: { format: "_own", text: "b: x" } }] })))).toMatchObject([{ type: "change" }, { content: { text: "b: x" } }]);
});

test("a command's output is in the call that shows its terminal, whichever comes first", () => {
  const shows = call("1", { title: "npm test", content: [{ type: "content", content: text("x") }, { type: "terminal", terminalId: "T" }] });
  const begins: Update = { sessionUpdate: "terminal_update", terminalId: "T", command: "npm test", output: { data: base64("one ") } };
  const more: Update = { sessionUpdate: "terminal_output_chunk", terminalId: "T", data: base64("two") };
  const ends: Update = { sessionUpdate: "terminal_update", terminalId: "T", exitStatus: { exitCode: 2 } };
  const output = { type: "output", terminalId: "T", text: "one two", exitCode: 2 };
  for (const steps of [[shows, begins, more, ends], [begins, shows, more, ends], [begins, more, ends, shows]]) expect((play(...steps).rows[0]!.item as ToolItem).content[1]).toEqual(output);
  // Nobody has told of it: it is another client's.
  expect((play(shows).rows[0]!.item as ToolItem).content[1]).toEqual({ type: "terminal", terminalId: "T" });
  // Bytes of a letter may come apart, and of what is long the end is kept.
  const letter = [btoa("\xe2\x82"), btoa("\xac")];
  expect((play(shows, begins, { ...more, data: letter[0]! }, { ...more, data: letter[1]! }).rows[0]!.item as ToolItem).content[1]).toMatchObject({ text: "one €" });
  const long = play(shows, begins, ...Array.from({ length: 40 }, () => ({ ...more, data: base64("x".repeat(10_000)) })));
  expect(((long.rows[0]!.item as ToolItem).content[1] as { text: string }).text.length).toBeLessThanOrEqual(256 << 10);
});

const compaction = (rest: object) => ({ sessionUpdate: "compaction_update", compactionId: "c", ...rest }) as Update;
const piece = (said: string): Update => ({ sessionUpdate: "compaction_summary_chunk", compactionId: "c", content: text(said) });

test("a compaction is one row, whatever becomes of it", () => {
  const note = (...updates: Update[]) => {
    const t = play(compaction({ status: "in_progress" }), say("meanwhile"), ...updates);
    expect(kinds(t)).toEqual(["note", "text"]);
    return t.rows[0]?.item;
  };
  expect(note()).toMatchObject({ title: "Compacting the conversation" });
  expect(note(piece("They "), piece("talked."), compaction({ status: "completed" }))).toMatchObject({ tone: "info", title: "The conversation was compacted", detail: "They talked." });
  expect(note(piece("They"), compaction({ status: "completed", summary: [text("All of it")] }))).toMatchObject({ detail: "All of it" });
  expect(note(compaction({ status: "completed", _meta: { "sandboxagent.dev": { tokens: { before: 90_000, after: 8000 } } } }))).toMatchObject({ title: "The conversation was compacted, from 90k to 8k tokens" });
  expect(note(compaction({ status: "failed", error: "Too short" }))).toMatchObject({ tone: "warn", title: "The conversation was not compacted", detail: "Too short" });
  expect(note(compaction({ status: "cancelled" }))).toMatchObject({ title: "The compaction was stopped" });
  // The next one is another row.
  expect(kinds(play(compaction({ status: "completed" }), compaction({ status: "in_progress" })))).toEqual(["note", "note"]);
});

test("what goes on in the background has the names of its calls, subagents and commands", () => {
  const background = [{ type: "tool_call", toolCallId: "runs" }, { type: "subagent", sessionId: "S.sub" }, { type: "terminal", terminalId: "T" }, { type: "newer" }];
  const t = play(user("hi"), call("runs", { title: "Build" }), call("sub", { title: "Review" }), { sessionUpdate: "subagent_update", sessionId: "S.sub", _meta: { "sandboxagent.dev": { toolCallId: "sub" } } }, { sessionUpdate: "terminal_update", terminalId: "T", command: "npm test" });
  const names = () => t.background.map((item) => item.title);
  expect(names()).toEqual([]);
  t.apply(state("idle", { stopReason: "end_turn", background }), 2000);
  expect(names()).toEqual(["Build", "Review", "npm test", "newer"]);
  // What can be ended by itself says so, and may say otherwise later.
  expect(t.background.map((item) => item.stop)).toEqual([undefined, undefined, undefined, undefined]);
  const can = { capabilities: { cancel: {} } };
  t.apply(call("runs", can), 2500);
  t.apply({ sessionUpdate: "terminal_update", terminalId: "T", ...can }, 2500);
  t.apply({ sessionUpdate: "subagent_update", sessionId: "S.sub", ...can }, 2500);
  t.apply(state("idle", { background }), 2500);
  expect(t.background.map((item) => item.stop)).toEqual([{ kind: "tool_call", toolCallId: "runs" }, { kind: "subagent", sessionId: "S.sub" }, { kind: "terminal", terminalId: "T" }, undefined]);
  t.apply(call("runs", { capabilities: null }), 2600);
  expect(t.background[0]!.stop).toBeUndefined();
  t.apply(call("runs", { title: "Renamed" }), 3000);
  expect(names()[0]).toBe("Renamed");
  t.apply(state("idle"), 4000);
  expect(names()).toEqual([]);
});

test("a subagent's words and calls are in the call that shows it, whoever it works for", () => {
  const begins = (sessionId: string, toolCallId: string): Update => ({ sessionUpdate: "subagent_update", sessionId, title: toolCallId, _meta: { "sandboxagent.dev": { toolCallId } } });
  const t = play(
    call("p", { title: "Task", status: "in_progress" }), begins("S.p", "p"),
    ["S.p", call("c", { title: "Read", status: "pending" })], ["S.p", say("found ", "w")], ["S.p", say("it", "w")],
    ["S.p", call("c", { status: "completed" })],
    ["S.p", call("q", { title: "Deeper", status: "in_progress" })], ["S.p", begins("S.q", "q")], ["S.q", say("deep", "x")],
    ["S.p", { sessionUpdate: "agent_message", messageId: "w", content: [text("found nothing")] }],
    call("p", { status: "completed", content: [{ type: "content", content: text("found nothing") }, { type: "content", content: text("The report") }] }),
    say("done"),
  );
  expect(kinds(t)).toEqual(["tool", "text"]);
  const item = t.rows[0]!.item as ToolItem;
  expect(item.children).toMatchObject([{ title: "Read", status: "completed" }, { kind: "text" }, { title: "Deeper", children: [{ kind: "text" }] }]);
  expect((item.children[1] as TextItem).segments.whole).toBe("found nothing");
  expect(item.content).toEqual([{ type: "content", content: text("The report") }]); // its words are among what it did
});

test("a subagent that no call shows is shown as one, also when its beginning is not read", () => {
  const made = play({ sessionUpdate: "subagent_update", sessionId: "other", title: "Explore", state: { state: "running" } }, ["other", say("words", "w")], { sessionUpdate: "subagent_update", sessionId: "other", state: { state: "idle", stopReason: "error" } });
  expect(made.rows[0]!.item).toMatchObject({ kind: "tool", title: "Explore", status: "failed", children: [{ kind: "text" }] });
  const known = new Transcript("S");
  known.knows("other", "S", "call-of-version-1");
  for (const state of [{ state: "running" }, { state: "idle", stopReason: "end_turn" }]) known.apply({ sessionUpdate: "subagent_update", sessionId: "other", title: "Explore", state }, 1);
  expect(known.rows.map((r) => r.item)).toMatchObject([{ kind: "tool", title: "Explore", status: "completed" }]);
  const late = play(["S.gone", say("words", "w")]);
  expect(late.rows[0]!.item).toMatchObject({ kind: "tool", id: "gone", title: "Subagent" });
  expect([late.has("S"), late.has("S.gone"), late.has("Sx"), late.has("other"), made.has("other")]).toEqual([true, true, false, false, true]);
});

test("what is no amount is not shown as one, and a notice without words not at all", () => {
  const usage = (used: unknown, size: unknown) => ({ sessionUpdate: "usage_update", used, size }) as Update;
  expect(play(usage("many", -5)).usage).toBeUndefined();
  expect(play(usage(10, 200), usage("many", -5), usage(20, Infinity)).usage).toMatchObject({ used: 20, size: 200 });
  const notice = (title: string, description?: string): Update => ({ sessionUpdate: "notice", severity: "info", title, ...(description === undefined ? {} : { description }) });
  expect(play(notice(""), notice(" ", "It is asked again."), notice("Busy", "Wait.")).rows.map((r) => r.item)).toMatchObject([{ title: "It is asked again.", detail: undefined }, { title: "Busy", detail: "Wait." }]);
  const spent = { totalTokens: 1, inputTokens: "x", outputTokens: 1 } as unknown as NonNullable<Update["usage"]>;
  expect(play(user("a"), state("running"), state("idle", { stopReason: "end_turn", usage: spent })).rows.at(-1)?.item).toMatchObject({ kind: "turn", usage: undefined });
});

test("a plan is changed in its place, each turn has its own, and one can be taken back", () => {
  const plan = (status: string, planId = "p"): Update => ({ sessionUpdate: "plan_update", plan: { type: "items", planId, entries: [{ content: "step", status }] } });
  const t = play(user("a"), plan("pending"), say("x"), plan("completed"), plan("pending", "other"), ended, user("b"), plan("pending"));
  expect(kinds(t)).toEqual(["user", "plan", "text", "plan", "turn", "user", "plan"]);
  expect(t.rows[1]?.item).toMatchObject({ entries: [{ status: "completed" }] });
  expect(play(plan("pending"), { sessionUpdate: "plan_removed", planId: "p" }).rows[0]?.item).toMatchObject({ entries: [] });
  expect(play({ sessionUpdate: "plan_update", plan: { type: "markdown", planId: "p", content: "# Do it" } }).rows[0]?.item).toMatchObject({ entries: [], document: { type: "markdown", text: "# Do it" } });
  // A plan may be a document, and become a list of steps; of other kinds it is said that they are there.
  const documents = [{ type: "file", planId: "p", uri: "file:///w/plan.md" }, { type: "_board", planId: "p" }] as const;
  expect(documents.map((plan) => play({ sessionUpdate: "plan_update", plan }).rows[0]?.item)).toMatchObject([{ document: { type: "file", uri: "file:///w/plan.md" } }, { document: { type: "unknown", name: "_board" } }]);
  expect(play({ sessionUpdate: "plan_update", plan: documents[0] }, plan("pending")).rows.map((r) => r.item)).toMatchObject([{ entries: [{ content: "step" }], document: undefined }]);
});

test("the page's own prompt is not shown again when the session tells of it", () => {
  const t = new Transcript("S");
  t.prompt([{ type: "text", text: "hello" }], 1);
  expect([t.unconfirmed, t.turnOpen]).toEqual([true, true]);
  t.apply(state("idle"), 1); // of before
  t.apply(user("hello"), 2);
  expect([t.unconfirmed, t.turnOpen]).toEqual([false, true]);
  t.apply(say("hi"), 3);
  t.apply(ended, 4);
  t.apply(ended, 5);
  expect(kinds(t)).toEqual(["user", "text", "turn"]);
  t.apply(user("hello"), 6); // replayed
  expect(kinds(t)).toEqual(["user", "text", "turn"]);
});

test("what comes before the session tells of the page's own prompt stands before it", () => {
  const t = play(user("first"), say("one"), ended);
  t.prompt([text("mine") as never], 1);
  t.note("warn", "forgotten", undefined, 1);
  t.apply(call("other"), 1);
  t.apply(user("mine"), 1);
  t.apply(say("two", "m2"), 1);
  t.apply(call("other", { title: "Changed" }), 1);
  expect(kinds(t)).toEqual(["user", "text", "turn", "note", "tool", "user", "text"]);
  expect((t.rows[4]!.item as ToolItem).title).toBe("Changed");
  expect(words(t)).toEqual(["one", "two"]);
});

test("a prompt that never began has its end from the page", () => {
  const t = new Transcript("S");
  t.prompt([{ type: "text", text: "hello" }], 1);
  t.over({ error: { code: -32000, message: "log in" } }, 2);
  expect(t.rows.at(-1)?.item).toMatchObject({ kind: "turn", error: "log in", code: -32000 });
  expect(t.unconfirmed).toBe(false);
});

test("the state is what the session says", () => {
  const t = play(user("a"), state("running"));
  expect([t.doing, t.turnOpen]).toEqual(["running", true]);
  t.apply(state("requires_action"), 2);
  expect([t.doing, t.turnOpen]).toEqual(["requires_action", true]);
  t.apply(state("idle", { stopReason: "error", error: { code: -32603, message: "it broke" }, usage: { totalTokens: 3, inputTokens: 1, outputTokens: 2 } }), 3);
  expect([t.doing, t.turnOpen, t.ending]).toEqual(["idle", false, "error"]);
  expect(t.rows.at(-1)?.item).toMatchObject({ kind: "turn", error: "it broke", usage: { outputTokens: 2 } });
  t.apply(state("running"), 4); // the agent works by itself
  expect([t.doing, t.turnOpen]).toEqual(["running", false]);
  // Nobody has seen how the turn ended.
  expect(play(user("a"), state("idle")).turnOpen).toBe(false);
});

test("updates that it does not know are let pass", () => {
  expect(kinds(play({ sessionUpdate: "something_new" }, say("a")))).toEqual(["text"]);
});

test("a hundred thousand updates take no more than a second or two", () => {
  const t = new Transcript("S");
  const began = performance.now();
  t.apply(user("go"), 0);
  for (let i = 0; i < 100_000; i++) {
    t.place = i;
    if (i % 100 === 0) t.apply(call(`t${i}`, { title: "x", status: "completed" }), i);
    else t.apply(i % 100 < 20 ? think("thought ", `t${i - (i % 100)}`) : say(i % 10 === 0 ? "\n\nnew " : "word ", `m${i - (i % 100)}`), i);
  }
  expect(performance.now() - began).toBeLessThan(5000);
  expect(t.updates).toBe(100_001);
  expect(new Set(t.rows.map((r) => r.key)).size).toBe(t.rows.length);
});

// What follows is of version 1: it comes out as the same conversation.

interface Old { readonly sessionUpdate: string; readonly [name: string]: unknown }
const oldSay = (said: string, messageId?: string): Old => ({ sessionUpdate: "agent_message_chunk", content: text(said), ...(messageId ? { messageId } : {}) });
const oldUser = (said: string): Old => ({ sessionUpdate: "user_message_chunk", content: text(said) });
const oldCall = (toolCallId: string, rest: object = {}): Old => ({ sessionUpdate: "tool_call", toolCallId, title: toolCallId, ...rest });
const ofChild = (update: Old, parent: string): Old => ({ ...update, _meta: { "sandboxagent.dev": { parentToolCallId: parent } } });

function playOld(...updates: (Old | "end")[]): Transcript {
  const t = new Transcript("S");
  const raise = new Raise("S");
  for (const [i, update] of updates.entries()) {
    for (const told of update === "end" ? raise.ended({ result: { stopReason: "end_turn" } }) : raise.update(update as unknown as Update, i)) t.apply(told.update, 1000 + i, told.sessionId);
  }
  return t;
}

test("version 1: pieces without ids that follow each other are one message", () => {
  const t = playOld(oldUser("hi "), oldUser("there"), oldSay("one "), oldSay("two"), oldCall("c"), oldSay("three"), oldSay("four", "own"), "end", oldUser("more"));
  expect(kinds(t)).toEqual(["user", "text", "tool", "text", "text", "turn", "user"]);
  expect(t.rows[0]!.item).toMatchObject({ blocks: [{ text: "hi there" }] });
  expect(words(t)).toEqual(["one two", "three", "four"]);
});

test("version 1: calls that run when their turn ends go on in the background", () => {
  const t = playOld(oldUser("hi"), oldCall("runs", { status: "in_progress" }), oldCall("waits", { status: "pending" }), oldCall("done", { status: "completed" }), ofChild(oldCall("inner", { status: "in_progress" }), "runs"), "end");
  expect(t.background.map((b) => b.title)).toEqual(["runs"]);
  const over = playOld(oldUser("hi"), oldCall("runs", { status: "in_progress" }), "end", { sessionUpdate: "tool_call_update", toolCallId: "runs", status: "failed" });
  expect(over.background).toEqual([]);
});

test("version 1: what a subagent says and does is in its call, and nothing twice", () => {
  const said = (words: string, all: string): Old => ({ sessionUpdate: "tool_call_update", toolCallId: "p", content: [{ type: "content", content: text(all) }], _meta: { "sandboxagent.dev": { said: { messageId: "m", text: words } } } });
  const t = playOld(
    oldCall("p", { title: "Delegate", status: "in_progress" }), said("found ", "found "), ofChild(oldCall("c", { title: "Read", status: "completed" }), "p"), said("it", "found it"), ofChild(oldCall("d", { title: "Deeper" }), "c"), ofChild(oldSay("done"), "p"),
    { sessionUpdate: "tool_call_update", toolCallId: "p", status: "completed", content: [{ type: "content", content: text("it") }, { type: "content", content: text("The report") }] },
  );
  expect(kinds(t)).toEqual(["tool"]);
  const item = t.rows[0]!.item as ToolItem;
  expect(item.children.map((c) => (c.kind === "tool" ? c.title : c.segments.whole))).toEqual(["found ", "Read", "it", "done"]);
  expect((item.children[1] as ToolItem).children).toMatchObject([{ title: "Deeper" }]);
  expect(item.content).toEqual([{ type: "content", content: text("The report") }]);
});

test("version 1: modes are an option, and plans, diffs and options are those of version 2", () => {
  const raise = new Raise("S");
  const t = new Transcript("S");
  const modes = { currentModeId: "ask", availableModes: [{ id: "ask", name: "Ask" }, { id: "code", name: "Code" }] };
  for (const told of [...raise.opened({ configOptions: [{ id: "model", name: "Model", type: "select", currentValue: "a", options: [] }], modes, running: false }), ...raise.update({ sessionUpdate: "current_mode_update", currentModeId: "code" } as unknown as Update, 1), ...raise.update({ sessionUpdate: "plan", entries: [{ content: "step", status: "pending" }] } as unknown as Update, 2)]) t.apply(told.update, 0, told.sessionId);
  expect(t.configOptions).toMatchObject([{ configId: "mode", currentValue: "code", options: [{ value: "ask" }, { value: "code" }] }, { configId: "model" }]);
  expect(raise.hasMode).toBe(true);
  expect(kinds(t)).toEqual(["plan"]);
  const diff = playOld(oldCall("e", { content: [{ type: "diff", path: "/a", oldText: null, newText: "x" }] })).rows[0]!.item as ToolItem;
  expect(diff.content).toEqual([{ type: "diff", path: "/a", oldText: undefined, newText: "x" }]);
});

test.each([
  { name: "a turn that began", ended: false, seq: 4, running: false, doing: "running" },
  { name: "a turn that began before it", ended: false, seq: 6, running: false, doing: "idle" },
  { name: "a turn that ended", ended: true, seq: 4, running: true, doing: "idle" },
  { name: "a turn that ended before another", ended: true, seq: 6, running: true, doing: "running" },
])("version 1: the answer that opens a session takes back nothing newer: $name", ({ ended, seq, running, doing }) => {
  const raise = new Raise("S");
  const t = new Transcript("S");
  const began = raise.update(oldUser("hi") as unknown as Update, ended ? 3 : 5);
  for (const told of [...began, ...(ended ? raise.ended({ result: { stopReason: "end_turn" } }, 5) : []), ...raise.opened({ running, seq })]) t.apply(told.update, 0, told.sessionId);
  expect(t.doing).toBe(doing);
});

type Log = (seq: number, second: number, direction: SessionEvent["direction"], message: object) => void;
function logged(version: 1 | 2): { t: Transcript; log: Log } {
  const t = new Transcript("s");
  const history = new History(t, version === 1 ? new Raise("s") : undefined);
  return { t, log: (seq, second, direction, message) => history.add({ seq, time: new Date(second * 1000).toISOString(), direction, message: { jsonrpc: "2.0", ...message } } as SessionEvent) };
}
const updateOf = (u: object) => ({ method: "session/update", params: { sessionId: "s", update: u } });

test("version 1: a session's events show each prompt once, and how each turn ended", () => {
  const { t, log } = logged(1);
  let seq = 0;
  const event = (direction: SessionEvent["direction"], message: object) => log(++seq, seq, direction, message);
  for (const said of ["first", "second"]) {
    event("client", { id: said, method: "session/prompt", params: { sessionId: "s", prompt: [text(said)] } });
    event("gateway", updateOf(oldUser(said)));
    event("agent", updateOf(oldSay(`answer to ${said}`)));
    if (said === "first") event("gateway", { method: "_sandboxagent/session/turn_ended", params: { sessionId: "s", result: { stopReason: "cancelled" }, began: false } }); // of one that waited
    if (said === "first") event("gateway", { method: "_sandboxagent/session/turn_ended", params: { sessionId: "s", result: { stopReason: "end_turn" } } });
    event("agent", { id: said, result: { stopReason: said === "first" ? "end_turn" : "cancelled" } });
  }
  event("agent", { id: "first", result: { modes: {} } }); // the answer to something else
  expect(kinds(t)).toEqual(["user", "text", "turn", "user", "text", "turn"]);
  expect(t.rows.flatMap((r) => (r.item.kind === "turn" ? [[r.item.stopReason, r.item.tookMs]] : []))).toEqual([["end_turn", 4000], ["cancelled", 3000]]);
});

test("a permission in the log is shown with its answer, and the wait for it is no time of the tool", () => {
  for (const version of [1, 2] as const) {
    const { t, log } = logged(version);
    const about = version === 1 ? { toolCall: { toolCallId: "rm" } } : { title: "rm -r", subject: { type: "tool_call", toolCall: { toolCallId: "rm" } } };
    log(1, 0, "agent", updateOf(version === 1 ? oldCall("rm", { status: "pending" }) : call("rm", { status: "pending" })));
    log(2, 1, "agent", { id: 1, method: "session/request_permission", params: { sessionId: "s", ...about, options: [{ optionId: "n", kind: "reject_once", name: "Keep it" }] } });
    expect((t.rows[0]!.item as ToolItem).asked).toEqual({ since: 1000, waitedMs: 0, answer: undefined });
    log(3, 9, "client", { id: 1, result: { outcome: { outcome: "selected", optionId: "n" } } });
    log(4, 10, "agent", updateOf({ sessionUpdate: "tool_call_update", toolCallId: "rm", status: "failed" }));
    expect(t.rows[0]!.item).toMatchObject({ endedAt: 10_000, asked: { since: undefined, waitedMs: 8000, answer: { kind: "reject_once", name: "Keep it" } } });
    // Ids of clients' requests are others: an answer to a prompt answers nothing that was asked.
    log(5, 11, "client", { id: 2, method: "session/prompt", params: { prompt: [] } });
    log(6, 12, "agent", { id: 2, method: "_sandboxagent/session/request_question", params: { questions: [{ id: "q", question: "Which?" }] } });
    log(7, 13, "client", { id: 2, result: { outcome: "answered", answers: [["this"]] } });
    expect(t.rows.filter((r) => r.item.kind === "note").map((r) => (r.item as Extract<Item, { kind: "note" }>).title)).toEqual(["Which? this"]);
  }
});

test("what a killed gateway ends has the row that it had, and otherwise none", () => {
  const t = new Transcript("s");
  const ended = (toolCallId: string) => t.apply({ sessionUpdate: "tool_call_update", toolCallId, status: "failed", _meta: { "sandboxagent.dev": { ended: "the gateway was ended meanwhile" } } }, 5);
  t.apply({ sessionUpdate: "subagent_update", sessionId: "s-child", title: "Look around", state: { state: "running" } }, 1);
  t.apply({ sessionUpdate: "tool_call_update", toolCallId: "one", title: "Read", status: "in_progress" }, 2, "s-child");
  t.apply({ sessionUpdate: "tool_call_update", toolCallId: "own", title: "Write", status: "in_progress" }, 3);
  for (const id of ["sa.subagent.s-child", "sa.subagent.s-child.one", "sa.subagent.s-child.never-shown", "sa.asked.1", "own"]) ended(id);
  const rows = t.rows.map(({ item }) => item);
  expect(rows).toMatchObject([
    { title: "Look around", status: "failed", children: [{ title: "Read", status: "failed" }] },
    { title: "Write", status: "failed" },
  ]);
  expect(rows).toHaveLength(2);
});
