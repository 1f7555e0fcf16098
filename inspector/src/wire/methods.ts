// What can be asked of a gateway, for the form that sends any request.

export interface Method {
  readonly name: string;
  readonly notification?: boolean;
  /** Params to begin with; SESSION and CWD are filled in. */
  readonly params: object;
  readonly about: string;
}

const session = { sessionId: "SESSION" };

export const knownMethods: readonly Method[] = [
  { name: "session/new", params: { cwd: "CWD", mcpServers: [] }, about: "Makes a session" },
  { name: "session/load", params: { ...session, cwd: "CWD", mcpServers: [] }, about: "Opens a session and replays it" },
  { name: "session/resume", params: { ...session, cwd: "CWD", mcpServers: [] }, about: "Opens a session without a replay" },
  { name: "session/fork", params: { ...session, cwd: "CWD", mcpServers: [] }, about: "Makes a session that begins with another's conversation" },
  { name: "session/list", params: {}, about: "Lists sessions" },
  { name: "session/prompt", params: { ...session, prompt: [{ type: "text", text: "Hello" }] }, about: "Runs a turn" },
  { name: "session/cancel", notification: true, params: session, about: "Cancels the turn" },
  { name: "session/close", params: session, about: "Ends the agent's part of a session" },
  { name: "session/delete", params: session, about: "Removes a session and its log" },
  { name: "session/set_mode", params: { ...session, modeId: "" }, about: "Chooses a mode" },
  { name: "session/set_config_option", params: { ...session, configId: "", value: "" }, about: "Chooses a model, an effort, or another option" },
  { name: "authenticate", params: { methodId: "" }, about: "Logs the agent in" },
  { name: "_sandboxagent/session/get", params: session, about: "What the gateway knows of a session" },
  { name: "_sandboxagent/session/events", params: { ...session, after: 0, limit: 100 }, about: "A page of a session's log" },
  { name: "_sandboxagent/session/pending", params: session, about: "Requests that wait for an answer" },
  { name: "_sandboxagent/session/list_models", params: session, about: "The models of a session" },
  { name: "_sandboxagent/session/set_metadata", params: { ...session, metadata: {} }, about: "Notes something on a session" },
  { name: "_sandboxagent/session/detach", params: session, about: "Gets no more of a session" },
  { name: "_sandboxagent/session/terminate", params: session, about: "Ends a session for good" },
];

/** The params of a method as text, with what is known filled in. */
export function draftOf(name: string, sessionId: string, cwd: string): string {
  const params = knownMethods.find((m) => m.name === name)?.params ?? {};
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
