import type { SessionMcpServer } from "sandbox-agent";
import type { Tone } from "../kit/show.js";
import { plural } from "../kit/text.js";

/** What the page says of the state of an MCP server. */
const states: Record<string, { readonly words: string; readonly tone: Tone }> = {
  connecting: { words: "connecting", tone: "busy" },
  ready: { words: "ready", tone: "good" },
  failed: { words: "failed", tone: "bad" },
  needs_login: { words: "needs a login", tone: "warn" },
  disabled: { words: "switched off", tone: "plain" },
  stopped: { words: "stopped", tone: "plain" },
  unknown: { words: "not known", tone: "plain" },
};

export const serverState = (state: string): { readonly words: string; readonly tone: Tone } => states[state] ?? { words: state.replaceAll("_", " "), tone: "plain" };

/** What explains a state, where the agent gave no reason. */
export function serverHint({ state, source }: Pick<SessionMcpServer, "state" | "source">, agent: string): string | undefined {
  switch (state) {
    case "failed":
      return `${agent} gives no reason.`;
    case "needs_login":
      return `Log in to it with ${agent} in a terminal.`;
    case "stopped":
      return "It starts again with the next prompt.";
    case "disabled":
      return source === "agent" ? `It is switched off in the configuration of ${agent}.` : undefined;
    case "unknown":
      return `${agent} does not say how it is.`;
    default:
      return undefined;
  }
}

/** What is wrong with the servers of a session, in a few words; undefined when nothing is. */
export function serverTrouble(servers: readonly Pick<SessionMcpServer, "state">[]): string | undefined {
  const failed = servers.filter((s) => s.state === "failed").length;
  const login = servers.filter((s) => s.state === "needs_login").length;
  const said = [
    ...(failed > 0 ? [`${plural(failed, "MCP server")} failed`] : []),
    ...(login > 0 ? [`${failed > 0 ? login : plural(login, "MCP server")} ${login === 1 ? "needs" : "need"} a login`] : []),
  ];
  return said.length > 0 ? said.join(", ") : undefined;
}
