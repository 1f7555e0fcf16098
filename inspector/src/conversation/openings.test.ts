import { AcpRpcError, ConnectionLostError, META, NotConnectedError, ProblemError, type SessionInfo } from "sandbox-agent";
import { expect, test, vi } from "vitest";
import type { Client } from "../state/gateway.js";
import type { Ask } from "../state/inbox.js";
import { longestMs } from "../state/retry.js";
import { answer, ended, framesAtOnce, long, said, settled, shown, text, waits, world } from "./fake-gateway.js";

framesAtOnce();

const told = (gateway: ReturnType<typeof world>, state: string): SessionInfo => ({ ...gateway.info, state, updatedAt: state } as unknown as SessionInfo);

test("a turn that ends while the past is read is over, and what waits is sent", async () => {
  const { conversation, hold, happen, turns } = await long();
  expect([conversation.get().running, conversation.get().earlier > 0]).toEqual([true, true]);
  conversation.send(text("next"));
  const go = hold("request", "sessionEvents");
  const read = conversation.readEarlier();
  happen(ended);
  go();
  await read;
  await settled();
  expect([shown(conversation)[0], turns.length, waits(conversation)]).toEqual(["first", 1, []]);
});

test.each(["again", "readEarlier"] as const)("a prompt that is sent while the session is read (%s) stays, and is not lost when it fails", async (way) => {
  for (const [error, kept] of [[new NotConnectedError(), ["P"]], [new AcpRpcError(-32603, "It cannot start."), []]] as const) {
    const { conversation, hold, happen, turns } = await long();
    happen(ended);
    const go = hold("request", "sessionEvents");
    const read = conversation[way]();
    await settled();
    conversation.send(text("P"));
    go();
    await read;
    await settled();
    expect([shown(conversation).at(-1), conversation.get().running]).toEqual(["P", true]);
    turns[0]!.fail(error);
    await settled();
    expect([waits(conversation), conversation.get().held, conversation.get().running]).toEqual([kept, kept.length > 0, false]);
    if (kept.length === 0) expect(shown(conversation).slice(-2)).toEqual(["P", "It cannot start."]);
  }
});

test("a prompt that the session tells of while it is read stands there once", async () => {
  const { conversation, hold, happen, turns } = await long();
  happen(ended);
  const [request, late] = [hold("request", "sessionEvents"), hold("answer", "sessionEvents")];
  const read = conversation.readEarlier();
  conversation.send(text("P"));
  for (const early of [true, false]) {
    if (early) happen(said("P"));
    else happen(answer("yes"));
    (early ? request : late)();
    await settled();
  }
  await read;
  happen(ended);
  turns[0]!.end();
  await settled();
  expect(shown(conversation).slice(-3)).toEqual(["P", "yes", "end"]);
});

test("of two openings the older one's answer changes nothing", async () => {
  const { conversation, hold, happen } = await long();
  const resumed = hold("answer", "resumeSession");
  const first = conversation.again();
  await settled();
  const page = hold("answer", "sessionEvents");
  const second = conversation.again();
  await settled();
  happen(answer("one "));
  resumed();
  await first;
  happen(answer("two "));
  const resume = hold("request", "resumeSession");
  page();
  await settled();
  happen(answer("three"));
  resume();
  await second;
  await settled();
  expect(shown(conversation).at(-1)).toBe("one two three");
});

test("credentials that are taken while the past is read tear no hole", async () => {
  const { conversation, hold, happen } = await long();
  const page = hold("answer", "sessionEvents");
  const read = conversation.readEarlier();
  await settled();
  happen(answer("one "));
  await conversation.giveCredentials({});
  happen(answer("two "));
  page();
  await read;
  await settled();
  expect([shown(conversation)[0], shown(conversation).at(-1)]).toEqual(["first", "one two "]);
});

test("a turn whose prompt was too long ago to be shown can be stopped, and says how it ended; one that was interrupted does not come back with the past", async () => {
  const gateway = world();
  gateway.happen(said("first"));
  const work = () => gateway.happen({ sessionUpdate: "agent_thought_chunk", messageId: "t", content: text("…")[0] as never });
  for (let i = 0; i < 3500; i++) work();
  const { conversation } = await gateway.open();
  expect([conversation.get().running, conversation.send(text("next")), waits(conversation)]).toEqual([true, true, ["next"]]);
  conversation.unqueue(1);
  gateway.happen({ sessionUpdate: "state_update", state: "idle", stopReason: "error", error: { code: -32603, message: "It broke." } });
  await settled();
  expect([conversation.get().running, shown(conversation).at(-1)]).toEqual([false, "It broke."]);
  gateway.happen(said("second"));
  for (let i = 0; i < 3500; i++) work();
  gateway.tell({ sessionUpdate: "state_update", state: "idle" }); // its gateway was killed
  await settled();
  expect(conversation.get().running).toBe(false);
  await conversation.readEarlier();
  await settled();
  expect([conversation.get().running, shown(conversation)[0]]).toEqual([false, "first"]);
});

test("in version 1 a turn that ends while the past is read does not come back, and neither modes nor what is asked are forgotten", async () => {
  for (const ends of [true, false]) {
    const { client, happen, end, hold, log, open } = world();
    client.acpVersion = 1;
    const modes = { currentModeId: "ask", availableModes: [{ id: "ask", name: "Ask" }] };
    client.resumeSession = async () => ({ result: { modes, _meta: { [META]: { turn: "running" } } }, continuity: "native", unsupported: [] });
    log("client", { jsonrpc: "2.0", id: 1, method: "session/prompt", params: { prompt: text("first") } });
    for (let i = 0; i < 3500; i++) happen({ sessionUpdate: "agent_thought_chunk", content: text("…")[0] as never });
    happen({ sessionUpdate: "tool_call", toolCallId: "c", title: "Serve", status: "in_progress" });
    const { conversation } = await open();
    const asked = { kind: "question", id: 7, at: 0, sessionId: "s", toolCallId: undefined, request: { sessionId: "s", questions: [{ question: "Which?" }] }, answer: () => {} } as unknown as Ask;
    conversation.asked(asked);
    expect([conversation.get().doing, conversation.get().earlier > 0]).toEqual(["requires_action", true]);
    const go = hold("answer", "sessionEvents");
    const read = conversation.readEarlier();
    await settled();
    if (ends) end();
    go();
    await read;
    await settled();
    expect(conversation.get().options.map((o) => o.id)).toEqual(["mode"]);
    conversation.answered(asked, { outcome: "cancelled" });
    happen({ sessionUpdate: "current_mode_update", currentModeId: "ask" } as never);
    happen({ sessionUpdate: "tool_call_update", toolCallId: "c", status: "completed" });
    await settled();
    expect([shown(conversation)[0], conversation.get().doing, conversation.get().running]).toEqual(["first", ends ? "idle" : "running", !ends]);
    expect(conversation.get().options.map((o) => o.id)).toEqual(["mode"]);
  }
});

test("a session that is told to be open again is opened once", async () => {
  const gateway = world();
  const { client, info, hold, open } = gateway;
  info.state = "closed";
  const { conversation } = await open();
  expect(conversation.get().phase).toBe("reading");
  info.state = "idle";
  let resumes = 0;
  const { resumeSession } = client;
  client.resumeSession = (params) => (resumes++, resumeSession(params));
  const resumed = hold("answer", "resumeSession");
  conversation.seen(told(gateway, "idle"), true);
  conversation.seen(told(gateway, "dormant"), true);
  await settled();
  resumed();
  await settled();
  expect([resumes, conversation.get().phase]).toEqual([1, "live"]);
});

test("a session whose process was ended, and that cannot be opened again, says that it is closed", async () => {
  const gateway = world();
  const { client, info, failures, open } = gateway;
  const { conversation } = await open();
  client.closeSession = async () => {
    info.state = "closed";
    conversation.seen(told(gateway, "closed"), true);
  };
  failures.set("resumeSession", new AcpRpcError(-32603, "It cannot start."));
  await expect(conversation.endProcess()).rejects.toThrow("It cannot start.");
  expect(conversation.get().phase).toBe("reading");
});

test("a prompt that is refused when nobody shows its session becomes what is being written, and one that was begun does not", async () => {
  for (const begun of [false, true]) {
    const { conversations, conversation, turns, happen } = { ...(await long()) };
    happen(ended);
    conversation.send(text("P"));
    await conversations.forget("s");
    if (begun) happen(said("P"));
    turns[0]!.fail(new AcpRpcError(-32603, "It cannot start."));
    await settled();
    expect(conversation.draft.text).toBe(begun ? "" : "P");
  }
});

test("a session that has not told of what was sent is not let go for others", async () => {
  const { conversations, conversation, happen } = await long();
  happen(ended);
  conversation.send(text("P"));
  for (let i = 0; i < 8; i++) conversations.open(`other ${i}`);
  expect(conversations.peek("s")).toBe(conversation);
  happen(said("P"));
  await settled();
  conversations.open("other 8");
  expect(conversations.peek("s")).toBeUndefined();
  for (let i = 0; i < 8; i++) {
    const other = conversations.open(`other ${i}`);
    await settled();
    other.send(text(`P ${i}`));
  }
  const last = conversations.open("other 9"); // also where all others have something to send
  expect(conversations.peek("other 9")).toBe(last);
  await settled();
});

test("an agent that works by itself and is stopped has stopped", async () => {
  const { happen, open } = world();
  const { conversation } = await open();
  happen({ sessionUpdate: "state_update", state: "running" });
  await conversation.stop();
  expect([conversation.get().running, conversation.get().stopping]).toEqual([false, true]);
  happen({ sessionUpdate: "state_update", state: "idle" });
  expect([conversation.get().doing, conversation.get().stopping]).toEqual(["idle", false]);
});

/** Does something that waits before it is tried again, in no time. */
async function overAPause<T>(run: () => Promise<T>): Promise<T> {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  const done = run();
  await vi.advanceTimersByTimeAsync(longestMs);
  vi.useRealTimers();
  return await done;
}

/** Errors that pass: of a proxy, of a connection that broke in the middle of a request, and of a gateway that is about to be started again. */
const passing = [
  new ProblemError({ type: "about:blank", title: "Bad Gateway", status: 502 }),
  new ConnectionLostError("closed", "the connection was lost", { sessions: [], unanswered: [] }),
  new AcpRpcError(-32603, "the gateway is shutting down", { type: "urn:sandbox-agent:error:unavailable" }),
];

test("an error that passes ends no opening, and what was shown stays", async () => {
  const { conversation, failures, happen } = await long();
  const words: string[] = [];
  for (const kind of ["session", "sessionEvents", "resumeSession"] as const) {
    for (const error of passing) {
      failures.set(kind, error);
      const phases = new Set<string>();
      const off = conversation.subscribe(() => void phases.add(conversation.get().phase));
      await overAPause(() => conversation.again());
      off();
      expect([conversation.get().phase, failures.size, [...phases]]).toEqual(["live", 0, ["live"]]);
      words.push(`${kind} `);
      happen(answer(words.at(-1)!));
    }
  }
  await settled();
  expect(shown(conversation).at(-1)).toBe(words.join(""));
});

test.each(passing)("a session that is opened while this is said is open with the next try: %s", async (error) => {
  const gateway = world();
  gateway.happen(said("first"));
  for (const kind of ["session", "resumeSession"] as const) {
    gateway.failures.set(kind, error);
    const { conversation } = await overAPause(() => gateway.open());
    await settled();
    expect([conversation.get().phase, shown(conversation)]).toEqual(["live", ["first"]]);
  }
});

test.each(passing)("a session that another client has opened again is open here, too, also where this is said first: %s", async (error) => {
  const gateway = world();
  gateway.info.state = "closed";
  const { conversation } = await gateway.open();
  gateway.info.state = "idle";
  gateway.failures.set("resumeSession", error);
  await overAPause(async () => conversation.seen(told(gateway, "idle"), true));
  await settled();
  expect(conversation.get().phase).toBe("live");
});

test("a session that is closed again, before its opening is tried once more, stays closed", async () => {
  const gateway = world();
  gateway.info.state = "closed";
  const { conversation } = await gateway.open();
  gateway.info.state = "idle";
  gateway.failures.set("resumeSession", passing[1]!);
  let resumes = 0;
  const { resumeSession } = gateway.client;
  gateway.client.resumeSession = (params) => (resumes++, resumeSession(params));
  await overAPause(async () => {
    conversation.seen(told(gateway, "idle"), true);
    await vi.advanceTimersByTimeAsync(0);
    gateway.info.state = "closed";
    conversation.seen({ ...told(gateway, "closed"), updatedAt: "later" }, true);
  });
  await settled();
  expect([conversation.get().phase, resumes]).toEqual(["reading", 1]);
});

test("a session that is shown and cannot be taken up says why, as long as it is so, and an agent that hangs is not started again and again", async () => {
  for (const type of ["insufficient_storage", "timeout"]) {
    const { client, conversation } = await long();
    const left = [1, 2, 3];
    const refused = {
      ...client,
      resumeSession: async (params: { after: number }) => {
        if (left.shift()) throw new AcpRpcError(-32603, "It is not so.", { type: `urn:sandbox-agent:error:${type}` });
        return client.resumeSession(params);
      },
    };
    const seen: unknown[] = [];
    const off = conversation.subscribe(() => void seen.push([conversation.get().phase, conversation.get().problem].join()));
    const opened = overAPause(() => conversation.open(refused as unknown as Client));
    await opened;
    off();
    expect(new Set(seen)).toEqual(new Set(type === "timeout" ? ["live,", "failed,It is not so."] : ["live,", "live,It is not so."]));
    expect([conversation.get().phase, conversation.get().problem, left.length]).toEqual(type === "timeout" ? ["failed", "It is not so.", 2] : ["live", undefined, 0]);
  }
});

test("a session that cannot be taken up is read once, however often that is tried, and what is sent meanwhile waits for it", async () => {
  const { client, conversation, happen, pages, turns } = await long();
  happen(ended);
  await settled();
  const full = () => new AcpRpcError(-32603, "The disk is full.", { type: "urn:sandbox-agent:error:insufficient_storage" });
  const left = [1, 2, 3];
  const refused = {
    ...client,
    resumeSession: async (params: { after: number }) => {
      if (left.shift()) throw full();
      return client.resumeSession(params);
    },
    prompt: () => (left.length > 0 ? Promise.reject(full()) : client.prompt()),
  };
  pages.length = 0;
  let read = 0;
  await overAPause(async () => {
    const opened = conversation.open(refused as unknown as Client);
    await vi.advanceTimersByTimeAsync(600);
    expect([conversation.get().problem, left.length]).toEqual(["The disk is full.", 1]);
    read = pages.length;
    conversation.send(text("keep me"));
    client.state = "closed"; // nobody tells of this
    happen(said("meanwhile"));
    happen(answer("it was done"));
    happen(ended);
    client.state = "open";
    expect(waits(conversation)).toEqual(["keep me"]);
    return opened;
  });
  await settled();
  expect([read > 0, pages.length, conversation.get().phase, conversation.get().problem]).toEqual([true, read, "live", undefined]);
  expect([shown(conversation).slice(-4), waits(conversation), turns.length]).toEqual([["meanwhile", "it was done", "end", "keep me"], [], 1]);
});

test("a session that is not there is not asked for again", async () => {
  const { conversation, failures } = await long();
  failures.set("session", new ProblemError({ type: "about:blank", title: "Not Found", status: 404 }));
  await conversation.again();
  expect(conversation.get().phase).toBe("failed");
});

test("an answer about a session that is older than another one, or than its opening, is not taken", async () => {
  const { conversation, info, hold } = await long();
  info.state = "closed";
  const late = hold("answer", "session");
  const old = conversation.refresh();
  await settled();
  info.state = "idle";
  await conversation.reopen();
  late();
  await old;
  await settled();
  expect([conversation.get().phase, conversation.get().info?.state]).toEqual(["live", "idle"]);
});

test("an answer that is given while the past is read, or elsewhere while the page connects anew, stands there once", async () => {
  for (const anew of [false, true]) {
    const { client, conversation, hold, log, happen } = await long();
    const request = { sessionId: "s", questions: [{ question: "Which?" }], _meta: { [META]: { seq: 5006 } } };
    const asked = { kind: "question", id: 7, at: 0, sessionId: "s", toolCallId: undefined, request, answer: () => {} } as unknown as Ask;
    log("agent", { jsonrpc: "2.0", id: "x", method: "_sandboxagent/session/request_question", params: request });
    conversation.asked(asked);
    const go = hold("request", "sessionEvents");
    const read = anew ? conversation.open({ ...client } as unknown as Client) : conversation.readEarlier();
    const result = { outcome: "answered", answers: [["This one"]] };
    log("client", { jsonrpc: "2.0", id: "x", result });
    happen(answer("so be it"));
    if (!anew) conversation.answered(asked, result);
    go();
    await read;
    await settled();
    if (anew) conversation.answered(asked, undefined); // not asked any more, as the gateway says
    await settled();
    expect(shown(conversation).slice(-2)).toEqual(["Which? This one", "so be it"]);
    expect(shown(conversation).filter((words) => words === "Which? This one")).toHaveLength(1);
  }
});

test("the past that is asked for while the session is about to be read goes before that, and nothing that comes meanwhile is lost", async () => {
  const { conversation, hold, happen, turns } = await long();
  happen(ended);
  await settled();
  const [told, page] = [hold("answer", "session"), hold("answer", "sessionEvents")];
  const again = conversation.again();
  await settled();
  conversation.send(text("P"));
  const earlier = conversation.readEarlier();
  await settled();
  turns[0]!.fail(new AcpRpcError(-32603, "It cannot start."));
  told();
  await settled();
  happen(said("fourth"));
  happen(ended);
  page();
  await Promise.all([again, earlier]);
  await settled();
  expect([shown(conversation)[0], ...shown(conversation).slice(-2), conversation.get().running]).toEqual(["first", "fourth", "end", false]);
});

test("a mistake of the page while it reads a session is said, and not tried again; one in what comes takes nothing of what comes behind it", async () => {
  const reported: unknown[] = [];
  vi.stubGlobal("reportError", (error: unknown) => reported.push(error));
  const { conversation, hold, happen } = await long();
  happen(ended);
  const page = hold("answer", "sessionEvents");
  const again = conversation.again();
  await settled();
  happen({ sessionUpdate: "available_commands_update", availableCommands: 7 } as never);
  happen(said("fourth"));
  page();
  await again;
  await settled();
  expect([shown(conversation).at(-1), reported.map(String)]).toEqual(["fourth", [expect.stringContaining("TypeError")]]);
  await conversation.again();
  expect([conversation.get().phase, conversation.get().problem]).toEqual(["failed", expect.any(String)]);
});

test.each(["session", "resumeSession"] as const)("a session that another client closes while it is taken up anew is not opened again by an answer of before (%s)", async (late) => {
  const gateway = await long();
  const { client, conversation, info, hold } = gateway;
  let resumes = 0;
  const { resumeSession } = client;
  client.resumeSession = (params) => (resumes++, resumeSession(params));
  const go = hold("answer", late);
  const again = conversation.again();
  await settled();
  info.state = "closed";
  conversation.seen(told(gateway, "closed"), true);
  go();
  await again;
  await settled();
  expect([conversation.get().phase, conversation.get().info?.state, resumes]).toEqual(["reading", "closed", late === "session" ? 0 : 1]);
});
