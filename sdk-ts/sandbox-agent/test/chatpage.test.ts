// The page of the guide "A chat page of your own", as it stands there, in a browser.
import { createServer, type Server } from "node:http";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { build } from "esbuild";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { launch } from "../../test/browser.js";
import { Gateway } from "../../test/gateway.js";

const token = "chat-page-0123456789";
let browser: Browser;
let site: Server;
let origin: string;
let gateway: Gateway;
let page: Page;

beforeAll(async () => {
  const guide = readFileSync(resolve(import.meta.dirname, "../../../docs/chat-page.mdx"), "utf8");
  const html = /^```html\n([\s\S]*?)^```$/m.exec(guide)?.[1] ?? "";
  expect(html.split("\n").length).toBeLessThan(70);
  const bundle = await build({ entryPoints: [resolve(import.meta.dirname, "../dist/index.js")], bundle: true, format: "esm", platform: "browser", write: false });
  site = createServer(({ url }, response) => {
    const script = url === "/sandbox-agent.js";
    response.setHeader("Content-Type", script ? "text/javascript" : "text/html");
    response.end(script ? bundle.outputFiles[0]?.text : html.replaceAll("http://127.0.0.1:2468", gateway.url));
  });
  await new Promise<void>((done) => site.listen(0, "127.0.0.1", done));
  const address = site.address();
  origin = `http://127.0.0.1:${typeof address === "object" && address ? address.port : 0}`;
  gateway = await Gateway.start(["--cors-allow-origin", origin], { SANDBOX_AGENT_TOKEN: token });
  browser = await launch();
  page = await browser.newPage();
  await page.goto(`${origin}/#agent=mock&token=${token}`);
});
afterAll(async () => {
  await browser?.close();
  await gateway?.stop();
  site?.close();
});

async function send(text: string): Promise<void> {
  await page.getByLabel("Message").fill(text);
  await page.getByRole("button", { name: "Send" }).click();
}

/** The log's lines. */
const lines = (): Promise<string[]> => page.locator("main p").allTextContents();

test("a turn, a permission, and a reload in the middle of a turn", async () => {
  await page.waitForFunction(() => localStorage.getItem("session") !== null);
  await send("echo to my own page");
  await expect.poll(lines).toEqual(["echo to my own page", "to my own page"]);

  await send("permission");
  await page.getByRole("button", { name: /allow/i }).first().click();
  await expect.poll(async () => (await lines()).join("|")).toMatch(/permission\|.*granted|permission\|.*allow/);

  await send("slow");
  await expect.poll(async () => (await lines()).at(-1)).toContain("tick 3");
  await page.reload();
  await expect.poll(async () => (await lines()).at(-1)).toMatch(/^tick 0 tick 1 /);
  const before = (await lines()).at(-1)?.length ?? 0;
  await expect.poll(async () => (await lines()).at(-1)?.length).toBeGreaterThan(before);
  expect((await lines()).slice(0, 2)).toEqual(["echo to my own page", "to my own page"]);
});
