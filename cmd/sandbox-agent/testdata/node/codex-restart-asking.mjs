// The gateway is killed while a permission is open, and started again.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { call, callsOf, choose, control, methods, script, Session, textOf } from "./claude-link.mjs";

const touching = (w, name) => script([[call("exec_command", {
  cmd: `touch ${w.dir}/${name}`, sandbox_permissions: "require_escalated", justification: `because of ${name}`,
})], [{ say: "went on" }]]);

export default {
  async "gateway killed while a permission is open"(w) {
    const before = await w.session({ answer: () => new Promise(() => {}) });
    await before.prompt("say words before the end");
    const open = before.begin(touching(w, "never"));
    await before.untilAsked();
    const { url } = await control("POST", "restart");
    await assert.rejects(Promise.race([open, before.link.connection.closed.then(() => Promise.reject(new Error("closed")))]));

    const link = await w.connect({}, { url });
    const result = await link.agent.request(methods.agent.session.load, { sessionId: before.id, cwd: w.dir, mcpServers: [] });
    const after = new Session(w, link, before.id, result, choose("allow_once"));
    await link.until("the replay", () => textOf(after.updates).includes("words before the end"));
    // Nobody waits for an answer any more, so nothing was done.
    assert.equal((await after.prompt("recall")).text.includes("words before the end"), true);
    assert.equal(after.asked.length, 0, "the permission of the turn that died is not asked for again");
    assert.ok(!existsSync(`${w.dir}/never`), "nothing was permitted");
    assert.ok(callsOf(after.updates).every((c) => c.status !== "completed"), "the call did not succeed");
    // A new turn asks anew.
    const turn = await after.prompt(touching(w, "now"));
    assert.deepEqual([turn.asked.length, turn.call("shell").status, existsSync(`${w.dir}/now`)], [1, "completed", true]);
    w.links = [link];
  },
};
