// A job for an agent in a Daytona sandbox. Needs DAYTONA_API_KEY and SANDBOX_AGENT_PROGRAM.
import { Daytona } from "@daytona/sdk";
import { inSandbox, job, main, minutes, newToken, port, program, untilHealthy } from "../../gateway/gateway.ts";

await main(async (signal) => {
  const file = await program();
  const token = newToken();
  const daytona = new Daytona();
  // Stopped after so many idle minutes, and gone then, even if this program is killed.
  const sandbox = await daytona.create({ autoStopInterval: minutes, ephemeral: true });
  console.log(`sandbox ${sandbox.id}`);
  const remove = `daytona delete ${sandbox.id}`;
  await inSandbox(remove, () => sandbox.delete(), async () => {
    signal.throwIfAborted();
    await sandbox.fs.uploadFile(file, "sandbox-agent");
    await sandbox.fs.uploadFile(Buffer.from(token), "gateway-token"); // command lines are logged
    const prepared = await sandbox.process.executeCommand("chmod 755 sandbox-agent && chmod 600 gateway-token");
    if (prepared.exitCode !== 0) throw new Error(`prepare the sandbox: ${prepared.result}`);
    const preview = await sandbox.getPreviewLink(port);
    const headers = { "x-daytona-preview-token": preview.token, "X-Daytona-Skip-Preview-Warning": "true" };
    await sandbox.process.createSession("gateway");
    await sandbox.process.executeSessionCommand("gateway", {
      command: `exec ./sandbox-agent server --host 0.0.0.0 --port ${port} --token-file gateway-token --allowed-host ${new URL(preview.url).hostname}`,
      runAsync: true,
    });
    await untilHealthy(preview.url, signal, headers);
    return await job({ url: preview.url, token, headers, open: [], remove }, signal);
  });
});
