// What differs with Codex: its processes are shared by sessions.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { call, callsOf, choose, contentOf, env, heard, ownOf, script } from "../link.mjs";
import { free } from "../turns.mjs";

const run = (cmd, more = {}) => call("exec_command", { cmd, ...more });

export default {
  id: "codex",
  streams: true,
  images: true,
  oneProcess: true,
  mayLeaveUnread: true,
  free: { meta: { permissionMode: "bypass" } },
  freeMode: "full-access",
  shell: "shell",
  reads: "shell",
  run,
  longTitles: true,
  showsLive: true,
  fails: { command: "ls /no/such/folder", says: /No such file/ },
  large: { command: "head -c 350000 /dev/zero | tr '\\0' x", shows: /bytes left out[^]*THE END/, most: 70_000 },
  edits: (w) => ({
    rounds: [{ call: "apply_patch", args: `*** Begin Patch\n*** Add File: ${w.dir}/new.txt\n+alpha\n*** Update File: ${w.dir}/old.txt\n*** Move to: ${w.dir}/moved.txt\n@@\n-two\n+TWO\n*** End Patch\n` }],
    diffs: [[`${w.dir}/new.txt`, null, "alpha\n"], [`${w.dir}/moved.txt`, "one\ntwo\nthree\n", "one\nTWO\nthree\n"]],
  }),
  plans: [{ rounds: [[call("update_plan", { plan: [{ step: "First", status: "completed" }, { step: "Second", status: "in_progress" }] })]] }],
  usage: { tokens: [1000, 50, 3000, 0], used: 4050, size: 100_000, result: { inputTokens: 1000, outputTokens: 50, cachedReadTokens: 3000 } },
  badKey: /bad key/,
  retry: { fail: 500, times: 3, says: /./ },
  endless: (w) => ({ command: `echo $$ > ${w.dir}/pid; while true; do echo tock; sleep 0.2; done` }),
  compacts: { before: ["before"], repeats: true },
  atOnce: 6,


  /** A command that needs a permission in every mode that asks. */
  touch: (path) => run(`touch ${path}`, { sandbox_permissions: "require_escalated", justification: `because of touch ${path}` }),
  allowAlways: "allow_session",
  keepsAllowed: "process",
  asksInMode: "plan",
  question: call("request_user_input", { questions: [{
    id: "color", header: "Color", question: "Which color?", options: [{ label: "Red", description: "warm" }, { label: "Blue", description: "cold" }],
  }] }),
  change: (path) => run(`touch ${path}`),
  modes: { all: ["read-only", "agent", "full-access", "plan"], through: ["full-access"], open: "agent", closed: "read-only", fails: false },
  models: { other: /^gpt-6\.1-sol$/, heard: /^gpt-6\.1-sol$/, effort: "high", compacts: true },
  memory: "AGENTS.md",
  equipment: (dir) => ({ additionalDirectories: [`${dir}/more`], meta: { model: "gpt-6.1-sol", variant: "low", permissionMode: "write" } }),
  async useSkill(w, s) {
    await s.prompt(`$demo say skilled ${w.name}`);
    assert.match((await heard(`skilled ${w.name}`))[0].body, /SKILL BODY/);
  },
  async reach(w, s, dir) {
    await s.prompt(`run echo x > ${dir}/more/made; true`);
    assert.ok(existsSync(`${dir}/more/made`));
  },
  noEffect: { meta: { permissionMode: "nope", agentSpecific: { codex: { nope: 1 } } }, fields: ["agentSpecific.codex.nope", "permissionMode"] },

  terminal: (...args) => ["exec", "--skip-git-repo-check", "-s", "danger-full-access", ...args],
  again: (id, words) => ["resume", id, words],
  unknown: "5a7e8a0c-0000-4000-8000-00000000abcd",
  keeps: { options: { reasoning_effort: "high", mode: "full-access" }, effort: "high" },
  forgets: ".codex/sessions",
  nokey: { says: /OPENAI_API_KEY/, methods: 3, status: true, brings: { apiKey: "sk-brought-along", baseUrl: "/v1" }, modelSeesKey: true },

  turns: {
    own: {
      async "review"(w, a) {
        const verdict = { findings: [], overall_correctness: "patch is correct", overall_explanation: "nothing is wrong", overall_confidence_score: 0.9 };
        const turn = await (await w.session(free(a))).prompt(`/review ${script([[{ say: JSON.stringify(verdict) }]])}`);
        assert.equal(turn.text.split("nothing is wrong").length, 2, turn.text);
        assert.doesNotMatch(turn.text, /findings/);
      },
      async "subagent belongs to its call"(w, a) {
        const s = await w.session(free(a));
        const turn = await s.prompt(script([
          [call("multi_agent_v1/spawn_agent", { message: "run echo child ran" })], [call("multi_agent_v1/wait_agent", { timeout_ms: 10000, targets: [] })], [{ say: "parent done" }],
        ]));
        assert.equal(turn.text, "parent done");
        const parent = ownOf(await s.until("the subagent's call", (u) => u.sessionUpdate === "tool_call" && ownOf(u).parentToolCallId)).parentToolCallId;
        await s.until("its end", (u) => u.toolCallId === parent && u.status === "completed");
        assert.match(contentOf(callsOf(s.updates).find((c) => c.toolCallId === parent)), /child ran/);
      },
      async "command left running ends behind its turn"(w, a) {
        const s = await w.session(free(a));
        const turn = await s.prompt(script([[run(`sleep 1; echo over > ${w.dir}/over`, { yield_time_ms: 250 })], [{ say: "left" }]]));
        const c = turn.call("shell");
        await s.until("its end", (u) => u.toolCallId === c.toolCallId && u.status === "completed");
        assert.ok(existsSync(`${w.dir}/over`));
      },
    },
    without: {
      "unknown tool is a failed call": "it tells its model, and nobody else",
      "a command is listed and run": "its commands, compact and review, have scenarios of their own",
    },
  },

  asks: {
    own: {
      async "patch outside the workspace asks with its diff"(w) {
        const file = `${env.WORK}/../outside-${process.pid}.txt`;
        const s = await w.borrow({}, choose("allow_once"));
        const turn = await s.prompt(script([[{ call: "apply_patch", args: `*** Begin Patch\n*** Add File: ${file}\n+outside\n*** End Patch\n` }], [{ say: "done" }]]));
        const [diff] = turn.asked[0].params.toolCall.content.filter((c) => c.type === "diff");
        assert.equal(diff.newText, "outside\n");
        assert.equal(turn.call("apply_patch").status, "completed");
        assert.equal(readFileSync(file, "utf8"), "outside\n");
      },
      async "permissionMode of a new session"(w) {
        for (const [permissionMode, mode] of [["write", "agent"], ["bypass", "full-access"], ["readonly", "read-only"]]) {
          assert.equal((await w.session({ meta: { permissionMode } })).result.modes.currentModeId, mode);
        }
      },
    },
    without: { "permission inside a subagent": "nobody has tried yet whether its subagents ask: they run beside the turn" },
  },
};
