// There are no credentials. A session that works says something of the agent, so
// the other scenario is first.
import assert from "node:assert/strict";
import { api, control, env, failure, heard, methods, Session } from "./link.mjs";

export const last = {
  async "no key is said at once"(w, a) {
    const link = await w.connect();
    const e = await failure(link.agent.request(methods.agent.session.new, { cwd: w.place, mcpServers: [] }));
    assert.equal(e.code, -32000, e.all);
    assert.match(e.message, a.nokey.says);
    assert.ok(link.hello.authMethods.length >= (a.nokey.methods ?? 1));
    if (a.nokey.status) assert.equal((await link.agent.request("auth/status", {})).state, "unauthenticated");
    const { id: methodId } = link.hello.authMethods.find((m) => /key/.test(m.id));
    assert.equal((await failure(link.agent.request(methods.agent.authenticate, { methodId }))).code, -32000);
    const known = (await api("/v2/agents")).agents.find((x) => x.id === a.id);
    if (a.nokey.listed) assert.deepEqual([known.authState, known.credentialsAvailable], ["required", false]);
  },
  /** The environment and the configuration name an address at which nobody answers. */
  async "each field of a session's own credentials is used, or refused"(w, a) {
    const { apiKey, oauthToken, baseUrl } = a.nokey.brings;
    const address = { baseUrl: env.MODEL + baseUrl };
    const used = async (s, key) => {
      assert.equal((await s.prompt(`say with ${key}`)).text, `with ${key}`);
      const [r] = await heard(`say with ${key}`);
      assert.ok(r.key.includes(key) || !a.nokey.modelSeesKey, r.key);
    };
    const s = await w.session({ meta: { credentials: { apiKey, ...address } } });
    await used(s, apiKey);
    if (!oauthToken) {
      const e = await failure(w.session({ meta: { credentials: { oauthToken: "a-token", ...address } } }));
      assert.equal(e.code, -32602, e.all);
      assert.match(e.message, /credentials.oauthToken/);
    }
    if (a.nokey.manyProviders) assert.match((await failure(w.session({ meta: { credentials: address } }))).message, /give the provider's apiKey/);
    if (a.nokey.refused) {
      const e = await failure(w.session({ meta: { credentials: { apiKey: a.nokey.refused, ...address } } }));
      assert.equal(e.code, -32000, e.all);
      assert.match(e.message, a.nokey.says);
      assert.doesNotMatch(e.message, /\x1b/, "what it wrote for a terminal is plain text");
    }

    // A gateway that was started anew has forgotten them, and uses no others.
    const { url } = await control("POST", "restart");
    const link = await w.connect({}, { url, transport: "ws" });
    w.links = [link];
    const e = await failure(link.agent.request(methods.agent.session.prompt, { sessionId: s.id, prompt: [{ type: "text", text: "say nothing" }] }));
    assert.equal(e.code, -32000, e.all);
    assert.match(e.all, /credentials_required/);
    const anew = oauthToken ?? `${apiKey}-anew`;
    const result = await link.agent.request(methods.agent.session.resume, {
      sessionId: s.id, cwd: w.place, mcpServers: [], _meta: { "sandboxagent.dev": { credentials: { [oauthToken ? "oauthToken" : "apiKey"]: anew, ...address } } },
    });
    const back = new Session(w, link, s.id, result);
    await used(back, anew);
    assert.match((await back.prompt("recall")).text, new RegExp(`with ${apiKey}`));
  },
};

export default {};
