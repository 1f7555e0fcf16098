import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { answerable, bothThemes, connected, inaccessible, phone, picture, settled, theme, World } from "./world.js";

let world: World;
beforeAll(async () => {
  world = await World.start();
});
afterEach(async ({ task }) => world?.closeWindows(task));
afterAll(async () => world?.stop());

test("the page connects to the gateway that serves it, and shows every area", async () => {
  const page = await world.open();
  await connected(page);
  const nav = page.getByRole("navigation", { name: "Areas" });
  for (const name of ["Inbox", "Wire", "Agents", "Files", "Processes", "Terminal", "Sessions"]) {
    await nav.getByRole("link", { name }).click();
    await page.waitForFunction((title) => document.title === title, `${name} · Sandbox Agent`);
    await page.getByRole("heading", { level: 1 }).first().waitFor();
  }
  // A folder without git answers so, which browsers note.
  expect(world.complaints.filter((c) => !c.includes("status of 409"))).toEqual([]);
});

test("keys go to areas, and ? lists them", async () => {
  const page = await world.open();
  await connected(page);
  await page.keyboard.press("g");
  await page.keyboard.press("w");
  await page.waitForURL(/#\/wire$/);
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keyboard" }).waitFor();
  expect(await inaccessible(page)).toEqual([]);
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
});

test("by keyboard alone a session is begun, its agent answered, and each dialog gives the focus back", async () => {
  const page = await world.open("#/sessions");
  const at = (name: string) => page.waitForFunction((label) => document.activeElement?.getAttribute("aria-label")?.startsWith(label), name);
  await page.getByText("No sessions yet").first().waitFor();
  await page.keyboard.press("n");
  await expect.poll(() => page.getByLabel("Folder", { exact: true }).inputValue()).not.toBe("");
  await page.waitForFunction(() => document.activeElement?.tagName === "TEXTAREA" && !document.querySelector(".new-session [aria-busy=true]"));
  await page.keyboard.type("permission");
  await page.keyboard.press("Control+Enter");
  await page.getByRole("region", { name: "The agent asks" }).waitFor();
  await at("Prompt");
  await page.keyboard.press("Escape"); // out of the text, where letters are keys
  await at("Conversation: permission");
  await answerable(page);
  await page.keyboard.press("y");
  await settled(page);
  for (const keys of ["?", "Control+k", "c", "Control+f"]) {
    await page.keyboard.press(keys);
    await page.waitForFunction(() => document.activeElement?.closest("dialog, .find"));
    await page.keyboard.press("Escape");
    await at("Conversation: permission");
  }
  const menu = page.getByRole("button", { name: "What can be done with this session" });
  for (const item of ["Rename", "End for good", "Delete"]) {
    await menu.focus();
    await page.keyboard.press("Enter");
    await page.getByRole("menuitem", { name: item }).focus();
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.activeElement?.closest("dialog"));
    await page.keyboard.press("Escape");
    await at("What can be done");
  }
  // What had the focus goes with the session.
  await page.keyboard.press("Enter");
  await page.getByRole("menuitem", { name: "Delete" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).focus();
  await page.keyboard.press("Enter");
  await page.waitForURL(/#\/sessions$/);
  await page.waitForFunction(() => document.activeElement?.id === "main");
});

test("two keys that were pressed one after the other belong together, however late the page gets to them", async () => {
  const page = await world.open();
  await connected(page);
  // It is busy with the first one, for longer than the second one may be late.
  await page.evaluate(() => addEventListener("keydown", () => {
    for (const end = performance.now() + 1300; performance.now() < end;);
  }, { once: true }));
  await Promise.all([page.keyboard.press("g"), page.keyboard.press("w")]);
  await page.waitForURL(/#\/wire$/);
  // Those that were not do not.
  await page.keyboard.press("g");
  await page.evaluate(() => new Promise((later) => setTimeout(later, 1300)));
  await page.keyboard.press("f");
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keyboard" }).waitFor();
  expect(new URL(page.url()).hash).toBe("#/wire");
});

test("everything that can be done is found by its name", async () => {
  const page = await world.open();
  await connected(page);
  await page.keyboard.press("Control+k");
  const dialog = page.getByRole("dialog", { name: "What do you want to do?" });
  const input = dialog.getByRole("combobox");
  await expect.poll(() => input.evaluate((e) => e === document.activeElement)).toBe(true);
  await input.fill("no such thing");
  await dialog.getByText("Nothing is called so.").waitFor();
  await input.fill("theme");
  await dialog.getByRole("option", { name: "Theme: dark" }).waitFor();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  expect(await inaccessible(page)).toEqual([]);
  await picture(page, "palette");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.documentElement.dataset.theme === "dark");
  await dialog.waitFor({ state: "detached" });
  await page.keyboard.press("Control+k");
  await input.fill("mock");
  await dialog.getByRole("option", { name: /^New session with Mock/ }).click();
  await page.waitForURL(/#\/sessions\/new\?agent=mock$/);
});

test("nothing keeps moving for people who want less motion", async () => {
  for (const [reducedMotion, want] of [["no-preference", 1], ["reduce", 0]] as const) {
    const page = await world.open("", { reducedMotion });
    await connected(page);
    await page.evaluate(() => document.body.append(Object.assign(document.createElement("span"), { className: "spinner", id: "moves" })));
    await expect.poll(() => page.locator("#moves").evaluate((e) => e.getAnimations().length), { message: reducedMotion }).toBe(want);
  }
});

test("on a phone the areas are behind a button", async () => {
  const page = await world.open("", { viewport: phone });
  await page.getByRole("button", { name: "Open the menu" }).click();
  await page.getByRole("navigation", { name: "Areas" }).getByRole("link", { name: "Inbox" }).click();
  await page.waitForURL(/#\/inbox$/);
  await page.getByRole("button", { name: "Open the menu" }).waitFor();
  await page.getByRole("heading", { level: 1 }).waitFor();
  await bothThemes(page, "shell-phone");
});

test("on a tablet the areas are icons that have their names", async () => {
  const page = await world.open("#/sessions/new", { viewport: { width: 834, height: 1112 } });
  await connected(page);
  const link = page.getByRole("navigation", { name: "Areas" }).getByRole("link", { name: "Inbox" });
  expect((await link.boundingBox())!.width).toBeLessThan(60);
  await page.getByRole("heading", { name: "New session" }).waitFor();
  const [agent, folder] = [await page.locator(".new-session").getByLabel("Agent", { exact: true }).boundingBox(), await page.getByLabel("Folder", { exact: true }).boundingBox()];
  expect(folder!.y).toBeGreaterThan(agent!.y + agent!.height); // one below the other
  await bothThemes(page, "shell-tablet");
  await link.click();
  await page.waitForURL(/#\/inbox$/);
});
