// A job for an agent in an E2B sandbox. Needs E2B_API_KEY, and E2B_TEMPLATE or
// SANDBOX_AGENT_PROGRAM: a template with the program in it (see template.ts), or the program.
import { Sandbox } from "e2b";
import { inSandbox, job, keep, main, minutes, newToken, port, program, untilHealthy } from "../../gateway/gateway.ts";

const template = process.env.E2B_TEMPLATE;

await main(async (signal) => {
  const file = template ? undefined : await program();
  const token = newToken();
  const sandbox = await Sandbox.create(template ?? "base", {
    timeoutMs: minutes * 60_000, // it ends by itself then, even if this program is killed
    ...(keep && { lifecycle: { onTimeout: "pause" } }), // or waits, with all that runs in it
  });
  console.log(`sandbox ${sandbox.sandboxId}`);
  const remove = `npm run remove -- ${sandbox.sandboxId}`;
  await inSandbox(remove, () => sandbox.kill(), async () => {
    signal.throwIfAborted();
    if (file) {
      await sandbox.files.write("sandbox-agent", new Blob([new Uint8Array(file)]), { signal });
      await sandbox.commands.run("chmod 755 sandbox-agent");
    }
    const host = sandbox.getHost(port);
    await sandbox.commands.run(`exec ${file ? "./" : ""}sandbox-agent server --host 0.0.0.0 --port ${port} --allowed-host ${host}`, {
      background: true,
      timeoutMs: 0, // as long as the sandbox
      envs: { SANDBOX_AGENT_TOKEN: token }, // not in the command line, which others can see
      onStderr: (text) => void process.stderr.write(text),
    });
    const url = `https://${host}`;
    await untilHealthy(url, signal);
    return await job({
      url, token, open: ["page", "terminal"],
      stays: `for ${minutes} minutes and is paused then; npm run again -- ${sandbox.sandboxId} brings it back`,
      remove,
    }, signal);
  });
});
