// What can be done with sessions beside talking: forking, closing, deleting, native ones.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { chat, connected, inaccessible, newSession, picture, settled, theme, World, type Page } from "./world.js";

let world: World;
beforeAll(async () => {
  world = await World.start();
});
afterEach(async ({ task }) => world?.closeWindows(task));
afterAll(async () => world?.stop());

const log = (page: Page) => page.getByRole("log");
const menu = async (page: Page, item: RegExp) => {
  await page.getByRole("button", { name: "What can be done with this session" }).click();
  await page.getByRole("menuitem", { name: item }).click();
};

test("the form is filled from what the agent reports, and says what cannot be", async () => {
  const page = await world.open();
  const id = await newSession(page, { prompt: "hello" });
  await log(page).getByText("I am the mock agent").waitFor();
  const folder = join(world.gateway.dir, "a-project");
  mkdirSync(folder);
  await page.evaluate((cwd) => (location.hash = `#/sessions/new?agent=mock&cwd=${encodeURIComponent(cwd)}`), folder);
  const form = page.locator(".new-session");
  await expect.poll(() => form.getByLabel("Folder", { exact: true }).inputValue()).toBe(folder);
  await form.getByLabel("Model").selectOption("mock-large");
  await form.getByText("Does nothing thoroughly").waitFor();
  await form.getByText(/^More/).click();
  await form.getByText("the mock agent takes none").waitFor();
  await form.getByLabel("Title").fill("A session with a title");
  await form.getByLabel("Instructions").fill("Be brief");
  for (const name of ["light", "dark"] as const) {
    await theme(page, name);
    expect(await inaccessible(page)).toEqual([]);
    await picture(page, `new-session-${name}`);
  }
  await form.getByLabel("Environment").fill("not a variable");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await form.getByText(/is not NAME=VALUE/).waitFor();
  await form.getByLabel("Environment").fill("");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.getByRole("heading", { name: "A session with a title" }).waitFor();
  await page.getByText("Not everything that was asked for had an effect").waitFor();
  await expect.poll(() => page.getByRole("combobox", { name: "Model", exact: true }).inputValue()).toBe("mock-large");
  await page.getByRole("complementary", { name: "Sessions" }).locator(`a[href$="${id}"]`).waitFor();
});

test("a session is forked, closed, opened again, ended and deleted", async () => {
  const page = await world.open();
  const id = await newSession(page, { prompt: "echo the first words" });
  await log(page).locator(".agent").getByText("the first words").waitFor();
  await settled(page);
  await menu(page, /^Fork/);
  await page.waitForFunction((old) => !location.hash.endsWith(old), id);
  const fork = decodeURIComponent(new URL(page.url()).hash.split("/")[2] ?? "");
  await chat(page, "echo in the fork");
  await log(page).locator(".agent").getByText("in the fork").waitFor();

  await menu(page, /^Close/);
  await page.waitForURL(/#\/sessions$/);
  await page.goto(world.url(`#/sessions/${fork}`));
  await page.getByText("This session is closed").waitFor();
  await log(page).locator(".agent").getByText("in the fork").waitFor();
  await page.getByRole("button", { name: "Open it again" }).click();
  await chat(page, "echo opened again");
  await log(page).locator(".agent").getByText("opened again").waitFor();

  await menu(page, /^End for good/);
  await page.getByRole("dialog").getByRole("button", { name: "End" }).click();
  await page.waitForURL(/#\/sessions$/);
  await page.goto(world.url(`#/sessions/${fork}`));
  await page.getByText("This session has ended").waitFor();
  await menu(page, /^Delete/);
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await page.waitForURL(/#\/sessions$/);
  await page.goto(world.url(`#/sessions/${fork}`));
  await page.getByText("The gateway does not know this session").waitFor();
  expect((await fetch(`${world.gateway.url}/v2/sessions/${fork}`)).status).toBe(404);
});

test("a session that another client closes is shown as closed", async () => {
  const page = await world.open();
  const id = await newSession(page, { prompt: "hello" });
  await log(page).getByText("I am the mock agent").waitFor();
  await settled(page);
  await fetch(`${world.gateway.url}/v2/sessions/${id}/close`, { method: "POST" });
  await page.getByText("This session is closed").waitFor();
  await page.getByRole("button", { name: "Open it again" }).click();
  await chat(page, "echo open");
  await log(page).locator(".agent").getByText("open", { exact: true }).waitFor();
});

test("a session that is too old for the list is followed as well", async () => {
  const page = await world.open();
  const id = await newSession(page, { prompt: "hello" });
  await log(page).getByText("I am the mock agent").waitFor();
  await settled(page);
  await page.route(/\/v2\/sessions\?limit=/, async (route) => {
    const answer = await route.fetch();
    const list = (await answer.json()) as { sessions: { sessionId: string }[] };
    await route.fulfill({ response: answer, json: { ...list, sessions: list.sessions.filter((s) => s.sessionId !== id) } });
  });
  await page.reload();
  await log(page).getByText("I am the mock agent").waitFor();
  await fetch(`${world.gateway.url}/v2/sessions/${id}/close`, { method: "POST" });
  await page.getByText("This session is closed").waitFor();
  await page.unrouteAll({ behavior: "ignoreErrors" });
});

test("an agent that crashes says how, and the session goes on", async () => {
  const page = await world.open();
  await newSession(page, { prompt: "crash" });
  await log(page).getByText("The turn failed").waitFor();
  await settled(page);
  await chat(page, "echo still here");
  await log(page).locator(".agent").getByText("still here").waitFor();
});

test("the list is searched, and shows what sessions have cost", async () => {
  const page = await world.open();
  await newSession(page, { prompt: "usage" });
  await page.getByText("$0.42").first().waitFor();
  const side = page.getByRole("complementary", { name: "Sessions" });
  await page.keyboard.press("Escape");
  await page.keyboard.press("/");
  await page.keyboard.type("no such session");
  await side.getByText("No session fits the search.").waitFor();
  await side.getByRole("searchbox").fill("mock idle");
  await side.getByText("$0.42").first().waitFor();
});

test("what is said is searched as well", async () => {
  const page = await world.open();
  const id = await newSession(page, { prompt: "echo of marsupials" });
  await log(page).locator(".agent").getByText("of marsupials").waitFor();
  await settled(page);
  await chat(page, "echo the Quokka of Rottnest");
  await log(page).locator(".agent").getByText("Quokka").waitFor();
  const side = page.getByRole("complementary", { name: "Sessions" });
  await side.getByRole("searchbox").fill("of rottnest");
  await side.getByText("In what was said").waitFor();
  await side.locator(`a[href$="${id}"]`).getByText("Quokka of Rottnest").waitFor();
  expect(await inaccessible(page)).toEqual([]);
});

test("the list is told what changes, and asked for once; nothing is read for prices and titles", async () => {
  const page = await world.open();
  await connected(page);
  const asked: string[] = [];
  page.on("request", (request) => {
    const { pathname, search } = new URL(request.url());
    if (pathname.startsWith("/v2/sessions")) asked.push(pathname + search);
  });
  await page.reload();
  await connected(page);
  const other = await world.open();
  const id = await newSession(other, { prompt: "usage" });
  const row = page.getByRole("complementary", { name: "Sessions" }).locator("li").filter({ has: page.locator(`a[href$="${id}"]`) });
  await row.getByText("$0.42").waitFor();
  await row.getByText("idle").waitFor();
  await chat(other, "slow");
  await row.getByText("running").waitFor();
  await other.getByRole("button", { name: "Stop the turn" }).click();
  await row.getByText("idle").waitFor();
  await fetch(`${world.gateway.url}/v2/sessions/${id}`, { method: "DELETE" });
  await row.waitFor({ state: "detached" });
  expect(asked.filter((one) => !one.startsWith("/v2/sessions/changes?"))).toEqual(["/v2/sessions?limit=200"]);
});

test("to look at a session changes neither its events nor its place", async () => {
  const page = await world.open();
  const id = await newSession(page, { prompt: "echo looked at" });
  await log(page).locator(".agent").getByText("looked at").waitFor();
  await settled(page);
  const how = async () => {
    const { eventCount, updatedAt } = (await (await fetch(`${world.gateway.url}/v2/sessions/${id}`)).json()) as { eventCount: number; updatedAt: string };
    return { eventCount, updatedAt };
  };
  const before = await how();
  const other = await world.open(`#/sessions/${id}`);
  await log(other).locator(".agent").getByText("looked at").waitFor();
  await other.getByRole("textbox", { name: "Prompt", exact: true }).waitFor();
  await other.getByRole("button", { name: "About this session" }).click();
  await other.getByRole("dialog").waitFor();
  await other.reload();
  await log(other).locator(".agent").getByText("looked at").waitFor();
  expect(await how()).toEqual(before);
});

test("sessions that the agent has by itself are opened", async () => {
  const page = await world.open();
  await newSession(page, { prompt: "echo known to the agent" });
  await log(page).locator(".agent").getByText("known to the agent").waitFor();
  await page.goto(world.url("#/sessions/elsewhere"));
  await page.getByRole("heading", { name: "Sessions made elsewhere" }).waitFor();
  await page.getByText(/No others|Open/).first().waitFor();
  expect(await inaccessible(page)).toEqual([]);
});

test("sessions are renamed, pinned, archived and grouped, for every window; what works stands on top", async () => {
  const page = await world.open();
  const id = await newSession(page, { prompt: "slow" });
  const quiet = await newSession(page, { prompt: "echo quiet" });
  const side = (p: Page) => p.getByRole("complementary", { name: "Sessions" });
  const order = () => side(page).locator("h2, .session-title").allTextContents();
  // The running one is older, and above.
  await expect.poll(order).toEqual(expect.arrayContaining(["Working", "slow", "Today", "echo quiet"]));
  // That the other one has ended its turn is told a moment later, perhaps.
  await expect.poll(async () => {
    const shown = await order();
    return shown.indexOf("slow") < shown.indexOf("echo quiet");
  }).toBe(true);
  await menu(page, /^Rename/);
  await page.getByRole("dialog").getByLabel("Title").fill("A better name");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "A better name" }).waitFor();
  const other = await world.open(`#/sessions/${quiet}`);
  await side(other).getByText("A better name").waitFor();
  await other.getByRole("heading", { level: 1, name: "A better name" }).waitFor();
  await side(page).getByText("A better name").hover();
  await side(page).getByRole("button", { name: "Do something with A better name" }).click();
  await page.getByRole("menuitem", { name: /^Pin/ }).click();
  await expect.poll(async () => (await order()).slice(0, 2)).toEqual(["Pinned", "A better name"]);
  expect(await inaccessible(page)).toEqual([]);
  await picture(page, "sessions-list");
  await menu(page, /^Unpin/);
  await side(page).getByRole("button", { name: "How the list is shown" }).click();
  await page.getByRole("menuitem", { name: /^Group by folder/ }).click();
  await side(page).getByRole("heading", { name: "/tmp", exact: true }).waitFor();
  await menu(page, /^Archive/);
  await side(page).getByText("A better name").waitFor({ state: "detached" });
  await side(other).getByText("A better name").waitFor({ state: "detached" });
  await side(page).getByRole("button", { name: "How the list is shown" }).click();
  await page.getByRole("menuitem", { name: /^Archive/ }).click();
  await side(page).getByText("A better name").waitFor();
  await fetch(`${world.gateway.url}/v2/sessions/${id}/close`, { method: "POST" });
});
