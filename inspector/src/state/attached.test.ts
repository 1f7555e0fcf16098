import { expect, test } from "vitest";
import { Attached } from "./attached.js";
import type { Client } from "./gateway.js";

/** A client, and what it was asked; its detaching goes on until it is let. */
function world() {
  const said: string[] = [];
  let release = () => {};
  const client = { detachSession: (id: string) => (said.push(`detach ${id}`), new Promise<void>((resolve) => (release = resolve))) } as unknown as Client;
  const held = new Attached();
  const opening = () => {
    let answer!: () => void;
    let refuse!: (error: Error) => void;
    const answered = new Promise<void>((resolve, reject) => ([answer, refuse] = [resolve, reject]));
    return { resume: () => (said.push("resume"), answered), answer, refuse: () => refuse(new Error("refused")) };
  };
  /** What it was asked by now. */
  const told = () => new Promise<string[]>((resolve) => setTimeout(() => resolve(said.splice(0))));
  return { client, held, opening, told, release: () => release() };
}

test("a session that two need is let go when both have left it", async () => {
  const { client, held, opening, told } = world();
  const [inbox, conversation] = [{}, {}];
  const one = opening();
  const opened = held.open(client, "s", inbox, one.resume);
  const joined = held.join(client, "s", conversation);
  one.answer();
  await opened;
  expect(await joined).toBe(true);
  await held.leave(client, "s", inbox);
  expect(await told()).toEqual(["resume"]);
  expect(held.has(client, "s")).toBe(true);
  void held.leave(client, "s", conversation);
  expect(await told()).toEqual(["detach s"]);
  expect(held.has(client, "s")).toBe(false);
});

test("who leaves while the session is opened leaves nothing attached, and who opens it anew waits for that", async () => {
  const { client, held, opening, told, release } = world();
  const [first, second] = [opening(), opening()];
  const opened = held.open(client, "s", first, first.resume);
  await held.leave(client, "s", first);
  expect(await told()).toEqual(["resume"]);
  first.answer();
  await opened;
  expect(await told()).toEqual(["detach s"]);
  const again = held.open(client, "s", second, second.resume);
  expect(await told()).toEqual([]);
  release();
  expect(await told()).toEqual(["resume"]);
  second.answer();
  await again;
  expect(held.has(client, "s")).toBe(true);
});

test("an opening that fails takes the session from nobody else", async () => {
  const { client, held, opening, told } = world();
  const [inbox, conversation, credentials] = [opening(), opening(), opening()];
  const failed = held.open(client, "s", inbox, inbox.resume);
  const opened = held.open(client, "s", conversation, conversation.resume);
  inbox.refuse();
  await expect(failed).rejects.toThrow("refused");
  conversation.answer();
  await opened;
  const more = held.open(client, "s", conversation, credentials.resume); // once more, of an owner that has it
  credentials.refuse();
  await expect(more).rejects.toThrow("refused");
  expect(await told()).toEqual(["resume", "resume", "resume"]);
  expect(held.has(client, "s")).toBe(true);
  void held.leave(client, "s", conversation);
  expect(await told()).toEqual(["detach s"]);
});

test("a session that nobody could open is held by nobody", async () => {
  const { client, held, opening, told } = world();
  const one = opening();
  const failed = held.open(client, "s", one, one.resume);
  one.refuse();
  await expect(failed).rejects.toThrow("refused");
  expect(held.has(client, "s")).toBe(false);
  expect(await told()).toEqual(["resume"]);
});

test.each([true, false])("of two openings of one owner the one that fails takes nothing from the other (the older one fails: %s)", async (older) => {
  const { client, held, opening, told } = world();
  const owner = {};
  const [one, two] = [opening(), opening()];
  const openings = [held.open(client, "s", owner, one.resume), held.open(client, "s", owner, two.resume)];
  const [failed, opened] = older ? openings : openings.toReversed();
  (older ? one : two).refuse();
  await expect(failed).rejects.toThrow("refused");
  (older ? two : one).answer();
  await opened;
  expect(await told()).toEqual(["resume", "resume"]);
  expect(held.has(client, "s")).toBe(true);
});

test("who has joined a session that could not be opened does not have it, and one that is opened once more is waited for", async () => {
  const { client, held, opening, told } = world();
  const [one, two] = [opening(), opening()];
  const owner = {};
  const first = held.open(client, "s", {}, one.resume);
  const joined = held.join(client, "s", owner);
  one.refuse();
  await expect(first).rejects.toThrow("refused");
  expect([await joined, held.has(client, "s")]).toEqual([false, false]);
  const second = held.open(client, "s", {}, two.resume);
  const again = held.join(client, "s", owner);
  two.answer();
  await second;
  expect([await again, held.has(client, "s"), await told()]).toEqual([true, true, ["resume", "resume"]]);
});
