// Asks the gateway that started Pi before a tool runs, connects the session's MCP
// servers, and has the session's own credentials go before the user's logins. Pi waits for the answer, so a call is made only when the gateway
// said so: no answer, another one or a failure block it. The gateway writes the session's
// facts into a file beside this one.
//
// It is a module by its name and uses Node's own ones alone, so Pi imports it as it is. Another extension Pi has translated first: to load
// what translates takes half as long as all else of its start, and a translation stays for ever where others may read it.
import { readFileSync, realpathSync } from "node:fs";
import { dirname, join } from "node:path";

const session = JSON.parse(readFileSync(new URL("session.json", import.meta.url), "utf8"));

// versionOf finds Pi's version where Pi itself reads it: in the package.json of its package, which had another name once, or
// beside a program in one file.
function versionOf() {
  const names = ["@earendil-works/pi-coding-agent", "@mariozechner/pi-coding-agent"];
  for (const place of [process.env.PI_PACKAGE_DIR && join(process.env.PI_PACKAGE_DIR, "package.json"), process.argv[1], process.execPath]) {
    let dir;
    try {
      dir = dirname(realpathSync(place));
    } catch {
      continue; // there is no such place
    }
    for (; dir !== dirname(dir); dir = dirname(dir)) {
      try {
        const about = JSON.parse(readFileSync(join(dir, "package.json"), "utf8"));
        if (about.version && (names.includes(about.name) || about.piConfig)) return about.version;
      } catch {
        // It is no package's.
      }
    }
  }
  return ""; // the gateway does without
}

// prefer makes a provider use a key, whatever logins there are. Where that is done
// depends on Pi's version.
async function prefer(registry, provider, key) {
  const place = [registry?.authStorage, registry?.runtime].find((one) => typeof one?.setRuntimeApiKey === "function");
  await place?.setRuntimeApiKey(provider, key);
  return Boolean(place);
}

// watch tells the gateway when Pi itself has given up a question that an extension may take back: nobody waits for its
// answer any more, and Pi does not say so. A question is the one that was said before its name. Pi may load the extensions anew, and keep
// what it gives them.
function watch(ui) {
  const watched = Symbol.for(session.mark);
  if (ui[watched]) return;
  Object.defineProperty(ui, watched, { value: true });
  const tell = (name, over) => ui.setStatus(session.questionStatus, JSON.stringify({ mark: session.mark, name, over }));
  for (const kind of ["select", "confirm", "input"]) {
    const ask = ui[kind];
    ui[kind] = (title, more, options) => {
      const said = ask(title, more, options);
      if (!(options?.signal || options?.timeout) || options.signal?.aborted || options.gate) return said;
      const name = crypto.randomUUID();
      tell(name, false);
      const over = () => tell(name, true);
      said.then(over, over);
      return said;
    };
  }
}

export default async function (pi) {
  const version = versionOf();
  const mcp = typeof pi.registerMcpServer === "function";
  const failed = {};
  for (const [name, server] of Object.entries(mcp ? session.servers : {})) {
    try {
      pi.registerMcpServer(name, server);
    } catch (error) {
      failed[name] = String(error?.message ?? error);
    }
  }
  for (const [name, provider] of Object.entries(session.providers)) pi.registerProvider(name, provider);

  // A tool of an extension may have the name of one that reads.
  const reads = (name) => session.reads.includes(name)
    && pi.getAllTools().some((tool) => tool.name === name && (tool.sourceInfo?.source ?? "builtin") === "builtin");

  // How the MCP servers are, as far as Pi tells: one whose tools are there is connected.
  const servers = () => {
    const tools = {};
    for (const tool of mcp ? pi.getAllTools() : []) {
      const own = Object.keys(session.servers).find((name) => tool.name.startsWith(`mcp__${name}__`));
      const server = own ?? /^mcp__(.+?)__/.exec(tool.name)?.[1];
      if (server !== undefined) (tools[server] ??= []).push({ name: tool.name.slice(`mcp__${server}__`.length), description: (tool.description ?? "").slice(0, 1000) });
    }
    const stateOf = (name) => {
      if (tools[name]) return { state: "ready", tools: tools[name] };
      if (!mcp) return { state: "failed", error: "this version of pi has no MCP: 0.99.0 and newer have" };
      return failed[name] === undefined ? { state: "unknown" } : { state: "failed", error: failed[name] };
    };
    return [...new Set([...Object.keys(session.servers), ...Object.keys(tools)])].sort().map((name) => ({ name, ...stateOf(name) }));
  };
  let told = "[]";
  const tellServers = (_event, ctx) => {
    const all = servers();
    if (JSON.stringify(all) === told) return;
    told = JSON.stringify(all);
    ctx.ui.setStatus(session.mcpStatus, JSON.stringify({ mark: session.mark, servers: all }));
  };
  for (const event of ["session_start", "agent_start", "agent_end"]) pi.on(event, tellServers);

  // Announced when all is in place: without it there is no session. It is so again when another extension has Pi go on with
  // another conversation.
  pi.on("session_start", async (event, ctx) => {
    let keyed = true;
    try {
      watch(ctx.ui);
    } catch {
      // Its questions are open until they are answered.
    }
    for (const [name, variable] of Object.entries(session.keys)) keyed = await prefer(ctx.modelRegistry, name, process.env[variable]) && keyed;
    ctx.ui.setStatus(session.status, JSON.stringify({ mark: session.mark, version, mcp, failed, keyed, file: ctx.sessionManager?.getSessionFile?.(), reason: event.reason }));
  });

  pi.on("tool_call", async (event, ctx) => {
    if (reads(event.toolName)) return undefined;
    const question = { mark: session.mark, toolCallId: event.toolCallId, toolName: event.toolName, input: event.input };
    const said = await ctx.ui.select(JSON.stringify(question), [session.allow], { signal: ctx.signal, gate: true });
    if (said === session.allow) return undefined;
    return { block: true, reason: said || "The user cancelled the turn." };
  });
}
