import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { chat, desktop, inaccessible, newSession, picture, settled, storyAgent, theme, World } from "./world.js";

let world: World;
beforeAll(async () => {
  world = await World.start(["--no-token", ...storyAgent]);
});
afterEach(async ({ task }) => world?.closeWindows(task));
afterAll(async () => world?.stop());

test("a session is made, its turns stream, and everything they show is there", async () => {
  const page = await world.open("", { viewport: { width: 1280, height: 2600 } }); // all rows are in sight
  await newSession(page, { agent: "story", prompt: "story" });
  await page.getByText("The review found nothing.").waitFor();
  await page.getByText("48.2k").waitFor();
  await settled(page);
  const log = page.getByRole("log");

  // Markdown, and what looks like HTML is text.
  await log.getByRole("heading", { name: "What I found" }).waitFor();
  await log.getByRole("cell", { name: "Infinity" }).waitFor();
  await log.getByText('<script>alert("no")</script>').waitFor();
  await log.locator(".hljs-keyword").first().waitFor();

  // A thought is folded; a plan, the colours of a command, a diff in both ways, a subagent, a picture.
  const thought = log.getByRole("region", { name: "Thought" });
  expect(await thought.getByText("The tests come first.").count()).toBe(0);
  await thought.getByRole("button").click();
  await thought.getByText("The tests come first.").waitFor();
  await log.getByRole("region", { name: "Tool: npm test" }).getByRole("button", { name: /npm test/ }).click();
  const failed = log.getByText("✗ divides by zero");
  await failed.waitFor();
  expect(await failed.evaluate((e) => getComputedStyle(e).color)).not.toBe(await log.getByText(" adds numbers ").evaluate((e) => getComputedStyle(e).color));
  const edit = log.getByRole("region", { name: "Tool: Edit src/divide.ts" });
  await edit.getByRole("link", { name: "src/divide.ts:3" }).waitFor();
  await expect.poll(() => edit.locator("tr.add").count()).toBe(1);
  await edit.getByRole("radio", { name: "Split" }).check();
  await edit.locator("table.split").waitFor();
  await edit.getByRole("radio", { name: "Unified" }).check();
  await log.getByRole("group", { name: "Subagent" }).getByText("Read divide.ts").waitFor();
  await log.getByRole("button", { name: /Picture/ }).waitFor();
  await page.getByText("$0.18").first().waitFor();

  await page.setViewportSize(desktop);
  for (const name of ["light", "dark"] as const) {
    await theme(page, name);
    for (const place of ["start", "end"] as const) {
      await log.hover();
      await page.mouse.wheel(0, place === "start" ? -10_000 : 10_000);
      await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))); // rows that came into sight are measured
      expect(await inaccessible(page)).toEqual([]);
      await picture(page, `conversation-${name}-${place}`);
    }
  }
  // Its folder, and the files that it names, are shown in Files.
  const folder = page.locator('main a[href^="#/files"].mono.clip');
  const path = await folder.getAttribute("title");
  await folder.click();
  await page.getByRole("navigation", { name: "Path" }).locator('[aria-current="page"]').getByText(path!.split("/").at(-1)!, { exact: true }).waitFor();
  expect(world.complaints).toEqual([]);
});

test("a large difference is found without holding up the page, and one that is too large is named", async () => {
  const page = await world.open();
  await newSession(page, { agent: "story", prompt: "rewrite 3000 half" });
  const half = page.getByRole("region", { name: "Tool: Rewrite half" });
  await half.getByText("+1500").waitFor();
  expect(await half.locator("tr").nth(2).innerText()).toContain("same 1");
  await chat(page, "rewrite 9000 all");
  const all = page.getByRole("region", { name: "Tool: Rewrite all" });
  await all.getByText("Too many lines differ to compare them.").waitFor();
  await all.getByText("old 0", { exact: true }).waitFor();
});
