import type { McpServer, NewSessionParams } from "sandbox-agent";

/** An MCP server as the form has it: lists are lines. */
export interface ServerWish {
  /** Of the form, while it is shown. */
  readonly key: number;
  readonly kind: "command" | "http" | "sse";
  readonly name: string;
  readonly command: string;
  readonly args: string;
  readonly env: string;
  readonly url: string;
  readonly headers: string;
}

let keys = 0;

export const newServer = (part: Partial<ServerWish> = {}): ServerWish => ({ kind: "command", name: "", command: "", args: "", env: "", url: "", headers: "", ...part, key: keys++ });

/** What the form for a new session holds. */
export interface Wishes {
  readonly agent: string;
  readonly cwd: string;
  readonly title: string;
  readonly model: string;
  readonly mode: string;
  readonly variant: string;
  readonly permissionMode: string;
  readonly instructions: string;
  readonly appendSystemPrompt: string;
  readonly skills: string;
  readonly env: string;
  readonly mcp: readonly ServerWish[];
  readonly directories: string;
  readonly own: boolean;
  readonly record: boolean;
  readonly prompt: string;
}

export const noWishes: Wishes = {
  agent: "", cwd: "", title: "", model: "", mode: "", variant: "", permissionMode: "", instructions: "", appendSystemPrompt: "", skills: "", env: "", mcp: [], directories: "", own: false, record: false, prompt: "",
};

/** Whether somebody has written something that they would miss; prompt is what the link to the form had. */
export const isWritten = (w: Wishes, prompt = ""): boolean => w.prompt !== prompt || w.mcp.length > 0 || [w.title, w.instructions, w.appendSystemPrompt, w.skills, w.env, w.directories].some((text) => text !== "");

const lines = (text: string) => text.split("\n").map((l) => l.trim()).filter((l) => l !== "");

/** Servers as a version of ACP has them: in version 1 those that are commands have no type. */
export const serversFor = (acpVersion: number, servers: readonly McpServer[]): unknown[] => servers.map((s) => (acpVersion === 1 || "type" in s ? s : { type: "stdio", ...s }));

/** The request that the form stands for, or what is wrong with it, by field. */
export function requestOf(w: Wishes): { params?: NewSessionParams; problems: Partial<Record<keyof Wishes, string>> } {
  const problems: Partial<Record<keyof Wishes, string>> = {};
  const absolute = /^(\/|[A-Za-z]:[\\/])/;
  if (!absolute.test(w.cwd.trim())) problems.cwd = "This must be an absolute path on the gateway’s machine.";
  const env: Record<string, string> = {};
  for (const line of lines(w.env)) {
    const at = line.indexOf("=");
    if (at < 1) problems.env = `“${line}” is not NAME=VALUE.`;
    else env[line.slice(0, at)] = line.slice(at + 1);
  }
  for (const path of [...lines(w.skills)]) if (!absolute.test(path)) problems.skills = `“${path}” is not an absolute path.`;
  for (const path of lines(w.directories)) if (!absolute.test(path)) problems.directories = `“${path}” is not an absolute path.`;
  const mcpServers: McpServer[] = [];
  const names = new Set<string>();
  for (const [i, server] of w.mcp.entries()) {
    const name = server.name.trim();
    const read = names.has(name) && name !== "" ? `There is another server with the name ${name}.` : serverOf(server);
    names.add(name);
    if (typeof read === "string") problems.mcp ??= `Server ${name === "" ? i + 1 : `“${name}”`}: ${read}`;
    else mcpServers.push(read);
  }
  if (Object.keys(problems).length > 0) return { problems };
  const text = (name: "title" | "model" | "mode" | "variant" | "permissionMode" | "instructions" | "appendSystemPrompt") => (w[name].trim() === "" ? {} : { [name]: w[name].trim() });
  return {
    problems,
    params: {
      cwd: w.cwd.trim(), mcpServers,
      ...(w.agent === "" ? {} : { agent: w.agent }),
      ...text("title"), ...text("model"), ...text("mode"), ...text("variant"), ...text("permissionMode"), ...text("instructions"), ...text("appendSystemPrompt"),
      ...(lines(w.skills).length > 0 ? { skills: { paths: lines(w.skills) } } : {}),
      ...(Object.keys(env).length > 0 ? { env } : {}),
      ...(lines(w.directories).length > 0 ? { additionalDirectories: lines(w.directories) } : {}),
      ...(w.own ? { isolation: "session" as const } : {}),
      ...(w.record ? { includeRaw: true } : {}),
    },
  };
}

/** NAME=VALUE or Name: value, one on each line. A string says what is wrong. */
function pairsOf(text: string, sign: "=" | ":"): { name: string; value: string }[] | string {
  const out: { name: string; value: string }[] = [];
  for (const line of lines(text)) {
    const at = line.indexOf(sign);
    if (at < 1) return `“${line}” is not ${sign === "=" ? "NAME=VALUE" : "Name: value"}.`;
    out.push({ name: line.slice(0, at).trim(), value: sign === "=" ? line.slice(at + 1) : line.slice(at + 1).trim() });
  }
  return out;
}

/** The server that a part of the form stands for, or what is wrong with it. */
export function serverOf(w: ServerWish): McpServer | string {
  const name = w.name.trim();
  if (name === "") return "A name is needed.";
  if (w.kind === "command") {
    if (w.command.trim() === "") return "A command is needed.";
    const env = pairsOf(w.env, "=");
    return typeof env === "string" ? env : ({ name, command: w.command.trim(), args: lines(w.args), env } as McpServer);
  }
  if (!/^https?:/i.test(w.url.trim()) || !URL.canParse(w.url.trim())) return "An address is needed that begins with http:// or https://.";
  const headers = pairsOf(w.headers, ":");
  return typeof headers === "string" ? headers : ({ type: w.kind, name, url: w.url.trim(), headers } as McpServer);
}

/** The part of the form that stands for a server. */
function wishOf(server: McpServer): ServerWish {
  const s = server as { type?: string; name?: string; command?: string; args?: readonly string[]; url?: string; env?: readonly { name: string; value: string }[]; headers?: readonly { name: string; value: string }[] };
  const list = (pairs: readonly { name: string; value: string }[] | undefined, sign: string) => (pairs ?? []).map((p) => `${p.name}${sign}${p.value}`).join("\n");
  return newServer({
    kind: typeof s.url === "string" ? (s.type === "sse" ? "sse" : "http") : "command", name: String(s.name ?? ""), command: String(s.command ?? ""), args: (Array.isArray(s.args) ? s.args : []).join("\n"),
    env: list(Array.isArray(s.env) ? s.env : [], "="), url: String(s.url ?? ""), headers: list(Array.isArray(s.headers) ? s.headers : [], ": "),
  });
}

/** Servers out of a text in JSON, for the form; a string says what is wrong. */
export function serversIn(text: string): ServerWish[] | string {
  const read = readMcp(text);
  if (typeof read === "string") return read;
  if (read.length === 0) return "There is no server in it.";
  return read.every((s) => typeof s === "object" && s !== null) ? read.map(wishOf) : "Each server must be an object.";
}

/** MCP servers, as a `.mcp.json` has them or as the protocol does. */
export function readMcp(text: string): McpServer[] | string {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return `This is not JSON: ${error instanceof Error ? error.message : String(error)}`;
  }
  if (Array.isArray(value)) return value as McpServer[];
  if (typeof value !== "object" || value === null) return "This must be a list, or an object with mcpServers.";
  const servers = "mcpServers" in value ? value.mcpServers : value;
  if (typeof servers !== "object" || servers === null) return "mcpServers must be an object with a server for each name.";
  const out: McpServer[] = [];
  for (const [name, raw] of Object.entries(servers)) {
    if (typeof raw !== "object" || raw === null) return `The server ${name} must be an object.`;
    const s = raw as { type?: string; command?: string; args?: string[]; env?: Record<string, string>; url?: string; headers?: Record<string, string> };
    const pairs = (map: Record<string, string> | undefined) => Object.entries(map ?? {}).map(([n, v]) => ({ name: n, value: String(v) }));
    if (typeof s.url === "string") out.push({ type: s.type === "sse" ? "sse" : "http", name, url: s.url, headers: pairs(s.headers) } as McpServer);
    else if (typeof s.command === "string") out.push({ name, command: s.command, args: s.args ?? [], env: pairs(s.env) } as McpServer);
    else return `The server ${name} has neither a command nor a url.`;
  }
  return out;
}
