import { AcpRpcError, ConnectionLostError, META, type SessionInfo } from "sandbox-agent";
import { afterEach, expect, test, vi } from "vitest";
import { Attached } from "./attached.js";
import type { Client } from "./gateway.js";
import { Inbox, type Ask } from "./inbox.js";
import { longestMs } from "./retry.js";

afterEach(() => void vi.useRealTimers());

/** A client whose gateway has these events open, by session; undefined is an answer that fails. */
function clientWith(open: () => Record<string, number[] | Error | undefined>) {
  let ask: ((params: unknown, context: { signal: AbortSignal }) => Promise<unknown>) | undefined;
  let state: ((state: string) => void) | undefined;
  let lost: ((lost: { sessionId: string }) => void) | undefined;
  const resumes: string[] = [];
  const refusals: (Error | undefined)[] = []; // of the next ones that attach
  const controllers: AbortController[] = []; // of what is asked
  const client = {
    acpVersion: 2, state: "open",
    resumeSession: async ({ sessionId }: { sessionId: string }) => {
      resumes.push(sessionId);
      const refusal = refusals.shift();
      if (refusal) throw refusal;
    },
    detachSession: async () => {},
    api: { session: async (id: string) => waiting(id, (open()[id] as number[]).length) },
    onSessionLost: (listener: typeof lost) => ((lost = listener), () => {}),
    onPermission: (handler: typeof ask) => ((ask = handler), () => {}),
    onQuestion: () => () => {},
    onState: (listener: typeof state) => ((state = listener), () => {}),
    pendingRequests: async (id: string) => {
      const seqs = open()[id];
      if (!Array.isArray(seqs)) throw seqs ?? new Error("not now");
      return { pending: seqs.map((seq) => ({ seq })) };
    },
  };
  return {
    client: client as unknown as Client,
    resumes, refusals,
    asks: (sessionId: string, seq: number | undefined) => {
      const controller = new AbortController();
      controllers.push(controller);
      return ask!({ sessionId, title: `${sessionId} ${seq}`, options: [], ...(seq === undefined ? {} : { _meta: { [META]: { seq } } }) }, { signal: controller.signal });
    },
    /** The page itself ends the connection, or it cannot be replaced. */
    part: () => {
      client.state = "idle";
      for (const controller of controllers) controller.abort();
    },
    /** The client cannot attach again to what it was attached to. */
    lose: async (sessionId: string) => {
      lost!({ sessionId });
      for (const controller of controllers) controller.abort();
      await settled();
    },
    back: async () => {
      state!("open");
      await new Promise((later) => setTimeout(later));
    },
  };
}

const titleOf = (ask: Ask) => (ask.kind === "permission" ? ask.request.title : "");
const titlesOf = (asks: readonly Ask[]) => asks.map(titleOf);
const waiting = (sessionId: string, pending = 1) => ({ sessionId, cwd: "/", state: pending > 0 ? "waiting" : "idle", pending }) as unknown as SessionInfo;
/** Lets everything happen that waits for nothing. */
const settled = () => new Promise((later) => setTimeout(later));

/** Errors that pass: of a connection that broke in the middle, and of a gateway that is about to be started again. */
const passing = [new ConnectionLostError("closed", "the connection was lost", { sessions: [], unanswered: [] }), new AcpRpcError(-32603, "the gateway is shutting down", { type: "urn:sandbox-agent:error:unavailable" })];

test("after a break the questions go that the gateway has not any more, and the others of their sessions stay", async () => {
  let open: Record<string, number[] | Error | undefined> = {};
  const inbox = new Inbox(new Attached());
  const { client, asks, back } = clientWith(() => open);
  inbox.use(client);
  for (const [session, seq] of [["A", 5], ["A", 9], ["B", 3], ["C", 4], ["D", 6]] as const) void asks(session, seq);
  const titles = () => titlesOf(inbox.get());
  open = { A: [9, 12], B: [], C: new AcpRpcError(-32002, "session not found"), D: undefined };
  await back();
  expect(titles()).toEqual(["A 9", "D 6"]); // of D nobody has said anything
  open = { A: [12], D: [6] };
  await back();
  expect(titles()).toEqual(["D 6"]);
});

test.each(passing)("a session that waits is attached to, though this was said at first: %s", async (error) => {
  for (const way of ["open", "time"]) {
    const { client, resumes, refusals, back } = clientWith(() => ({}));
    const inbox = new Inbox(new Attached());
    inbox.use(client);
    refusals.push(error, ...(way === "time" ? [error, error] : []));
    if (way === "time") vi.useFakeTimers();
    inbox.watch([waiting("A")]); // nothing more is told of it
    if (way === "open") {
      await settled();
      await back();
      await settled();
    } else await vi.advanceTimersByTimeAsync(longestMs);
    expect(resumes).toEqual(way === "open" ? ["A", "A"] : ["A", "A", "A", "A"]);
    vi.useRealTimers();
    await back(); // it is attached now
    expect(resumes).toHaveLength(way === "open" ? 2 : 4);
  }
});

test("a session is not attached to later that waits no more, that cannot be, or that another gateway had", async () => {
  vi.useFakeTimers();
  for (const way of ["waits no more", "cannot be", "another gateway"]) {
    const { client, resumes, refusals } = clientWith(() => ({}));
    const inbox = new Inbox(new Attached());
    inbox.use(client);
    refusals.push(way === "cannot be" ? new AcpRpcError(-32602, "no") : passing[0]);
    inbox.watch([waiting("A")]);
    if (way === "waits no more") inbox.watch([waiting("A", 0)]);
    await vi.advanceTimersByTimeAsync(1);
    if (way === "another gateway") inbox.use(clientWith(() => ({})).client);
    await vi.advanceTimersByTimeAsync(longestMs);
    expect([way, resumes, vi.getTimerCount()]).toEqual([way, ["A"], 0]);
  }
});

test("the inbox attaches to a session by itself, where a conversation was about to and could not", async () => {
  vi.useFakeTimers();
  const { client, resumes } = clientWith(() => ({}));
  const held = new Attached();
  const inbox = new Inbox(held);
  inbox.use(client);
  let refuse!: (error: Error) => void;
  const opened = held.open(client, "A", {}, () => new Promise<void>((_, reject) => (refuse = reject)));
  inbox.watch([waiting("A")]);
  await vi.advanceTimersByTimeAsync(1);
  expect(resumes).toEqual([]);
  refuse(new AcpRpcError(-32603, "not with these credentials"));
  await expect(opened).rejects.toThrow("not with these credentials");
  await vi.advanceTimersByTimeAsync(longestMs);
  expect([resumes, held.has(client, "A")]).toEqual([["A"], true]);
});

/** An inbox, and what it has told of answers. */
function telling() {
  const inbox = new Inbox(new Attached());
  const told: [string, unknown][] = [];
  const asked: [string, boolean][] = [];
  inbox.onAsk = (ask, again) => void asked.push([titleOf(ask), again]);
  inbox.onAnswer = (ask, response) => void told.push([titleOf(ask), response]);
  return { inbox, told, asked };
}

test("what is asked once more on the next connection was not answered meanwhile, and what is not, was, as soon as the gateway says so", async () => {
  const { inbox, told } = telling();
  const first = clientWith(() => ({}));
  inbox.use(first.client);
  for (const [session, seq] of [["A", 5], ["A", 9], ["B", 3], ["B", undefined]] as const) void first.asks(session, seq);
  first.part();
  expect([inbox.get(), told]).toEqual([[], [["B undefined", undefined]]]); // of that one nobody could say which it is
  told.length = 0;
  vi.useFakeTimers();
  let open: Record<string, number[] | Error | undefined> = { A: [9], B: passing[1] };
  const next = clientWith(() => open);
  inbox.use(next.client);
  await vi.advanceTimersByTimeAsync(1);
  expect(told).toEqual([["A 5", undefined]]);
  void next.asks("A", 9);
  expect(titlesOf(inbox.get())).toEqual(["A 9"]);
  open = { B: [3] };
  await vi.advanceTimersByTimeAsync(longestMs);
  expect(told).toEqual([["A 5", undefined]]); // B still asks, and the page is about to be told
  open = { B: [] };
  inbox.watch([waiting("B", 0)]); // somebody else has answered before that
  await vi.advanceTimersByTimeAsync(1);
  expect(told).toEqual([["A 5", undefined], ["B 3", undefined]]);
});

test("an answer that was given and went with its connection is given once more where the same is asked again, and nothing else is answered by it", async () => {
  const { inbox, told, asked } = telling();
  const [first, next] = [clientWith(() => ({})), clientWith(() => ({ A: [5] }))];
  inbox.use(first.client);
  const response = { outcome: { outcome: "selected", optionId: "yes" } } as const;
  for (const seq of [5, undefined]) {
    void first.asks("A", seq);
    const [ask] = inbox.get();
    if (ask?.kind === "permission") ask.answer(response);
  }
  first.part();
  inbox.use(next.client);
  [told.length, asked.length] = [0, 0];
  for (const seq of [6, undefined]) void next.asks("A", seq);
  expect([await next.asks("A", 5), told, asked]).toEqual([response, [["A 5", response]], [["A 6", false], ["A undefined", false], ["A 5", true]]]);
  expect(titlesOf(inbox.get())).toEqual(["A 6", "A undefined"]);
  void next.asks("A", 5); // on the same connection it is asked by somebody who has that answer
  expect(titlesOf(inbox.get())).toEqual(["A 6", "A undefined", "A 5"]);
});

test("of a session that the client has let go of, what is asked stays until the gateway says what became of it", async () => {
  let open: Record<string, number[]> = { A: [1] };
  const held = new Attached();
  const inbox = new Inbox(held);
  const { client, asks, lose, resumes, refusals } = clientWith(() => open);
  const told: [string, boolean | unknown][] = [];
  inbox.onAsk = (ask, again) => void told.push([titleOf(ask), again]);
  inbox.onAnswer = (ask, response) => void told.push([titleOf(ask), response]);
  inbox.use(client);
  inbox.watch([waiting("A")]);
  await settled();
  void asks("A", 1);
  await lose("A");
  expect([resumes, held.has(client, "A"), told]).toEqual([["A", "A"], true, [["A 1", false]]]);
  void asks("A", 1); // as the gateway does for who attaches
  expect([titlesOf(inbox.get()), told.length]).toEqual([["A 1"], 2]);
  open = { A: [] };
  await lose("A");
  expect([titlesOf(inbox.get()), held.has(client, "A"), told.at(-1)]).toEqual([[], false, ["A 1", undefined]]);
  open = { A: [2] };
  refusals.push(new AcpRpcError(-32603, "It cannot be opened."));
  inbox.watch([waiting("A")]);
  await settled();
  expect([resumes.length, held.has(client, "A")]).toEqual([3, false]);
  inbox.watch([waiting("A")]); // it waits once more
  await settled();
  expect([resumes.length, held.has(client, "A")]).toEqual([4, true]);
});
