// Folds the updates of a session into what a client shows, by the rules of either version
// of the protocol. Two clients of one session must come to the same.

const text = (block) => block?.type === "text" ? block.text : block ? `[${block.type}]` : "";

export class Conversation {
  #version;
  #items = new Map();
  #role = "";
  #count = 0;
  #plan;
  #mode;
  #subagents = new Map(); // by the call that shows each: { conversation, works }
  #homes = new Map(); // of calls that subagents have made
  #terminals = new Map(); // pieces of output in Base64, by terminal
  #exits = new Map(); // how commands have ended, by terminal, in version 2

  constructor(version) { this.#version = version; }

  #item(key, make) {
    if (!this.#items.has(key)) this.#items.set(key, make());
    return this.#items.get(key);
  }

  /** A subagent of the session, in version 2: the conversation of the session that it has. */
  adopt(call, conversation) { this.#subagents.set(call, { conversation, works: true }); }

  /** In version 1 a subagent is a call: what is of it belongs to a conversation of its own. */
  #ofSubagent(u) {
    if (this.#version !== 1 || !/^tool_call/.test(u.sessionUpdate)) return false;
    const own = u._meta?.["sandboxagent.dev"] ?? {};
    const home = this.#homes.get(u.toolCallId) ?? this.#subagents.get(own.parentToolCallId);
    if (home) {
      this.#homes.set(u.toolCallId, home);
      home.works = true;
      home.conversation.take(u);
      return true;
    }
    if (own.subagent && !this.#subagents.has(u.toolCallId)) this.#subagents.set(u.toolCallId, { conversation: new Conversation(1), works: false });
    const shown = this.#subagents.get(u.toolCallId);
    if (!shown) return false;
    if (own.said || u.status === "in_progress" || u.status === "completed") shown.works = true;
    if (own.said) shown.conversation.take({ sessionUpdate: `agent_${own.said.thought ? "thought" : "message"}_chunk`, messageId: own.said.messageId, content: { type: "text", text: own.said.text } });
    return Boolean(own.said);
  }

  take(u) {
    if (this.#ofSubagent(u)) return;
    const kind = u.sessionUpdate;
    const role = /^(user|agent)_(message|thought)/.exec(kind)?.[0];
    if (role) {
      if (this.#version === 2) {
        const m = this.#item(`${role} ${u.messageId}`, () => ({ kind: role, text: "" }));
        if (kind.endsWith("_chunk")) m.text += text(u.content);
        else if (u.content !== undefined) m.text = (u.content ?? []).map(text).join("");
        return;
      }
      const own = u.messageId ?? "";
      if (own || this.#role !== role) this.#count++;
      const key = own ? `${role} ${own}` : `${role} #${this.#count}`;
      this.#role = own ? "" : role;
      this.#key = own ? this.#key : key;
      this.#item(own ? key : this.#key, () => ({ kind: role, text: "" })).text += text(u.content);
      return;
    }
    switch (kind) {
      case "tool_call":
        this.#role = "";
      // falls through
      case "tool_call_update": {
        const c = this.#item(`call ${u.toolCallId}`, () => ({ kind: "call", id: u.toolCallId }));
        for (const name of ["title", "kind", "status", "rawInput", "rawOutput"]) if (u[name] != null) c[name] = u[name];
        if (u.content != null) c.content = u.content.map((x) => x.type === "diff" ? diff(x) : x.type === "content" ? text(x.content) : x);
        if (u.content != null && u._meta?.["sandboxagent.dev"]?.terminal?.output) c.content.push(this.#unfenced(c, c.content.pop()));
        return;
      }
      case "terminal_update":
      case "terminal_output_chunk": {
        if (!this.#terminals.has(u.terminalId)) this.#terminals.set(u.terminalId, []);
        if (u.output) this.#terminals.set(u.terminalId, [u.output.data]);
        if (u.data) this.#terminals.get(u.terminalId).push(u.data);
        if (u.exitStatus !== undefined) this.#exits.set(u.terminalId, u.exitStatus);
        return;
      }
      case "plan": this.#plan = u.entries; return;
      case "plan_update": this.#plan = u.plan.entries; return;
      case "current_mode_update": this.#mode = u.currentModeId; return;
      case "config_option_update": this.#mode = u.configOptions.find((o) => o.category === "mode")?.currentValue ?? this.#mode; return;
    }
  }
  #key = "";

  /** In version 1 the output of a command is the last of its call's content, in a fence. */
  #unfenced(call, shown) {
    const id = `sa.terminal.${call.id}`;
    const [, , output] = /^(`{3,})[^\n]*\n([^]*)\n\1$/.exec(shown);
    this.#terminals.set(id, [Buffer.from(output).toString("base64")]);
    return { type: "terminal", terminalId: id };
  }

  /** What stands in a terminal. */
  terminal(id) { return Buffer.concat(this.#terminals.get(id).map((data) => Buffer.from(data, "base64"))).toString(); }

  /** How the command in a terminal has ended, null while it runs. */
  exit(id) { return this.#exits.get(id) ?? null; }

  /** What is shown: plan and mode, then messages and calls in their order, then the subagents that have worked. */
  shown() {
    const all = [...this.#items.values()].filter((i) => i.kind === "call" || i.text !== "");
    // A client of version 1 cannot tell where a turn of its own ends: what follows each
    // other by one role is one.
    const items = [];
    for (const i of all) {
      const before = items.at(-1);
      if (before && before.kind === i.kind && i.kind !== "call") before.text += i.text;
      else items.push({ ...i, content: i.content?.map((x) => x.type === "terminal" && this.#terminals.has(x.terminalId) ? { output: this.terminal(x.terminalId) } : x) });
    }
    const subagents = [...this.#subagents].filter(([, s]) => s.works).sort(([a], [b]) => a < b ? -1 : 1);
    return [
      { kind: "plan", entries: this.#plan, mode: this.#mode }, ...items,
      ...subagents.map(([call, s]) => ({ kind: "subagent", call, shown: s.conversation.shown() })),
    ];
  }
}

/** A diff as what was and what is, of either version. */
function diff(d) {
  if (!d.changes) return { path: d.path, was: d.oldText ?? "", is: d.newText };
  let was = "", is = "", inside = false, last = "";
  for (const line of (d.patch?.text ?? "").split(/(?<=\n)/)) {
    if (line.startsWith("@@")) { inside = true; continue; }
    if (!inside) continue;
    const [mark, rest] = [line[0], line.slice(1)];
    if (mark !== "+" && mark !== "\\") was += rest;
    if (mark !== "-" && mark !== "\\") is += rest;
    if (mark === "\\") {
      if (last !== "+") was = was.slice(0, -1);
      if (last !== "-") is = is.slice(0, -1);
    }
    last = mark;
  }
  return { path: d.changes[0].path, was, is };
}
