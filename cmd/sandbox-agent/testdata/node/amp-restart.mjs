// The gateway is killed in the middle of conversations, and started again.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { call, callsOf, choose, control, eventually, heard, methods, script, Session, textOf, userTextOf } from "./claude-link.mjs";

export default {
  async "gateway killed and restarted"(w) {
    const idle = await w.session({ meta: { appendSystemPrompt: "APPENDED PROMPT" } });
    await idle.prompt("say a word before the end");
    const busy = await w.session();
    await busy.prompt("say words before the crash");
    const gate = script([[{ gate: `never ${w.name}` }, { say: "never said" }]]);
    const broken = busy.begin(gate);
    await eventually("the model's call", () => heard(gate), (all) => all.length > 0);
    // One waits for a permission that nobody has given yet.
    const asking = await w.session({ answer: () => new Promise(() => {}) });
    await asking.prompt("say this before the question");
    const touching = script([[call("Bash", { cmd: `touch ${w.dir}/asked` })], [{ say: "touched" }]]);
    const unanswered = asking.begin(touching);
    await asking.untilAsked();
    const { url } = await control("POST", "restart");
    for (const [turn, s] of [[broken, busy], [unanswered, asking]]) {
      await assert.rejects(Promise.race([turn, s.link.connection.closed.then(() => Promise.reject(new Error("closed")))]));
    }

    const link = await w.connect({}, { url });
    const load = async (id, answer) => {
      const result = await link.agent.request(methods.agent.session.load, { sessionId: id, cwd: w.dir, mcpServers: [] });
      return new Session(w, link, id, result, answer);
    };
    const again = await load(idle.id);
    await link.until("the replay", () => textOf(again.updates).includes("a word before the end"));
    assert.equal((await again.prompt("say and after it")).text, "and after it");
    const [r] = (await heard("say and after it")).slice(-1);
    assert.ok(r.prompts.some((p) => p.includes("say a word before the end")), `the model is told of ${JSON.stringify(r.prompts)}`);
    assert.match(r.body, /APPENDED PROMPT/, "how the session was set up is kept");

    const back = await load(busy.id);
    await link.until("the replay", () => textOf(back.updates).includes("words before the crash"));
    assert.match(userTextOf(back.updates), /never said/);
    assert.match((await back.prompt("recall")).text, /words before the crash/);

    const asked = await load(asking.id, choose("allow_once"));
    assert.ok(!existsSync(`${w.dir}/asked`), "nobody has allowed it");
    const turn = await asked.prompt(touching.replace("asked", "asked-again"));
    assert.equal(turn.asked.length, 1);
    assert.equal(turn.text, "touched");
    assert.ok(!existsSync(`${w.dir}/asked`) && existsSync(`${w.dir}/asked-again`));
    assert.deepEqual(callsOf(asked.updates).map((c) => c.status).sort(), ["completed", "failed"], "the call that waited is closed");
    const [told] = (await heard("asked-again")).slice(-1);
    assert.ok(told.prompts.some((p) => p.includes("before the question")));
    w.links = [link];
  },
};
