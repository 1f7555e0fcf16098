// There are no credentials. A session that works says something of the agent, so
// the other scenario is first.
import assert from "node:assert/strict";
import { api, env, failure, heard, methods } from "./link.mjs";

export const last = {
  async "no key is said at once"(w, a) {
    const link = await w.connect();
    const e = await failure(link.agent.request(methods.agent.session.new, { cwd: w.place, mcpServers: [] }));
    assert.equal(e.code, -32000, e.all);
    assert.match(e.message, a.nokey.says);
    assert.ok(link.hello.authMethods.length >= (a.nokey.methods ?? 1));
    if (a.nokey.status) assert.equal((await link.agent.request("auth/status", {})).state, "unauthenticated");
    else assert.equal((await failure(link.agent.request(methods.agent.authenticate, { methodId: link.hello.authMethods[0].id }))).code, -32000);
    const known = (await api("/v2/agents")).agents.find((x) => x.id === a.id);
    if (a.nokey.listed) assert.deepEqual([known.authState, known.credentialsAvailable], ["required", false]);
  },
  async "a session may bring its own key"(w, a) {
    const { apiKey, baseUrl } = a.nokey.brings;
    const s = await w.session({ meta: { credentials: { apiKey, ...baseUrl === undefined ? {} : { baseUrl: env.MODEL + baseUrl } } } });
    assert.equal((await s.prompt("say with my own")).text, "with my own");
    const [r] = await heard("say with my own");
    assert.ok(r.key.includes(apiKey) || !a.nokey.modelSeesKey, r.key);
    if (a.nokey.refused) assert.equal((await failure(w.session({ meta: { credentials: { apiKey: a.nokey.refused } } }))).code, -32000);
  },
};

export default {};
