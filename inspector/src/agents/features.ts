import type { Agent } from "sandbox-agent";

export type Support = NonNullable<Agent["capabilities"]>[string];

/** The features of agents, in the order of the documentation, with what they mean. */
export const features: readonly (readonly [id: string, name: string])[] = [
  ["text", "Text"], ["streaming", "Streaming"], ["reasoning", "Thoughts"], ["toolCalls", "Tool calls"], ["toolResults", "Tool results"],
  ["diffs", "Diffs"], ["commandOutput", "Command output"], ["plan", "Plans"], ["images", "Images"], ["attachments", "Attachments"],
  ["permissions", "Permissions"], ["questions", "Questions"], ["planApproval", "Plan approval"], ["modes", "Modes"], ["models", "Models"],
  ["thoughtLevels", "Thought levels"], ["mcpServers", "MCP servers"], ["mcpStatus", "States of MCP servers"], ["skills", "Skills"], ["instructions", "Instructions"],
  ["appendSystemPrompt", "System prompt"], ["additionalDirectories", "More folders"], ["resume", "Resume"], ["load", "Load"], ["fork", "Fork"],
  ["nativeSessions", "Native sessions"], ["usage", "Usage"], ["cost", "Cost"], ["commands", "Slash commands"], ["compaction", "Compaction"],
  ["subagents", "Subagents"], ["cancel", "Cancel"],
];

/** All features that some agent names, also those that this page does not know. */
export function featuresOf(agents: readonly Agent[]): (readonly [string, string])[] {
  const known = new Set(features.map(([id]) => id));
  const more = new Set(agents.flatMap((a) => Object.keys(a.capabilities ?? {})).filter((id) => !known.has(id)));
  return [...features, ...[...more].sort().map((id) => [id, id] as const)];
}

export const levels = {
  native: { word: "yes", tone: "good", about: "The agent does it." },
  emulated: { word: "by the gateway", tone: "info", about: "The gateway makes it." },
  unsupported: { word: "no", tone: "plain", about: "It cannot be had." },
} as const;
