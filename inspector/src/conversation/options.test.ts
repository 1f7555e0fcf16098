// Options of a session: what is told of them, and what a person has set and is not answered.
import { AcpRpcError, META } from "sandbox-agent";
import { expect, test, vi } from "vitest";
import type { Conversation } from "./conversation.js";
import { ended, framesAtOnce, long, settled, text, work, world } from "./fake-gateway.js";

framesAtOnce();

/** Options as an agent tells them. */
const model = (...models: string[]) => models.map((currentValue, i) => ({ configId: i === 0 ? "model" : `other ${i}`, name: "Model", type: "select", currentValue, options: [] }));
const current = (conversation: Conversation) => conversation.get().options.map((o) => o.current);
const optionsTold = (name: string) => ({ sessionUpdate: "config_option_update", configOptions: model(name) }) as never;
/** Answers to what sets an option, one after the other. */
function settings(client: object) {
  const answers: { resolve(result: unknown): void; reject(error: Error): void }[] = [];
  Object.assign(client, { setSessionConfigOption: () => new Promise((resolve, reject) => answers.push({ resolve, reject })) });
  return answers;
}

test("an option that was set stays when the past is read, where no event tells of it, and gives way to a newer event", async () => {
  const gateway = world();
  const { client, happen } = gateway;
  happen(optionsTold("A"));
  await work(gateway, 4000);
  const answers = settings(client);
  const { resumeSession } = client;
  client.resumeSession = async (params) => ({ ...(await resumeSession(params)), result: { configOptions: model("A"), _meta: { [META]: { seq: 4001 } } } }) as never;
  const { conversation } = await gateway.open();
  expect(current(conversation)).toEqual(["A"]);
  const set = conversation.setOption(conversation.get().options[0]!, "B");
  answers[0]!.resolve({ configOptions: model("B") });
  await set;
  await conversation.readEarlier();
  await settled();
  expect(current(conversation)).toEqual(["B"]);
  const page = gateway.hold("answer", "sessionEvents");
  const again = conversation.again();
  await settled();
  expect(current(conversation)).toEqual(["B"]);
  happen(optionsTold("C")); // while it is read: what attaches then says how it was before
  page();
  await again;
  await settled();
  expect(current(conversation)).toEqual(["C"]);
});

test("of an option that is told and set while the session is read the later word counts", async () => {
  for (const setLast of [true, false]) {
    const gateway = await long();
    const { client, conversation, happen, hold } = gateway;
    const answers = settings(client);
    happen(optionsTold("A"));
    await settled();
    const page = hold("answer", "sessionEvents");
    const read = conversation.readEarlier();
    await settled();
    const set = conversation.setOption(conversation.get().options[0]!, "B");
    if (setLast) happen(optionsTold("C"));
    answers[0]!.resolve({ configOptions: model("B") });
    await set;
    if (!setLast) happen(optionsTold("C"));
    page();
    await read;
    await settled();
    expect(current(conversation)).toEqual([setLast ? "B" : "C"]);
  }
});

test("what the answer that attaches says of options is not put back by a frame that was still to come", async () => {
  const gateway = world();
  const { client, happen, open } = gateway;
  happen(optionsTold("A"));
  client.resumeSession = async () => ({ result: { configOptions: model("B"), _meta: { [META]: { seq: 1 } } }, continuity: "native", unsupported: [] }) as never;
  const frames: (() => void)[] = [];
  const atOnce = globalThis.requestAnimationFrame;
  vi.stubGlobal("requestAnimationFrame", (run: () => void) => frames.push(run));
  const { conversation } = await open();
  vi.stubGlobal("requestAnimationFrame", atOnce);
  expect([current(conversation), frames.length > 0]).toEqual([["B"], true]);
  for (const frame of frames) frame();
  expect(current(conversation)).toEqual(["B"]);
});

test("of two choices of one option, the second before the first is answered, the one stays that is in force", async () => {
  for (const [first, second, then, last] of [[true, true, "C", "C"], [true, false, "C", "B"], [false, true, "C", "C"], [false, false, "C", "A"]] as const) {
    const gateway = world();
    gateway.happen(optionsTold("A"));
    const answers = settings(gateway.client);
    const { conversation } = await gateway.open();
    const sets = ["B", "C"].map((value) => conversation.setOption(conversation.get().options[0]!, value).catch(() => {}));
    expect(current(conversation)).toEqual(["C"]);
    for (const [i, works] of [first, second].entries()) {
      if (works) answers[i]!.resolve({ configOptions: model(["B", "C"][i]!) });
      else answers[i]!.reject(new AcpRpcError(-32602, "It cannot be set."));
      await sets[i];
      expect(current(conversation)).toEqual([i === 0 ? then : last]);
    }
    gateway.happen(ended);
    await settled();
    expect(current(conversation)).toEqual([last]);
  }
});

test("in version 1 a mode that was set stays, beside options that are set, where no event tells of them", async () => {
  const { client, happen, open } = world();
  client.acpVersion = 1;
  const modes = { currentModeId: "ask", availableModes: [{ id: "ask", name: "Ask" }, { id: "edit", name: "Edit" }] };
  const options = (currentValue: string) => [{ id: "model", name: "Model", currentValue }];
  client.resumeSession = async () => ({ result: { modes, configOptions: options("A") }, continuity: "native", unsupported: [] }) as never;
  Object.assign(client, { setSessionMode: async () => {}, setSessionConfigOption: async () => ({ configOptions: options("B") }) });
  happen({ sessionUpdate: "agent_message_chunk", content: text("hello")[0] as never });
  const { conversation } = await open();
  await conversation.setOption(conversation.get().options[0]!, "edit");
  await conversation.setOption(conversation.get().options[1]!, "B");
  happen({ sessionUpdate: "agent_message_chunk", content: text("more")[0] as never });
  await settled();
  expect(current(conversation)).toEqual(["edit", "B"]);
});

test("in version 1 the mode can be chosen, though newer options are told before the session is attached, and while it is taken up anew", async () => {
  const gateway = world();
  const { client, happen, hold, open } = gateway;
  client.acpVersion = 1;
  const options = (currentValue: string) => ({ sessionUpdate: "config_option_update", configOptions: [{ id: "model", name: "Model", currentValue }] });
  const modes = { currentModeId: "ask", availableModes: [{ id: "ask", name: "Ask" }, { id: "edit", name: "Edit" }] };
  const { resumeSession } = client;
  client.resumeSession = async (params) => ({ ...(await resumeSession(params)), result: { modes, ...options("A"), _meta: { [META]: { seq: 1 } } } }) as never;
  const set: string[] = [];
  Object.assign(client, { setSessionMode: async (_: string, mode: string) => void set.push(mode) });
  happen({ sessionUpdate: "agent_message_chunk", content: text("hello")[0] as never });
  const attaching = hold("answer", "resumeSession");
  const { conversation } = await open();
  happen(options("B"));
  attaching();
  await settled();
  expect(current(conversation)).toEqual(["ask", "B"]);
  happen(options("C"));
  await settled();
  expect(current(conversation)).toEqual(["ask", "C"]);
  for (const kind of ["session", "sessionEvents", "resumeSession"] as const) {
    const go = hold("answer", kind);
    const again = conversation.again();
    await settled();
    const mode = conversation.get().options[0]!;
    await conversation.setOption(mode, mode.current === "ask" ? "edit" : "ask");
    happen(options(kind));
    go();
    await again;
    await settled();
    expect(current(conversation)).toEqual([set.at(-1), kind]);
  }
  expect(set).toEqual(["edit", "ask", "edit"]);
});
