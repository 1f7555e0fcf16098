import type { SessionEvent, SessionUpdate } from "sandbox-agent";
import { expect, test } from "vitest";
import { History } from "./history.js";
import type { ToolItem } from "./items.js";
import { Transcript } from "./transcript.js";

const say = (text: string, messageId?: string): SessionUpdate => ({ sessionUpdate: "agent_message_chunk", content: { type: "text", text }, ...(messageId ? { messageId } : {}) });
const think = (text: string): SessionUpdate => ({ sessionUpdate: "agent_thought_chunk", content: { type: "text", text } });
const user = (text: string): SessionUpdate => ({ sessionUpdate: "user_message_chunk", content: { type: "text", text } });
const child = (update: SessionUpdate, parent: string) => ({ ...update, _meta: { "sandboxagent.dev": { parentToolCallId: parent } } }) as SessionUpdate;

function play(...updates: SessionUpdate[]): Transcript {
  const t = new Transcript();
  for (const update of updates) t.apply(update, 1000);
  return t;
}

const kinds = (t: Transcript) => t.rows.map((r) => r.item.kind);

test("chunks join, and another kind begins another row", () => {
  const t = play(user("hi"), think("a"), think("b"), say("one "), say("two"), say("\n\nthree"));
  expect(kinds(t)).toEqual(["user", "thought", "text", "text"]);
  expect(t.rows.filter((r) => r.item.kind === "text").map((r) => (r.item.kind === "text" ? r.item.segments.all[r.segment]?.text.trim() : ""))).toEqual(["one two", "three"]);
});

test("another message id begins another message", () => {
  expect(kinds(play(say("a", "1"), say("b", "2")))).toEqual(["text", "text"]);
});

test("rows have keys of their own that do not change", () => {
  const t = play(user("hi"), say("one\n\ntwo\n\nthree"));
  const keys = t.rows.map((r) => r.key);
  t.apply(say("\n\nfour"), 1);
  expect(t.rows.slice(0, keys.length).map((r) => r.key)).toEqual(keys);
  expect(new Set(t.rows.map((r) => r.key)).size).toBe(t.rows.length);
});

test("a call is changed in its place, also when its update comes late or first", () => {
  const t = play(
    { sessionUpdate: "tool_call", toolCallId: "1", title: "Read", kind: "read", status: "pending" }, say("meanwhile"),
    { sessionUpdate: "tool_call_update", toolCallId: "1", status: "completed", content: [{ type: "content", content: { type: "text", text: "x" } }] },
    { sessionUpdate: "tool_call_update", toolCallId: "2", title: "Unannounced", status: "in_progress" },
  );
  expect(kinds(t)).toEqual(["tool", "text", "tool"]);
  expect(t.rows[0]?.item).toMatchObject({ title: "Read", status: "completed", content: [{}] });
  expect(t.rows[2]?.item).toMatchObject({ title: "Unannounced", status: "in_progress" });
});

const compaction = (update: object) => ({ sessionUpdate: "compaction_update", compactionId: "c", ...update }) as unknown as SessionUpdate;
const piece = (text: string) => ({ sessionUpdate: "compaction_summary_chunk", compactionId: "c", content: { type: "text", text } }) as unknown as SessionUpdate;

test("a compaction is one row, whatever becomes of it", () => {
  const note = (...updates: SessionUpdate[]) => {
    const t = play(compaction({ status: "in_progress" }), say("meanwhile"), ...updates);
    expect(kinds(t)).toEqual(["note", "text"]);
    return t.rows[0]?.item;
  };
  expect(note()).toMatchObject({ title: "Compacting the conversation" });
  expect(note(piece("They "), piece("talked."), compaction({ status: "completed" }))).toMatchObject({ tone: "info", title: "The conversation was compacted", detail: "They talked." });
  expect(note(piece("They"), compaction({ status: "completed", summary: [{ type: "text", text: "All of it" }] }))).toMatchObject({ detail: "All of it" });
  expect(note(compaction({ status: "completed", _meta: { "sandboxagent.dev": { tokens: { before: 90_000, after: 8000 } } } }))).toMatchObject({ title: "The conversation was compacted, from 90k to 8k tokens" });
  expect(note(compaction({ status: "failed", error: "Too short" }))).toMatchObject({ tone: "warn", title: "The conversation was not compacted", detail: "Too short" });
  expect(note(compaction({ status: "cancelled" }))).toMatchObject({ title: "The compaction was stopped" });
  // The next one is another row.
  expect(kinds(play(compaction({ status: "completed" }), compaction({ status: "in_progress" })))).toEqual(["note", "note"]);
});

test("calls that run when their turn ends go on in the background", () => {
  const call = (toolCallId: string, status: string) => ({ sessionUpdate: "tool_call", toolCallId, title: toolCallId, status }) as SessionUpdate;
  const t = play(user("hi"), call("runs", "in_progress"), call("waits", "pending"), call("done", "completed"), child(call("inner", "in_progress"), "runs"));
  const background = () => t.background.map((item) => item.id);
  expect(background()).toEqual([]); // the turn waits for it
  t.endTurn({ result: { stopReason: "end_turn" } }, 2000);
  expect(background()).toEqual(["runs"]);
  t.apply(user("more"), 3000);
  t.apply(call("second", "in_progress"), 3000);
  expect(background()).toEqual(["runs"]); // of the turn before
  t.apply({ sessionUpdate: "tool_call_update", toolCallId: "runs", title: "Renamed" }, 3000);
  expect(t.background[0]?.title).toBe("Renamed");
  t.apply({ sessionUpdate: "tool_call_update", toolCallId: "runs", status: "failed" }, 4000);
  expect(background()).toEqual([]);
});

test("words that a subagent's call shows are among what the subagent did, once", () => {
  const said = (text: string, all: string) => ({
    sessionUpdate: "tool_call_update", toolCallId: "p", content: [{ type: "content", content: { type: "text", text: all } }],
    _meta: { "sandboxagent.dev": { said: { messageId: "m", text } } },
  }) as SessionUpdate;
  const t = play(
    { sessionUpdate: "tool_call", toolCallId: "p", title: "Delegate", status: "in_progress" },
    said("found ", "found "),
    child({ sessionUpdate: "tool_call", toolCallId: "c", title: "Read", status: "completed" }, "p"),
    said("it", "found it"),
    { sessionUpdate: "tool_call_update", toolCallId: "p", status: "completed", content: [{ type: "content", content: { type: "text", text: "it" } }, { type: "content", content: { type: "text", text: "The report" } }] },
  );
  const item = t.rows[0]?.item as ToolItem;
  expect(item.children.map((c) => (c.kind === "tool" ? c.title : c.segments.whole))).toEqual(["found ", "Read", "it"]);
  expect(item.content).toEqual([{ type: "content", content: { type: "text", text: "The report" } }]);
});

test("a subagent's calls and words are in the call that started it", () => {
  const t = play(
    { sessionUpdate: "tool_call", toolCallId: "p", title: "Task", status: "in_progress" },
    child({ sessionUpdate: "tool_call", toolCallId: "c", title: "Read", status: "pending" }, "p"),
    child(say("found "), "p"), child(say("it"), "p"),
    child({ sessionUpdate: "tool_call_update", toolCallId: "c", status: "completed" }, "p"),
    child({ sessionUpdate: "tool_call", toolCallId: "d", title: "Deeper", status: "pending" }, "c"),
    say("done"),
  );
  expect(kinds(t)).toEqual(["tool", "text"]);
  const { children } = t.rows[0]?.item as ToolItem;
  expect(children).toMatchObject([{ kind: "tool", status: "completed", children: [{ title: "Deeper" }] }, { kind: "text" }]);
  expect(children[1]?.kind === "text" && children[1].segments.all[0]?.text).toBe("found it");
});

test("a plan is changed in its place, and each turn has its own", () => {
  const plan = (status: string): SessionUpdate => ({ sessionUpdate: "plan", entries: [{ content: "step", priority: "medium", status }] }) as SessionUpdate;
  const t = play(user("a"), plan("pending"), say("x"), plan("completed"));
  t.endTurn({}, 2000);
  t.apply(user("b"), 3000);
  t.apply(plan("pending"), 3000);
  expect(kinds(t)).toEqual(["user", "plan", "text", "turn", "user", "plan"]);
  expect(t.rows[1]?.item).toMatchObject({ entries: [{ status: "completed" }] });
});

test("the page's own prompt is not shown again when it comes back", () => {
  const t = new Transcript();
  t.prompt([{ type: "text", text: "hello" }], 1);
  t.apply(user("hello"), 2);
  t.apply(say("hi"), 3);
  t.endTurn({ result: { stopReason: "end_turn" } }, 4);
  t.endTurn({ result: { stopReason: "end_turn" } }, 5);
  expect(kinds(t)).toEqual(["user", "text", "turn"]);
});

test("updates that it does not know are let pass", () => {
  expect(kinds(play({ sessionUpdate: "something_new", x: 1 } as unknown as SessionUpdate, say("a")))).toEqual(["text"]);
});

test("a session's events show each prompt once, and how each turn ended", () => {
  const t = new Transcript();
  const history = new History(t);
  let seq = 0;
  const event = (direction: SessionEvent["direction"], message: object) => history.add({ seq: ++seq, direction, time: new Date(seq * 1000).toISOString(), message: { jsonrpc: "2.0", ...message } as never });
  const update = (u: SessionUpdate) => ({ method: "session/update", params: { sessionId: "s", update: u } });
  for (const text of ["first", "second"]) {
    event("client", { id: text, method: "session/prompt", params: { sessionId: "s", prompt: [{ type: "text", text }] } });
    event("gateway", update(user(text)));
    event("agent", update(say(`answer to ${text}`)));
    if (text === "first") event("gateway", { method: "_sandboxagent/session/turn_ended", params: { sessionId: "s", result: { stopReason: "end_turn" } } });
    event("agent", { id: text, result: { stopReason: text === "first" ? "end_turn" : "cancelled" } });
  }
  event("agent", { id: "first", result: { modes: {} } }); // the answer to something else
  expect(kinds(t)).toEqual(["user", "text", "turn", "user", "text", "turn"]);
  expect(t.rows.flatMap((r) => (r.item.kind === "turn" ? [[r.item.stopReason, r.item.tookMs]] : []))).toEqual([["end_turn", 2000], ["cancelled", 2000]]);
});

test("a hundred thousand updates take no more than a second or two", () => {
  const t = new Transcript();
  const began = performance.now();
  t.apply(user("go"), 0);
  for (let i = 0; i < 100_000; i++) {
    t.place = i;
    if (i % 100 === 0) t.apply({ sessionUpdate: "tool_call", toolCallId: `t${i}`, title: "x", status: "completed" }, i);
    else t.apply(i % 100 < 20 ? think("thought ") : say(i % 10 === 0 ? "\n\nnew " : "word "), i);
  }
  expect(performance.now() - began).toBeLessThan(5000);
  expect(t.updates).toBe(100_001);
  expect(new Set(t.rows.map((r) => r.key)).size).toBe(t.rows.length);
});

test("a permission in the log is shown with its answer, and the wait for it is no time of the tool", () => {
  const t = new Transcript();
  const history = new History(t);
  const log = (seq: number, second: number, direction: SessionEvent["direction"], message: object) => history.add({ seq, time: new Date(second * 1000).toISOString(), direction, message: { jsonrpc: "2.0", ...message } } as SessionEvent);
  const update = (u: object) => ({ method: "session/update", params: { sessionId: "s", update: u } });
  log(1, 0, "agent", update({ sessionUpdate: "tool_call", toolCallId: "rm", title: "rm -r", status: "pending" }));
  log(2, 1, "agent", { id: 1, method: "session/request_permission", params: { sessionId: "s", toolCall: { toolCallId: "rm" }, options: [{ optionId: "n", kind: "reject_once", name: "Keep it" }] } });
  expect((t.rows[0]!.item as ToolItem).asked).toEqual({ since: 1000, waitedMs: 0, answer: undefined });
  log(3, 9, "client", { id: 1, result: { outcome: { outcome: "selected", optionId: "n" } } });
  log(4, 10, "agent", update({ sessionUpdate: "tool_call_update", toolCallId: "rm", status: "failed" }));
  expect(t.rows[0]!.item).toMatchObject({ endedAt: 10_000, asked: { since: undefined, waitedMs: 8000, answer: { kind: "reject_once", name: "Keep it" } } });
  // Ids of clients' requests are others: an answer to a prompt answers nothing that was asked.
  log(5, 11, "client", { id: 2, method: "session/prompt", params: { prompt: [] } });
  log(6, 12, "agent", { id: 2, method: "_sandboxagent/session/request_question", params: { questions: [{ id: "q", question: "Which?" }] } });
  log(7, 13, "client", { id: 2, result: { outcome: "answered", answers: [["this"]] } });
  log(8, 14, "agent", { id: 2, result: { stopReason: "end_turn" } });
  expect(t.rows.filter((r) => r.item.kind === "note").map((r) => (r.item.kind === "note" ? r.item.title : ""))).toEqual(["Which? this"]);
});
