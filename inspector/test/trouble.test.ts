// What goes wrong with agents: logins, lost memories, agents that do not stop.
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandboxAgentClient } from "sandbox-agent";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { chat, connected, inaccessible, newSession, picture, settled, storyAgent, World, type Page } from "./world.js";

let world: World;
let dir: string;
beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), "inspector-login-"));
  const command = join(dir, "story-login");
  writeFileSync(command, `#!/bin/sh\necho "Logging in $1, found as $(command -v story-login)"\nread -r name\necho "welcome $name"\ntouch "${join(dir, "logged-in")}"\n`);
  chmodSync(command, 0o755);
  const hangs = join(dir, "hangs");
  writeFileSync(hangs, "#!/bin/sh\ncat >/dev/null\nexit\n");
  chmodSync(hangs, 0o755);
  world = await World.start(["--no-token", "--host-tools", "--agent-command", `hangs=${hangs}`, ...storyAgent], { STORY_LOGIN: join(dir, "logged-in"), STORY_LOGIN_COMMAND: command });
});
afterEach(async ({ task }) => world?.closeWindows(task));
afterAll(async () => {
  await world?.stop();
  rmSync(dir, { recursive: true, force: true });
});

const log = (page: Page) => page.getByRole("log");

test("an agent that wants a login is given its own, right where it refused", async () => {
  const page = await world.open("#/sessions/new");
  await connected(page);
  const form = page.locator(".new-session");
  await form.getByLabel("Agent", { exact: true }).selectOption("story");
  await form.getByLabel("Folder", { exact: true }).fill("/tmp");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  const help = page.getByRole("group", { name: "story needs a login" });
  await help.getByText("nobody is logged in").waitFor();
  // In sight, beside what was pressed. A scroll ends on a whole pixel, and the form is high by parts of one.
  await expect.poll(() => help.evaluate((e) => e.getBoundingClientRect().bottom < innerHeight + 1)).toBe(true);
  // Its own login, in a terminal in which its program is found.
  await help.getByRole("button", { name: "Story login" }).click();
  const screen = help.locator(".screen");
  await screen.getByText(`found as ${join(dir, "story-login")}`).first().waitFor();
  await help.getByText("Connected.").waitFor();
  expect(await inaccessible(page)).toEqual([]);
  await picture(page, "login");
  await page.keyboard.type("me\n");
  await screen.getByText("welcome me").first().waitFor();
  await help.getByRole("button", { name: "Close the terminal" }).click();
  await form.getByLabel("First prompt").fill("hello");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await log(page).getByText("text: hello").waitFor();
});

test("a terminal for a login waits for who comes back, and ends when it has served", async () => {
  rmSync(join(dir, "logged-in"), { force: true });
  const page = await world.open("#/sessions/new");
  await connected(page);
  await using client = new SandboxAgentClient({ baseUrl: world.gateway.url });
  const terminals = async () => (await client.processes.list()).filter((p) => p.tty).length;
  const form = page.locator(".new-session");
  const start = async () => {
    await page.evaluate(() => void (location.hash = "#/sessions/new"));
    await form.getByLabel("Agent", { exact: true }).selectOption("story");
    await form.getByLabel("Folder", { exact: true }).fill("/tmp");
    await page.getByRole("button", { name: "Start", exact: true }).click();
    await page.getByRole("group", { name: "story needs a login" }).waitFor();
  };
  const login = () => page.getByRole("button", { name: "Story login" }).click();
  const elsewhere = () => page.evaluate(() => void (location.hash = "#/wire"));
  const shown = page.locator(".login-terminal").getByText("Connected.");
  // One goes elsewhere, as to read something, and comes back to it.
  await start();
  await login();
  await shown.waitFor();
  await page.locator(".screen").getByText("Logging in").first().waitFor();
  await elsewhere();
  await page.getByText("The login of story goes on").waitFor();
  expect(await terminals()).toBe(1);
  await start();
  await shown.waitFor();
  await page.locator(".screen").getByText("Logging in").first().waitFor();
  expect(await terminals()).toBe(1);
  // One chooses another agent.
  await form.getByLabel("Agent", { exact: true }).selectOption("mock");
  await expect.poll(terminals).toBe(0);
  // One goes elsewhere before it is there.
  await start();
  let go = () => {};
  const held = new Promise<void>((resolve) => (go = resolve));
  await page.route(/\/v2\/processes$/, (route) => held.then(() => route.continue()));
  const made = page.waitForResponse((response) => response.request().method() === "POST" && /\/v2\/processes$/.test(response.url()));
  await login();
  await elsewhere();
  await page.getByRole("heading", { name: "Wire" }).waitFor();
  go();
  expect((await made).ok()).toBe(true);
  await expect.poll(terminals).toBe(0);
  await page.unrouteAll();
  // It has served while one was elsewhere.
  await start();
  await login();
  await shown.waitFor();
  await elsewhere();
  await page.getByText("The login of story goes on").last().waitFor();
  expect(await terminals()).toBe(1);
  writeFileSync(join(dir, "logged-in"), "");
  await using other = new SandboxAgentClient({ baseUrl: world.gateway.url, agent: "story" });
  await (await other.newSession({ cwd: "/tmp", mcpServers: [] })).prompt("hello");
  await page.evaluate(() => void (location.hash = "#/agents"));
  await expect.poll(terminals).toBe(0);
  rmSync(join(dir, "logged-in"));
  // Shown large, it is one of the terminals.
  await start();
  await login();
  await page.getByRole("link", { name: "Show it large" }).click();
  await page.getByRole("list", { name: "Terminals" }).waitFor();
  await page.getByText("Connected.").waitFor();
  expect(await terminals()).toBe(1);
  await page.getByRole("button", { name: /^End / }).click();
  await expect.poll(terminals).toBe(0);
  // It has served: the session starts.
  await start();
  await login();
  await shown.waitFor();
  await page.locator(".screen").getByText("Logging in").first().waitFor();
  await page.keyboard.type("me\n");
  await page.locator(".screen").getByText("welcome me").first().waitFor();
  await form.getByLabel("First prompt").fill("hello");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await log(page).getByText("text: hello").waitFor();
  await expect.poll(terminals).toBe(0);
});

test("an agent that never answers is given up, and what was written goes to another one, once", async () => {
  const page = await world.open("#/sessions/new");
  await connected(page);
  const form = page.locator(".new-session");
  const prompt = form.getByLabel("First prompt");
  await form.getByLabel("Agent", { exact: true }).selectOption("hangs");
  await form.getByLabel("Folder", { exact: true }).fill("/tmp");
  await prompt.fill("echo this took long to write");
  // By keys: what the form is told of the agent moves its buttons.
  const start = async () => {
    await prompt.press("Control+Enter");
    await form.getByRole("button", { name: "Starting the agent" }).waitFor();
  };
  await start();
  await form.getByRole("button", { name: "Cancel" }).press("Enter");
  await form.getByRole("button", { name: "Start", exact: true }).waitFor();
  await start();
  // Who comes back while it starts does not begin it once more.
  await page.evaluate(() => void (location.hash = "#/wire"));
  await page.getByRole("heading", { name: "Wire" }).waitFor();
  await page.goBack();
  await expect.poll(() => prompt.inputValue()).toBe("");
  await prompt.fill("echo this took long to write");
  await form.getByLabel("Agent", { exact: true }).selectOption("mock");
  await form.getByLabel("Folder", { exact: true }).fill("/tmp");
  await prompt.press("Control+Enter");
  await log(page).locator(".agent").getByText("this took long to write").waitFor();
});

test("a key is given to a session, kept nowhere, and given again when the gateway has forgotten it", async () => {
  const page = await world.open("about:blank");
  const sent: string[] = [];
  page.on("request", (request) => sent.push(request.postData() ?? ""));
  page.on("websocket", (socket) => socket.on("framesent", (frame) => sent.push(String(frame.payload))));
  await page.goto(world.url("#/sessions/new"));
  await connected(page);
  const form = page.locator(".new-session");
  await form.getByLabel("Agent", { exact: true }).selectOption("mock");
  await form.getByLabel("Folder", { exact: true }).fill("/tmp");
  await form.getByLabel("First prompt").fill("hello");
  await form.getByText("Key for this session alone").click();
  await form.getByLabel("API key").fill("a-key-4711");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await log(page).getByText("I am the mock agent").waitFor();
  await settled(page);
  expect(sent.some((body) => body.includes('"credentials":{"apiKey":"a-key-4711"}'))).toBe(true);
  // It is not in the page any more.
  expect(await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }))).not.toContain("4711");
  const session = await page.evaluate(() => location.hash);
  await page.evaluate(() => void (location.hash = "#/wire"));
  const search = page.getByRole("searchbox", { name: "Search" });
  await search.fill("a-key-4711");
  await page.getByText("Nothing fits the filter").waitFor();
  await search.fill('"credentials":"(removed)"');
  await page.getByRole("listbox", { name: "Traffic" }).getByRole("option").first().waitFor();
  // Nor in the gateway, once it was started again and the page that knew it is gone; that is said above the next prompt.
  await page.close();
  await world.gateway.kill("SIGKILL");
  await world.gateway.restart();
  const later = await world.open(session);
  await log(later).getByText("I am the mock agent").waitFor();
  await chat(later, "echo again");
  const help = later.locator(".dock").getByRole("group", { name: "Mock agent needs a login" });
  await help.getByText("credentials of its own").waitFor();
  await help.getByLabel("API key").fill("another-key");
  await help.getByRole("button", { name: "Use this key" }).click();
  await later.getByText("The agent has the key.").waitFor();
  await chat(later, "echo with a key");
  await log(later).locator(".agent").getByText("with a key", { exact: true }).waitFor();
  await help.waitFor({ state: "detached" });
});

test("an agent that has lost its memory is told of, in pages that are open and later", async () => {
  writeFileSync(join(dir, "logged-in"), "");
  const page = await world.open();
  const id = await newSession(page, { agent: "story", prompt: "remember this" });
  await log(page).getByText("text: remember this").waitFor();
  await settled(page);
  const bar = (p: Page) => p.getByText("The agent does not remember the whole conversation.");
  expect(await bar(page).count()).toBe(0);
  await world.gateway.kill("SIGKILL");
  await world.gateway.restart();
  await page.getByText("The connection is broken").waitFor({ state: "detached" });
  await chat(page, "what was it?");
  await log(page).getByText("text: what was it?").waitFor();
  await log(page).getByText("From here on the agent does not remember").waitFor();
  await bar(page).waitFor();
  const later = await world.open(`#/sessions/${id}`);
  await log(later).getByText("text: what was it?").waitFor();
  await bar(later).waitFor();
  await log(later).getByText("From here on the agent does not remember").waitFor();
});

test("an agent that does not stop is ended, and the session goes on", async () => {
  writeFileSync(join(dir, "logged-in"), "");
  const page = await world.open("about:blank");
  let resume!: () => void;
  let resumes = 0;
  let refuse = false;
  await page.routeWebSocket(/\/v2\/rpc/, (socket) => {
    const gateway = socket.connectToServer();
    socket.onMessage((message) => {
      if (!String(message).includes('"session/resume"')) return gateway.send(message);
      resumes++;
      const { id } = JSON.parse(String(message)) as { id: unknown };
      if (refuse) return socket.send(JSON.stringify({ jsonrpc: "2.0", id, error: { code: -32603, message: "the agent does not start" } }));
      resume = () => gateway.send(message);
    });
  });
  await page.goto(world.url("#/sessions"));
  await newSession(page, { agent: "story", prompt: "deaf" });
  await log(page).getByText("I do not listen").waitFor();
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await page.getByText("The agent does not stop.").waitFor();
  await page.getByRole("button", { name: "End its process" }).click();
  await expect.poll(() => resumes).toBe(1);
  await settled(page);
  await chat(page, "hello anew"); // while the session is closed, and not open again
  await page.getByRole("region", { name: "Prompts that wait" }).getByText("hello anew").waitFor();
  resume();
  await log(page).getByText("text: hello anew").waitFor();
  expect(resumes).toBe(1);
  // Where it cannot be opened again, it says that it is closed.
  await settled(page);
  await chat(page, "deaf");
  await log(page).getByText("I do not listen").nth(1).waitFor();
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  refuse = true;
  await page.getByRole("button", { name: "End its process" }).click();
  await page.getByText("Its process could not be ended").first().waitFor();
  await page.getByText("This session is closed").waitFor();
  refuse = false;
  await page.getByRole("button", { name: "Open it again" }).click();
  await expect.poll(() => resumes).toBe(3);
  resume();
  await page.getByRole("textbox", { name: "Prompt", exact: true }).waitFor();
});

test("a terminal that the gateway has for an agent is shown", async () => {
  writeFileSync(join(dir, "logged-in"), "");
  const page = await world.open();
  await newSession(page, { agent: "story", prompt: "host" });
  await log(page).getByText("It ran.").waitFor();
  await log(page).getByRole("button", { name: /Run it there/ }).click();
  await log(page).getByLabel("Output").getByText("from the terminal").waitFor();
});
