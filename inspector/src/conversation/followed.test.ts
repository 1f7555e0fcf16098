// A session that is followed for days: how much of it is read, and kept.
import { ProblemError } from "sandbox-agent";
import { expect, test } from "vitest";
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

test("events are let go while a turn goes on, of which nothing is lost, also where that fails at first", async () => {
  const gateway = world();
  const { happen, hold, failures, pages } = gateway;
  const { conversation } = await gateway.open();
  await work(gateway, 24_000);
  failures.set("sessionEvents", new ProblemError({ type: "about:blank", title: "Bad Gateway", status: 502 }));
  happen(said("goes on"));
  await settled();
  expect([failures.size, sum(pages), conversation.get().earlier, shown(conversation)[0]]).toEqual([0, 0, 0, "w 0"]);
  for (let i = 0; i < 6000; i++) happen({ sessionUpdate: "agent_thought_chunk", messageId: "t", content: text("…")[0] as never });
  const page = hold("answer", "sessionEvents");
  await settled();
  happen(answer("one "));
  page();
  await settled();
  happen(answer("two"));
  await settled();
  expect([sum(pages) > 0, conversation.get().earlier > 20_000, conversation.get().running, shown(conversation).at(-1)]).toEqual([true, true, true, "one two"]);
  happen(ended);
  await settled();
  expect([conversation.get().running, shown(conversation).at(-1)]).toEqual([false, "end"]);
});
