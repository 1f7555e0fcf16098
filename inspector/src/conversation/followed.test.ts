// A session that is followed for days: how much of it is read, and kept.
import { expect, test } from "vitest";
import type { Conversation } from "./conversation.js";
import { answer, ended, framesAtOnce, said, settled, shown, text, work, world } from "./fake-gateway.js";

framesAtOnce();

const sum = (pages: readonly number[]) => pages.reduce((all, page) => all + page, 0);

test("a session that was followed for long is not read as a whole when it is taken up anew", async () => {
  const gateway = world();
  const { conversation } = await gateway.open();
  await work(gateway, 20_000);
  expect([shown(conversation)[0], sum(gateway.pages)]).toEqual(["w 0", 0]); // it was opened when there was nothing yet
  gateway.pages.length = 0;
  await conversation.again();
  await settled();
  expect([gateway.pages.length, sum(gateway.pages)]).toEqual([6, 6000]);
  expect([shown(conversation)[0], conversation.get().earlier, shown(conversation).at(-3)]).toEqual(["w 14000", 14_000, "w 19000"]);
  await conversation.readEarlier(); // and what was before is there
  await settled();
  expect(shown(conversation)[0]).toBe("w 0");
});

test("of a session that is followed for long the oldest events are let go, and come back when they are asked for", async () => {
  const gateway = world();
  const { happen, pages } = gateway;
  const { conversation } = await gateway.open();
  const kept: number[] = [];
  for (let i = 0; i < 15; i++) {
    await work(gateway, 4000, `${i}`);
    kept.push((i + 1) * 4000 - conversation.get().earlier);
  }
  expect([Math.max(...kept) <= 25_000, sum(pages) < 20_000]).toEqual([true, true]);
  for (let i = 0; i < 3; i++) await conversation.readEarlier();
  await settled();
  expect([shown(conversation)[0], conversation.get().earlier]).toEqual(["0 0", 0]);
  pages.length = 0;
  happen(said("last"));
  happen({ sessionUpdate: "agent_message_chunk", messageId: "l", content: text("the end")[0] as never });
  await settled();
  expect([shown(conversation)[0], ...shown(conversation).slice(-2), pages]).toEqual(["0 0", "last", "the end", []]); // what a person has asked for stays
});

test("events are let go while a turn goes on, of which nothing is lost, nor what goes on besides", async () => {
  const gateway = world();
  const { happen, pages } = gateway;
  const { conversation } = await gateway.open();
  const call = (title: string | undefined, status: string, toolCallId = "build") => happen({ sessionUpdate: "tool_call_update", toolCallId, status, ...(title === undefined ? {} : { title }) });
  const goesOn = () => {
    const { commands, usage, background } = conversation.get();
    return [commands.map(({ name }) => name), usage?.used, background.map(({ title, stop }) => [title, stop?.kind])];
  };
  happen({ sessionUpdate: "available_commands_update", availableCommands: [{ name: "plan" }] });
  happen({ sessionUpdate: "usage_update", used: 10, size: 100 });
  happen(said("serve"));
  happen({ sessionUpdate: "terminal_update", terminalId: "t", command: "npm run dev", capabilities: { cancel: {} } });
  happen({ sessionUpdate: "subagent_update", sessionId: "child", title: "Look around", capabilities: { cancel: {} } });
  call("Stopped with its turn", "in_progress", "left");
  happen({ sessionUpdate: "state_update", state: "idle", stopReason: "end_turn", background: [{ type: "terminal", terminalId: "t" }, { type: "subagent", sessionId: "child" }] });
  happen(said("long"));
  happen({ sessionUpdate: "plan_update", plan: { type: "items", planId: "p", entries: [{ content: "First", status: "pending" }] } });
  call("Build", "in_progress");
  happen({ sessionUpdate: "state_update", state: "running", background: [{ type: "terminal", terminalId: "t" }, { type: "subagent", sessionId: "child" }] });
  await settled();
  const before = goesOn();
  expect(before).toEqual([["plan"], 10, [["npm run dev", "terminal"], ["Look around", "subagent"]]]);
  const busy = async (events: number, words: string) => {
    for (let i = 0; i < events; i++) {
      if (i % 100 === 0) call(`Step ${i}`, "completed", `${words} ${i}`);
      else happen({ sessionUpdate: "agent_thought_chunk", messageId: `${words} ${i - (i % 100)}`, content: text("…")[0] as never });
      if (i % 1000 === 0) await settled();
    }
    call(undefined, "in_progress");
    await settled();
  };
  const build = () => conversation.rows.get().rows.flatMap(({ item }) => (item.kind === "tool" && item.id === "build" ? [[item.title, item.status]] : []));
  await busy(8000, "first");
  await conversation.again();
  await settled();
  expect([goesOn(), build(), conversation.get().earlier]).toEqual([before, [["Build", "in_progress"]], 4]);
  pages.length = 0;
  await busy(24_000, "then");
  happen(answer("one "));
  await settled();
  happen(answer("two"));
  await settled();
  const { earlier, running } = conversation.get();
  expect([pages, earlier > 15_000, running, goesOn(), shown(conversation).slice(0, 4), shown(conversation).at(-1), build()]).toEqual([[], true, true, before, ["tool", "long", "plan", "tool"], "one two", [["Build", "in_progress"]]]);
  call(undefined, "completed");
  happen(ended);
  await settled();
  expect([conversation.get().running, shown(conversation).at(-1), build()]).toEqual([false, "end", [["Build", "completed"]]]);
});

test("what somebody looks at, or has just asked for, is not let go", async () => {
  const gateway = world();
  const { conversation } = await gateway.open();
  await work(gateway, 20_000);
  conversation.looksBack = () => true;
  await work(gateway, 10_000, "more");
  await conversation.again();
  await settled();
  expect([shown(conversation)[0], conversation.get().earlier]).toEqual(["w 0", 0]);
  await work(gateway, 10_000, "more");
  expect(conversation.get().earlier).toBe(0);
  conversation.looksBack = () => false; // it is at its end
  await work(gateway, 1000, "at the end");
  const { earlier } = conversation.get();
  const first = shown(conversation)[0];
  conversation.looksBack = () => true;
  await conversation.again(); // it begins where it began
  await settled();
  expect([shown(conversation)[0], conversation.get().earlier]).toEqual([first, earlier]);
  conversation.looksBack = () => false;
  expect(earlier).toBeGreaterThan(30_000);
  const page = gateway.hold("answer", "sessionEvents");
  const read = conversation.readEarlier();
  await work(gateway, 1000, "meanwhile");
  page();
  await read;
  await work(gateway, 1000, "behind it");
  const asked = conversation.get().earlier;
  expect(asked).toBeLessThan(earlier - 5000);
  await work(gateway, 3000, "and so on");
  expect(conversation.get().earlier).toBe(asked);
  conversation.looksBack = () => true;
  await work(gateway, 230_000);
  expect(conversation.get().earlier).toBeGreaterThan(asked); // the most in any case
});

/** A call, told of by its id. */
const call = (toolCallId: string, status: string, title?: string) => ({ sessionUpdate: "tool_call_update", toolCallId, status, ...(title === undefined ? {} : { title }) });
const calls = (conversation: Conversation) => conversation.rows.get().rows.flatMap(({ item }) => (item.kind === "tool" ? [[item.title, item.status]] : []));

test("what goes on keeps its row where it was begun in the midst of what is read, before the next prompt there", async () => {
  const gateway = world();
  const { happen, log } = gateway;
  const { conversation } = await gateway.open();
  await work(gateway, 14_000);
  happen(call("build", "in_progress", "Build"));
  happen({ sessionUpdate: "state_update", state: "idle", background: [{ type: "tool_call", toolCallId: "build" }] });
  log("client", { jsonrpc: "2.0", id: 1, method: "session/prompt", params: { prompt: text("next") } });
  await work(gateway, 5000, "then");
  happen({ sessionUpdate: "state_update", state: "idle", background: [{ type: "tool_call", toolCallId: "build" }] });
  await settled();
  await conversation.again();
  happen(call("build", "completed"));
  await settled();
  expect(calls(conversation)).toEqual([["Build", "completed"]]);
});

test("who asks for what was before keeps the rows of what goes on, however old they are", async () => {
  const gateway = world();
  const { happen } = gateway;
  const { conversation } = await gateway.open();
  happen(said("long"));
  happen(call("build", "in_progress", "Build"));
  for (let i = 0; i < 45_000; i++) {
    happen({ sessionUpdate: "agent_thought_chunk", messageId: `${i - (i % 100)}`, content: text("…")[0] as never });
    if (i % 1000 === 0) await settled();
  }
  expect(conversation.get().earlier).toBeGreaterThan(35_000);
  await conversation.readEarlier();
  for (const status of ["in_progress", "completed"]) {
    happen(call("build", status));
    await settled();
    expect([conversation.get().earlier, shown(conversation)[0], calls(conversation)]).toEqual([0, "long", [["Build", status]]]);
  }
});
