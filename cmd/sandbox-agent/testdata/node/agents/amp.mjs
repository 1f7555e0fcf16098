// What differs with Amp: each session has a process of its own, and messages come
// as wholes.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { alive, call, choose, dies, env, failure, heard, methods, openGate, script, Session, withoutAnswer } from "../link.mjs";
import { free, thinks } from "../turns.mjs";

const run = (cmd) => call("Bash", { cmd });

const touched = (a, path) => script([[a.touch(path)], [{ say: "touched" }]]);

export default {
  id: "amp",
  streams: false,
  startsAfterCancel: true,
  trims: true,
  images: false,
  free: {},
  shell: "Bash",
  reads: "Read",
  tasks: "Task",
  run,
  task: (prompt) => call("Task", { description: "Sub job", prompt }),
  fails: { command: "echo oops; exit 3", says: /oops/, exitCode: 3 },
  large: { command: "echo $(seq 1 60000)", shows: /./, most: 160_000 },
  edits: (w) => ({
    settings: { meta: { permissionMode: "write" } },
    rounds: [
      call("Read", { path: `${w.dir}/old.txt` }), call("create_file", { path: `${w.dir}/new.txt`, content: "alpha\n" }),
      call("edit_file", { path: `${w.dir}/old.txt`, old_str: "two", new_str: "TWO" }), call("create_file", { path: `${w.dir}/new.txt`, content: "beta\n" }),
    ],
    diffs: [
      [`${w.dir}/new.txt`, null, "alpha\n"], [`${w.dir}/old.txt`, "one\ntwo\nthree\n", "one\nTWO\nthree\n"], [`${w.dir}/new.txt`, "alpha\n", "beta\n"],
    ],
  }),
  edited: (turn) => assert.equal(turn.call("edit_file").locations[0].line, 2),
  usage: { tokens: [100, 20, 0, 0], used: 120, size: 1000, result: { outputTokens: 20 } },
  refuses: { block: { type: "image", data: "AAAA", mimeType: "image/png" }, says: /no images/ },
  badKey: /./,
  refusal: { status: 400 },
  stopsWithRefusal: true,
  endless: (w) => ({ command: `echo $$ > ${w.dir}/pid; sleep 600` }),
  atOnce: 2,


  touch: (path) => run(`touch ${path}`),
  asked(toolCall, options, path) {
    assert.deepEqual([toolCall.kind, toolCall.title, options.map((o) => o.kind)], ["execute", `touch ${path}`, ["allow_once", "allow_always", "reject_once"]]);
  },
  another: 1,
  hearsWhy: true,
  asksForParent: false,
  equipment: () => ({ meta: {} }),
  noEffect: {
    meta: { additionalDirectories: ["/tmp"], agentSpecific: { amp: { noSuchThing: 1 } } }, fields: ["additionalDirectories", "agentSpecific.amp.noSuchThing"],
  },

  terminal: (...args) => args.length > 1 ? args : ["--execute", ...args],
  again: (id, words) => ["threads", "continue", id, "--execute", words],
  beside: true, // a terminal may go on with what a process here has open
  titlesPrompt: false,
  deletes: false,
  unknown: "T-5a7e8a0c-0000-4000-8000-00000000abcd",
  restartOver: "ws",
  nokey: { says: /AMP_API_KEY/, brings: { apiKey: "sgamp_brought_along", baseUrl: "" }, refused: "sgamp_refused" },

  turns: {
    own: {
      async "several prompts in one process"(w, a) {
        const s = await w.borrow(free(a));
        for (const word of ["one", "two", "three"]) assert.equal((await s.prompt(`say ${word}`)).text, word);
        assert.match((await s.prompt("recall")).text, /say one.*say two.*say three/);
      },
      async "cancel while the model thinks"(w, a) {
        const s = await w.borrow(free(a));
        const prompt = script([[{ gate: `never ${w.name}` }, { say: "too late" }]]);
        const turn = s.begin(prompt);
        await thinks(prompt);
        await s.cancelled(turn);
        await openGate(`never ${w.name}`);
        assert.equal((await s.prompt("say alive")).text, "alive");
        assert.equal(s.text, "alive", "what comes late is dropped");
      },
      async "a server that a turn leaves running outlives it, not the session"(w, a) {
        const s = await w.take(free(a));
        await s.prompt(`run nohup sleep 900 >/dev/null 2>&1 & echo $! > ${w.dir}/server`);
        const pid = readFileSync(`${w.dir}/server`, "utf8").trim();
        await s.prompt("say between");
        assert.ok(alive(pid), "it has ended with its turn");
        await s.close();
        await dies(pid);
      },
    },
    without: {
      "a command is listed and run": "it offers its commands on its own screen only",
      "retry is noticed": "nobody has tried yet what it tells of its retries",
      "live output of a command": "it shows what a command prints when the command has ended",
      "plan": "it has no tool for plans",
      "cancel while streaming": "its messages come as wholes; see cancel while the model thinks",
      "compaction": "it offers none to its callers",
      "subagent belongs to its call": "see permission inside a subagent",
    },
  },

  asks: {
    own: {
      async "permission answered late"(w, a) {
        // Longer than the ten seconds of which the program's own words speak.
        const s = await w.borrow({}, async (p) => { await new Promise((r) => setTimeout(r, 11_000)); return choose("allow_once")(p); });
        assert.equal((await s.prompt(touched(a, `${w.dir}/late`))).call("Bash").status, "completed");
      },
      async "another client answers"(w, a) {
        const first = await w.borrow({}, withoutAnswer);
        const link = await w.connect();
        const result = await link.agent.request(methods.agent.session.load, { sessionId: first.id, cwd: w.place, mcpServers: [] });
        const second = new Session(w, link, first.id, result, choose("allow_once"));
        const turn = await first.prompt(script([[a.touch(`${w.dir}/by-the-other`)], [{ say: "allowed by the other" }]]));
        assert.equal(turn.call("Bash").status, "completed");
        assert.equal(second.asked.length, 1);
        await second.untilText("allowed by the other");
        assert.ok(existsSync(`${w.dir}/by-the-other`));
        link.sessions.delete(first.id); // it goes on
      },
      async "parallel permissions"(w, a) {
        const s = await w.borrow({}, choose("allow_once"));
        const turn = await s.prompt(script([[a.touch(`${w.dir}/a`), a.touch(`${w.dir}/b`)], [{ say: "both" }]]));
        assert.deepEqual(turn.calls.map((c) => c.status), ["completed", "completed"]);
        assert.deepEqual(turn.asked.map((x) => x.params.toolCall.title).sort(), [`touch ${w.dir}/a`, `touch ${w.dir}/b`]);
      },
      async "the user's settings are honoured and unchanged"(w) {
        const sum = () => createHash("sha256").update(readFileSync(`${env.HOME}/.config/amp/settings.json`)).digest("hex");
        const before = sum();
        const s = await w.borrow({}, choose("allow_once"));
        assert.equal((await s.prompt("run echo allowed by the user")).asked.length, 0);
        const turn = await s.prompt(script([[run("ls -a")], [{ say: "listed" }]]));
        assert.equal(turn.asked.length, 1, "a rule that asks is put to the client");
        assert.equal(sum(), before);
      },
      async "settings of a workspace that decide are refused"(w) {
        w.moveIn();
        mkdirSync(`${w.dir}/.amp`);
        writeFileSync(`${w.dir}/.amp/settings.json`, `{"amp.dangerouslyAllowAll": true}`);
        assert.match((await failure(w.session())).all, /dangerouslyAllowAll.*permissionMode bypass/);
      },
      async "mode at the start, and one that is not allowed"(w) {
        const s = await w.fresh();
        assert.deepEqual([s.result.modes.currentModeId, s.result.modes.availableModes.some((m) => m.id === "rush")], ["smart", true]);
        assert.match((await failure(s.setMode("rush"))).message, /not permitted with 'rush' mode/);
        assert.match((await failure(s.setMode("no-such-mode"))).message, /smart/);
        assert.equal((await s.prompt("say still smart")).text, "still smart");
        assert.match((await failure(s.setMode("rush"))).message, /another session/, "in the midst of a thread");
        const team = await w.session({ link: s.link, meta: { credentials: { apiKey: "sgamp_team" } } });
        await team.setMode("rush");
        await team.prompt(`say in a rush ${w.name}`);
        const [rush] = await heard(`say in a rush ${w.name}`);
        const [smart] = await heard("say still smart");
        assert.notEqual(rush.model, smart.model);
      },
    },
    without: {
      "question as elicitation": "it has no tool for questions",
      "question by the gateway's extension": "it has no tool for questions",
      "question as permission requests": "it has no tool for questions",
      "mode by set_mode": "a mode needs an account; see mode at the start, and one that is not allowed",
      "mode by config option": "a mode needs an account; see mode at the start, and one that is not allowed",
      "model and effort in a running session": "its modes choose the model",
      "model and effort at the start": "its modes choose the model",
      "a skill is used": "its model decides about that",
      "additional directories": "it has none; see what has no effect is listed",
    },
  },

  goesOn: true, // killed behind a call, it may end that turn before the next prompt
  sessions: {
    without: {
      "fork knows the past and is on its own": "its threads cannot be forked",
      "an agent whose files are gone says so": "its threads are its server's",
    },
  },
};
