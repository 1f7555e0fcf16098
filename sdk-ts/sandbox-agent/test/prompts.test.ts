// Whose turn an update is of, and what ends a prompt, when others have prompts in the session too.
import { Backoff } from "acp-http-client";
import { expect, test } from "vitest";
import { AcpRpcError, NotConnectedError, ProblemError, TurnInterruptedError } from "../src/errors.js";
import { Prompts } from "../src/prompts.js";
import type { Turn } from "../src/turn.js";

/** The prompts of a client of version 1 or 2 in one session, and what came of the one that it sends. */
function client(version: 1 | 2 = 1, oneByOne = false, events: (after: number) => Promise<unknown[] | void> = async () => {}) {
  const prompts = new Prompts(version);
  let answer!: (result: unknown) => void;
  let lose!: () => void;
  let id = "";
  const lost = new Promise<void>((resolve) => (lose = resolve));
  const sent: string[] = [];
  const cancels: (string[] | undefined)[] = []; // of the prompts' own: the ids that they name
  const send = (given?: unknown): Turn<1 | 2> => prompts.add("s", async () => async (_again, ids) => void cancels.push(ids), {
    oneByOne, newest: () => 0, after: () => 0, reached: () => new Promise(() => {}), broken: () => undefined, connected: async () => {}, lost: () => new Promise(() => {}),
    patience: () => new Backoff({ giveUpAfterMs: Infinity, firstDelayMs: 1, maxDelayMs: 20 }, new AbortController().signal), // as a client does
    send: (promptId, onSent) => {
      id = promptId;
      onSent();
      sent.push(promptId);
      const answered = new Promise<{ response: unknown; lost: Promise<void> }>((resolve) => {
        answer = (result) => {
          prompts.answered({ sessionId: "s", promptId }, result);
          resolve({ response: result, lost });
        };
      });
      return Promise.race([answered, lost.then(() => ({ lost: true }) as const)]);
    },
    state: async () => "running",
    events: async (after) => {
      const own = { seq: 1, message: { method: "session/prompt", params: { _meta: { "sandboxagent.dev": { promptId: id } } } } };
      return { events: [...(after < 1 ? [own] : []), ...((await events(after)) ?? [])], hasMore: false } as never;
    },
  }, given);
  const said = (text: string) => prompts.update("s", { sessionUpdate: "agent_message_chunk", content: { type: "text", text } });
  const begins = () => prompts.update("s", { sessionUpdate: "user_message_chunk", content: { type: "text", text: "theirs" }, _meta: { "sandboxagent.dev": { prompt: true } } });
  return { prompts, sent, cancels, send, said, begins, answer: (result: unknown) => answer(result), lose: () => lose() };
}
const cancelled = { stopReason: "cancelled" } as const;
const unbegun = { ...cancelled, _meta: { "sandboxagent.dev": { began: false } } };

test("another client's turn goes on when a prompt that waited for it is cancelled", async () => {
  const { prompts, send, said, begins, answer } = client();
  begins();
  prompts.ended({ sessionId: "s", result: cancelled, began: false });
  const turn = send();
  said("theirs");
  prompts.ended({ sessionId: "s", result: cancelled, began: true });
  said("mine");
  answer({ stopReason: "end_turn" });
  expect((await turn).text).toBe("mine");
});

test.each([["cancelled", unbegun], ["refused", undefined]])("an own prompt that is %s while it waits has nothing of the turn before it", async (_, result) => {
  const { prompts, send, said, begins, answer } = client();
  begins();
  const waits = send();
  said("theirs");
  answer(result ?? undefined);
  if (result) expect(await waits).toMatchObject({ stopReason: "cancelled", text: "" });
  else waits.catch(() => {});
  const turn = send();
  said("theirs, too");
  prompts.ended({ sessionId: "s", result: cancelled, began: true });
  said("mine");
  answer({ stopReason: "end_turn" });
  expect((await turn).text).toBe("mine");
});

test.each(([1, 2] as const).flatMap((version) => (["detached", "deleted"] as const).map((what) => ({ version, what }))))("version $version: a session that is $what leaves no prompt waiting whose connection was lost", async ({ version, what }) => {
  let looks!: () => void;
  const looked = new Promise<void>((resolve) => (looks = resolve));
  const { prompts, send, lose } = client(version, false, async () => looks());
  const turn = send();
  const ended = expect(turn).rejects.toThrow(what);
  lose();
  await looked;
  await new Promise((resolve) => setImmediate(resolve)); // what was found is taken
  prompts[what]("s");
  await ended;
});

test.each([1, 2] as const)("version %i: a turn whose end names no prompt was lost with its gateway, though the session works: another one is about to begin", async (version) => {
  const ended = { method: "_sandboxagent/session/turn_ended", params: { sessionId: "s", error: { code: -32603, message: "the gateway was ended" }, began: true } };
  const { send, lose } = client(version, false, async () => [{ seq: 2, message: ended }]);
  const turn = send();
  lose();
  await expect(turn).rejects.toBeInstanceOf(TurnInterruptedError);
});

const behind = {
  "another client's prompt": { method: "session/prompt", params: {} },
  "an end that names no prompt": { method: "_sandboxagent/session/turn_ended", params: { sessionId: "s", error: { code: -32603, message: "the gateway was ended" }, began: true } },
};

test.each(([1, 2] as const).flatMap((version) => Object.entries(behind).map(([what, message]) => ({ version, what, message }))))("version $version: a turn whose beginning is no longer kept is over when $what is behind it", async ({ version, message }) => {
  const { send, said, answer, lose } = client(version, false, async (after) => {
    if (after < 4) throw new ProblemError({ type: "urn:sandbox-agent:error:events_expired", title: "no longer kept", status: 410, oldestSeq: 5 });
    return [{ seq: 5, message }];
  });
  const turn = send();
  if (version === 1) said("mine");
  else answer({ messageId: "sa.1" });
  lose();
  await expect(turn).rejects.toThrow("no longer kept");
});

test("version 2: nor one that has begun", async () => {
  const { prompts, send, answer } = client(2);
  const turn = send();
  const ended = expect(turn).rejects.toThrow(/detached from the session s/);
  answer({ messageId: "sa.1" });
  await new Promise((resolve) => setTimeout(resolve, 20));
  prompts.detached("s");
  await ended;
});

/** Waits until what is on its way without a network is through. */
const through = () => new Promise((resolve) => setImmediate(resolve));

test.each([false, true])("a cancel whose connection is lost while it is sent is repeated, unless it failed: %s", async (fails) => {
  const { prompts, send, lose } = client();
  send().catch(() => {});
  let sends = 0;
  const cancel = prompts.cancel("s", async () => () => {
    sends++;
    return fails ? Promise.reject(new NotConnectedError()) : new Promise(() => {});
  });
  if (fails) await expect(cancel).rejects.toThrow(NotConnectedError);
  else await through();
  expect(sends).toBe(1);
  lose();
  await through();
  expect(sends).toBe(fails ? 1 : 2);
});

test("one by one: a lost cancel is repeated beside prompts that are not sent, and leaves alone what waits", async () => {
  const { prompts, sent, send, lose } = client(1, true);
  const first = send();
  const withdrawn = send();
  let sends = 0;
  await prompts.cancel("s", async () => async () => void sends++);
  const waits = send();
  const [id] = sent;
  lose();
  await through();
  expect(sends).toBe(2);
  prompts.ended({ sessionId: "s", promptId: id!, result: cancelled });
  expect((await first).stopReason).toBe("cancelled");
  expect((await withdrawn).stopReason).toBe("cancelled");
  await through();
  expect(sent).toHaveLength(2);
  waits.catch(() => {});
});

test("a cancel goes out although the gateway does not say what became of the prompt", async () => {
  const { prompts, send, lose } = client(1, false, () => Promise.reject(new TypeError("it cannot be asked")));
  send().catch(() => {});
  lose();
  await through();
  let sends = 0;
  await prompts.cancel("s", async () => async () => void sends++);
  expect(sends).toBe(1);
  prompts.failAll(new NotConnectedError()); // else it is asked for ever
});

test("what is behind a prompt waits while the gateway cannot be asked, but not for ever", async () => {
  let asked = 0;
  const { prompts, send, lose } = client(1, false, () => {
    asked++;
    return Promise.reject(new TypeError("it cannot be asked"));
  });
  send().catch(() => {});
  const behind = prompts.behind("s");
  lose();
  await through();
  for (let first; (first = behind()) !== undefined; ) await first;
  expect(asked).toBe(8);
  prompts.failAll(new NotConnectedError()); // else it is asked for ever
});

/** The first time it is asked it fails. */
function failsOnce(error: Error) {
  let again!: () => void;
  const askedAgain = new Promise<void>((resolve) => (again = resolve));
  const events = async () => {
    if (error === undefined) return again();
    const failure = error;
    error = undefined as never;
    throw failure;
  };
  return { events, askedAgain };
}

test.each([1, 2].flatMap((version) => [404, 408, 500, 520].map((status) => ({ version: version as 1 | 2, status }))))("version $version: a prompt goes on behind a proxy that says $status once", async ({ version, status }) => {
  const { events, askedAgain } = failsOnce(ProblemError.of(status, "", "<html>"));
  const { prompts, sent, send, lose } = client(version, false, events);
  const turn = send();
  lose();
  await Promise.race([askedAgain, turn]);
  prompts.ended({ sessionId: "s", promptId: sent[0]!, result: { stopReason: "end_turn" } });
  if (version === 2) prompts.update("s", { sessionUpdate: "state_update", state: "idle", stopReason: "end_turn" } as never);
  expect((await turn).stopReason).toBe("end_turn");
});

const gone = ProblemError.of(404, "", JSON.stringify({ type: "urn:sandbox-agent:error:session_not_found", title: "Session not found" }));

test("a prompt fails when the gateway does not know its session any more, as ACP says it", async () => {
  const { send, lose } = client(1, false, failsOnce(gone).events);
  const turn = send();
  lose();
  await expect(turn).rejects.toMatchObject({ name: "AcpRpcError", code: -32002, message: "Session not found", data: gone.problem });
});

test("version 2: a prompt whose end is told does not fail when the gateway refuses to say what became of it", async () => {
  let tell!: () => void;
  const { prompts, sent, send, lose } = client(2, false, () => (tell(), Promise.reject(gone)));
  tell = () => void prompts.ended({ sessionId: "s", promptId: sent[0]!, result: { stopReason: "end_turn" }, began: true });
  const turn = send();
  lose();
  await through();
  prompts.update("s", { sessionUpdate: "state_update", state: "idle", stopReason: "end_turn" } as never);
  expect((await turn).stopReason).toBe("end_turn");
});

test("a cancel of what no prompt of this client asked for is not sent again on another connection", async () => {
  const { prompts } = client();
  const again: boolean[] = [];
  await expect(prompts.cancel("s", async () => async (may) => {
    again.push(may);
    throw new NotConnectedError();
  })).rejects.toBeInstanceOf(NotConnectedError);
  expect(again).toEqual([false]);
});

test("a cancel is not sent again when the turns that it was to end are over", async () => {
  const { prompts, send, answer } = client();
  const turn = send();
  let sends = 0;
  await prompts.cancel("s", async () => async (again) => {
    expect([again, ++sends]).toEqual([true, 1]);
    answer({ stopReason: "end_turn" });
    await turn;
    return false; // it was lost
  });
  expect(sends).toBe(1);
});

test("a cancel of one behind a cancel of all is repeated as well, with all that it names", async () => {
  const { prompts, sent, cancels, send, lose } = client();
  const first = send();
  await prompts.cancel("s", async () => async () => {});
  const second = send();
  await first.cancel();
  const [ids] = cancels;
  expect(ids).toEqual(sent);
  lose();
  await through();
  expect(cancels.slice(1)).toContainEqual(ids);
  for (const promptId of ids!) prompts.ended({ sessionId: "s", promptId, result: cancelled });
  for (const turn of [first, second]) expect((await turn).stopReason).toBe("cancelled");
});

test("the end of a prompt that was given an id is its own, also when it comes late", async () => {
  const { prompts, send, answer } = client();
  const turn = send("mine");
  answer({ stopReason: "end_turn" });
  await turn;
  const end = (promptId: string, sessionId = "s") => prompts.ended({ sessionId, promptId, result: { stopReason: "end_turn" } });
  expect([end("mine"), end("theirs"), end("mine", "another session")]).toEqual([true, false, false]);
});

test("null is no id, as at the gateway, and what else is no text is refused", async () => {
  const { prompts, send, answer, sent } = client();
  const turn = send(null);
  expect(sent).toEqual([expect.any(String)]);
  for (const id of ["", 0, 1, false, {}]) expect(() => send(id)).toThrow(TypeError);
  answer({ stopReason: "end_turn" });
  expect((await turn).stopReason).toBe("end_turn");
  expect(prompts.ended({ sessionId: "s", promptId: "null", result: cancelled })).toBe(false);
});

test("an id that was given counts in its session, and not when the gateway has refused the prompt", async () => {
  const { prompts, send, answer } = client();
  const turn = send("1");
  expect(() => send("1")).toThrow(TypeError);
  expect(prompts.ended({ sessionId: "another session", promptId: "1", result: cancelled })).toBe(false);
  answer({ stopReason: "end_turn" });
  expect((await turn).stopReason).toBe("end_turn");
  const refused = prompts.add("s", async () => async () => {}, { send: () => Promise.reject(new AcpRpcError(-32602, "it was used for another prompt")) } as never, "2");
  await expect(refused).rejects.toThrow("used for another");
  expect(prompts.ended({ sessionId: "s", promptId: "2", result: cancelled })).toBe(false);
});
