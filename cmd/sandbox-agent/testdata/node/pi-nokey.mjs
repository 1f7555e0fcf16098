// There are no credentials for any model of Pi's.
import assert from "node:assert/strict";
import { env, failure, heard, methods } from "./claude-link.mjs";

export default {
  async "no key is said at once"(w) {
    const link = await w.connect();
    const e = await failure(link.agent.request(methods.agent.session.new, { cwd: w.dir, mcpServers: [] }));
    assert.equal(e.code, -32000, e.all);
    assert.match(e.message, /ANTHROPIC_API_KEY/);
    assert.ok(e.took < 20_000, `${e.took} ms`);
    assert.ok(link.hello.authMethods.length >= 1);
  },
  async "a session may bring its own key"(w) {
    const s = await w.session({ meta: { credentials: { apiKey: "sk-ant-brought-along", baseUrl: env.MODEL } } });
    assert.equal((await s.prompt(`say with my own`)).text, "with my own");
    const [r] = await heard("say with my own");
    assert.equal(r.key, "sk-ant-brought-along");
  },
};
