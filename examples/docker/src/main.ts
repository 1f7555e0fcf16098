// A job for an agent in a container on this machine. Needs docker, and the image that the README builds.
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { promisify } from "node:util";
import { inSandbox, job, main, newToken, port, untilHealthy } from "../../gateway/gateway.ts";

const image = process.env.IMAGE ?? "sandbox-agent:agents";

/** Runs docker. What it says goes into the error when it fails. */
async function docker(args: readonly string[], env: Record<string, string> = {}): Promise<string> {
  const { stdout } = await promisify(execFile)("docker", args, { env: { ...process.env, ...env } });
  return stdout.trim();
}

await main(async (signal) => {
  const token = newToken();
  const name = `sandbox-agent-${randomBytes(4).toString("hex")}`;
  const remove = `docker rm --force ${name}`;
  // It is taken away also when it is not known whether it runs.
  await inSandbox(remove, () => docker(["rm", "--force", name]), async () => {
    await docker([
      "run", "--detach", "--rm", "--name", name, "--stop-timeout", "20", "--memory", "4g", "--pids-limit", "512", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
      "--publish", `127.0.0.1::${port}`, // a free port of this machine, for nobody else
      "--env", "SANDBOX_AGENT_TOKEN", image, // its value is in the environment, not in the command line, which others can see
    ], { SANDBOX_AGENT_TOKEN: token });
    console.log(`container ${name}`);
    signal.throwIfAborted();
    const url = `http://${await docker(["port", name, String(port)])}`;
    await untilHealthy(url, signal);
    return await job({ url, token, open: ["page", "terminal"], remove, stays: "until it is taken away" }, signal);
  });
});
