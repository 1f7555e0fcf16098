// How smooth the page is while 100,000 updates come, while one scrolls through them,
// and while they are opened again. Run with `npm run bench`; COUNT changes the number.
import { afterAll, beforeAll, expect, test } from "vitest";
import { chat, newSession, smoothness, storyAgent, World, type Page } from "../test/world.js";

const count = Number(process.env.COUNT ?? 100_000);
const limitMs = 100;
let world: World;
beforeAll(async () => {
  world = await World.start(["--no-token", ...storyAgent]);
});
afterAll(async () => world?.stop());

async function report(what: string, page: Page, run: () => Promise<unknown>): Promise<void> {
  const { longestFrameMs, longTasks, tookMs, frames } = await smoothness(page, run);
  const nodes = await page.evaluate(() => document.querySelectorAll("*").length);
  const memory = await page.evaluate(() => Math.round(((performance as unknown as { memory?: { usedJSHeapSize: number } }).memory?.usedJSHeapSize ?? 0) / 1e6));
  console.log(`${what}: ${Math.round(tookMs)} ms, ${frames} frames, longest ${Math.round(longestFrameMs)} ms, long tasks ${longTasks.map(Math.round).join(" ") || "none"}, ${nodes} nodes, ${memory} MB`);
  expect.soft(longestFrameMs, what).toBeLessThan(limitMs);
}

test.each([["story", `many ${count}`, "The end of many."], ["mock", `stream ${count} 50`, `${count - 1} x`]])("%s: %s", async (agent, prompt, end) => {
  const page = await world.open();
  await newSession(page, { agent });
  await report(`${agent} streams ${count}`, page, async () => {
    await chat(page, prompt);
    await page.getByText(end).first().waitFor({ timeout: 240_000 });
  });
  await report(`${agent} is scrolled`, page, async () => {
    await page.locator(".rows").hover();
    for (let i = 0; i < 60; i++) await page.mouse.wheel(0, -1500);
    for (let i = 0; i < 60; i++) await page.mouse.wheel(0, 1500);
  });
  await page.reload();
  await page.getByText(end).first().waitFor({ timeout: 60_000 });
  await report(`${agent} shows what was before`, page, async () => {
    await page.locator(".rows").evaluate((e) => (e.scrollTop = 0));
    const button = page.getByRole("button", { name: /what was before/ });
    for (let i = 0; i < 5 && (await button.count()) > 0; i++) {
      await button.click();
      await page.waitForFunction(() => !document.querySelector(".earlier [aria-busy]"), undefined, { timeout: 60_000 });
      await page.locator(".rows").evaluate((e) => (e.scrollTop = 0));
      await page.waitForTimeout(200);
    }
  });
});
