// Scenarios of sessions: where they come from, how they go on, how they end.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { promisify } from "node:util";
import { api, callsOf, choose, control, dies, env, eventually, failure, heard, methods, ownOf, servedBy, Session, textOf, userTextOf } from "./claude-link.mjs";

/** Runs claude in a terminal, so to speak. */
async function terminal(w, ...args) {
  const { stdout } = await promisify(execFile)(env.PROGRAM, ["-p", "--output-format", "json", ...args], { cwd: w.dir, env: process.env });
  return JSON.parse(stdout).session_id;
}

/** Opens an existing session on a new connection. */
async function open(w, method, id, more = {}, place = {}) {
  const link = await w.connect({}, place);
  const result = await link.agent.request(method, { sessionId: id, cwd: w.dir, mcpServers: [], ...more });
  return new Session(w, link, id, result);
}
const replayed = (s, text) => s.link.until(`replay of ${text}`, () => textOf(s.updates).includes(text) || userTextOf(s.updates).includes(text));

/** All text of files below a folder. */
function* texts(dir) {
  for (const e of readdirSync(dir, { withFileTypes: true })) {
    const path = `${dir}/${e.name}`;
    if (e.isDirectory()) yield* texts(path);
    else if (e.isFile() && statSync(path, { throwIfNoEntry: false })?.size < 64 << 20) yield [path, readFileSync(path, "utf8")];
  }
}

export default {
  async "sessions of a terminal are listed"(w) {
    const id = await terminal(w, "say made in a terminal");
    const link = await w.connect();
    const { sessions } = await link.agent.request(methods.agent.session.list, { cwd: w.dir });
    const found = sessions.find((s) => s.sessionId === id);
    assert.ok(found, `${id} is not among ${JSON.stringify(sessions)}`);
    assert.equal(found.cwd, w.dir);
    assert.match(found.title, /made in a terminal/);
  },
  async "session of a terminal is loaded with its replay"(w) {
    writeFileSync(`${w.dir}/notes.txt`, "some notes\n");
    const id = await terminal(w, `read ${w.dir}/notes.txt`);
    await terminal(w, "--resume", id, "say the second answer");
    const s = await open(w, methods.agent.session.load, id);
    await replayed(s, "the second answer");
    assert.equal(userTextOf(s.updates), `read ${w.dir}/notes.txt\nsay the second answer`);
    assert.match(textOf(s.updates), /read: .*some notes.*the second answer/s);
    const [c] = callsOf(s.updates);
    assert.deepEqual([c.name, c.kind, c.status], ["Read", "read", "completed"]);
    const turn = await s.prompt("recall");
    assert.match(turn.text, /say the second answer/, "the program knows it all");
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
    const s = await w.session({ answer: choose("allow_once") });
    await s.prompt(`run touch ${w.dir}/made`);
    await s.prompt("say the end");
    const again = await open(w, methods.agent.session.load, s.id);
    await replayed(again, "the end");
    assert.equal(textOf(again.updates), textOf(s.updates));
    assert.equal(userTextOf(again.updates), `run touch ${w.dir}/made\nsay the end`);
    assert.deepEqual(callsOf(again.updates).map((c) => [c.name, c.status]), [["Bash", "completed"]]);
  },
  async "fork knows the past and is on its own"(w) {
    const s = await w.session();
    await s.prompt("say common past");
    const { sessionId } = await s.request("session/fork", { cwd: w.dir, mcpServers: [] });
    assert.notEqual(sessionId, s.id);
    const fork = new Session(w, s.link, sessionId);
    await fork.prompt("say only the fork");
    assert.match((await fork.prompt("recall")).text, /common past.*only the fork/);
    const { text } = await s.prompt("recall");
    assert.match(text, /common past/);
    assert.doesNotMatch(text, /only the fork/);
  },
  async "unknown session"(w) {
    const link = await w.connect();
    for (const sessionId of ["no-such-session", "5a7e8a0c-0000-4000-8000-00000000abcd"]) {
      for (const method of [methods.agent.session.load, methods.agent.session.resume]) {
        const e = await failure(link.agent.request(method, { sessionId, cwd: w.dir, mcpServers: [] }));
        assert.equal(e.code, -32002, e.all);
        assert.match(e.message, new RegExp(sessionId));
        assert.ok(e.took < 20_000, `${e.took} ms`);
      }
      const e = await failure(link.agent.request(methods.agent.session.prompt, { sessionId, prompt: [{ type: "text", text: "hi" }] }));
      assert.match(e.all, new RegExp(sessionId));
    }
  },
  async "close ends the process, load opens it again"(w) {
    const s = await w.session({ meta: { env: { WHERE: w.dir } } });
    await s.prompt("say before the close");
    const pid = await servedBy("claude", w.dir, `WHERE=${w.dir}`);
    await s.request(methods.agent.session.close);
    await dies(pid);
    assert.match((await failure(s.begin("say closed"))).message, /closed/);
    const again = await open(w, methods.agent.session.load, s.id);
    assert.match((await again.prompt("recall")).text, /before the close/);
  },
  async "delete removes session and transcript"(w) {
    const s = await w.session();
    await s.prompt("say to be deleted");
    const transcripts = () => readdirSync(`${env.HOME}/.claude/projects`, { recursive: true }).filter((f) => String(f).endsWith(`${s.id}.jsonl`));
    await eventually("the transcript", transcripts, (x) => x.length === 1);
    await s.request(methods.agent.session.delete);
    s.link.sessions.delete(s.id);
    assert.deepEqual(transcripts(), []);
    const { sessions } = await s.link.agent.request(methods.agent.session.list, {});
    assert.ok(!sessions.some((x) => x.sessionId === s.id));
    assert.equal((await failure(s.link.agent.request(methods.agent.session.load, { sessionId: s.id, cwd: w.dir, mcpServers: [] }))).code, -32002);
  },
  async "two clients on one session"(w) {
    const first = await w.session();
    await first.prompt("say hello both");
    const second = await open(w, methods.agent.session.load, first.id);
    await replayed(second, "hello both");
    let late;
    first.answer = () => new Promise((resolve) => { late = resolve; });
    second.answer = choose("allow_once");
    const turn = await first.prompt(`run touch ${w.dir}/made`);
    assert.equal(turn.call("Bash").status, "completed");
    assert.equal(second.asked.length, 1);
    late({ outcome: { outcome: "selected", optionId: "reject" } }); // nobody waits for it
    await eventually("the same for both", () => textOf(second.updates), (x) => x === textOf(first.updates));
    assert.ok(userTextOf(second.updates).includes(`run touch ${w.dir}/made`), "it is shown what the other one said");
    second.answer = undefined;
    const running = first.begin("forever");
    await second.untilText("tick 3");
    await second.cancel();
    assert.equal((await running).stopReason, "cancelled");
  },
  async "process killed in the middle of a turn"(w) {
    const s = await w.session({ meta: { env: { WHERE: w.dir } } });
    const other = await w.session({ link: s.link });
    await s.prompt("say before the crash");
    await other.prompt("say untouched");
    const turn = s.begin("forever");
    await s.untilText("tick 3");
    const pid = await servedBy("claude", w.dir, `WHERE=${w.dir}`);
    process.kill(pid, "SIGKILL");
    const e = await failure(turn);
    assert.match(e.all, /SIGKILL/, e.all);
    const next = await s.prompt("recall");
    assert.match(next.text, /before the crash/, "the conversation goes on");
    const info = await api(`/v2/sessions/${s.id}`);
    assert.equal(info.continuity, "native");
    const from = other.updates.length;
    assert.match((await other.prompt("recall")).text, /untouched/);
    assert.ok(!other.updates.slice(0, from).some((u) => ownOf(u).continuity), "the other session did not notice");
  },
  async "credentials of a session stay secret"(w) {
    const secret = "sk-ant-of-this-session-0815";
    const s = await w.session({ meta: { credentials: { apiKey: secret } } });
    await s.prompt("say with a key of my own");
    assert.equal((await heard("say with a key of my own"))[0].key, secret);
    const leaks = [];
    let kept = 0;
    for (const [path, text] of texts(env.DATA)) {
      if (text.includes(secret)) leaks.push(path);
      if (text.includes("say with a key of my own")) kept++;
    }
    assert.ok(kept > 0, "the journal is among what was searched");
    for (const path of ["/v2/sessions", `/v2/sessions/${s.id}`, `/v2/sessions/${s.id}/events?limit=1000`, "/v2/agents"]) {
      if (JSON.stringify(await api(path)).includes(secret)) leaks.push(path);
    }
    for (const pid of readdirSync("/proc").filter((p) => /^\d+$/.test(p))) {
      try {
        if (readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(secret)) leaks.push(`argv of ${pid}`);
      } catch { /* it has ended */ }
    }
    const log = await control("GET", "log");
    assert.match(log, /level=DEBUG/);
    if (log.includes(secret)) leaks.push("the gateway's log");
    if (JSON.stringify([...s.link.updates.values(), s.result]).includes(secret)) leaks.push("what clients see");
    assert.deepEqual(leaks, []);
  },
};
