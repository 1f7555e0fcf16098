// There are no credentials of Codex.
import assert from "node:assert/strict";
import { env, failure, heard, methods } from "./claude-link.mjs";

export default {
  async "no key is said at once"(w) {
    const link = await w.connect();
    const e = await failure(link.agent.request(methods.agent.session.new, { cwd: w.dir, mcpServers: [] }));
    assert.equal(e.code, -32000, e.all);
    assert.match(e.message, /OPENAI_API_KEY/);
    assert.ok(e.took < 20_000, `${e.took} ms`);
    assert.equal((await link.agent.request("auth/status", {})).state, "unauthenticated");
    assert.ok(link.hello.authMethods.length >= 3);
  },
  async "a session may bring its own key"(w) {
    const s = await w.session({ meta: { credentials: { apiKey: "sk-brought-along", baseUrl: `${env.MODEL}/v1` } } });
    assert.equal((await s.prompt(`say with my own`)).text, "with my own");
    const [r] = await heard("say with my own");
    assert.equal(r.key, "Bearer sk-brought-along");
  },
};
