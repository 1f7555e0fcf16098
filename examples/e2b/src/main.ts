// A job for an agent in an E2B sandbox. Needs E2B_API_KEY and SANDBOX_AGENT_PROGRAM.
import { Sandbox } from "e2b";
import { job, main, minutes, newToken, port, program, untilHealthy } from "../../gateway/gateway.ts";

await main(async (signal) => {
  const file = await program();
  const token = newToken();
  // The sandbox ends by itself after this time, even if this program is killed.
  const sandbox = await Sandbox.create({ timeoutMs: minutes * 60_000 });
  console.log(`sandbox ${sandbox.sandboxId}`);
  let stays = false;
  try {
    signal.throwIfAborted();
    await sandbox.files.write("sandbox-agent", new Blob([new Uint8Array(file)]), { signal });
    await sandbox.commands.run("chmod 755 sandbox-agent");
    const host = sandbox.getHost(port);
    await sandbox.commands.run(`exec ./sandbox-agent server --host 0.0.0.0 --port ${port} --allowed-host ${host}`, {
      background: true,
      timeoutMs: 0, // as long as the sandbox
      envs: { SANDBOX_AGENT_TOKEN: token }, // not in the command line, which others can see
      onStderr: (text) => void process.stderr.write(text),
    });
    const url = `https://${host}`;
    await untilHealthy(url, signal);
    stays = await job({ url, token, open: ["page", "terminal"], remove: `npx @e2b/cli sandbox kill ${sandbox.sandboxId}` }, signal);
  } finally {
    if (!stays) {
      await sandbox.kill();
      console.log("the sandbox is gone");
    }
  }
});
