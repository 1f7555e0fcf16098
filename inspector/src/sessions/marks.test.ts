import type { SessionInfo } from "sandbox-agent";
import { expect, test } from "vitest";
import type { Client } from "../state/gateway.js";
import { marksOf, nameOf, sectionsOf, withMarks, type Marks } from "./marks.js";
import { SessionsStore } from "./sessions-store.js";

const now = Date.parse("2030-05-05T12:00:00");
const session = (sessionId: string, part: Partial<SessionInfo> = {}): SessionInfo => ({ sessionId, cwd: "/w/project", state: "idle", pending: 0, updatedAt: new Date(now - 1000).toISOString(), ...part }) as SessionInfo;
const ids = (sections: ReturnType<typeof sectionsOf>) => sections.map((s) => [s.title, ...s.sessions.map((one) => one.sessionId)]);

test("what is pinned and what works stands above the others", () => {
  const all = [
    session("idle"), session("asks", { pending: 1 }), session("old", { updatedAt: "2020-01-01T00:00:00Z" }), session("runs", { state: "running", updatedAt: "2020-01-01T00:00:00Z" }),
    session("mine", { metadata: { inspector: { pinned: true } }, cwd: "/other" }), session("other", { cwd: "/other" }),
    session("away", { state: "offline" as SessionInfo["state"], pending: 1 }), // nobody can answer it now
  ];
  expect(ids(sectionsOf(all, "time", now))).toEqual([["Pinned", "mine"], ["Working", "asks", "runs"], ["Today", "idle", "other", "away"], ["Earlier", "old"]]);
  expect(ids(sectionsOf(all, "folder", now))).toEqual([["Pinned", "mine"], ["Working", "asks", "runs"], ["/w/project", "idle", "old", "away"], ["/other", "other"]]);
});

test("marks leave the metadata of others alone, and take nothing that is none", () => {
  const info = session("s", { title: "from the agent", metadata: { ticket: 7, inspector: { pinned: true, title: "x" } } });
  expect(withMarks(info, { title: "new", pinned: false })).toEqual({ ticket: 7, inspector: { title: "new" } });
  expect(marksOf(session("s", { metadata: { inspector: { title: 3, pinned: "yes", archived: null } } }))).toEqual({});
  expect(marksOf(session("s", { metadata: [1] }))).toEqual({});
  expect(nameOf(info)).toBe("x");
  expect(nameOf(session("s", { gist: "how it begins" }))).toBe("how it begins");
  expect(nameOf(session("s"))).toBe("project");
});

test("marks that are put at once are all put", async () => {
  let metadata: Record<string, unknown> = {};
  const late = <T>(value: T) => new Promise<T>((resolve) => setTimeout(() => resolve(value)));
  const client = { api: { session: () => late({ sessionId: "s", metadata }) }, setMetadata: async (_: string, next: Record<string, unknown>) => void (metadata = await late(next)) } as unknown as Client;
  const store = new SessionsStore();
  const put = (marks: Marks) => store.mark({ sessionId: "s" }, marks, client);
  await Promise.all([put({ pinned: true }), put({ archived: true }), put({ title: "T" })]);
  expect(marksOf({ metadata } as never)).toMatchObject({ pinned: true, archived: true, title: "T" });
});
