import { afterAll, beforeAll, expect, test } from "vitest";
import { connected, picture, World } from "./world.js";

let world: World;
beforeAll(async () => {
  world = await World.start();
});
afterAll(async () => world?.stop());

test("a session is made, and a turn streams", async () => {
  const page = await world.open();
  await connected(page);
  await page.getByRole("link", { name: "New session" }).click();
  await page.getByLabel("Folder", { exact: true }).fill("/tmp");
  await page.getByLabel("Model").selectOption({ label: "Mock Large" }).catch(() => {});
  await page.getByRole("button", { name: "Start" }).click();
  const prompt = page.getByRole("combobox", { name: "Prompt" });
  for (const text of ["hello", "tool", "diff", "plan", "usage", "commands"]) {
    await prompt.fill(text);
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Send" }).waitFor();
    await page.waitForTimeout(300);
  }
  await picture(page, "draft");
  await prompt.fill("permission");
  await page.keyboard.press("Enter");
  await page.waitForTimeout(600);
  await picture(page, "draft2");
  expect(world.complaints).toEqual([]);
});
