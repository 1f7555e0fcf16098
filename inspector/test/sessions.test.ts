// What can be done with sessions beside talking: forking, closing, deleting, native ones.
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from "vitest";
import { SandboxAgentClient } from "sandbox-agent";
import { bothThemes, chat, connected, inaccessible, newSession, picture, settled, storyAgent, World, type Page } from "./world.js";

let world: World;
beforeAll(async () => {
  world = await World.start(["--no-token", ...storyAgent]);
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
  await bothThemes(page, "new-session");
  await form.getByLabel("Environment").fill("not a variable");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await form.getByText(/is not NAME=VALUE/).waitFor();
  await form.getByLabel("Environment").fill("");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.getByRole("heading", { name: "A session with a title" }).waitFor();
  await page.getByText("Not everything that was asked for had an effect").waitFor();
  await expect.poll(() => page.getByRole("combobox", { name: "Model", exact: true }).inputValue()).toBe("mock-large");
  await page.getByRole("button", { name: "About this session" }).click();
  const about = page.getByRole("dialog", { name: "About this session" });
  await about.getByText("Mock Large", { exact: true }).waitFor();
  expect(await about.locator("dt").getByText("Model", { exact: true }).count()).toBe(1); // the option, and not the record's beside it
  await page.keyboard.press("Escape");
  await page.getByRole("complementary", { name: "Sessions" }).locator(`a[href$="${id}"]`).waitFor();
});

test("the buttons of the form stay where they are, whatever it is told of an agent", async () => {
  const page = await world.open();
  await connected(page);
  await page.evaluate(() => {
    const places = new Set<number>();
    Object.assign(globalThis, { places });
    const look = () => {
      const button = document.querySelector(".new-session button[type=submit]");
      if (button) places.add(Math.round(button.getBoundingClientRect().top));
      requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
    location.hash = "#/sessions/new";
  });
  const form = page.locator(".new-session");
  const open = form.locator("details", { hasText: "Key for this session alone" });
  for (const [agent, key] of [["mock", false], ["claude", true], ["mock", false]] as const) { // one most likely wants a key
    await form.getByLabel("Agent", { exact: true }).selectOption(agent);
    await page.waitForFunction(() => !document.querySelector(".new-session [aria-busy=true]"));
    await expect.poll(() => open.evaluate((e) => (e as HTMLDetailsElement).open)).toBe(key);
  }
  expect(await page.evaluate(() => (globalThis as unknown as { places: Set<number> }).places.size)).toBe(1);
});

test("MCP servers have a form, which takes what a file has", async () => {
  const page = await world.open("#/sessions/new?agent=story");
  await connected(page);
  const form = page.locator(".new-session");
  await form.getByLabel("Folder", { exact: true }).fill("/tmp");
  await form.getByText(/^More/).click();
  const servers = form.getByRole("group", { name: /^MCP servers/ });
  await servers.getByRole("button", { name: "Add a server" }).focus();
  await page.keyboard.press("Enter");
  await page.keyboard.type("docs"); // its name is written next
  const docs = servers.getByRole("group", { name: "MCP docs" });
  await docs.getByLabel("Arguments").fill("--port\n80 80");
  await docs.getByLabel("Variables").fill("KEY");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await servers.getByRole("alert").getByText("Server “docs”: A command is needed.").waitFor();
  await docs.getByLabel("Command").fill("docs-server");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await servers.getByRole("alert").getByText("Server “docs”: “KEY” is not NAME=VALUE.").waitFor();
  await docs.getByLabel("Variables").fill("KEY=a=b");
  expect(await servers.getByRole("alert").count()).toBe(0);
  // What a file has comes into the form.
  await servers.getByRole("button", { name: "Paste JSON" }).click();
  await servers.getByLabel("Servers as JSON").fill("{");
  await servers.getByRole("button", { name: "Take over" }).click();
  await servers.getByText(/^This is not JSON/).waitFor();
  await servers.getByLabel("Servers as JSON").fill('{"mcpServers": {"web": {"url": "https://example.com/mcp", "headers": {"X-Key": "v"}}, "gone": {"command": "x"}}}');
  await servers.getByRole("button", { name: "Take over" }).click();
  await servers.getByRole("button", { name: "Remove gone" }).click();
  const web = servers.getByRole("group", { name: "MCP web" });
  expect(await web.getByLabel("Address").inputValue()).toBe("https://example.com/mcp");
  await servers.evaluate((e) => e.scrollIntoView());
  await bothThemes(page, "mcp-form");
  await page.setViewportSize({ width: 390, height: 844 });
  expect(await inaccessible(page)).toEqual([]);
  await picture(page, "mcp-form-phone");
  expect(await page.locator(".split-main").evaluate((e) => e.scrollWidth)).toBeLessThanOrEqual(390);
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.getByRole("textbox", { name: "Prompt", exact: true }).waitFor();
  await chat(page, "mcp");
  await log(page).getByText('[{"name":"docs","command":"docs-server","args":["--port","80 80"],"env":[{"name":"KEY","value":"a=b"}]},{"type":"http","name":"web","url":"https://example.com/mcp","headers":[{"name":"X-Key","value":"v"}]}]').waitFor();
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

test("many sessions are archived, and deleted, at once", async () => {
  const page = await world.open();
  const ids: string[] = [];
  for (const words of ["echo of many: one", "echo of many: two", "echo of many: three"]) {
    ids.push(await newSession(page, { prompt: words }));
    await log(page).locator(".agent").getByText("of many").waitFor();
    await settled(page);
  }
  await chat(page, "permission");
  await page.getByRole("region", { name: "The agent asks" }).waitFor();
  const list = page.getByRole("complementary", { name: "Sessions" });
  await list.getByRole("searchbox").fill("of many");
  const several = async () => {
    await list.getByRole("button", { name: "How the list is shown" }).click();
    await list.getByRole("menuitem", { name: /^Choose several/ }).click();
    return page.getByRole("dialog");
  };
  const dialog = await several();
  await expect.poll(() => dialog.locator(".several-row").count()).toBe(3);
  expect(await dialog.getByRole("button", { name: /^Archive/ }).isDisabled()).toBe(true);
  await dialog.getByLabel("of many: one").check();
  await dialog.getByLabel("of many: two").check();
  await bothThemes(page, "several");
  await dialog.getByRole("button", { name: "Archive 2" }).click();
  await dialog.waitFor({ state: "detached" });
  await page.getByText("2 sessions archived").waitFor();
  await expect.poll(() => list.locator(".session-slot").count()).toBe(1);

  await several();
  await dialog.getByLabel(/^All that the list shows/).check();
  await dialog.getByRole("button", { name: "Delete 1…" }).click();
  await dialog.getByText("In 1 of them something goes on, which ends.").waitFor();
  await dialog.getByRole("button", { name: "Delete 1" }).click();
  await page.getByText("1 session deleted").waitFor();
  await page.waitForURL(/#\/sessions$/);
  const known = await Promise.all(ids.map(async (id) => (await fetch(`${world.gateway.url}/v2/sessions/${id}`)).status));
  expect(known).toEqual([200, 200, 404]);
});

test("a prompt of before is sent again, in a copy, and in a session that knows what was said before it", async () => {
  const page = await world.open();
  const id = await newSession(page, { prompt: "echo the first words" });
  await log(page).locator(".agent").getByText("the first words").waitFor();
  await settled(page);
  await chat(page, "echo the second words");
  await log(page).locator(".agent").getByText("the second words").waitFor();
  await settled(page);
  const act = async (words: string, what: string) => {
    const row = log(page).locator(".said.user").filter({ hasText: words }).last();
    await row.hover();
    await row.getByRole("button", { name: "Do something with this prompt" }).click();
    await page.getByRole("menuitem", { name: what }).click();
  };
  await act("the first words", "Send it again");
  await expect.poll(() => log(page).locator(".bubble").allInnerTexts()).toEqual(["echo the first words", "echo the second words", "echo the first words"]);
  await settled(page);

  // By keys, and what the menu looks like.
  await log(page).locator(".said.user").last().getByRole("button", { name: "Do something with this prompt" }).focus();
  await page.keyboard.press("Enter");
  await bothThemes(page, "prompt-menu");
  await page.setViewportSize({ width: 390, height: 844 });
  const box = (await page.getByRole("menu", { name: "Do something with this prompt" }).boundingBox())!;
  expect([box.x >= 0, box.x + box.width <= 390]).toEqual([true, true]);
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.waitForFunction((old) => !location.hash.endsWith(old), id);
  // The copy has all of it, and the prompt once more; the session has nothing more.
  await expect.poll(() => log(page).locator(".bubble").allInnerTexts()).toEqual(["echo the first words", "echo the second words", "echo the first words", "echo the first words"]);
  await settled(page);
  await page.goto(world.url(`#/sessions/${id}`));
  await expect.poll(() => log(page).locator(".bubble").allInnerTexts()).toEqual(["echo the first words", "echo the second words", "echo the first words"]);

  await act("the second words", "New session from here");
  await page.getByRole("heading", { name: /\(from a prompt\)$/ }).waitFor();
  const prompt = page.getByRole("textbox", { name: "Prompt", exact: true });
  await expect.poll(() => prompt.inputValue()).toBe("echo the second words");
  await page.getByRole("list", { name: "Attachments" }).getByText("conversation.md").waitFor();
  await prompt.and(page.locator(":focus")).waitFor();
  const made = decodeURIComponent(new URL(page.url()).hash.split("/")[2] ?? "");
  await prompt.fill("echo something else");
  await page.keyboard.press("Enter");
  await log(page).locator(".agent").getByText("something else").waitFor();
  // What the agent was told: the words before that prompt, and none behind it.
  const { events } = (await (await fetch(`${world.gateway.url}/v2/sessions/${made}/events`)).json()) as { events: unknown[] };
  const told = JSON.stringify(events);
  expect(told).toContain("the first words");
  expect(told).not.toContain("the second words");
  // The first one has nothing before it.
  await page.goto(world.url(`#/sessions/${id}`));
  const row = log(page).locator(".said.user").filter({ hasText: "the first words" }).first(); // the other session has none
  await row.hover();
  await row.getByRole("button", { name: "Do something with this prompt" }).click();
  await page.getByRole("menuitem", { name: "New session from here" }).click();
  await expect.poll(() => prompt.inputValue()).toBe("echo the first words");
  expect(await page.getByRole("list", { name: "Attachments" }).count()).toBe(0);
});

test("what the agent itself says is recorded where somebody asks for it, and saved", async () => {
  const page = await world.open("#/sessions/new");
  await connected(page);
  const form = page.locator(".new-session");
  await form.getByLabel("Agent", { exact: true }).selectOption("story");
  await form.getByLabel("Folder", { exact: true }).fill("/tmp");
  await form.getByLabel("First prompt").fill("hello to be recorded");
  await form.getByText("More: title").click();
  await form.getByLabel("Record what the agent and the gateway say to each other").check();
  await page.waitForFunction(() => !document.querySelector(".new-session [aria-busy=true]"));
  await form.getByRole("button", { name: "Start", exact: true }).click();
  await log(page).getByText("text: hello to be recorded").waitFor();
  await settled(page);
  const menu = page.getByRole("button", { name: "What can be done with this session" });
  await menu.click();
  const [saved] = await Promise.all([page.waitForEvent("download"), page.getByRole("menuitem", { name: /^Save the recording/ }).click()]);
  expect(saved.suggestedFilename()).toMatch(/\.ndjson$/);
  const lines = readFileSync(await saved.path(), "utf8").trim().split("\n").map((line) => JSON.parse(line) as object);
  expect(JSON.stringify(lines)).toContain("hello to be recorded");
  expect(lines.length).toBeGreaterThan(3);
  // One that records nothing says how to.
  await newSession(page, { agent: "story", prompt: "hello" });
  await settled(page);
  await menu.click();
  await page.getByRole("menuitem", { name: /^Save the recording/ }).click();
  await page.getByText(/nothing was recorded of the traffic/).waitFor();
});

test("the list of sessions is made wider, hidden and shown, and stays so", async () => {
  const page = await world.open();
  await newSession(page, { prompt: "hello" });
  const list = page.getByRole("complementary", { name: "Sessions" });
  const width = async () => Math.round((await list.boundingBox())?.width ?? 0);
  const edge = page.getByRole("separator", { name: "Width of the list" });
  expect(await width()).toBe(320);
  await edge.focus();
  await page.keyboard.press("ArrowRight");
  await expect.poll(width).toBe(344);
  await page.keyboard.press("End");
  await expect.poll(width).toBe(Math.min(560, Math.floor((1280 - 204) / 2)));
  await edge.dblclick();
  await expect.poll(width).toBe(320);
  await list.getByRole("button", { name: "Hide the list" }).click();
  await list.waitFor({ state: "hidden" });
  await page.reload();
  await page.getByRole("textbox", { name: "Prompt", exact: true }).waitFor();
  expect(await list.count()).toBe(0);
  await bothThemes(page, "list-hidden");
  await log(page).focus();
  await page.keyboard.press("b");
  await list.waitFor();
  await page.keyboard.press("b");
  await list.waitFor({ state: "hidden" });
  await page.keyboard.press("/"); // to search it, it is shown
  await expect.poll(() => list.getByRole("searchbox").evaluate((e) => e === document.activeElement)).toBe(true);
  await page.keyboard.press("Escape");
  // On a phone there is one thing at a time, whatever was chosen.
  await list.getByRole("button", { name: "Hide the list" }).click();
  await page.setViewportSize({ width: 390, height: 844 });
  await page.goto(world.url("#/sessions"));
  await list.waitFor();
  await expect.poll(width).toBe(390);
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
  const told = async () => ((await (await fetch(`${world.gateway.url}/v2/sessions/${quiet}`)).json()) as { title?: string; metadata?: unknown });
  expect(await told()).toMatchObject({ title: "A better name" }); // for every client
  expect((await told()).metadata).toBeUndefined();
  // Without it the session is called as before.
  await menu(page, /^Rename/);
  await page.getByRole("dialog").getByLabel("Title").fill("");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { level: 1, name: "echo quiet" }).waitFor();
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

test("a session that is deleted while older ones are read does not come back", async () => {
  const own = await World.start(["--no-token"]); // it has no others
  onTestFinished(() => own.stop());
  await using client = new SandboxAgentClient({ baseUrl: own.gateway.url, agent: "mock" });
  const ids: string[] = [];
  for (let i = 0; i < 205; i++) ids.push((await client.newSession({ cwd: "/tmp", title: `one of many s${i}s` })).id);
  const page = await own.open("#/sessions");
  const list = page.getByRole("complementary", { name: "Sessions" });
  let asked = false;
  let goOn = () => {};
  const waits = new Promise<void>((resolve) => (goOn = resolve));
  await page.route(/\/v2\/sessions\?.*cursor=/, async (route) => {
    const response = await route.fetch();
    asked = true;
    await waits;
    await route.fulfill({ response });
  });
  const older = list.getByRole("button", { name: "Older sessions" });
  await older.click();
  await expect.poll(() => asked).toBe(true);
  await client.deleteSession(ids[0]!);
  await client.setTitle(ids[5]!, "told behind it");
  const search = list.getByRole("searchbox");
  await search.fill("told behind it"); // wherever it is in the list
  await list.getByText("told behind it").waitFor();
  await search.fill("");
  goOn();
  await older.waitFor({ state: "detached" });
  await search.fill("s1s");
  await list.getByText("one of many s1s").waitFor();
  await search.fill("s0s");
  await list.getByText("No session fits the search.").waitFor();
});
