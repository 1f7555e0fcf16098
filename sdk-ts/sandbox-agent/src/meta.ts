import type { Acp, AcpVersion } from "./versions.js";

/** Where the gateway's own fields stand in `_meta`. */
export const META = "sandboxagent.dev";

/** A server of a `.mcp.json` file. */
export type McpFileServer =
  | { type?: "stdio"; command: string; args?: string[]; env?: Record<string, string> }
  | { type: "http" | "sse"; url: string; headers?: Record<string, string> };

/** What a session may be asked for beyond ACP. What an agent cannot do is reported in `Session.unsupported`. */
export interface SessionMetadata {
  /** Another agent than the client's. */
  agent?: string;
  /** The session's id, 1 to 256 visible ASCII characters. */
  requestedSessionId?: string;
  title?: string;
  model?: string;
  /** The thought level. */
  variant?: string;
  mode?: string;
  permissionMode?: "default" | "readonly" | "write" | "bypass";
  /** Project instructions. */
  instructions?: string;
  appendSystemPrompt?: string;
  skills?: { paths: string[] };
  /** MCP servers by name, as in a `.mcp.json` file; of two with one name the one in `mcpServers` counts. */
  mcp?: Record<string, McpFileServer>;
  env?: Record<string, string>;
  credentials?: { apiKey?: string; oauthToken?: string; [name: string]: unknown };
  agentVersion?: string;
  /** `session` gives the session an agent process of its own. */
  isolation?: "session" | "agent";
  /** Records what the agent and the gateway say to each other, in a process of the session's own: `api.sessionRaw(id)`. */
  includeRaw?: boolean;
  /** A text about another conversation, which the agent is given with the first prompt: `api.sessionTranscript(id, { format: "handover" })`. */
  handover?: string;
  /** Lets the agent begin a new conversation if it cannot open the session's. Without it the prompt fails, and can be sent again. */
  beginAnew?: boolean;
  /** `sync` shows clients an event when the store of the gateway's hub has it, and needs a hub. By default as the gateway was started. */
  durability?: "async" | "sync";
  /** Options of one agent, by its id. */
  agentSpecific?: Record<string, unknown>;
}

/** The names of {@link SessionMetadata}; everything else of a request is ACP's. */
const names = new Set<string>([
  "agent", "requestedSessionId", "title", "model", "variant", "mode", "permissionMode", "instructions", "appendSystemPrompt",
  "skills", "mcp", "env", "credentials", "agentVersion", "isolation", "includeRaw", "handover", "beginAnew", "durability", "agentSpecific",
] satisfies (keyof SessionMetadata)[]);

type Meta = Record<string, unknown> | null | undefined;

/** A request with the gateway's fields in their place in `_meta`; fields given there already win. */
export function withMeta(params: object, extra: object = {}): Record<string, unknown> {
  const request: Record<string, unknown> = {};
  const own: Record<string, unknown> = { ...extra };
  for (const [name, value] of Object.entries(params)) {
    if (value === undefined || name === "_meta") continue;
    (names.has(name) ? own : request)[name] = value;
  }
  const meta = "_meta" in params ? (params._meta as Meta) : undefined;
  const given = meta?.[META];
  if (Object.keys(own).length > 0 || meta) {
    request._meta = { ...meta, [META]: { ...own, ...(typeof given === "object" ? given : {}) } };
  }
  return request;
}

/** What a session's params must say again when it is resumed. */
export function kept(params: object): Record<string, unknown> {
  const { _meta, ...rest } = lasting(params as Record<string, unknown>);
  return { mcpServers: [], ...rest, _meta: { ...(_meta as Meta), [META]: lasting(metaOf(params)) } };
}

const lasting = ({ sessionId, cwd, requestedSessionId, after, handover, ...rest }: Record<string, unknown>): Record<string, unknown> => rest;

/** The gateway's part of `_meta`. */
export function metaOf(value: unknown): Record<string, unknown> {
  if (typeof value !== "object" || value === null || !("_meta" in value)) return {};
  const own = (value._meta as Meta)?.[META];
  return typeof own === "object" && own !== null ? (own as Record<string, unknown>) : {};
}

/** What makes a session. */
export interface NewSessionParams<V extends AcpVersion = 1> extends SessionMetadata {
  /** An absolute path on the gateway's machine. */
  cwd: string;
  mcpServers?: Acp<V, "McpServer">[];
  additionalDirectories?: string[];
  _meta?: Record<string, unknown>;
}

/** What opens a session again. */
export interface OpenSessionParams<V extends AcpVersion = 1> extends Omit<NewSessionParams<V>, "requestedSessionId" | "cwd"> {
  sessionId: string;
  /** Needed for sessions that the gateway does not know, such as those of a terminal. */
  cwd?: string;
  /** Continues right after this event of the session's log. */
  after?: number;
}
