// A version of Codex without an app-server: each prompt runs `codex exec`.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { contentOf, control, methods, ownOf, Session, textOf } from "./claude-link.mjs";

export default {
  async "what an early version gives, and a restart"(w) {
    const s = await w.session({ meta: { permissionMode: "bypass", instructions: "I" } });
    const own = ownOf(s.result);
    assert.equal(own.fallback.by, "codex exec --json");
    assert.deepEqual(own.unsupported.map((u) => u.field), ["instructions"]);
    assert.deepEqual(s.result.modes.availableModes.map((m) => m.id), ["read-only", "agent", "full-access"]);
    assert.equal((await s.prompt("say a word before the end")).text, "a word before the end");
    const turn = await s.prompt(`run echo hello > ${w.dir}/made; echo shown`);
    assert.match(contentOf(turn.call("shell")), /shown/);
    assert.ok(existsSync(`${w.dir}/made`));
    const busy = s.begin("run sleep 1000");
    await s.until("the command", (u) => u.sessionUpdate === "tool_call" && /sleep/.test(u.title));
    await s.cancel();
    assert.equal((await busy).stopReason, "cancelled");

    const { url } = await control("POST", "restart");
    const link = await w.connect({}, { url });
    const result = await link.agent.request(methods.agent.session.load, { sessionId: s.id, cwd: w.dir, mcpServers: [] });
    const again = new Session(w, link, s.id, result);
    await link.until("the replay", () => textOf(again.updates).includes("a word before the end"));
    assert.match((await again.prompt("recall")).text, /a word before the end/);
    w.links = [link];
  },
};
