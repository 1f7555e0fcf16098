// Scenarios of sessions of Pi: where they come from, how they go on and end.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { callsOf, env, failure, methods, servedBy, Session, textOf, userTextOf } from "./claude-link.mjs";

/** Opens an existing session on a new connection. */
async function open(w, method, id) {
  const link = await w.connect();
  const result = await link.agent.request(method, { sessionId: id, cwd: w.dir, mcpServers: [] });
  return new Session(w, link, id, result);
}
const replayed = (s, text) => s.link.until(`replay of ${text}`, () => textOf(s.updates).includes(text) || userTextOf(s.updates).includes(text));

export default {
  async "session of a terminal is listed and loaded"(w) {
    const run = promisify(execFile)(env.PROGRAM, ["--print", "run echo in a terminal"], { cwd: w.dir, env: process.env });
    run.child.stdin.end();
    await run;
    const link = await w.connect();
    const { sessions } = await link.agent.request(methods.agent.session.list, { cwd: w.dir });
    assert.equal(sessions.length, 1, JSON.stringify(sessions));
    assert.match(sessions[0].title, /in a terminal/);
    const s = await open(w, methods.agent.session.load, sessions[0].sessionId);
    await replayed(s, "ran:");
    assert.match(userTextOf(s.updates), /run echo in a terminal/);
    assert.deepEqual(callsOf(s.updates).map((c) => c.status), ["completed"]);
    assert.match((await s.prompt("recall")).text, /in a terminal/);
  },
  async "resume replays nothing and knows everything"(w) {
    const s = await w.session();
    await s.prompt("say a word to remember");
    await s.request(methods.agent.session.close);
    s.link.sessions.delete(s.id);
    const again = await open(w, methods.agent.session.resume, s.id);
    const turn = await again.prompt("recall");
    assert.match(turn.text, /a word to remember/);
    assert.doesNotMatch(textOf(again.updates.slice(0, -turn.updates.length)), /./);
  },
  async "load replays from the gateway's log"(w) {
    const s = await w.session({ meta: { permissionMode: "bypass" } });
    await s.prompt("run echo logged");
    await s.prompt("say the end");
    const again = await open(w, methods.agent.session.load, s.id);
    await replayed(again, "the end");
    assert.equal(textOf(again.updates), textOf(s.updates));
    assert.deepEqual(callsOf(again.updates).map((c) => [c.name, c.status]), [["bash", "completed"]]);
  },
  async "fork knows the past and is on its own"(w) {
    const s = await w.session();
    await s.prompt("say common past");
    const { sessionId } = await s.request("session/fork", { cwd: w.dir, mcpServers: [] });
    assert.notEqual(sessionId, s.id);
    const fork = new Session(w, s.link, sessionId);
    await fork.prompt("say only the fork");
    assert.match((await fork.prompt("recall")).text, /common past.*only the fork/);
    assert.doesNotMatch((await s.prompt("recall")).text, /only the fork/);
  },
  async "unknown session"(w) {
    const link = await w.connect();
    for (const sessionId of ["no-such-session", "5a7e8a0c-0000-4000-8000-00000000abcd"]) {
      for (const method of [methods.agent.session.load, methods.agent.session.resume]) {
        const e = await failure(link.agent.request(method, { sessionId, cwd: w.dir, mcpServers: [] }));
        assert.equal(e.code, -32002, e.all);
        assert.match(e.message, new RegExp(sessionId));
      }
    }
  },
  async "close and load again"(w) {
    const s = await w.session();
    await s.prompt("say before the close");
    await s.request(methods.agent.session.close);
    assert.match((await failure(s.begin("say closed"))).message, /closed/);
    s.link.sessions.delete(s.id);
    const again = await open(w, methods.agent.session.load, s.id);
    assert.match((await again.prompt("recall")).text, /before the close/);
  },
  async "delete"(w) {
    const s = await w.session();
    await s.prompt("say to be deleted");
    await s.request(methods.agent.session.delete);
    s.link.sessions.delete(s.id);
    const { sessions } = await s.link.agent.request(methods.agent.session.list, { cwd: w.dir });
    assert.deepEqual(sessions.filter((one) => one.sessionId === s.id), []);
    await failure(open(w, methods.agent.session.load, s.id));
  },
  async "two clients on one session"(w) {
    const s = await w.session();
    await s.prompt("say first");
    const other = await open(w, methods.agent.session.load, s.id);
    const [a, b] = await Promise.all([s.prompt("say from one"), other.prompt("say from the other")]);
    assert.ok(a.text && b.text);
    await other.untilText("from one");
    await s.untilText("from the other");
  },
  async "never prompted"(w) {
    const s = await w.session();
    await s.request(methods.agent.session.close);
    s.link.sessions.delete(s.id);
    const again = await open(w, methods.agent.session.load, s.id);
    assert.equal((await again.prompt("say at last")).text, "at last");
  },
  async "process killed in the middle of a turn"(w) {
    const s = await w.session();
    await s.prompt("say number one");
    const broken = failure(s.begin("forever"));
    await s.untilText("tick 3");
    process.kill(await servedBy("pi", w.dir), "SIGKILL");
    assert.match((await broken).all, /SIGKILL|killed|ended/i);
    assert.match((await s.prompt("recall")).text, /number one/);
  },
};
