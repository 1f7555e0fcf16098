// There is no access token of Amp's.
import assert from "node:assert/strict";
import { failure, methods } from "./claude-link.mjs";

export default {
  async "no key is said at once"(w) {
    const link = await w.connect();
    const e = await failure(link.agent.request(methods.agent.session.new, { cwd: w.dir, mcpServers: [] }));
    assert.equal(e.code, -32000, e.all);
    assert.match(e.message, /AMP_API_KEY/);
    assert.ok(e.took < 30_000, `${e.took} ms`);
    const again = await failure(link.agent.request(methods.agent.authenticate, { methodId: link.hello.authMethods[0].id }));
    assert.equal(again.code, -32000, again.all);
  },
  async "a session may bring its own key"(w) {
    const s = await w.session({ meta: { credentials: { apiKey: "sgamp_brought_along" } } });
    assert.equal((await s.prompt("say with my own")).text, "with my own");
    const refused = await failure(w.session({ meta: { credentials: { apiKey: "sgamp_refused" } } }));
    assert.equal(refused.code, -32000, refused.all);
  },
};
