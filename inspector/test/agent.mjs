// An agent that speaks ACP on its standard streams and plays what the mock agent does
// not have: thoughts, colours, subagents, long mixed turns and forms.
import { existsSync } from "node:fs";
import { createInterface } from "node:readline";

const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
const waiting = new Map();
let next = 1;
const ask = (method, params) => new Promise((resolve) => {
  const id = `ask-${next++}`;
  waiting.set(id, resolve);
  send({ id, method, params });
});
const cancelled = new Set();
const given = new Map(); // MCP servers, by session

const plays = {
  /** `story plain` is for pictures: without what only tests look for. */
  async story({ update }, how) {
    const plain = how === "plain";
    update({ sessionUpdate: "agent_thought_chunk", content: { type: "text", text: "**Looking** at what there is.\n\nThe tests come first." } });
    update({ sessionUpdate: "agent_message_chunk", content: { type: "text", text: plain ? story.replace(/<script>.*/, "") : story } });
    update({ sessionUpdate: "tool_call", toolCallId: "run", title: "npm test", kind: "execute", status: "in_progress", rawInput: { command: "npm test" } });
    update({
      sessionUpdate: "tool_call_update", toolCallId: "run", status: "completed", rawOutput: { exitCode: 1 },
      content: [{ type: "content", content: { type: "text", text: "```console\n\u001b[1m RUN \u001b[0m 3 files\n\u001b[32m✓\u001b[39m adds numbers \u001b[2m(2 ms)\u001b[0m\n\u001b[31m✗ divides by zero\u001b[39m\n  \u001b[48;5;52mexpected Infinity\u001b[0m\n\u001b[33m1 failed\u001b[0m, \u001b[38;2;120;200;120m2 passed\u001b[0m\n```" } }],
    });
    update({
      sessionUpdate: "tool_call", toolCallId: "edit", title: "Edit src/divide.ts", kind: "edit", status: "completed", locations: [{ path: "/tmp/src/divide.ts", line: 3 }],
      content: [{ type: "diff", path: "/tmp/src/divide.ts", oldText: before, newText: after }],
    });
    const parent = { _meta: { "sandboxagent.dev": { parentToolCallId: "sub" } } };
    update({ sessionUpdate: "tool_call", toolCallId: "sub", title: "Ask a subagent to review", kind: "think", status: "in_progress", _meta: { "sandboxagent.dev": { subagent: {} } } });
    update({ sessionUpdate: "tool_call", toolCallId: "sub-1", title: "Read divide.ts", kind: "read", status: "completed", ...parent });
    const words = (text, all) => update({ sessionUpdate: "tool_call_update", toolCallId: "sub", content: [{ type: "content", content: { type: "text", text: all } }], _meta: { "sandboxagent.dev": { said: { messageId: "m", text } } } });
    words("The review ", "The review ");
    words("found nothing.", "The review found nothing.");
    update({ sessionUpdate: "tool_call_update", toolCallId: "sub", status: "completed" });
    if (!plain) update({ sessionUpdate: "agent_message_chunk", content: { type: "image", mimeType: "image/png", data: pixel } });
    update({ sessionUpdate: "available_commands_update", availableCommands: [{ name: "review", description: "Looks at the changes" }, { name: "story", description: "Tells all", input: { hint: "topic" } }] });
    update({ sessionUpdate: "usage_update", used: 48_200, size: 200_000, cost: { amount: 0.1834, currency: "USD" } });
    return { stopReason: "end_turn", usage: { totalTokens: 2345, inputTokens: 2000, outputTokens: 345 } };
  },
  // Says which MCP servers it was given.
  async mcp({ sessionId, say }) {
    say(`\`\`\`json\n${JSON.stringify(given.get(sessionId))}\n\`\`\``);
    return { stopReason: "end_turn" };
  },
  // use INPUT OUTPUT CACHED THOUGHT COST: a turn that uses this; the cost is that of the session.
  async use({ update, say }, input, output, cached, thought, cost) {
    update({ sessionUpdate: "usage_update", used: 1000, size: 200_000, cost: { amount: Number(cost), currency: "USD" } });
    say("used");
    return { stopReason: "end_turn", usage: { totalTokens: Number(input) + Number(output), inputTokens: Number(input), outputTokens: Number(output), cachedReadTokens: Number(cached), thoughtTokens: Number(thought) } };
  },
  // rewrite N all|half: a file of N lines of which all, or every second one, become others.
  async rewrite({ update }, count, which) {
    const text = (word) => Array.from({ length: Number(count) }, (_, i) => `${which === "all" || i % 2 === 0 ? word : "same"} ${i}`).join("\n");
    update({ sessionUpdate: "tool_call", toolCallId: `rewrite-${which}`, title: `Rewrite ${which}`, kind: "edit", status: "completed", content: [{ type: "diff", path: "/tmp/large.txt", oldText: text("old"), newText: text("new") }] });
    return { stopReason: "end_turn" };
  },
  async form({ sessionId, say }) {
    const answer = await ask("elicitation/create", {
      sessionId, mode: "form", message: "Where should it be **deployed**?",
      requestedSchema: {
        type: "object", required: ["region", "replicas"],
        properties: {
          region: { type: "string", title: "Region", oneOf: [{ const: "eu", title: "Europe" }, { const: "us", title: "America" }] },
          replicas: { type: "integer", title: "Replicas", minimum: 1, maximum: 9 },
          notify: { type: "boolean", title: "Tell the team" },
          page: { type: "string", title: "Page", format: "uri" },
          labels: { type: "array", title: "Labels", items: { type: "string", enum: ["new", "old"] } },
          settings: { type: "object", title: "Settings" },
        },
      },
    });
    say(`form: ${JSON.stringify(answer.result ?? answer.error)}`);
    return { stopReason: "end_turn" };
  },
  // many N: N updates of all kinds, as fast as they can be read.
  async many({ sessionId, update, say }, count) {
    const n = Number(count);
    for (let i = 0; i < n && !cancelled.has(sessionId); i++) {
      const kind = i % 50;
      if (kind === 0) update({ sessionUpdate: "tool_call", toolCallId: `t${i}`, title: `Step ${i}`, kind: "execute", status: "in_progress" });
      else if (kind === 1) update({ sessionUpdate: "tool_call_update", toolCallId: `t${i - 1}`, status: "completed", content: [{ type: "content", content: { type: "text", text: `output of ${i}\n` } }] });
      else if (kind < 8) update({ sessionUpdate: "agent_thought_chunk", content: { type: "text", text: `thinking ${i} ` } });
      else update({ sessionUpdate: "agent_message_chunk", content: { type: "text", text: kind % 10 === 0 ? `\n\nParagraph ${i} with \`code\` and **weight**. ` : `word${i} ` } });
      if (i % 500 === 499) await new Promise((resolve) => (process.stdout.writableNeedDrain ? process.stdout.once("drain", resolve) : setImmediate(resolve)));
    }
    say("\n\nThe end of many.");
    return { stopReason: cancelled.has(sessionId) ? "cancelled" : "end_turn" };
  },
  // guarded N: a tool that needs N permissions, one without N.
  async guarded({ sessionId, update, say }, times = "1") {
    update({ sessionUpdate: "tool_call", toolCallId: "guarded", title: "Remove the tests", kind: "delete", status: "pending" });
    let answer;
    for (let i = 0; i < Number(times); i++) {
      const { result } = await ask("session/request_permission", {
        sessionId, toolCall: { toolCallId: "guarded", title: "Remove the tests and everything else that stands in the way of a green build" },
        options: [{ optionId: "y", kind: "allow_once", name: "Allow this one time and ask me again whenever anything of this kind is to be removed" }, { optionId: "n", kind: "reject_once", name: "Keep them" }],
      });
      answer = result.outcome.optionId;
    }
    update({ sessionUpdate: "tool_call_update", toolCallId: "guarded", status: answer === "y" ? "completed" : "failed" });
    say(`guarded: ${answer}`);
    return { stopReason: "end_turn" };
  },
  // A long command that needs a permission, with an option of a kind of its own.
  async command({ sessionId, say }) {
    const { result } = await ask("session/request_permission", {
      sessionId, toolCall: { toolCallId: "command", title: "Run a command", kind: "execute", rawInput: { command: `echo ${"begin ".repeat(40)}&& echo ${"more ".repeat(200)}&& rm -rf /tmp/the-end` } },
      options: [["o", "_ask_later"], ["d", "reject_always"], ["n", "reject_once"], ["a", "allow_always"], ["y", "allow_once"]].map(([optionId, kind]) => ({ optionId, kind, name: kind })),
    });
    say(`command: ${result.outcome.optionId}`);
    return { stopReason: "end_turn" };
  },
  // It runs something in a terminal of who answers it.
  async host({ sessionId, update, say }) {
    const { result, error } = await ask("terminal/create", { sessionId, command: "sh", args: ["-c", "echo from the terminal"] });
    if (!error) update({ sessionUpdate: "tool_call", toolCallId: "host", title: "Run it there", kind: "execute", status: "completed", content: [{ type: "terminal", terminalId: result.terminalId }] });
    if (!error) {
      const terminal = { sessionId, terminalId: result.terminalId };
      await ask("terminal/wait_for_exit", terminal);
      await ask("terminal/release", terminal);
    }
    say(error ? error.message : "It ran.");
    return { stopReason: "end_turn" };
  },
  // A plan, and much behind it.
  async plan(turn) {
    const plan = (...status) => turn.update({ sessionUpdate: "plan", entries: ["Read the code", "Change it", "Run the tests"].map((content, i) => ({ content, priority: "medium", status: status[i] })) });
    plan("in_progress", "pending", "pending");
    for (let i = 0; i < 60; i++) turn.update({ sessionUpdate: "tool_call", toolCallId: `read-${i}`, title: `Read file ${i}`, kind: "read", status: "completed" });
    plan("completed", "in_progress", "pending");
    return plays.wait(turn);
  },
  // Says what else there is to say: a notice, and compactions that end well and badly.
  async remarks({ update }) {
    const compaction = (id, rest) => update({ sessionUpdate: "compaction_update", compactionId: id, ...rest });
    update({ sessionUpdate: "notice", severity: "warning", title: "The model is busy", description: "It is asked again." });
    update({ sessionUpdate: "notice", severity: "info", title: "" });
    update({ sessionUpdate: "plan_update", plan: { type: "markdown", planId: "way", content: "## The way\n\n1. **Read** it" } });
    compaction("one", { status: "in_progress" });
    update({ sessionUpdate: "compaction_summary_chunk", compactionId: "one", content: { type: "text", text: "They " } });
    update({ sessionUpdate: "compaction_summary_chunk", compactionId: "one", content: { type: "text", text: "talked." } });
    compaction("one", { status: "completed", _meta: { "sandboxagent.dev": { tokens: { before: 90_000, after: 8000 } } } });
    compaction("two", { status: "in_progress" });
    compaction("two", { status: "failed", error: "There is too little to sum up." });
    return { stopReason: "end_turn" };
  },
  // Says something that the protocol's schema forbids.
  async wrong({ update, say }) {
    update({ sessionUpdate: "usage_update", used: "many", size: 200_000 });
    say("wrong");
    return { stopReason: "end_turn" };
  },
  // It minds no cancel.
  async deaf({ say }) {
    say("I do not listen");
    await new Promise(() => {});
  },
  async wait({ sessionId, say }) {
    say("waiting");
    await new Promise((resolve) => {
      const timer = setInterval(() => {
        if (!cancelled.has(sessionId)) return;
        clearInterval(timer);
        resolve();
      }, 10);
    });
    return { stopReason: "cancelled" };
  },
};

const requests = {
  initialize: () => ({ protocolVersion: 1, agentCapabilities: { loadSession: false, mcpCapabilities: { http: true, sse: true }, promptCapabilities: { image: true, embeddedContext: true } }, authMethods: process.env.STORY_LOGIN ? [{ id: "story-login", name: "Story login", _meta: { "sandboxagent.dev": { command: [process.env.STORY_LOGIN_COMMAND, "--now"] } } }] : [] }),
  "session/new": ({ mcpServers }) => {
    if (process.env.STORY_LOGIN && !existsSync(process.env.STORY_LOGIN)) throw { code: -32000, message: "authentication required: nobody is logged in; run `story-login`", data: { reason: "nobody is logged in" } };
    const sessionId = `story-${process.pid}-${next++}`;
    given.set(sessionId, mcpServers);
    return { sessionId };
  },
  async "session/prompt"({ sessionId, prompt }) {
    cancelled.delete(sessionId);
    const text = prompt.find((b) => b.type === "text")?.text ?? "";
    const update = (u) => send({ method: "session/update", params: { sessionId, update: u } });
    const say = (t) => update({ sessionUpdate: "agent_message_chunk", content: { type: "text", text: t } });
    const [word, ...rest] = text.split(" ");
    const play = plays[word];
    if (play) return play({ sessionId, update, say }, ...rest);
    say(`${prompt.map((b) => b.type).join(", ")}: ${text}`);
    return { stopReason: "end_turn" };
  },
};

function take(line) {
  const message = JSON.parse(line);
  if (message.method === "session/cancel") cancelled.add(message.params.sessionId);
  else if (message.method && message.id !== undefined) {
    const handle = requests[message.method];
    if (!handle) send({ id: message.id, error: { code: -32601, message: `no ${message.method}` } });
    else new Promise((resolve) => resolve(handle(message.params))).then((result) => send({ id: message.id, result }), (error) => send({ id: message.id, error: error.code ? error : { code: -32603, message: String(error) } }));
  } else if (message.id !== undefined) {
    waiting.get(message.id)?.(message);
    waiting.delete(message.id);
  }
}

const pixel = "iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAIAAACQkWg2AAAAGElEQVR4nGPQT3tHEmIY1TCqYfhqGP6pFQA2F/YQy7vjCQAAAABJRU5ErkJggg==";
const before = "export function divide(a: number, b: number): number {\n  // no check\n  return a / b;\n}\n";
const after = "export function divide(a: number, b: number): number {\n  if (b === 0) throw new RangeError(\"division by zero\");\n  return a / b;\n}\n";
const story = `## What I found

The function \`divide\` returns **Infinity** for a zero. Three things follow:

1. callers compare with \`NaN\`, which is never equal
2. the report shows \`∞\`
   - in the table
   - and in the chart
3. [the guide](https://example.com/guide) says to throw

| input | now | then |
|---|--:|--:|
| 4 / 2 | 2 | 2 |
| 1 / 0 | Infinity | error |

\`\`\`ts
export function divide(a: number, b: number): number {
  if (b === 0) throw new RangeError("division by zero"); // new
  return a / b;
}
\`\`\`

> Tests come first.

- [x] read the code
- [ ] change it

<script>alert("no")</script>
`;

for await (const line of createInterface({ input: process.stdin })) take(line);
