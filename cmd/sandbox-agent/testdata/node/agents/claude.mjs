// What differs with Claude Code: each session has a process of its own.
import assert from "node:assert/strict";
import { existsSync, readdirSync, writeFileSync } from "node:fs";
import {
  api, call, callsOf, choose, env, eventually, failure, heard, methods, openGate, script, userTextOf,
} from "../link.mjs";
import { equipped, server } from "../asks.mjs";
import { open } from "../sessions.mjs";
import { dot, free } from "../turns.mjs";

const run = (command) => call("Bash", { command, description: command });
const task = (prompt, description = "Look") => call("Agent", { description, prompt, subagent_type: "general-purpose", run_in_background: false });
/** A plan is shown with a few requests; more are too many. */
const planning = { meta: { env: { CLAUDE_CODE_ENABLE_TASKS: "0", ANTHROPIC_MODEL: "claude-sonnet-4-5" }, agentSpecific: { claude: { maxTurns: 4 } } } };
const todos = (a, b) => call("TodoWrite", { todos: [
  { content: "First", status: a, activeForm: "Doing first" }, { content: "Second", status: b, activeForm: "Doing second" },
] });

const modesOf = (turn) => turn.of("current_mode_update").map((u) => u.currentModeId).join(" ");
const planMode = (say = "done") => script([[call("EnterPlanMode")], [{ plan: "# The plan\n1. Do it" }], [call("ExitPlanMode")], [{ say }]]);

/** Accepts a plan by an option. */
async function approve(w, option, settings = {}) {
  const s = await w.borrow(settings, choose(option));
  const turn = await s.prompt(planMode());
  const ask = turn.asked.find((a) => a.params.toolCall.name === "ExitPlanMode");
  assert.match(JSON.stringify(ask.params.toolCall.content), /# The plan/);
  assert.equal(turn.text, "done");
  return { s, turn, options: ask.params.options.map((o) => o.optionId) };
}

export default {
  id: "claude",
  streams: true,
  images: true,
  free: { meta: { agentSpecific: { claude: { allowedTools: ["Bash"] } } } },
  shell: "Bash",
  reads: "Read",
  tasks: "Agent",
  run,
  task,
  longTitles: true,
  inOrder: true,
  fails: { command: "ls no-such-file", says: /No such file/ },
  large: { command: "head -c 350000 /dev/zero | tr '\\0' x", shows: /x{1000}/, most: 160_000 },
  edits: (w) => ({
    answer: choose("allow_once"),
    rounds: [
      call("Write", { file_path: `${w.dir}/new.txt`, content: "one" }), call("Read", { file_path: `${w.dir}/old.txt` }),
      call("Edit", { file_path: `${w.dir}/old.txt`, old_string: "two", new_string: "TWO" }),
    ],
    diffs: [[`${w.dir}/new.txt`, null, "one"], [`${w.dir}/old.txt`, "one\ntwo\nthree\n", "one\nTWO\nthree\n"]],
  }),
  plans: [{ settings: planning, rounds: [[todos("in_progress", "pending")], [todos("completed", "in_progress")]], plans: 2 }],
  usage: { tokens: [1000, 50, 3000, 200], used: 4250, size: 100_000, cost: 0, result: {} },
  listsTitles: true,
  badKey: /ANTHROPIC_API_KEY/,
  refusal: { code: -32603 },
  stopsWithRefusal: true,
  retry: { fail: 429, says: /429/ },
  endless(w) {
    writeFileSync(`${w.dir}/long.sh`, `setsid sh -c 'echo $$ > ${w.dir}/pid; exec sleep 1000'\n`);
    return { command: `sh ${w.dir}/long.sh` };
  },
  compacts: { before: ["remember the sea", "and the sky", "and the wind"], gone: "remember the sea" },
  command: { name: "context", says: /Context Usage/ },


  touch: (path) => run(`touch ${path}`),
  allowed: (w) => run(`mkdir -p ${w.dir}/made`),
  instead: true,
  multiSelect: true,
  question: call("AskUserQuestion", { questions: [
    { question: "Which color?", header: "Color", multiSelect: false, options: [{ label: "Red", description: "warm" }, { label: "Blue", description: "cold" }] },
    { question: "Which sizes?", header: "Sizes", multiSelect: true, options: [{ label: "S", description: "small" }, { label: "L", description: "large" }] },
  ] }),
  declined: /does not want to answer/,
  change: (path) => call("Write", { file_path: path, content: "x" }),
  modes: { all: ["default", "acceptEdits", "plan", "dontAsk"], perhaps: ["auto", "bypassPermissions"], open: "acceptEdits", closed: "dontAsk" },
  models: { other: /^sonnet/, heard: /sonnet/, effort: "low" },
  equipment: (dir) => ({
    capabilities: { elicitation: { form: {} } },
    mcpServers: dir ? [server(dir)] : [],
    additionalDirectories: [`${dir}/more`],
    meta: { model: "sonnet", variant: "low", mode: "acceptEdits", env: { SESSIONS_OWN: "of this session" }, additionalDirectories: [`${dir}/even-more`] },
  }),
  async useSkill(w, s, name) {
    await s.prompt(`/${name} Bob`);
    assert.match((await heard("SKILL BODY")).at(-1).body, /SKILL BODY for Bob/);
  },
  async reach(w, s, dir) {
    for (const name of ["more", "even-more"]) {
      const turn = await s.prompt(`read ${dir}/${name}/there.txt`);
      assert.match(turn.text, /it is there/);
      assert.equal(turn.asked.length, 0);
    }
    const closed = await w.borrow({}, choose("reject_once"));
    assert.equal((await closed.prompt(`read ${dir}/more/there.txt`)).asked.length, 1, "otherwise it must be asked for");
  },
  noEffect: {
    meta: { permissionMode: "whatever", skills: { paths: ["/no/such"] }, agentSpecific: { claude: { noSuchThing: 1 } } },
    fields: ["agentSpecific.claude.noSuchThing", "permissionMode", "skills"],
  },

  terminal: (...args) => ["-p", "--output-format", "json", ...args],
  inTerminal: (w) => `read ${w.dir}/notes.txt`,
  again: (id, words) => ["--resume", id, words],
  mayLeaveUnread: true, // what a process has not read goes to the next: shown with one of each kind, and nobody knows it of one that is spoken to by HTTP
  beside: true, // a terminal may go on with what a process here has open
  terminalAgain: (id) => ["--resume", id, "say the second answer"],
  unknown: "5a7e8a0c-0000-4000-8000-00000000abcd",
  deleted: (id) => assert.deepEqual(readdirSync(`${env.HOME}/.claude/projects`, { recursive: true }).filter((f) => String(f).endsWith(`${id}.jsonl`)), []),
  restartOver: "ws",
  keeps: { options: { effort: "low" }, effort: "low" },
  forgets: ".claude/projects",
  nokey: { says: /ANTHROPIC_API_KEY/, methods: 2, status: true, listed: true, brings: { apiKey: "sk-ant-brought-along", oauthToken: "sk-ant-oat-brought-along", baseUrl: "" }, modelSeesKey: true },

  turns: {
    own: {
      async "calls end as they are ready"(w, a) {
        const turn = await (await w.borrow(free(a))).prompt(script([[task("run sleep 1", "slow"), task("say quick", "fast")], [{ say: "both" }]]));
        const names = new Map(turn.calls.filter((c) => c.name === "Agent").map((c) => [c.toolCallId, c.rawInput.description]));
        const order = turn.of("tool_call_update").filter((u) => u.status === "completed" && names.has(u.toolCallId)).map((u) => names.get(u.toolCallId));
        assert.deepEqual(order, ["fast", "slow"]);
      },
      async "image result"(w, a) {
        writeFileSync(`${w.dir}/dot.png`, Buffer.from(dot, "base64"));
        const c = (await (await w.borrow(free(a))).prompt(`read ${w.dir}/dot.png`)).call("Read");
        const image = c.content.find((x) => x.type === "content" && x.content.type === "image");
        assert.ok(image, JSON.stringify(c.content));
        assert.equal(image.content.mimeType, "image/png");
      },
      async "retry is a thought without notices"(w) {
        const turn = await (await w.borrow()).prompt(script([[{ fail: 529, times: 1, words: "overloaded" }, { say: "done" }]]));
        assert.equal(turn.text, "done");
        assert.match(turn.thought, /overloaded.*529/);
        assert.equal(turn.of("notice").length, 0);
      },
      async "max turns"(w) {
        const s = await w.borrow(planning);
        await s.prompt(script(Array.from({ length: 8 }, (_, i) => [run(`echo ${i}`)])), "max_turn_requests");
      },
      async "a turn that nobody prompted"(w, a) {
        const s = await w.borrow(free(a));
        const background = call("Bash", { command: "sleep 0.5; echo over", description: "Wait", run_in_background: true });
        const turn = await s.prompt(script([[background], [{ say: "started " }]], [[background], [{ say: "it is over " }, { gate: "unprompted" }, { say: "now " }]]));
        assert.equal(turn.text, "started ");
        await s.untilText("it is over ");
        assert.equal((await api(`/v2/sessions/${s.id}`)).state, "running", "it works, though nobody has prompted it");
        const next = s.begin("say next");
        await openGate("unprompted");
        assert.equal((await next).stopReason, "end_turn");
        assert.equal(s.text, "started it is over now next");
        assert.equal(callsOf(s.updates)[0].status, "completed");
      },
    },
    without: {
      "live output of a command": "it shows what a command prints when the command has ended",
      "sessions at once": "each has a process of its own; see process killed in the middle of a turn",
    },
  },

  asks: {
    own: {
      async "plan accepted, each edit is asked for"(w) {
        const { s, turn, options } = await approve(w, "default");
        assert.equal(modesOf(turn), "plan default");
        assert.deepEqual(options.filter((o) => o !== "auto"), ["default", "acceptEdits", "reject"]);
        s.answer = choose("reject_once");
        assert.equal((await s.prompt(`write ${w.dir}/x.txt x`)).asked.length, 1);
      },
      async "plan accepted with all edits"(w) {
        const { s, turn } = await approve(w, "acceptEdits");
        assert.equal(modesOf(turn), "plan acceptEdits");
        assert.equal((await s.prompt(`write ${w.dir}/x.txt x`)).asked.length, 0);
        assert.ok(existsSync(`${w.dir}/x.txt`));
        await s.setMode("default");
      },
      async "plan accepted, the model decides"(w) {
        const { s, turn } = await approve(w, "auto");
        assert.equal(modesOf(turn), "plan auto");
        await s.setMode("default");
      },
      async "plan rejected"(w) {
        const s = await w.borrow({}, choose("reject_once"));
        const turn = await s.prompt(planMode("I shall revise it"));
        assert.equal(modesOf(turn), "plan");
        assert.equal(turn.text, "I shall revise it");
        assert.equal(turn.call("ExitPlanMode").status, "failed");
        await s.setMode("default");
      },
      async "bypass as root needs a sandbox"(w) {
        if (process.getuid() === 0) assert.match((await failure((await w.borrow()).setMode("bypassPermissions"))).message, /IS_SANDBOX/);
        const settings = { meta: { env: { IS_SANDBOX: "1" } } };
        const { s, turn } = await approve(w, "bypassPermissions", settings);
        assert.equal(modesOf(turn), "plan bypassPermissions");
        await s.setMode("default");
        await s.setMode("bypassPermissions");
        assert.equal((await s.prompt(`run touch ${w.dir}/made`)).asked.length, 0);
        assert.ok(existsSync(`${w.dir}/made`));
      },
      async "MCP server on stdio"(w, a) {
        const s = await equipped(w, a, choose("allow_once"));
        const turn = await s.prompt(script([[call("mcp__near__word")], [{ result: true }]]));
        assert.match(turn.text, /the word is heron/);
        assert.equal(turn.calls[0].status, "completed");
        assert.match(JSON.stringify(turn.calls[0].content), /the word is heron/);
      },
      async "MCP server asks the user"(w, a) {
        const s = await equipped(w, a, (params, kind) => {
          if (kind === "permission") return choose("allow_once")(params);
          assert.equal(params.message, "Your name?");
          return { action: "accept", content: { name: "Ada" } };
        });
        const turn = await s.prompt(script([[call("mcp__near__ask")], [{ result: true }]]));
        assert.match(turn.text, /"action":"accept".*Ada/s);
      },
      async "environment"(w, a) {
        const s = await equipped(w, a, choose("allow_once"));
        assert.match((await s.prompt("run printenv SESSIONS_OWN")).text, /of this session/);
      },
    },
  },

  sessions: {
    own: {
      async "one client answers, the other cancels"(w, a) {
        const first = await w.session();
        const second = await open(w, methods.agent.session.load, first.id, { answer: choose("allow_once") });
        let late;
        first.answer = () => new Promise((resolve) => { late = resolve; });
        const turn = await first.prompt(script([[a.touch(`${w.dir}/made`)], [{ say: "touched" }]]));
        assert.equal(turn.call("Bash").status, "completed");
        assert.equal(second.asked.length, 1);
        late({ outcome: { outcome: "selected", optionId: "reject" } }); // nobody waits for it
        await eventually("the same for both", () => second.text, (x) => x === first.text);
        assert.ok(userTextOf(second.updates).includes(`${w.dir}/made`), "it is shown what the other one said");
        const running = first.begin("forever");
        await second.untilText("tick 3");
        await second.cancel();
        assert.equal((await running).stopReason, "cancelled");
      },
    },
    without: { "fork knows the past and is on its own": "TestLive_Forked has it, and forks of forks" },
  },
};
