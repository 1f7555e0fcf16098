// The same program in every runtime that the packages are made for.
import { execFile } from "node:child_process";
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { build } from "esbuild";
import { afterAll, beforeAll, expect, test } from "vitest";
import { launch } from "../../test/browser.js";
import { Gateway } from "../../test/gateway.js";

const root = resolve(import.meta.dirname, "../..");
const dir = resolve(import.meta.dirname, "../.runtimes"); // where the packages are found
const run = promisify(execFile);
let gateway: Gateway;

/** Uses what is there: every transport, a file, a program. Its result is "ok". */
const program = (url: string, transports: string[]) => `
import { SandboxAgentClient } from "sandbox-agent";
const check = (ok, what) => { if (!ok) throw new Error(what); };
export const done = (async () => {
  for (const transport of ${JSON.stringify(transports)}) {
    const client = new SandboxAgentClient({ baseUrl: ${JSON.stringify(url)}, agent: "mock", transport, retry: { giveUpAfterMs: 5000 } });
    client.onPermission((request) => request.options.find((o) => o.kind === "allow_once")?.optionId);
    const session = await client.newSession({ cwd: "/tmp" });
    const turn = session.prompt("stream 200 20");
    let n = 0;
    for await (const update of turn) n += update.sessionUpdate === "agent_message_chunk" ? 1 : 0;
    check(n === 200, transport + ": " + n + " updates");
    check((await session.prompt("permission")).text.includes("allow_once"), transport + ": permission");
    const path = "/tmp/sdk-runtime-" + session.id;
    await client.fs.write(path, new TextEncoder().encode("bytes"));
    check((await client.fs.readText(path)) === "bytes", transport + ": file");
    await client.fs.delete(path);
    check((await client.processes.run({ command: "echo", args: ["hi"] })).stdout.data === "hi\\n", transport + ": program");
    await client.deleteSession(session.id);
    await client.disconnect();
  }
  return "ok";
})();
`;

beforeAll(async () => {
  gateway = await Gateway.start(["--no-token", "--cors-allow-origin", "*"]);
  rmSync(dir, { recursive: true, force: true });
  mkdirSync(dir);
});
afterAll(async () => {
  await gateway.stop();
  rmSync(dir, { recursive: true, force: true });
});

const runtimes = [
  { name: "node", command: process.execPath, args: [], transports: ["http", "inline"] },
  { name: "bun", command: join(root, "node_modules/.bin/bun"), args: ["run"], transports: ["http", "inline", "websocket"] },
  { name: "deno", command: join(root, "node_modules/@deno/linux-x64-glibc/deno"), args: ["run", "-A", "--node-modules-dir=manual"], transports: ["http", "inline", "websocket"] },
];

test.each(runtimes)("$name", async ({ name, command, args, transports }) => {
  if (!existsSync(command)) {
    console.log(`${name} is not run: its program for this platform is not among the dependencies`);
    return;
  }
  const file = join(dir, `${name}.mjs`);
  writeFileSync(file, `${program(gateway.url, transports)}console.log(await done);`);
  const { stdout } = await run(command, [...args, file], { timeout: 60_000, cwd: dir });
  expect(stdout.trim()).toBe("ok");
});

test("a worker of a web page", async () => {
  const file = join(dir, "worker.mjs");
  writeFileSync(file, `${program(gateway.url, ["http", "inline", "websocket"])}done.then((r) => postMessage(r), (e) => postMessage(String(e.stack)));`);
  const bundle = await build({ entryPoints: [file], bundle: true, format: "iife", platform: "browser", write: false });
  const site = createServer((request, response) => {
    const script = request.url === "/worker.js";
    response.setHeader("Content-Type", script ? "text/javascript" : "text/html");
    response.end(script ? bundle.outputFiles[0]?.text : "<!doctype html><title>a page</title>");
  });
  await new Promise<void>((listening) => site.listen(0, "127.0.0.1", listening));
  const address = site.address();
  const browser = await launch();
  try {
    const page = await browser.newPage();
    await page.goto(`http://127.0.0.1:${typeof address === "object" && address ? address.port : 0}/`);
    const said = await page.evaluate(() => new Promise((heard) => {
      const worker = new Worker("/worker.js");
      worker.onmessage = (event) => heard(event.data);
      worker.onerror = (event) => heard(event.message);
    }));
    expect(said).toBe("ok");
  } finally {
    await browser.close();
    site.close();
  }
});
