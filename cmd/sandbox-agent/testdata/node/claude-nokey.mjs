// There are no credentials.
import assert from "node:assert/strict";
import { api, failure, methods } from "./claude-link.mjs";

// A session that works says something of the agent, so the other is first.
let refused;
const first = new Promise((resolve) => { refused = resolve; });

export default {
  async "no key is said at once"(w) {
    try {
      await withoutKey(w);
    } finally {
      refused();
    }
  },
  async "a session may bring its own key"(w) {
    await first;
    const s = await w.session({ meta: { credentials: { apiKey: "sk-ant-brought-along" } } });
    assert.equal((await s.prompt("say with my own")).text, "with my own");
  },
};

async function withoutKey(w) {
  const link = await w.connect();
  const e = await failure(link.agent.request(methods.agent.session.new, { cwd: w.dir, mcpServers: [] }));
  assert.equal(e.code, -32000, e.all);
  assert.match(e.message, /ANTHROPIC_API_KEY/);
  assert.ok(e.took < 20_000, `${e.took} ms`);
  assert.equal((await link.agent.request("auth/status", {})).state, "unauthenticated");
  const claude = (await api("/v2/agents")).agents.find((a) => a.id === "claude");
  assert.deepEqual([claude.authState, claude.credentialsAvailable], ["required", false]);
  assert.ok(link.hello.authMethods.length >= 2);
}
