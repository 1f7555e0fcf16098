// What differs with OpenCode: its processes are shared by sessions.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { call, choose, contentOf, control, diffsOf, dies, eventually, failure, heard, own, script, withoutAnswer } from "../link.mjs";
import { equipment, forms, server, skill } from "../asks.mjs";
import { free, pidIn } from "../turns.mjs";

const run = (command) => call("bash", { command, description: `runs ${command}` });
const task = (prompt) => call("task", { description: "Sub job", prompt, subagent_type: "general" });

const touch = (path) => call("bash", { command: `touch ${path}`, description: `because of touch ${path}` });
const color = { question: "Which color?", header: "Color", options: [{ label: "Red", description: "warm" }, { label: "Blue", description: "cold" }] };
const asking = (...questions) => call("question", { questions });
const questions = { capabilities: { _meta: own({ requestQuestion: true }) } };

export default {
  id: "opencode",
  streams: true,
  trims: true,
  images: true,
  oneProcess: true,
  free: {},
  shell: "bash",
  reads: "read",
  tasks: "task",
  run,
  task,
  showsLive: true,
  fails: { command: "echo oops >&2; exit 3", says: /oops/, exitCode: 3 },
  large: { command: "head -c 350000 /dev/zero | tr '\\0' x", shows: /./, most: 160_000 },
  edits: (w) => ({
    rounds: [
      call("write", { filePath: `${w.dir}/new.txt`, content: "alpha\n" }), call("read", { filePath: `${w.dir}/old.txt` }),
      call("edit", { filePath: `${w.dir}/old.txt`, oldString: "two", newString: "TWO" }),
    ],
    diffs: [[`${w.dir}/new.txt`, null, "alpha\n"], [`${w.dir}/old.txt`, "one\ntwo\nthree\n", "one\nTWO\nthree\n"]],
  }),
  plans: [{ rounds: [[call("todowrite", { todos: [
    { content: "First", status: "completed", priority: "high" }, { content: "Second", status: "in_progress", priority: "low" },
  ] })]] }],
  priorities: ["high", "low"],
  planIsNoCall: true,
  usage: { tokens: [1000, 50, 0, 0], used: 1050, size: 200_000, cost: 0, result: { inputTokens: 1000, outputTokens: 50 } },
  title: /^Scripted title$/,
  titleComesLate: true,
  refuses: { block: { type: "audio", data: "AAAA", mimeType: "audio/wav" }, says: /text, images/ },
  badKey: /bad key/,
  refusal: { status: 400 },
  stopsWithRefusal: true,
  retry: { fail: 500, says: /the server is broken/ },
  endless: (w) => ({ command: `echo $$ > ${w.dir}/pid; while true; do echo tock; sleep 0.2; done` }),
  compacts: { before: ["before"], summary: true },
  command: {
    name: "greet", folder: true, prompt: "/greet all of you", says: /^greetings to all of you$/, beside: ["compact"],
    file(dir) {
      mkdirSync(`${dir}/.opencode/command`, { recursive: true });
      writeFileSync(`${dir}/.opencode/command/greet.md`, "---\ndescription: greets\n---\nsay greetings to $ARGUMENTS\n");
    },
  },
  atOnce: 6,


  touch,
  asked(toolCall, options, path) {
    assert.equal(toolCall.title, `touch ${path}`);
    assert.match(options.find((o) => o.kind === "allow_always").name, /in this session: commands like touch \*/);
  },
  another: 0, // a command of the same kind
  async allowedMore(w, s) {
    const turn = await s.prompt(script([[task(script([[touch(`${w.dir}/child`)], [{ say: "child" }]]))], [{ say: "done" }]]));
    assert.equal(turn.asked.length, 0, "a subagent asks for what is allowed");
    assert.ok(existsSync(`${w.dir}/child`));
  },
  reject: "reject",
  hearsWhy: true,
  showsWhy: true,
  multiSelect: true,
  question: asking(color, { question: "Which sizes?", header: "Sizes", multiple: true, options: ["S", "L", "XL"].map((label) => ({ label, description: label })) }),
  change: (path) => call("write", { filePath: path, content: "x" }),
  modes: { all: ["build", "plan"], open: "build", closed: "plan" },
  models: { other: /^scripted\/small$/, heard: /^large$/, otherHeard: /^small$/, effort: "high", otherHasEffort: false },
  memory: "AGENTS.md",
  equipment(dir) {
    if (dir) skill(`${dir}/in/.opencode/skills`, "own", "of the workspace", "OWN BODY");
    return { additionalDirectories: [`${dir}/more`], meta: { model: "scripted/large", variant: "low" } };
  },
  async useSkill(w, s) {
    const turn = await s.prompt(script([[call("read", { filePath: `${equipment}/skills/demo/SKILL.md` })], [{ say: `skilled ${w.name}` }]]));
    assert.equal(turn.asked.length, 0, "a session may read its skills");
    assert.match(contentOf(turn.call("read")), /SKILL BODY/);
    await s.untilCommand(/^own$/);
    await s.prompt(`/own say owned ${w.name}`);
    assert.match((await heard(`owned ${w.name}`))[0].body, /OWN BODY/);
  },
  async reach(w, s, dir) {
    assert.equal((await s.prompt(`read ${dir}/more/there.txt`)).asked.length, 0);
    assert.equal((await s.prompt(script([[task(`read ${dir}/more/there.txt`)], [{ say: "done" }]]))).asked.length, 0, "a subagent asks for it");
    assert.equal((await s.prompt(`read ${dir}/even-more/there.txt`)).asked.length, 1);
  },
  noEffect: { meta: { permissionMode: "nope", agentSpecific: { opencode: { nope: 1 } } }, fields: ["agentSpecific.opencode.nope", "permissionMode"] },

  terminal: (...args) => ["run", ...args.at(-1).split(" "), ...args.slice(0, -1)],
  again: (id, words) => ["--session", id, words],
  listsWhileRunning: true,
  titlesPrompt: false,
  unknown: "ses_e040c9adbffeq90QCyI5xH6a73",
  keeps: { options: { effort: "high" }, mode: "plan", effort: "high" },
  nokey: { says: /opencode auth login/, manyProviders: true, brings: { apiKey: "sk-ant-brought-along", oauthToken: "sk-ant-other-brought-along", baseUrl: "/v1" }, modelSeesKey: true },

  turns: {
    own: {
      async "text is not repeated after a broken stream"(w, a) {
        const turn = await (await w.borrow(free(a))).prompt(`drops ${w.name}`);
        assert.equal(turn.text, "first words, then the rest");
        assert.equal(turn.of("notice").length, 1);
      },
      async "cancel during a retry"(w, a) {
        const s = await w.borrow(free(a));
        const turn = s.begin(script([[{ fail: 503, words: "overloaded" }]]));
        await s.until("a notice", (u) => u.sessionUpdate === "notice");
        await s.cancelled(turn);
        assert.equal((await s.prompt("say alive")).text, "alive");
      },
      async "undo and redo"(w, a) {
        const s = await w.session(free(a));
        await s.prompt("say the first");
        await s.prompt("say the second");
        await s.prompt("/undo");
        await s.prompt("/redo");
        assert.match((await s.prompt("recall")).text, /the second/);
        await s.prompt("/undo");
        await s.prompt("/undo");
        const turn = await s.prompt("recall");
        assert.match(turn.text, /the first/);
        assert.doesNotMatch(turn.text, /the second/);
      },
      async "cancel reaches a subagent"(w, a) {
        const s = await w.borrow(free(a));
        const turn = s.begin(script([[task(`run echo $$ > ${w.dir}/pid; sleep 600`)], [{ say: "never" }]]));
        const pid = await pidIn(`${w.dir}/pid`);
        const end = await s.cancelled(turn);
        assert.deepEqual(end.calls.map((c) => c.status), ["failed", "failed"]);
        await dies(pid);
        assert.equal((await s.prompt("say alive")).text, "alive");
      },
    },
  },

  asks: {
    own: {
      async "permission rejected, and the turn ends"(w) {
        const s = await w.borrow({}, choose("reject_stop"));
        const turn = await s.prompt(script([[touch(`${w.dir}/never`)], [{ say: "then so" }]]));
        assert.deepEqual([turn.call("bash").status, turn.text], ["failed", ""]);
      },
      async "one of two permissions is rejected"(w) {
        let bothAsk;
        const both = new Promise((resolve) => (bothAsk = resolve));
        const s = await w.borrow({}, async (params) => {
          if (/bad/.test(params.toolCall.title)) {
            await both;
            return choose("reject")(params);
          }
          bothAsk();
          await new Promise((resolve) => setTimeout(resolve, 700)); // the other is decided first
          return choose("once")(params);
        });
        const turn = await s.prompt(script([[touch(`${w.dir}/bad`), touch(`${w.dir}/good`)], [{ say: "went on" }]]));
        assert.equal(turn.asked.length, 2);
        assert.deepEqual([existsSync(`${w.dir}/bad`), existsSync(`${w.dir}/good`), turn.text], [false, true, "went on"]);
      },
      async "edit asks with its diff"(w) {
        const file = `${w.dir}/guarded.txt`;
        writeFileSync(file, "one\ntwo\n");
        const s = await w.borrow({}, choose("once"));
        const turn = await s.prompt(script([[call("read", { filePath: file })], [call("write", { filePath: file, content: "one\nTWO\n" })], [{ say: "done" }]]));
        const [diff] = diffsOf(turn.asked[0].params.toolCall);
        assert.deepEqual([diff.path, diff.oldText, diff.newText], [file, "one\ntwo\n", "one\nTWO\n"]);
        assert.deepEqual(diffsOf(turn.call("write")).map((d) => d.newText), ["one\nTWO\n"]);
      },
      async "outside of the workspace asks"(w) {
        const turn = await (await w.borrow({}, choose("reject"))).prompt("read /etc/hostname");
        assert.equal(turn.asked.length, 1);
        assert.match(turn.asked[0].params.toolCall.title, /Outside of the workspace: \/etc\/hostname/);
        assert.equal(turn.call("read").status, "failed");
      },
      async "permission inside a subagent is rejected"(w) {
        const s = await w.borrow({}, choose("reject"));
        const turn = await s.prompt(script([[task(script([[touch(`${w.dir}/child`)], [{ say: "child went on" }]]))], [{ say: "parent done" }]]));
        assert.match(turn.asked[0].params.toolCall.title, /^Subagent: touch/);
        assert.ok(!existsSync(`${w.dir}/child`));
        assert.equal(turn.text, "parent done");
        assert.match(contentOf(turn.call("task")), /child went on/);
      },
      async "question is rejected"(w) {
        const s = await w.borrow(questions, () => ({ outcome: "rejected", answers: [] }));
        const turn = await s.prompt(script([[asking(color)], [{ result: true }]]));
        assert.equal(turn.call("question").status, "failed");
        assert.equal((await s.prompt("say after")).text, "after");
      },
      async "cancel while a question is open"(w) {
        const s = await w.borrow(questions, withoutAnswer);
        const turn = s.begin(script([[asking(color)], [{ result: true }]]));
        await s.untilAsked();
        await s.cancelled(turn);
        assert.equal((await s.prompt("say after")).asked.length, 0);
      },
      async "permissionMode readonly"(w, a) {
        const allowed = ["edit", "bash"].map((permission) => ({ permission, pattern: "*", action: "allow" }));
        const s = await w.session({ meta: { permissionMode: "readonly", agentSpecific: { opencode: { permission: allowed } } } });
        const write = a.change(`${w.dir}/made`);
        await s.prompt(script([[write], [{ say: "done" }]]));
        await s.prompt(script([[task(script([[write, touch(`${w.dir}/made`)], [{ say: "child" }]]))], [{ say: "done" }]]));
        assert.ok(!existsSync(`${w.dir}/made`));
      },
      async "permissionMode write reaches subagents"(w, a) {
        const s = await w.session({ meta: { permissionMode: "write" }, answer: choose("once") });
        const turn = await s.prompt(script([
          [a.change(`${w.dir}/guarded`), run(`echo 1 > ${w.dir}/ran`)],
          [task(script([[run(`echo 2 > ${w.dir}/child`)], [{ say: "child" }]]))], [{ say: "done" }],
        ]));
        assert.deepEqual(turn.asked.map((x) => x.params.toolCall.title), [`echo 1 > ${w.dir}/ran`, `Subagent: echo 2 > ${w.dir}/child`]);
        for (const name of ["guarded", "ran", "child"]) assert.ok(existsSync(`${w.dir}/${name}`), name);
      },
      async "permissionMode bypass"(w, a) {
        const s = await w.session({ meta: { permissionMode: "bypass" } });
        await s.prompt(script([[touch(`${w.dir}/one`)], [{ say: "done" }]]));
        await s.prompt(script([[task(script([[touch(`${w.dir}/two`)], [{ say: "child" }]]))], [{ say: "done" }]]));
        await s.prompt("read /etc/hostname");
        assert.ok(existsSync(`${w.dir}/one`) && existsSync(`${w.dir}/two`));
        await s.setMode("plan");
        await s.prompt(script([[a.change(`${w.dir}/made`)], [{ say: "planned" }]]));
        assert.ok(!existsSync(`${w.dir}/made`), "what the mode plan denies stays denied");
      },
      async "keys do not leak"(w) {
        const s = await w.session();
        await s.prompt("say x");
        assert.ok(!JSON.stringify([s.result, s.updates]).includes("key-of-the-provider"));
        assert.ok(!(await control("GET", "log")).includes("key-of-the-provider"), "it stands in the log");
      },
      async "mcp servers belong to their session"(w) {
        w.moveIn();
        const before = await w.session({ capabilities: forms });
        const s = await w.session({ link: before.link, mcpServers: [server(w.dir), { name: "broken", command: "/bin/false", args: [], env: [] }] });
        await s.until("a notice of the broken one", (u) => u.sessionUpdate === "notice" && /broken/.test(u.title));
        const use = script([[call("near_word", {})], [{ say: "used" }]]);
        const c = (await s.prompt(use)).call("near_word");
        assert.equal(c.status, "completed");
        assert.match(contentOf(c), /the word is heron/);
        for (const other of [before, await w.session({ link: before.link })]) {
          assert.equal((await other.prompt(use)).calls[0].status, "failed", "another session uses it");
        }
      },
      async "a directory that does not exist"(w) {
        assert.match((await failure(w.session({ cwd: `${w.dir}/no/such` }))).all, /no such file or directory/);
      },
    },
  },

  sessions: {
    without: { "an agent whose files are gone says so": "its sessions are in a database that stays open" },
    own: {
      async "the user's .opencode is left as it was"(w) {
        w.moveIn();
        mkdirSync(`${w.dir}/.opencode/command`, { recursive: true });
        writeFileSync(`${w.dir}/.opencode/command/x.md`, "say x\n");
        const own = `{"dependencies":{"left-pad":"1.0.0"}}`;
        writeFileSync(`${w.dir}/.opencode/package.json`, own);
        const s = await w.session();
        assert.equal((await s.prompt("/x")).text, "x");
        await eventually("what OpenCode writes", () => existsSync(`${w.dir}/.opencode/.gitignore`), Boolean);
        await s.close();
        assert.deepEqual(readdirSync(`${w.dir}/.opencode`).sort(), ["command", "package.json"]);
        assert.equal(readFileSync(`${w.dir}/.opencode/package.json`, "utf8"), own);
      },
    },
  },
};
