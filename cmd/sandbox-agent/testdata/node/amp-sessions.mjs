// Scenarios of sessions of Amp: where they come from, how they go on and end.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { api, callsOf, env, eventually, failure, heard, methods, script, servedBy, Session, textOf, userTextOf } from "./claude-link.mjs";

/** Opens an existing session on a new connection. */
async function open(w, method, id) {
  const link = await w.connect();
  const result = await link.agent.request(method, { sessionId: id, cwd: w.dir, mcpServers: [] });
  return new Session(w, link, id, result);
}
const replayed = (s, text) => s.link.until(`replay of ${text}`, () => textOf(s.updates).includes(text) || userTextOf(s.updates).includes(text));
async function closed(s) {
  await s.request(methods.agent.session.close);
  s.link.sessions.delete(s.id);
}

export default {
  async "thread of a terminal is listed and loaded"(w) {
    const run = promisify(execFile)(env.PROGRAM, ["--execute", "run echo in a terminal"], { cwd: w.dir, env: { ...process.env, PWD: w.dir } });
    run.child.stdin.end();
    await run;
    const link = await w.connect();
    const { sessions } = await link.agent.request(methods.agent.session.list, { cwd: w.dir });
    assert.equal(sessions.length, 1, JSON.stringify(sessions));
    const s = await open(w, methods.agent.session.load, sessions[0].sessionId);
    await replayed(s, "ran:");
    assert.match(userTextOf(s.updates), /run echo in a terminal/);
    assert.deepEqual(callsOf(s.updates).map((c) => [c.name, c.status]), [["Bash", "completed"]]);
    assert.match((await s.prompt("recall")).text, /in a terminal/);
  },
  async "resume replays nothing and knows everything"(w) {
    const s = await w.session();
    await s.prompt("say a word to remember");
    await closed(s);
    const again = await open(w, methods.agent.session.resume, s.id);
    const turn = await again.prompt("recall");
    assert.match(turn.text, /a word to remember/);
    assert.doesNotMatch(textOf(again.updates.slice(0, -turn.updates.length)), /./);
  },
  async "load replays from the gateway's log"(w) {
    const s = await w.session();
    await s.prompt("run echo logged");
    await s.prompt("say the end");
    const again = await open(w, methods.agent.session.load, s.id);
    await replayed(again, "the end");
    assert.equal(textOf(again.updates), textOf(s.updates));
    assert.deepEqual(callsOf(again.updates).map((c) => [c.name, c.status]), [["Bash", "completed"]]);
  },
  async "never prompted, closed and loaded"(w) {
    const s = await w.session();
    await closed(s);
    const again = await open(w, methods.agent.session.load, s.id);
    assert.equal((await again.prompt("say at last")).text, "at last");
  },
  async "unknown session"(w) {
    const link = await w.connect();
    for (const sessionId of ["no-such-session", "T-5a7e8a0c-0000-4000-8000-00000000abcd"]) {
      const e = await failure(link.agent.request(methods.agent.session.load, { sessionId, cwd: w.dir, mcpServers: [] }));
      assert.equal(e.code, -32002, e.all);
    }
  },
  async "two sessions at once"(w) {
    const link = await w.connect();
    const [one, two] = [await w.session({ link }), await w.session({ link })];
    const [a, b] = await Promise.all([one.prompt("run sleep 0.3; echo first"), two.prompt("run echo second")]);
    assert.match(a.text, /first/);
    assert.match(b.text, /second/);
  },
  async "process killed in the middle of a turn"(w) {
    const s = await w.session();
    await s.prompt("say number one");
    const broken = failure(s.begin(script([[{ gate: `never ${w.name}` }]])));
    await eventually("the model's call", () => heard(`never ${w.name}`), (all) => all.length > 0);
    process.kill(await servedBy("amp", w.dir), "SIGKILL");
    const e = await broken;
    assert.match(e.all, /SIGKILL/);
    assert.match((await s.prompt("recall")).text, /number one/);
    assert.equal((await api(`/v2/sessions/${s.id}`)).continuity, "native");
  },
};
