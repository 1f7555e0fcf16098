// Scenarios of sessions of OpenCode: where they come from, how they go on and end.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { promisify } from "node:util";
import codex from "./codex-sessions.mjs";
import { api, call, callsOf, env, eventually, failure, heard, methods, script, Session, textOf, userTextOf } from "./claude-link.mjs";

/** Opens an existing session on a new connection. */
async function open(w, method, id) {
  const link = await w.connect();
  const result = await link.agent.request(method, { sessionId: id, cwd: w.dir, mcpServers: [] });
  return new Session(w, link, id, result);
}
const replayed = (s, text) => s.link.until(`replay of ${text}`, () => textOf(s.updates).includes(text) || userTextOf(s.updates).includes(text));

// The process is shared, so what kills it comes last.
let left = 11;
let clear;
const others = new Promise((resolve) => { clear = resolve; });
const before = (scenario) => async (w) => {
  try {
    await scenario(w);
  } finally {
    if (--left === 0) clear();
  }
};

export default {
  "session of a terminal is listed and loaded": before(async (w) => {
    const run = promisify(execFile)(env.PROGRAM, ["run", ..."run echo in a terminal".split(" ")], { cwd: w.dir, env: { ...process.env, PWD: w.dir } });
    run.child.stdin.end();
    await run;
    const link = await w.connect();
    const { sessions } = await link.agent.request(methods.agent.session.list, { cwd: w.dir });
    assert.equal(sessions.length, 1, JSON.stringify(sessions));
    const s = await open(w, methods.agent.session.load, sessions[0].sessionId);
    await replayed(s, "ran:");
    assert.match(userTextOf(s.updates), /run echo in a terminal/);
    assert.deepEqual(callsOf(s.updates).map((c) => [c.name, c.status]), [["bash", "completed"]]);
    assert.match((await s.prompt("recall")).text, /in a terminal/);
  }),
  "resume replays nothing and knows everything": before(codex["resume replays nothing and knows everything"]),
  "load replays from the gateway's log": before(async (w) => {
    const s = await w.session();
    await s.prompt("run echo logged");
    await s.prompt("say the end");
    const again = await open(w, methods.agent.session.load, s.id);
    await replayed(again, "the end");
    assert.equal(textOf(again.updates), textOf(s.updates));
    assert.deepEqual(callsOf(again.updates).map((c) => [c.name, c.status]), [["bash", "completed"]]);
  }),
  "fork knows the past and is on its own": before(codex["fork knows the past and is on its own"]),
  "unknown session": before(async (w) => {
    const link = await w.connect();
    for (const sessionId of ["no-such-session", "ses_e040c9adbffeq90QCyI5xH6a73"]) {
      for (const method of [methods.agent.session.load, methods.agent.session.resume]) {
        const e = await failure(link.agent.request(method, { sessionId, cwd: w.dir, mcpServers: [] }));
        assert.equal(e.code, -32002, e.all);
        assert.match(e.message, new RegExp(sessionId));
      }
    }
  }),
  "close and load again": before(codex["close and load again"]),
  "delete": before(codex["delete"]),
  "two clients on one session": before(codex["two clients on one session"]),
  "never prompted": before(codex["never prompted"]),
  "24 turns at once in one server": before(async (w) => {
    const link = await w.connect();
    const all = [];
    for (let i = 0; i < 24; i++) all.push(await w.session({ link }));
    const turns = await Promise.all(all.map((s, i) => s.prompt(script([
      [{ say: `number ${i} begins. ` }, call("bash", { command: `echo ${i}; sleep 0.5`, description: "counts" })], [{ say: `I am number ${i} of them` }],
    ]))));
    turns.forEach((turn, i) => {
      assert.equal(turn.text, `number ${i} begins. I am number ${i} of them`);
      assert.equal(turn.call("bash").status, "completed");
    });
    const agent = (await api("/v2/agents")).agents.find((a) => a.id === "opencode");
    assert.equal(agent.processes.length, 1, JSON.stringify(agent.processes));
  }),
  "the user's .opencode is left as it was": before(async (w) => {
    mkdirSync(`${w.dir}/.opencode/command`, { recursive: true });
    writeFileSync(`${w.dir}/.opencode/command/x.md`, "say x\n");
    const own = `{"dependencies":{"left-pad":"1.0.0"}}`;
    writeFileSync(`${w.dir}/.opencode/package.json`, own);
    const s = await w.session();
    assert.equal((await s.prompt("/x")).text, "x");
    await eventually("what OpenCode writes", () => existsSync(`${w.dir}/.opencode/.gitignore`), Boolean);
    await s.request(methods.agent.session.close);
    s.link.sessions.delete(s.id);
    assert.deepEqual(readdirSync(`${w.dir}/.opencode`).sort(), ["command", "package.json"]);
    assert.equal(readFileSync(`${w.dir}/.opencode/package.json`, "utf8"), own);
  }),
  async "process killed in the middle of turns"(w) {
    await others;
    const one = await w.session();
    const two = await w.session();
    await one.prompt("say number one");
    await two.prompt("say number two");
    const broken = [failure(one.begin("forever")), failure(two.begin("run echo begun; sleep 600"))];
    await one.untilText("tick 3");
    await two.until("output", (u) => /begun/.test(JSON.stringify(u.content ?? "")));
    const agent = (await api("/v2/agents")).agents.find((a) => a.id === "opencode");
    for (const { pid } of agent.processes) process.kill(pid, "SIGKILL");
    for (const e of await Promise.all(broken)) assert.match(e.all, /SIGKILL|killed|ended/i);
    assert.deepEqual(callsOf(two.updates).map((c) => c.status), ["failed"], "what ran is closed");
    assert.match((await one.prompt("recall")).text, /number one/);
    assert.match((await two.prompt("recall")).text, /number two/);
    const [r] = (await heard("recall")).slice(-1);
    assert.ok(r.prompts.some((p) => p.includes("say number")), `the model is told of ${JSON.stringify(r.prompts)}`);
  },
};
