// The packages in a real browser, on a page of another site than the gateway's.
import { createServer, type Server } from "node:http";
import { resolve } from "node:path";
import { build } from "esbuild";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type * as sdk from "sandbox-agent";
import { launch } from "../../test/browser.js";
import { Gateway } from "../../test/gateway.js";

declare global {
  // What the bundle leaves on the page.
  var sdk: typeof import("sandbox-agent");
}

const token = "browser-token-ünï-0123456789";
let browser: Browser;
let site: Server;
let origin: string;
let gateway: Gateway;
let page: Page;

beforeAll(async () => {
  const bundle = await build({
    entryPoints: [resolve(import.meta.dirname, "../dist/index.js")], bundle: true, format: "iife", globalName: "sdk", platform: "browser", write: false,
  });
  site = createServer((_, response) => {
    response.setHeader("Content-Type", "text/html; charset=utf-8");
    response.end(`<!doctype html><title>a page</title><script>${bundle.outputFiles[0]?.text.replaceAll("</script", "<\\/script")}</script>`);
  });
  await new Promise<void>((done) => site.listen(0, "127.0.0.1", done));
  const address = site.address();
  origin = `http://127.0.0.1:${typeof address === "object" && address ? address.port : 0}`;
  gateway = await Gateway.start(["--cors-allow-origin", origin], { SANDBOX_AGENT_TOKEN: encodeURIComponent(token) });
  browser = await launch();
  page = await browser.newPage();
  await page.goto(origin);
});
afterAll(async () => {
  await browser?.close();
  await gateway?.stop();
  site?.close();
});

describe.each(["http", "inline", "websocket", undefined] as const)("transport %s", (transport) => {
  test("turns, a permission, a file and a program", async () => {
    const result = await page.evaluate(async ([baseUrl, token, transport]) => {
      const { SandboxAgentClient } = globalThis.sdk;
      const client = new SandboxAgentClient({ baseUrl, token, agent: "mock", ...(transport ? { transport } : {}) });
      client.onPermission(() => "allow");
      const session = await client.newSession({ cwd: "/tmp" });
      const turn = session.prompt("stream 300 50");
      let updates = 0;
      for await (const u of turn) updates += u.sessionUpdate === "agent_message_chunk" ? 1 : 0;
      const permission = await session.prompt("permission");
      const path = `/tmp/from-a-browser-${session.id}`;
      await client.fs.write(path, new Blob(["written in a page"]));
      const text = await client.fs.readText(path);
      await client.fs.delete(path);
      const run = await client.processes.run({ command: "echo", args: ["hello"] });
      const shell = await client.processes.start({ command: "sh", args: ["-c", "read x; echo got $x; exit 4"], tty: true });
      const terminal = await client.terminal(shell.id);
      terminal.write("word\n");
      let output = "";
      for await (const chunk of terminal) output += new TextDecoder().decode(chunk);
      const exit = await terminal.exited;
      await client.processes.delete(shell.id);
      await client.deleteSession(session.id);
      await client.disconnect();
      return { updates, stop: (await turn).stopReason, permission: permission.stopReason, text, run: run.stdout.data, output, exit };
    }, [gateway.url, encodeURIComponent(token), transport] as [string, string, sdk.SandboxAgentClientOptions["transport"]]);
    expect(result).toMatchObject({ updates: 300, stop: "end_turn", permission: "end_turn", text: "written in a page", run: "hello\n", exit: { exitCode: 4 } });
    expect(result.output).toContain("got word");
  });
});

test("a page of a site that is not allowed gets nowhere", async () => {
  const other = await browser.newPage();
  await other.goto(origin.replace("127.0.0.1", "localhost"));
  const error = await other.evaluate(async ([baseUrl, token]) => {
    const { SandboxAgentClient } = globalThis.sdk;
    const client = new SandboxAgentClient({ baseUrl: baseUrl!, token: token!, agent: "mock", transport: "http", retry: { firstDelayMs: 1, giveUpAfterMs: 100 } });
    return client.newSession({ cwd: "/tmp" }).then(() => "no error", (e: Error) => e.name);
  }, [gateway.url, encodeURIComponent(token)]);
  expect(error).toBe("ConnectionLostError");
  await other.close();
});
