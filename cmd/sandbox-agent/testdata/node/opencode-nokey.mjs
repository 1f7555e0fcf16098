// There are no credentials of OpenCode's providers.
import assert from "node:assert/strict";
import { env, failure, heard, methods } from "./claude-link.mjs";

export default {
  async "no key is said at once"(w) {
    const link = await w.connect();
    const e = await failure(link.agent.request(methods.agent.session.new, { cwd: w.dir, mcpServers: [] }));
    assert.equal(e.code, -32000, e.all);
    assert.match(e.message, /opencode auth login/);
    assert.ok(e.took < 30_000, `${e.took} ms`);
    const again = await failure(link.agent.request(methods.agent.authenticate, { methodId: link.hello.authMethods[0].id }));
    assert.equal(again.code, -32000, again.all);
  },
  async "a session may bring its own key"(w) {
    const s = await w.session({ meta: { credentials: { apiKey: "sk-ant-brought-along", baseUrl: `${env.MODEL}/v1` } } });
    assert.equal((await s.prompt("say with my own")).text, "with my own");
    const [r] = await heard("say with my own");
    assert.match(r.key, /sk-ant-brought-along/);
  },
};
