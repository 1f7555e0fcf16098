// Scenarios of sessions: where they come from, how they go on and how they end.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, rmSync, writeFileSync } from "node:fs";
import { promisify } from "node:util";
import {
  api, callsOf, choose, control, dies, env, failure, heard, methods, ownOf, script, servedBy, Session, textOf, userTextOf, withoutAnswer,
} from "./link.mjs";
import { pidIn, thinks } from "./turns.mjs";

const { load, resume, list } = methods.agent.session;

/** Opens an existing session on a new connection. */
export async function open(w, method, id, { answer, place, link } = {}) {
  link ??= await w.connect({}, place);
  const result = await link.agent.request(method, { sessionId: id, cwd: w.place, mcpServers: [] });
  return new Session(w, link, id, result, answer);
}

/** Runs the program in a terminal, so to speak. */
export async function terminal(w, a, ...args) {
  const run = promisify(execFile)(env.PROGRAM, a.terminal(...args), { cwd: w.dir, env: { ...process.env, PWD: w.dir } });
  run.child.stdin.end();
  return (await run).stdout;
}

/** A prompt whose turn does not end, and a wait until it has begun. */
function endless(w, a) {
  const prompt = a.streams ? "forever" : script([[{ gate: `never ${w.name}` }, { say: "never said" }]]);
  return { prompt, begun: (s) => a.streams ? s.untilText("tick 3") : thinks(prompt) };
}

/** What makes the program's files, so that nothing else starts it meanwhile. */
export const first = {
  async "session of a terminal is listed and loaded"(w, a) {
    w.moveIn();
    if (a.listsWhileRunning) await w.session({ cwd: env.WORK });
    writeFileSync(`${w.dir}/notes.txt`, "some notes\n");
    const said = a.inTerminal?.(w) ?? "run echo in a terminal";
    await terminal(w, a, said);
    const link = await w.connect();
    const { sessions } = await link.agent.request(list, { cwd: w.dir });
    assert.equal(sessions.length, 1, JSON.stringify(sessions));
    const [{ sessionId, title, cwd = w.dir }] = sessions;
    assert.equal(cwd, w.dir);
    if (a.titlesPrompt !== false) assert.ok(title.includes(said.slice(0, 16)), title);
    const more = a.terminalAgain?.(sessionId);
    if (more) await terminal(w, a, ...more);
    const first = await open(w, resume, sessionId);
    assert.equal(userTextOf(first.updates), "", "resume replays nothing");
    assert.equal(ownOf(first.result).historyIncomplete, undefined, "and has the history for others");
    const s = await open(w, load, sessionId);
    await s.untilText(more?.at(-1).replace("say ", "") ?? "ran:");
    assert.ok(userTextOf(s.updates).replaceAll('"', "").startsWith(said), userTextOf(s.updates));
    if (more) assert.equal(userTextOf(s.updates), [said, more.at(-1)].join("\n"));
    assert.deepEqual(callsOf(s.updates).map((c) => [c.name, c.status]), [[a.inTerminal ? a.reads : a.shell, "completed"]]);
    assert.ok((await s.prompt("recall")).text.includes(said), "the program knows it all");
  },
};

export default {
  async "closed, loaded and resumed, with turns of a terminal between"(w, a) {
    w.moveIn();
    const s = await w.session(a.free);
    await s.prompt("say made here");
    await s.prompt("run echo made here, too");
    await s.prompt("say made here"); // the same once more
    // Where that needs no filling first, and the scripted model says no summary for an answer.
    const compacts = a.compacts?.before.every((words) => words.length < 100) && !a.compacts.repeats;
    if (compacts) await s.prompt("/compact");
    const pid = a.oneProcess ? undefined : await servedBy(a.id, w.dir);
    await s.close();
    if (pid) await dies(pid);
    assert.match((await failure(s.begin("say closed"))).message, /closed/);
    await terminal(w, a, ...a.again(s.id, "say in the terminal"));
    const back = await open(w, resume, s.id);
    assert.equal(userTextOf(back.updates), "", "resume replays nothing");
    await back.prompt("say made here");
    const knows = async (prompt, ...all) => {
      const { prompts } = (await heard(prompt)).at(-1);
      for (const words of all) assert.ok(prompts.some((p) => p.includes(words)), `the model is told ${JSON.stringify(prompts)}, without ${words}`);
    };
    await knows("say made here", ...compacts ? [] : ["run echo made here, too"], "say in the terminal");
    assert.equal(userTextOf(back.updates).replaceAll('"', ""), "say in the terminal", "what was made in the terminal is shown once, and nothing else");
    assert.equal(back.text, "in the terminalmade here", "and before the new turn");
    if (!a.beside) await back.close(); // or while a process serves the session
    await terminal(w, a, ...a.again(s.id, "say made here")); // the words of the last turn
    const said = ["say made here", "run echo made here, too", "say made here", ...compacts ? ["/compact"] : [], "say in the terminal", "say made here", "say made here"];
    const prompts = (x) => userTextOf(x.updates).replaceAll('"', "").split("\n");
    const there = await open(w, load, s.id);
    await there.link.until("the turn of the terminal", () => prompts(there).length === said.length); // nobody has prompted it
    await there.prompt("say what was said");
    said.push("say what was said");
    if (a.beside) {
      await terminal(w, a, ...a.again(s.id, "say beside it"));
      await there.prompt("say and the last");
      said.push("say beside it", "say and the last");
    }
    await there.close();
    const link = await w.connect();
    const all = await open(w, load, s.id, { link });
    await all.untilText(a.beside ? "and the last" : "what was said");
    assert.equal((await api(`/v2/sessions/${s.id}`)).state, "dormant", "nothing was added, so nobody is asked");
    assert.deepEqual(prompts(all), said);
    assert.deepEqual(callsOf(all.updates).map((c) => [c.name, c.status]), [[a.shell, "completed"]]);
    const imported = all.updates.filter((u) => ownOf(u).imported);
    assert.equal(textOf(imported), `in the terminalmade here${a.beside ? "beside it" : ""}`, "what was made elsewhere is marked");
    assert.equal(ownOf(all.result).historyIncomplete, undefined);
    await knows(said.at(-1), ...compacts ? [] : ["run echo made here, too"], "say in the terminal", ...a.beside ? ["say beside it"] : []);
  },
  async "two clients on one session, which is deleted"(w, a) {
    const { id, link } = await w.session(a.free);
    await link.agent.request(methods.agent.session.close, { sessionId: id });
    const s = await open(w, load, id, { link }); // it was never prompted
    await s.prompt("run echo logged");
    await s.prompt("say the end");
    const other = await open(w, load, s.id);
    await other.untilText("the end");
    assert.equal(other.text, s.text, "the gateway's log is replayed");
    assert.equal(userTextOf(other.updates), "run echo logged\nsay the end");
    assert.deepEqual(callsOf(other.updates).map((c) => [c.name, c.status]), [[a.shell, "completed"]]);
    const [one, two] = await Promise.all([s.prompt("say from one"), other.prompt("say from the other")]);
    assert.ok(one.text && two.text);
    await other.untilText("from one");
    await s.untilText("from the other");
    if (a.deletes === false) return;
    await s.request(methods.agent.session.delete);
    for (const x of [s, other]) x.link.sessions.delete(s.id);
    const { sessions } = await s.link.agent.request(list, { cwd: w.place });
    assert.deepEqual(sessions.filter((x) => x.sessionId === s.id), []);
    assert.equal((await failure(open(w, load, s.id))).code, -32002);
    a.deleted?.(s.id);
  },
  async "fork knows the past and is on its own"(w) {
    const s = await w.session();
    await s.prompt("say common past");
    const { sessionId } = await s.request("session/fork", { cwd: w.place, mcpServers: [] });
    assert.notEqual(sessionId, s.id);
    const fork = new Session(w, s.link, sessionId);
    assert.equal((await fork.prompt("say only the fork")).text, "only the fork", "nothing of the past is shown as new");
    assert.doesNotMatch(textOf(fork.updates), /common past/);
    assert.match((await fork.prompt("recall")).text, /common past.*only the fork/);
    const { text } = await s.prompt("recall");
    assert.match(text, /common past/);
    assert.doesNotMatch(text, /only the fork/);
  },
  async "unknown session"(w, a) {
    const link = await w.connect();
    for (const sessionId of ["no-such-session", a.unknown]) {
      for (const method of [load, resume]) {
        const e = await failure(link.agent.request(method, { sessionId, cwd: w.dir, mcpServers: [] }));
        assert.equal(e.code, -32002, e.all);
        assert.match(e.message, new RegExp(sessionId));
      }
      const e = await failure(link.agent.request(methods.agent.session.prompt, { sessionId, prompt: [{ type: "text", text: "hi" }] }));
      assert.match(e.all, new RegExp(sessionId));
    }
  },
};

/** The settings of one of two sessions. Their processes can be told apart, unless they share one: then both see its end. */
const marked = (a, n) => a.oneProcess ? a.free : { meta: { env: { WHERE: n } } };

export const last = {
  async "process killed in the middle of turns"(w, a) {
    w.moveIn();
    const one = await w.session(marked(a, "one"));
    const two = await w.fresh(marked(a, "two")); // otherwise it notices nothing
    await one.prompt("say number one");
    await two.prompt("say number two");
    const { prompt, begun } = endless(w, a);
    const broken = [failure(one.begin(prompt))];
    await begun(one);
    if (a.oneProcess) {
      broken.push(failure(two.begin(`run echo begun; echo $$ > ${w.dir}/pid; sleep 600`)));
      await pidIn(`${w.dir}/pid`);
      await two.until("its call", (u) => u.sessionUpdate === "tool_call");
      for (const { pid } of (await api("/v2/agents")).agents.find((x) => x.id === a.id).processes) process.kill(pid, "SIGKILL");
    } else {
      process.kill(await servedBy(a.id, w.dir, "WHERE=one"), "SIGKILL");
    }
    for (const e of await Promise.all(broken)) assert.match(e.all, /SIGKILL/);
    if (a.oneProcess) assert.deepEqual(callsOf(two.updates).map((c) => c.status), ["failed"], "what ran is closed");
    const from = two.updates.length;
    assert.match((await one.prompt("recall")).text, /number one/, "the conversation goes on");
    assert.match((await two.prompt("recall")).text, /number two/);
    assert.equal((await api(`/v2/sessions/${one.id}`)).continuity, "native");
    if (!a.oneProcess) assert.ok(!two.updates.slice(from).some((u) => ownOf(u).continuity), "the other session noticed");
    if (a.mayLeaveUnread) {
      const pid = a.oneProcess ? (await api("/v2/agents")).agents.find((x) => x.id === a.id).processes[0].pid : await servedBy(a.id, w.dir, "WHERE=one");
      process.kill(pid, "SIGKILL");
      assert.equal((await one.prompt("say at once")).text, "at once", "what the process had not read goes to the next");
    }
    await one.close();
  },
  async "an agent whose files are gone says so"(w, a) {
    const s = await w.take(marked(a, "two"));
    await s.prompt("say words to be forgotten");
    await s.request("session/close", {});
    rmSync(`${env.HOME}/${a.forgets}`, { recursive: true });
    const back = await open(w, resume, s.id, { link: s.link });
    assert.equal((await back.prompt("say and go on")).text, "and go on");
    assert.equal((await api(`/v2/sessions/${s.id}`)).continuity, "fresh");
    assert.ok(back.updates.some((u) => ownOf(u).continuity === "fresh"), "clients are told");
    await back.close();
  },
  async "gateway killed and restarted"(w, a) {
    const transport = a.restartOver ?? "http";
    const link = await w.connect({}, { transport });
    const busy = await w.session({ link, meta: { appendSystemPrompt: "APPENDED PROMPT" } });
    await busy.prompt("say words before the crash");
    for (const [id, value] of Object.entries(a.keeps?.options ?? {})) await busy.set(id, value);
    if (a.keeps?.mode) await busy.setMode(a.keeps.mode);
    const { prompt, begun } = endless(w, a);
    const broken = busy.begin(prompt);
    await begun(busy);
    // One waits for a permission that nobody has given yet.
    const asking = await w.session({ link, answer: withoutAnswer });
    await asking.prompt("say this before the question");
    const touching = (name) => script([[a.touch(`${w.dir}/${name}`)], [{ say: "touched" }]]);
    const unanswered = asking.begin(touching("asked"));
    await asking.untilAsked();
    const { url } = await control("POST", "restart");
    for (const turn of [broken, unanswered]) {
      await assert.rejects(Promise.race([turn, link.connection.closed.then(() => Promise.reject(new Error("closed")))]));
    }

    const place = { url, transport };
    w.links = [await w.connect({}, place)];
    const back = (id, answer) => open(w, load, id, { link: w.links[0], answer });
    const crashed = await back(busy.id);
    await crashed.untilText("words before the crash");
    const last = a.streams ? /forever/ : /never said/;
    await crashed.link.until("the prompt that was broken off", () => last.test(userTextOf(crashed.updates))); // it comes behind that text
    if (a.keeps?.mode) assert.equal(crashed.result.modes.currentModeId, a.keeps.mode, "what was chosen is kept");
    assert.match((await crashed.prompt("say and after it")).text, /and after it$/);
    const r = (await heard("say and after it")).at(-1);
    assert.ok(r.prompts.some((p) => p.includes("say words before the crash")), `the model is told of ${JSON.stringify(r.prompts)}`);
    assert.match(r.body, /APPENDED PROMPT/, "how the session was set up is kept");
    if (a.keeps?.effort) assert.equal(r.effort, a.keeps.effort, "what was chosen is kept");
    await a.keeps?.shows?.(w, crashed);

    const asked = await back(asking.id, choose("allow_once"));
    await asked.untilText("this before the question");
    assert.equal(asked.asked.length, 0, "the permission of the turn that died is not asked for again");
    assert.ok(!existsSync(`${w.dir}/asked`), "nobody has allowed it");
    const turn = await asked.prompt(touching("again"));
    const before = a.goesOn && turn.text === "touchedtouched" ? "touched" : ""; // of the turn that was killed
    assert.deepEqual([turn.asked.length, turn.text], [1, `${before}touched`]);
    assert.ok(!existsSync(`${w.dir}/asked`) && existsSync(`${w.dir}/again`));
    const [lost, again] = callsOf(asked.updates).map((c) => c.status);
    assert.equal(again, "completed");
    assert.equal(lost, "failed", "the call that waited is closed");
    assert.ok((await heard(`${w.dir}/again`)).at(-1).prompts.some((p) => p.includes("before the question")));
  },
};
