import { AcpRpcError, META } from "sandbox-agent";
import { expect, test } from "vitest";
import { Attached } from "./attached.js";
import type { Client } from "./gateway.js";
import { Inbox } from "./inbox.js";

/** A client whose gateway has these events open, by session; undefined is an answer that fails. */
function clientWith(open: () => Record<string, number[] | Error | undefined>) {
  let ask: ((params: unknown, context: { signal: AbortSignal }) => Promise<unknown>) | undefined;
  let state: ((state: string) => void) | undefined;
  const client = {
    acpVersion: 2,
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
    asks: (sessionId: string, seq: number) => void ask!({ sessionId, title: `${sessionId} ${seq}`, options: [], _meta: { [META]: { seq } } }, { signal: new AbortController().signal }),
    back: async () => {
      state!("open");
      await new Promise((later) => setTimeout(later));
    },
  };
}

test("after a break the questions go that the gateway has not any more, and the others of their sessions stay", async () => {
  let open: Record<string, number[] | Error | undefined> = {};
  const inbox = new Inbox(new Attached());
  const { client, asks, back } = clientWith(() => open);
  inbox.use(client);
  for (const [session, seq] of [["A", 5], ["A", 9], ["B", 3], ["C", 4], ["D", 6]] as const) asks(session, seq);
  const titles = () => inbox.get().map((ask) => (ask.kind === "permission" ? ask.request.title : ""));
  open = { A: [9, 12], B: [], C: new AcpRpcError(-32002, "session not found"), D: undefined };
  await back();
  expect(titles()).toEqual(["A 9", "D 6"]); // of D nobody has said anything
  open = { A: [12], D: [6] };
  await back();
  expect(titles()).toEqual(["D 6"]);
});
