import { ConnectionLostError } from "acp-http-client";
import { SandboxAgentClient, type NewSessionParams } from "sandbox-agent";
import { SandboxAgentClient as Local, StartError } from "sandbox-agent/local";

const params: NewSessionParams = {
  cwd: "/workspace",
  mcpServers: [{ name: "files", command: "files-mcp", args: [], env: [] }],
  mcp: { search: { type: "http", url: "https://mcp.example.com", headers: { Authorization: "x" } }, local: { command: "local-mcp" } },
};

// @ts-expect-error a server needs a command or an address
export const wrong: NewSessionParams = { cwd: "/workspace", mcp: { search: {} } };

// @ts-expect-error there is no such field
export const unknown: NewSessionParams = { cwd: "/workspace", mpc: {} };

export async function main(): Promise<string> {
  await using client = await Local.start({ agent: "mock", args: ["--ephemeral"] });
  const session = await client.newSession(params);
  const turn = session.prompt("hello");
  for await (const update of turn) if (update.sessionUpdate === "agent_message_chunk") console.log(update.content);
  await client.fs.write("/tmp/file", new TextEncoder().encode("bytes"));
  const remote = new SandboxAgentClient({ baseUrl: "https://example.com", token: "t" });
  return `${(await remote.api.agents()).length} ${(await turn).stopReason} ${ConnectionLostError.name} ${StartError.name}`;
}
