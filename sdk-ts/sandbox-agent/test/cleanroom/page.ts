import { SandboxAgentClient } from "sandbox-agent";

export async function show(element: HTMLElement): Promise<void> {
  const client = new SandboxAgentClient({ baseUrl: location.origin, agent: "mock" });
  const session = await client.newSession({ cwd: "/workspace" });
  for await (const update of session.prompt("hello")) {
    if (update.sessionUpdate === "agent_message_chunk" && update.content.type === "text") element.textContent += update.content.text;
  }
  await client.fs.write("/tmp/file", new Blob(["bytes"]));
}
