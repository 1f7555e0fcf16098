// What differs with Pi: each session has a process of its own.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { call, choose, contentOf, env, failure, heard, methods, ownOf, place, script, Session, withoutAnswer } from "../link.mjs";
import { equipped, server } from "../asks.mjs";
import { open } from "../sessions.mjs";
import { free } from "../turns.mjs";

const run = (command) => call("bash", { command });

export default {
  id: "pi",
  streams: true,
  images: true,
  free: { meta: { permissionMode: "bypass" } },
  freeMode: "bypass",
  shell: "bash",
  reads: "read",
  run,
  longTitles: true,
  showsLive: true,
  console: true,
  inOrder: true,
  fails: { command: "ls /no/such/folder", says: /No such file/ },
  large: { command: "seq 1 200000", shows: /THE END/, most: 70_000 },
  edits: (w) => ({
    settings: { capabilities: free({}).capabilities, meta: { permissionMode: "write" } }, // in which edits in the workspace are not asked for
    rounds: [
      call("edit", { path: `${w.dir}/old.txt`, edits: [{ oldText: "two", newText: "TWO" }] }),
      call("write", { path: `${w.dir}/old.txt`, content: "instead\n" }), call("write", { path: `${w.dir}/new.txt`, content: "alpha\n" }),
    ],
    diffs: [
      [`${w.dir}/old.txt`, "one\ntwo\nthree\n", "one\nTWO\nthree\n"], [`${w.dir}/old.txt`, "one\nTWO\nthree\n", "instead\n"], [`${w.dir}/new.txt`, null, "alpha\n"],
    ],
  }),
  usage: {
    tokens: [1000, 50, 3000, 0], used: 4050, size: 128_000, cost: 0.001,
    result: { inputTokens: 1000, outputTokens: 50, cachedReadTokens: 3000 },
  },
  badKey: /bad key.*login/,
  retry: { fail: 500, says: /attempt 1 of 2/ },
  endless: (w) => ({ command: `echo $$ > ${w.dir}/pid; while true; do echo tock; sleep 0.2; done` }),
  compacts: { before: ["one", "two"].map((n) => `${n} ${"word ".repeat(25_000)}`) },
  command: { name: "greet", prompt: "/greet you", says: /^greetings to you$/ },
  atOnce: 2,


  touch: (path) => run(`touch ${path}`),
  another: 1,
  change: (path) => run(`touch ${path}`),
  modes: { all: ["default", "readonly", "write", "bypass"], open: "bypass", closed: "readonly" },
  models: { other: /^scripted\/two$/, heard: /^two$/, effort: "high" },
  memory: "AGENTS.md",
  equipment(dir) {
    if (dir) {
      place(`${dir}/color.js`, `export default (pi) => pi.registerCommand("color", { description: "asks", handler: async (_a, ctx) => {
        ctx.ui.notify("you chose " + await ctx.ui.select("Which color?", ["Red", "Blue"]), "warning");
      } });`);
    }
    return {
      capabilities: { session: { notices: {} } }, mcpServers: dir ? [server(dir)] : [],
      additionalDirectories: [`${dir}/more`],
      meta: { model: "scripted/two", variant: "low", permissionMode: "write", agentSpecific: { pi: { extensions: [`${dir}/color.js`] } } },
    };
  },
  async useSkill(w, s, name) {
    await s.prompt(`/${name} Bob`);
    assert.match((await heard("Bob")).at(-1).body, /SKILL BODY/);
  },
  async reach(w, s, dir) {
    const edits = async (name) => (await s.prompt(`write ${dir}/${name}/made x`)).asked.length;
    assert.deepEqual([await edits("more"), await edits("even-more")], [0, 1]);
    assert.ok(existsSync(`${dir}/more/made`));
  },
  noEffect: { meta: { permissionMode: "nope", agentSpecific: { pi: { nope: 1 } } }, fields: ["agentSpecific.pi.nope", "permissionMode"] },

  terminal: (...args) => ["--print", ...args],
  again: (id, words) => ["--session", id, words],
  beside: true, // a terminal may go on with what a process here has open
  unknown: "5a7e8a0c-0000-4000-8000-00000000abcd",
  keeps: {
    options: { thought_level: "high" }, mode: "write", effort: "high",
    shows: async (w, s) => assert.equal((await s.prompt(`write ${w.dir}/kept.txt x`)).asked.length, 0, "the mode is kept"),
  },
  forgets: ".pi/agent/sessions",
  nokey: { says: /ANTHROPIC_API_KEY/, manyProviders: true, brings: { apiKey: "sk-ant-brought-along", oauthToken: "sk-ant-oat-brought-along", baseUrl: "" }, modelSeesKey: true },

  turns: {
    own: {
      async "text is not repeated after a broken stream"(w, a) {
        const s = await w.borrow(free(a));
        await failure(s.begin(script([[{ say: "once only " }, { fail: 500, words: "in the middle" }]])));
        assert.equal(s.text, "once only ");
      },
      async "a command of the user's"(w, a) {
        const s = await w.borrow(free(a));
        const c = (await s.prompt("/bash echo typed here")).call("bash");
        assert.deepEqual([c.status, contentOf(c)], ["completed", "```console\ntyped here\n```"]);
        await s.prompt(`say told ${w.name}`);
        const [r] = await heard(`told ${w.name}`);
        assert.ok(r.body.includes("typed here"), "the model is shown it");
      },
    },
    without: {
      "plan": "it has no tool for plans",
      "subagent belongs to its call": "it has no subagents",
    },
  },

  asks: {
    own: {
      async "nobody answers until somebody comes"(w, a) {
        const s = await w.take({}, withoutAnswer);
        s.begin(script([[a.touch(`${w.dir}/late`)], [{ say: "went on at last" }]]));
        await s.untilAsked();
        s.link.connection.close();
        const link = await w.connect();
        const again = new Session(w, link, s.id, undefined, choose("allow_once"));
        await link.agent.request(methods.agent.session.load, { sessionId: s.id, cwd: w.place, mcpServers: [] });
        await again.untilText("went on at last");
        assert.ok(existsSync(`${w.dir}/late`));
      },
      /** For bypass see usage and title, for the usual one mode by set_mode. */
      async "permissionMode of a new session"(w, a) {
        assert.equal((await w.session({ meta: { permissionMode: "readonly" } })).result.modes.currentModeId, "readonly");
        const s = await equipped(w, a, choose("reject_once"));
        assert.equal(s.result.modes.currentModeId, "write");
        assert.equal((await s.prompt(`write ${s.cwd}/in.txt x`)).asked.length, 0);
        assert.equal((await s.prompt(`write ${env.WORK}/../out-${process.pid}.txt x`)).asked.length, 1, "outside of the workspace");
        assert.ok(existsSync(`${s.cwd}/in.txt`));
      },
      async "MCP server"(w, a) {
        const s = await equipped(w, a, choose("allow_once"));
        const turn = await s.prompt(script([[call("mcp__near__word")], [{ result: true }]]));
        assert.match(turn.text, /the word is heron/);
        assert.deepEqual([turn.asked.length, turn.call("mcp__near__word").title], [1, "near: word"]);
      },
      async "extension asks the client"(w, a) {
        const s = await equipped(w, a, (params) => ({ outcome: { outcome: "selected", optionId: params.options.find((o) => o.name.startsWith("Blue")).optionId } }));
        await s.prompt("/color");
        await s.until("the answer", (u) => u.sessionUpdate === "notice" && u.title === "you chose Blue");
      },
    },
    without: {
      "permission inside a subagent": "it has no subagents",
      "question as elicitation": "only its extensions ask; see extension asks the client",
      "question by the gateway's extension": "only its extensions ask; see extension asks the client",
      "question as permission requests": "only its extensions ask; see extension asks the client",
    },
  },

  sessions: {
    without: { "fork knows the past and is on its own": "its live tests have it, and forks of forks" },
  },

  // A version that lacks much of what newer ones say.
  early: {
    own: {
      async "a turn with a permission"(w, a) {
        const s = await w.borrow({}, choose("allow_once"));
        const turn = await s.prompt(script([[a.touch(`${w.dir}/made`)], [{ say: "went on" }]]));
        assert.deepEqual([turn.asked.length, turn.call("bash").status, turn.text, existsSync(`${w.dir}/made`)], [1, "completed", "went on", true]);
        assert.equal((await s.prompt("say alive")).text, "alive");
      },
      async "cancel while a permission is open"(w, a) {
        const s = await w.borrow({}, withoutAnswer);
        const turn = s.begin(script([[a.touch(`${w.dir}/never`)], [{ say: "went on" }]]));
        await s.untilAsked();
        await s.cancelled(turn);
        assert.equal((await s.prompt("say after")).text, "after");
        assert.ok(!existsSync(`${w.dir}/never`));
      },
      async "model by a new process"(w) {
        const s = await w.session();
        await s.prompt("say a word to remember");
        await s.set("model", "scripted/two");
        assert.match((await s.prompt("recall")).text, /a word to remember/);
        assert.equal((await heard("recall")).at(-1).model, "two");
      },
      async "what it lacks is said"(w) {
        const s = await w.session({ mcpServers: [server(w.dir)] });
        assert.match(JSON.stringify(ownOf(s.result).unsupported), /has no MCP: 0.99.0 and newer have/);
        assert.equal(ownOf(s.result).agentVersion, env.VERSION);
      },
      async "closed and loaded"(w) {
        const s = await w.session();
        await s.prompt("say number one");
        await s.close();
        const again = await open(w, methods.agent.session.load, s.id);
        assert.match((await again.prompt("recall")).text, /number one/);
        await failure(again.set("model", "nope"));
      },
    },
  },
};
