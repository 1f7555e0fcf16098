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

interface Trace {
  traceEvents: { name: string; ph: string; pid: number; tid: number; dur?: number; tdur?: number; args?: { name?: string } }[];
}

/** The time of the processor that the longest task of a page's main thread took. */
function longestTask({ traceEvents }: Trace): number {
  const main = new Set(traceEvents.filter((e) => e.name === "thread_name" && e.args?.name === "CrRendererMain").map((e) => `${e.pid} ${e.tid}`));
  const tasks = traceEvents.filter((e) => e.ph === "X" && e.name.endsWith("RunTask") && main.has(`${e.pid} ${e.tid}`));
  expect(tasks.length, "tasks in the trace").toBeGreaterThan(10);
  return tasks.reduce((most, e) => Math.max(most, e.tdur ?? e.dur ?? 0), 0) / 1000; // one at the trace's edge has no time of the processor
}

async function report(what: string, page: Page, run: () => Promise<unknown>): Promise<void> {
  // The trace tells what the page itself took: on a machine that does other things,
  // frames are late because nobody has time to draw them.
  await world.browser.startTracing(page, { categories: ["disabled-by-default-lighthouse", "toplevel"] });
  let trace = "";
  const { longestFrameMs, longTasks, tookMs, frames } = await smoothness(page, run).finally(async () => (trace = (await world.browser.stopTracing()).toString()));
  const longestTaskMs = longestTask(JSON.parse(trace) as Trace);
  const nodes = await page.evaluate(() => document.querySelectorAll("*").length);
  const memory = await page.evaluate(() => Math.round(((performance as unknown as { memory?: { usedJSHeapSize: number } }).memory?.usedJSHeapSize ?? 0) / 1e6));
  console.log(`${what}: ${Math.round(tookMs)} ms, ${frames} frames, longest task ${Math.round(longestTaskMs)} ms, longest frame ${Math.round(longestFrameMs)} ms, long tasks by the clock ${longTasks.map(Math.round).join(" ") || "none"}, ${nodes} nodes, ${memory} MB`);
  expect.soft(longestTaskMs, what).toBeLessThan(limitMs);
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
    await page.locator(".rows").hover();
    const button = page.getByRole("button", { name: /what was before/ });
    for (let i = 0; i < 60; i++) {
      await page.mouse.wheel(0, -1_000_000);
      if ((await button.count()) === 0) continue;
      await button.click();
      await page.waitForFunction(() => !document.querySelector(".earlier [aria-busy]"), undefined, { timeout: 60_000 });
    }
  });
});
