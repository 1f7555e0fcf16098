// A job for an agent in a Vercel Sandbox. Needs VERCEL_TOKEN, VERCEL_TEAM_ID and
// VERCEL_PROJECT_ID, or VERCEL_OIDC_TOKEN, and SANDBOX_AGENT_PROGRAM.
import { Sandbox } from "@vercel/sandbox";
import { inSandbox, job, main, minutes, newToken, port, program, untilHealthy } from "../../gateway/gateway.ts";

const { VERCEL_TOKEN: vercelToken, VERCEL_TEAM_ID: teamId, VERCEL_PROJECT_ID: projectId } = process.env;

/** The longest that every plan of Vercel's has. */
const lives = Math.min(minutes, 45);

await main(async (signal) => {
  const file = await program();
  const token = newToken();
  const sandbox = await Sandbox.create({
    ports: [port],
    timeout: lives * 60_000, // it ends by itself then, even if this program is killed
    persistent: false,
    ...(vercelToken && teamId && projectId ? { token: vercelToken, teamId, projectId } : {}),
  });
  console.log(`sandbox ${sandbox.name}`);
  const remove = `npx sandbox remove ${sandbox.name}`;
  const takeAway = async (): Promise<void> => {
    const stopped = await sandbox.stop().catch((error: unknown) => error); // it may have ended by itself, and is still there then
    await sandbox.delete().catch((error: unknown) => Promise.reject(new Error(String(error), { cause: stopped })));
  };
  await inSandbox(remove, takeAway, async () => {
    signal.throwIfAborted();
    await sandbox.writeFiles([{ path: "sandbox-agent", content: file, mode: 0o755 }], { signal });
    const url = sandbox.domain(port);
    await sandbox.runCommand({
      cmd: "./sandbox-agent",
      args: ["server", "--host", "0.0.0.0", "--port", String(port), "--allowed-host", new URL(url).hostname],
      env: { SANDBOX_AGENT_TOKEN: token },
      detached: true,
    });
    await untilHealthy(url, signal);
    return await job({ url, token, open: ["page", "terminal"], remove, stays: `for at most ${lives} minutes` }, signal);
  });
});
