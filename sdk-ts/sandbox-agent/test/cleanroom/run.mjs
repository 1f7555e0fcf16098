import { SandboxAgentClient } from "sandbox-agent/local";

const client = await SandboxAgentClient.start({ agent: "mock", args: ["--ephemeral"] });
const session = await client.newSession({ cwd: "/tmp" });
console.log((await session.prompt("echo it works")).text);
await client.stop();
