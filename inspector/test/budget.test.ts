// What the page weighs, how soon it shows something, and that a long conversation
// costs no more than what is in sight.
import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, expect, test } from "vitest";
import { chat, connected, newSession, storyAgent, World } from "./world.js";

let world: World;
beforeAll(async () => {
  world = await World.start(["--no-token", ...storyAgent]);
});
afterAll(async () => world?.stop());

test("all scripts and styles together are below 600 kB, compressed, and those of diagrams, which few load, below 550", () => {
  const dir = resolve(import.meta.dirname, "../dist/assets");
  const weigh = (folder: string) => readdirSync(folder).filter((f) => /\.(js|css)$/.test(f)).map((f) => gzipSync(readFileSync(join(folder, f))).length);
  const sum = (sizes: readonly number[]) => sizes.reduce((n, size) => n + size, 0);
  const [page, diagrams] = [weigh(dir), weigh(join(dir, "diagrams"))];
  console.log(`${Math.round(sum(page) / 1000)} kB compressed in ${page.length} files, ${Math.round(sum(diagrams) / 1000)} kB for diagrams`);
  expect(page.length).toBeGreaterThan(5);
  expect(sum(page)).toBeLessThan(600_000);
  expect(sum(diagrams)).toBeLessThan(550_000);
});

test("the first load is at most 200 kB, compressed, and the second one asks for the page alone", async () => {
  const page = await world.open("about:blank");
  const bodies = new Map<string, number>();
  const debug = await page.context().newCDPSession(page);
  await debug.send("Network.enable");
  const names = new Map<string, string>();
  debug.on("Network.responseReceived", ({ requestId, response }) => void (response.url.includes("/ui/") && !response.fromDiskCache && names.set(requestId, response.url)));
  debug.on("Network.loadingFinished", ({ requestId, encodedDataLength }) => void (names.has(requestId) && bodies.set(names.get(requestId)!, encodedDataLength)));
  await page.goto(world.url("#/sessions"));
  await connected(page);
  await page.getByText("No sessions yet").first().waitFor();
  const first = [...bodies.values()].reduce((n, size) => n + size, 0);
  console.log(`first load: ${Math.round(first / 1000)} kB in ${bodies.size} files`);
  expect(bodies.size).toBeGreaterThan(5);
  expect(first).toBeLessThan(200_000);
  bodies.clear();
  names.clear();
  await page.reload();
  await connected(page);
  expect([...bodies].filter(([url, size]) => size > 0 && url.includes("/assets/"))).toEqual([]); // from the browser's cache
});

test("the page shows something at once, whenever the gateway answers", async () => {
  const page = await world.open("about:blank");
  await page.route(/\/v2\//, () => {}); // it does not
  await page.goto(world.url("#/sessions"));
  // A page is painted some time after its scripts have run.
  const painted = await page.waitForFunction(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
  console.log(`first paint after ${Math.round((await painted.jsonValue()) ?? Number.NaN)} ms`); // the aim is 1000
});

test("the page asks nobody but its gateway for anything", async () => {
  const asked: string[] = [];
  const page = await world.open("about:blank");
  page.on("request", (request) => asked.push(request.url()));
  await page.goto(world.url("#/sessions/new"));
  await page.getByRole("heading", { name: "New session" }).waitFor();
  expect(asked.length).toBeGreaterThan(3);
  expect(asked.filter((url) => !url.startsWith(world.gateway.url))).toEqual([]);
});

test("thousands of updates leave as many elements as a few do", async () => {
  const page = await world.open();
  await newSession(page, { agent: "story" });
  const count = () => page.evaluate(() => document.querySelectorAll(".rows *").length);
  await chat(page, "many 300");
  await page.getByRole("log").getByText("The end of many.").waitFor();
  const few = await count();
  await chat(page, "many 6000");
  await page.getByRole("log").getByText("word5999").waitFor();
  expect(await count()).toBeLessThan(few * 2 + 100);
  // Opened again, the newest part is read first, the rest when it is asked for.
  await page.reload();
  await page.getByRole("log").getByText("word5999").waitFor();
  expect(await count()).toBeLessThan(few * 2 + 100);
  await page.getByRole("log").hover();
  for (let i = 0; i < 40 && (await page.getByRole("button", { name: /what was before/ }).count()) === 0; i++) await page.mouse.wheel(0, -20_000);
  const before = await page.locator(".rows-inside").evaluate((e) => e.clientHeight);
  await page.getByRole("button", { name: /what was before/ }).click();
  await expect.poll(() => page.locator(".rows-inside").evaluate((e) => e.clientHeight)).toBeGreaterThan(before);
});
