// What turns have used, as the gateway counts it.
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { bothThemes, chat, connected, newSession, phone, settled, storyAgent, World } from "./world.js";

let world: World;
beforeAll(async () => {
  world = await World.start(["--no-token", ...storyAgent]);
});
afterEach(async ({ task }) => world?.closeWindows(task));
afterAll(async () => world?.stop());

test("what turns have used is shown by day, agent and model, and outlives the page", async () => {
  const page = await world.open("#/usage");
  await connected(page);
  await page.getByText("No turn was counted in this time").waitFor();
  await bothThemes(page, "usage-empty");
  await newSession(page, { agent: "story", prompt: "use 1000 200 3000 50 0.5" });
  await page.getByRole("log").getByText("used", { exact: true }).waitFor();
  await settled(page);
  await chat(page, "use 500 100 0 0 0.75");
  await expect.poll(() => page.getByRole("log").getByText("used", { exact: true }).count()).toBe(2);
  await settled(page);
  await newSession(page, { agent: "mock", prompt: "hello" });
  await page.getByRole("log").getByText("I am the mock agent").waitFor();
  await settled(page);
  // By keys.
  await page.getByRole("log").focus();
  await page.keyboard.press("g");
  await page.keyboard.press("u");
  const sums = page.getByRole("region", { name: "By agent" });
  const rows = async (region = sums) => (await region.getByRole("row").allInnerTexts()).map((r) => r.split("\t").map((c) => c.trim()));
  await sums.waitFor();
  const [head, first, ...rest] = await rows();
  expect(head).toEqual(["Agent", "Turns", "Input", "Output", "Read from cache", "Written to cache", "Thought", "Cost"]);
  expect(first).toEqual(["story", "2", "1.5k", "300", "3k", "0", "50", "$0.75"]);
  expect(rest[0]?.slice(0, 2)).toEqual(["Mock agent", "1"]);
  expect(rest.at(-1)?.[0]).toBe("All");
  expect(rest.at(-1)?.[1]).toBe("3");
  // Today has a bar for each who used something, as high as what it used.
  const bars = page.locator(".plot-day").last().locator(".bar");
  const shown = page.getByRole("combobox", { name: "What is shown" });
  await shown.selectOption("turns");
  await expect.poll(async () => {
    const heights = await bars.evaluateAll((all) => all.map((e) => e.getBoundingClientRect().height));
    return heights.length === 2 ? Math.round(heights[0]! / heights[1]!) : 0;
  }).toBe(2);
  await shown.selectOption("cached");
  await page.getByRole("img", { name: /^Cached tokens by day: 3k in 30 days/ }).waitFor();
  await shown.selectOption("cost USD");
  await page.getByRole("heading", { name: "Cost in USD $0.75" }).waitFor();
  await page.getByText("Cost in USD, day by day").click();
  const today = new Date().toISOString().slice(0, 10);
  const days = page.getByRole("region", { name: "By day" });
  expect((await rows(days)).find((r) => r[0] === today)).toEqual([today, "$0.75", "$0.00", "$0.75"]);
  await bothThemes(page, "usage");
  // By model, a shorter time; a reload keeps what is shown.
  await page.getByRole("radio", { name: "Models" }).check({ force: true });
  await page.getByRole("radio", { name: "7 days" }).check({ force: true });
  const models = page.getByRole("region", { name: "By model" });
  await models.getByRole("rowheader", { name: "mock-small" }).waitFor();
  await models.getByRole("rowheader", { name: "Model not known" }).waitFor();
  await page.reload();
  await models.getByRole("rowheader", { name: "mock-small" }).waitFor();
  expect(await page.locator(".plot-day").count()).toBe(7);
  await page.getByRole("heading", { name: "Cost in USD $0.75" }).waitFor();
  await page.setViewportSize(phone);
  await bothThemes(page, "usage-phone");
  expect(await page.locator("#main").evaluate((e) => e.scrollWidth)).toBeLessThanOrEqual(390);
  expect(world.complaints.filter((c) => c.startsWith("error"))).toEqual([]);
});
