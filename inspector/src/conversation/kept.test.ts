import { NotConnectedError } from "sandbox-agent";
import { expect, test } from "vitest";
import { ended, framesAtOnce, said, settled, text, waits, world } from "./fake-gateway.js";

framesAtOnce();

test("the same words as before, which do not arrive, are not lost, also where the session was read anew meanwhile", async () => {
  const { client, turns, happen, open } = world();
  happen(said("yes"));
  happen(ended);
  const { conversations, conversation } = await open();
  client.state = "reconnecting";
  conversation.send(text("yes"));
  await conversation.again();
  expect([conversations.unsent, waits(conversation)]).toEqual([true, []]);
  turns[0]!.fail(new NotConnectedError());
  await settled();
  expect([waits(conversation), conversation.get().held, conversation.draft.text]).toEqual([["yes"], true, ""]);
});

test("a prompt that arrived is not taken back when its turn fails after the session was read anew", async () => {
  const { client, turns, happen, open } = world();
  const { conversation } = await open();
  client.state = "reconnecting";
  conversation.send(text("yes"));
  happen(said("yes"));
  await conversation.again();
  turns[0]!.fail(new NotConnectedError());
  await settled();
  expect([waits(conversation), conversation.draft.text, conversation.unsent]).toEqual([[], "", []]);
});

test("what was kept is let go when the session tells of it, in its history or later", async () => {
  for (const early of [true, false]) {
    const { client, happen, open } = world();
    happen(said("yes"));
    happen(ended);
    const { conversations, conversation } = await open();
    client.state = "reconnecting";
    conversation.send(text("yes"));
    conversation.send(text("and then"));
    conversations.save();
    if (early) happen(said("yes"));
    client.state = "open";
    const { conversation: after } = await open();
    expect(waits(after)).toEqual(early ? ["and then"] : ["yes", "and then"]);
    if (!early) happen(said("yes"));
    await settled();
    expect([waits(after), after.get().held]).toEqual([["and then"], true]);
  }
});

test("what was put into the storage is taken out of it when it has arrived, or goes out of the queue", async () => {
  const { client, turns, happen, stored, open } = world();
  const { conversations, conversation } = await open();
  client.state = "reconnecting";
  conversation.send(text("one"));
  conversation.send(text("two"));
  conversations.save();
  expect(stored.get("waiting")).toMatch(/one.*two/);
  client.state = "open";
  happen(said("one"));
  await settled();
  expect(stored.get("waiting")).not.toContain("one");
  happen(ended);
  turns[0]!.end();
  await settled();
  expect([turns.length, stored.get("waiting")]).toEqual([2, undefined]);
});

test("who detaches while the connection is broken gets back what was not sent, and nothing else", async () => {
  const { client, turns, open } = world();
  const { conversations, conversation } = await open();
  client.state = "reconnecting";
  conversation.send(text("one"));
  conversation.send(text("two"));
  await conversations.forget("s");
  client.state = "open";
  turns[0]!.fail(new NotConnectedError()); // it was sent, and then detached
  await settled();
  expect(conversation.draft.text).toBe("two");
});
