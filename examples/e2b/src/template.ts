// Builds a template with the gateway and agents in it, so that a sandbox has nothing to
// install. Needs E2B_API_KEY. The gateway is not started here: what runs while a template
// is built, its token too, would be the same in every sandbox.
import { defaultBuildLogger, Template } from "e2b";

const agents = (process.env.AGENTS ?? "claude codex").split(" ");
const installer = "https://github.com/sandboxagent/sandbox-agent/releases/latest/download/install.sh";

const template = Template()
  .fromNodeImage("22") // some agents are programs for Node
  .aptInstall(["ca-certificates", "curl", "git", "ripgrep"])
  .runCmd(`curl -fsSL ${installer} | sh -s -- --dir /usr/local/bin`, { user: "root" })
  .runCmd(agents.map((agent) => `sandbox-agent agents install ${agent}`));

const name = process.env.E2B_TEMPLATE ?? "sandbox-agent";
await Template.build(template, name, { cpuCount: 2, memoryMB: 4096, onBuildLogs: defaultBuildLogger() });
console.log(`the template ${name} is ready`);
