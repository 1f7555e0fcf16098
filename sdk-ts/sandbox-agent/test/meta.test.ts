// What a request that opens a session again is made of.
import { expect, test } from "vitest";
import { kept, META, withMeta } from "../src/meta.js";

test("what was of the request that opened a session is not of the next", () => {
  const own = { requestedSessionId: "s", after: 3, handover: "words", node: "one", env: { A: "b" } };
  const params = kept({ sessionId: "s", cwd: "/", after: 3, handover: "words", title: "title", _meta: { [META]: own, theirs: 1 } });
  expect(params).toEqual({ mcpServers: [], title: "title", _meta: { [META]: { node: "one", env: { A: "b" } }, theirs: 1 } });
  expect(withMeta({ sessionId: "s", ...params }, { after: 7 })).toEqual({
    sessionId: "s", mcpServers: [], _meta: { [META]: { after: 7, title: "title", node: "one", env: { A: "b" } }, theirs: 1 },
  });
});
