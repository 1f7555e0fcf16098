// Scenarios with an early version of Pi, which lacks much of what newer ones say.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { api, call, choose, env, failure, heard, methods, ownOf, script, Session } from "./claude-link.mjs";

const touching = (w, name, after = "went on") => script([[call("bash", { command: `touch ${w.dir}/${name}` })], [{ say: after }]]);

export default {
  async "a turn with a permission"(w) {
    const s = await w.session({ answer: choose("allow_once") });
    const turn = await s.prompt(touching(w, "made"));
    assert.deepEqual([turn.asked.length, turn.call("bash").status, turn.text, existsSync(`${w.dir}/made`)], [1, "completed", "went on", true]);
    assert.equal((await s.prompt("say alive")).text, "alive");
  },
  async "cancel while a permission is open"(w) {
    const s = await w.session({ answer: () => new Promise(() => {}) });
    const turn = s.begin(touching(w, "never"));
    await s.untilAsked();
    await s.cancel();
    assert.equal((await turn).stopReason, "cancelled");
    assert.equal((await s.prompt("say after")).text, "after");
    assert.ok(!existsSync(`${w.dir}/never`));
  },
  async "model by a new process"(w) {
    const s = await w.session();
    await s.prompt("say a word to remember");
    await s.set("model", "scripted/two");
    assert.match((await s.prompt("recall")).text, /a word to remember/);
    const [r] = (await heard("recall")).slice(-1);
    assert.equal(r.model, "two");
  },
  async "what it lacks is said"(w) {
    const s = await w.session({ mcpServers: [{ name: "near", command: env.NODE, args: [], env: [] }] });
    assert.match(JSON.stringify(ownOf(s.result).unsupported), /has no MCP: 0.99.0 and newer have/);
    assert.equal(ownOf(s.result).agentVersion, env.VERSION);
  },
  async "killed and resumed"(w) {
    const s = await w.session();
    await s.prompt("say number one");
    await s.request(methods.agent.session.close);
    s.link.sessions.delete(s.id);
    const link = await w.connect();
    const result = await link.agent.request(methods.agent.session.load, { sessionId: s.id, cwd: w.dir, mcpServers: [] });
    const again = new Session(w, link, s.id, result);
    assert.match((await again.prompt("recall")).text, /number one/);
    await failure(again.set("model", "nope"));
    assert.ok((await api("/v2/agents")).agents.some((a) => a.id === "pi"));
  },
};
