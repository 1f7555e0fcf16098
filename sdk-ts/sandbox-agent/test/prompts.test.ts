// Whose turn an update is of, and what ends a prompt, when others have prompts in the session too.
import { Backoff } from "acp-http-client";
import { expect, test } from "vitest";
import { NotConnectedError } from "../src/errors.js";
import { Prompts } from "../src/prompts.js";
import type { Turn } from "../src/turn.js";

/** The prompts of a client of version 1 or 2 in one session, and what came of the one that it sends. */
function client(version: 1 | 2 = 1) {
  const prompts = new Prompts(version);
  let answer!: (result: unknown) => void;
  let lose!: () => void;
  let id = "";
  const lost = new Promise<void>((resolve) => (lose = resolve));
  const send = (): Turn<1 | 2> => prompts.add("s", async () => {}, {
    oneByOne: false, startAfter: 0, after: () => 0, reached: () => new Promise(() => {}), connected: async () => {}, lost: () => new Promise(() => {}),
    patience: () => new Backoff({}, new AbortController().signal),
    send: (promptId, onSent) => {
      id = promptId;
      onSent();
      const answered = new Promise<{ response: unknown; lost: Promise<void> }>((resolve) => {
        answer = (result) => {
          prompts.answered(promptId, result);
          resolve({ response: result, lost });
        };
      });
      return Promise.race([answered, lost.then(() => ({ lost: true }) as const)]);
    },
    state: async () => "running",
    events: async () => ({ events: [{ seq: 1, message: { method: "session/prompt", params: { _meta: { "sandboxagent.dev": { promptId: id } } } } }], hasMore: false }) as never,
  });
  const said = (text: string) => prompts.update("s", { sessionUpdate: "agent_message_chunk", content: { type: "text", text } });
  const begins = () => prompts.update("s", { sessionUpdate: "user_message_chunk", content: { type: "text", text: "theirs" }, _meta: { "sandboxagent.dev": { prompt: true } } });
  return { prompts, send, said, begins, answer: (result: unknown) => answer(result), lose: () => lose() };
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

test.each([1, 2] as const)("version %i: a session that is detached leaves no prompt waiting whose connection was lost", async (version) => {
  const { prompts, send, lose } = client(version);
  const turn = send();
  const ended = expect(turn).rejects.toThrow(NotConnectedError);
  lose();
  await new Promise((resolve) => setTimeout(resolve, 20));
  prompts.detached("s");
  await ended;
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
