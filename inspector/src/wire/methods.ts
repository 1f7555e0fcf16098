// What can be asked of a gateway, for the form that sends any request.
import { META } from "sandbox-agent";
import { objectOf } from "./rows.js";

export interface Method {
  readonly name: string;
  readonly notification?: boolean;
  /** Params to begin with; SESSION and CWD are filled in. */
  readonly params: object;
  readonly about: string;
  /** What it does when a recorded one is sent once more; where that is nothing new, `about` says all. */
  readonly again?: string;
  /** The version of ACP that has it; absent where both do. */
  readonly version?: 1 | 2;
}

const session = { sessionId: "SESSION" };

const all: readonly Method[] = [
  { name: "session/new", params: { cwd: "CWD", mcpServers: [] }, about: "Makes a session", again: "It makes another session, beside the one that it made before." },
  { name: "session/load", params: { ...session, cwd: "CWD", mcpServers: [] }, about: "Opens a session and replays it", version: 1, again: "The session is replayed to this page once more." },
  { name: "session/resume", params: { ...session, cwd: "CWD", mcpServers: [] }, about: "Opens a session without a replay", version: 1 },
  { name: "session/resume", params: { ...session, cwd: "CWD", replayFrom: { type: "start" } }, about: "Opens a session; without replayFrom nothing is replayed", version: 2, again: "The session is replayed to this page once more, where it says so." },
  { name: "session/fork", params: { ...session, cwd: "CWD", mcpServers: [] }, about: "Makes a session that begins with another's conversation", again: "It makes another copy." },
  { name: "session/list", params: {}, about: "Lists sessions" },
  { name: "session/prompt", params: { ...session, prompt: [{ type: "text", text: "Hello" }] }, about: "Runs a turn", again: "It starts another turn: the agent works, and may use tools and cost money. While a turn runs it waits for its end." },
  { name: "session/cancel", notification: true, params: session, about: "Cancels the turn", again: "It cancels the turn that runs now, whichever that is." },
  { name: "session/close", params: session, about: "Ends the agent's part of a session", again: "It ends the agent's part of the session, as it is now." },
  { name: "session/delete", params: session, about: "Removes a session and its log", again: "It deletes the session and its log. That cannot be undone." },
  { name: "session/set_mode", params: { ...session, modeId: "" }, about: "Chooses a mode", version: 1 },
  { name: "session/set_config_option", params: { ...session, configId: "", value: "" }, about: "Chooses a model, an effort, or another option", version: 1 },
  { name: "session/set_config_option", params: { ...session, configId: "", type: "id", value: "" }, about: "Chooses a mode, a model, an effort, or another option", version: 2 },
  { name: "tool_call/cancel", params: { ...session, toolCallId: "" }, about: "Ends one call, where it says that it can be", version: 2 },
  { name: "terminal/cancel", params: { ...session, terminalId: "" }, about: "Ends one command, where it says that it can be", version: 2 },

  { name: "authenticate", params: { methodId: "" }, about: "Logs the agent in", again: "It begins another login.", version: 1 },
  { name: "auth/login", params: { methodId: "" }, about: "Logs the agent in", again: "It begins another login.", version: 2 },
  { name: "_sandboxagent/session/get", params: session, about: "What the gateway knows of a session" },
  { name: "_sandboxagent/session/events", params: { ...session, after: 0, limit: 100 }, about: "A page of a session's log" },
  { name: "_sandboxagent/session/pending", params: session, about: "Requests that wait for an answer" },
  { name: "_sandboxagent/session/permissions", params: session, about: "What the agent was always allowed" },
  { name: "_sandboxagent/session/forget_permissions", params: { ...session, ids: [""] }, about: "Takes that back" },
  { name: "_sandboxagent/session/list_models", params: session, about: "The models of a session" },
  { name: "_sandboxagent/session/set_metadata", params: { ...session, metadata: {} }, about: "Notes something on a session" },
  { name: "_sandboxagent/session/detach", params: session, about: "Gets no more of a session" },
  { name: "_sandboxagent/session/terminate", params: session, about: "Ends a session for good", again: "It ends the session for good." },
];

/** The methods of a version of ACP. */
export const methodsOf = (version: number): readonly Method[] => all.filter((m) => m.version === undefined || m.version === version);

/** What a recorded message does when it is sent once more, or why it cannot be. */
export function replayOf(kind: string, method: string, version: number): { readonly does: string } | { readonly not: string } {
  if (kind === "response") return { not: "An answer cannot be sent once more: the request is answered, and its id is gone." };
  if (method === "initialize") return { not: "A connection is initialized once. Connect anew to send it again." };
  if (method === "$/cancel_request") return { not: "It names a request of then, whose id is gone." };
  if (kind === "notification" && method !== "session/cancel") return { not: "The page sends no notification of this kind." };
  return { does: methodsOf(version).find((m) => m.name === method)?.again ?? "It is sent as a new request, with what stands here." };
}

/** The params of a recorded message, to be sent once more: without the name that would make the gateway take it for the same prompt. */
export function paramsAgain(params: unknown): string {
  const { promptId: _, ...own } = objectOf(objectOf(objectOf(params)._meta)[META]);
  const { [META]: __, ...meta } = objectOf(objectOf(params)._meta);
  const { _meta: ___, ...rest } = objectOf(params);
  const left = { ...meta, ...(Object.keys(own).length > 0 ? { [META]: own } : {}) };
  return JSON.stringify({ ...rest, ...(Object.keys(left).length > 0 ? { _meta: left } : {}) }, null, 2);
}

/** The params of a method as text, with what is known filled in. */
export function draftOf(name: string, sessionId: string, cwd: string, version: number): string {
  const params = methodsOf(version).find((m) => m.name === name)?.params ?? {};
  return JSON.stringify(params, (_, value: unknown) => (value === "SESSION" ? sessionId : value === "CWD" ? cwd : value), 2);
}

/** The params, or what is wrong with the text. */
export function parseParams(text: string): { params: unknown } | { error: string } {
  if (text.trim() === "") return { params: {} };
  try {
    const params: unknown = JSON.parse(text);
    if (typeof params !== "object" || params === null) return { error: "Params are an object or a list." };
    return { params };
  } catch (error) {
    return { error: `This is not JSON: ${(error as Error).message}` };
  }
}
