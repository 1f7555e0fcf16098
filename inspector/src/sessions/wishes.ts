import type { McpServer, NewSessionParams } from "sandbox-agent";

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
  readonly mcp: string;
  readonly directories: string;
  readonly own: boolean;
  readonly prompt: string;
}

export const noWishes: Wishes = {
  agent: "", cwd: "", title: "", model: "", mode: "", variant: "", permissionMode: "", instructions: "", appendSystemPrompt: "", skills: "", env: "", mcp: "", directories: "", own: false, prompt: "",
};

const lines = (text: string) => text.split("\n").map((l) => l.trim()).filter((l) => l !== "");

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
  let mcpServers: McpServer[] = [];
  if (w.mcp.trim() !== "") {
    const read = readMcp(w.mcp);
    if (typeof read === "string") problems.mcp = read;
    else mcpServers = read;
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
    },
  };
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
    const s = raw as { type?: string; command?: string; args?: string[]; env?: Record<string, string>; url?: string; headers?: Record<string, string> };
    const pairs = (map: Record<string, string> | undefined) => Object.entries(map ?? {}).map(([n, v]) => ({ name: n, value: String(v) }));
    if (typeof s.url === "string") out.push({ type: s.type === "sse" ? "sse" : "http", name, url: s.url, headers: pairs(s.headers) } as McpServer);
    else if (typeof s.command === "string") out.push({ name, command: s.command, args: s.args ?? [], env: pairs(s.env) } as McpServer);
    else return `The server ${name} has neither a command nor a url.`;
  }
  return out;
}
