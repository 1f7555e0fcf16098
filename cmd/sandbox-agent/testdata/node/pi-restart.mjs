// The gateway is killed in the middle of conversations, and started again.
import assert from "node:assert/strict";
import { control, heard, methods, Session, textOf, userTextOf } from "./claude-link.mjs";

export default {
  async "gateway killed and restarted"(w) {
    const idle = await w.session({ meta: { appendSystemPrompt: "APPENDED PROMPT" } });
    await idle.prompt("say a word before the end");
    await idle.set("thought_level", "high");
    await idle.setMode("write");
    const busy = await w.session();
    await busy.prompt("say words before the crash");
    const broken = busy.begin("forever");
    await busy.untilText("tick 3");
    const { url } = await control("POST", "restart");
    await assert.rejects(Promise.race([broken, busy.link.connection.closed.then(() => Promise.reject(new Error("closed")))]));

    const link = await w.connect({}, { url });
    const load = async (id) => {
      const result = await link.agent.request(methods.agent.session.load, { sessionId: id, cwd: w.dir, mcpServers: [] });
      return new Session(w, link, id, result);
    };
    const again = await load(idle.id);
    await link.until("the replay", () => textOf(again.updates).includes("a word before the end"));
    assert.equal((await again.prompt("say and after it")).text, "and after it");
    const [r] = (await heard("say and after it")).slice(-1);
    assert.ok(r.prompts.includes("say a word before the end"), `the model is told of ${JSON.stringify(r.prompts)}`);
    assert.match(r.body, /APPENDED PROMPT/, "how the session was set up is kept");
    assert.equal(r.effort, "high", "what was chosen is kept");
    assert.equal((await again.prompt(`write ${w.dir}/kept.txt x`)).asked.length, 0, "the mode is kept");

    const back = await load(busy.id);
    await link.until("the replay", () => textOf(back.updates).includes("words before the crash"));
    assert.match(userTextOf(back.updates), /forever/);
    assert.match((await back.prompt("recall")).text, /words before the crash/);
    w.links = [link];
  },
};
