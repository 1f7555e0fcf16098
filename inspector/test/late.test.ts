// What is pressed again while it is on its way, and what ends when something else is shown by then.
import { existsSync, mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandboxAgentClient } from "sandbox-agent";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { connected, storyAgent, World, type Page } from "./world.js";

let world: World;
let home: string;
beforeAll(async () => {
  home = realpathSync(mkdtempSync(join(tmpdir(), "inspector-late-")));
  world = await World.start(["--no-token", ...storyAgent], { HOME: home });
});
afterEach(async ({ task }) => world?.closeWindows(task));
afterAll(async () => {
  await world?.stop();
  rmSync(home, { recursive: true, force: true });
});

const at = (query: Record<string, string>) => `#/files?${new URLSearchParams(query).toString()}`;
const goTo = (page: Page, hash: string) => page.evaluate((to) => void (location.hash = to), hash);

const choose = async (page: Page, menu: string, item: string) => {
  await page.getByRole("button", { name: menu, exact: true }).click();
  await page.getByRole("menuitem", { name: item }).click();
};

/** Waits until the page has drawn what it knows. */
const drawn = (page: Page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

/** Keeps what changes something on its way to the gateway: requests by their method and path, messages by their method. */
async function slow(hash: string, messages: RegExp): Promise<{ page: Page; sent: string[]; hold(): void; go(): void }> {
  const page = await world.open("about:blank");
  let go = () => {};
  let held = Promise.resolve();
  const sent: string[] = [];
  await page.routeWebSocket(/\/v2\/rpc/, (socket) => {
    const gateway = socket.connectToServer();
    socket.onMessage((message) => {
      const method = /"method":"([^"]+)"/.exec(String(message))?.[1] ?? "";
      if (!messages.test(method)) return gateway.send(message);
      sent.push(method);
      void held.then(() => gateway.send(message));
    });
  });
  await page.route(/\/v2\/(fs|processes)/, (route) => {
    const method = route.request().method();
    if (method === "GET") return route.continue();
    sent.push(`${method} ${new URL(route.request().url()).pathname}`);
    return held.then(() => route.continue());
  });
  await page.goto(world.url(hash));
  await connected(page);
  return { page, sent, hold: () => void (held = new Promise((resolve) => (go = resolve))), go: () => go() };
}

test("what is pressed again while it is on its way is begun once", async () => {
  const folder = join(home, "once");
  mkdirSync(folder);
  writeFileSync(join(folder, "old.txt"), "");
  const { page, sent, hold, go } = await slow("#/sessions", /^session\/(new|list|fork)$/);
  const dialog = page.getByRole("dialog");
  const log = page.getByRole("log");
  // Presses what a menu has, as far as it can be pressed.
  const press = (menu: string, item: RegExp) => async () => {
    const one = page.getByRole("menuitem", { name: item });
    if ((await one.count()) === 0) await page.getByRole("button", { name: menu }).first().click();
    await one.evaluate((button) => (button as HTMLElement).click());
  };
  const said = async () => {
    await page.getByRole("link", { name: /echo once/ }).last().click();
    await log.getByText("echo once").first().hover();
  };
  const left = (from: string) => page.waitForFunction((was) => location.hash !== was, from);
  const kinds: { what: string; place: string; keys: string | (() => Promise<unknown>); fill: () => Promise<unknown>; done: (from: string) => Promise<unknown> }[] = [
    {
      what: "session/new", place: "#/sessions/new", keys: "Control+Enter",
      fill: async () => {
        await page.locator(".new-session").getByLabel("Agent", { exact: true }).selectOption("mock");
        await page.getByLabel("Folder", { exact: true }).fill(home);
        await page.getByLabel("First prompt").fill("echo once");
      },
      done: () => log.getByText("echo once").first().waitFor(),
    },
    {
      what: "POST /v2/processes", place: "#/processes", keys: "Enter",
      fill: async () => {
        await page.getByRole("button", { name: "Start a program" }).first().click();
        await page.getByRole("textbox", { name: "Command" }).fill("echo started");
      },
      done: () => page.locator(".screen").getByText("started").first().waitFor(),
    },
    {
      what: "DELETE /v2/processes/", place: "#/processes", keys: "Enter",
      fill: async () => {
        await page.getByRole("link", { name: /started/ }).click();
        await page.getByRole("button", { name: "Forget" }).focus();
      },
      done: () => page.getByText("No program runs").waitFor(),
    },
    { what: "POST /v2/processes", place: "#/terminal", keys: "Enter", fill: () => page.getByRole("textbox", { name: "Folder" }).fill(home), done: () => page.getByText("Connected.").waitFor() },
    { what: "DELETE /v2/processes/", place: "#/terminal", keys: "Enter", fill: () => page.getByRole("button", { name: /^End / }).focus(), done: () => page.getByText("No terminal is open").waitFor() },
    {
      what: "PUT /v2/fs/file", place: at({ path: folder }), keys: "Enter",
      fill: async () => {
        await choose(page, "New", "File");
        await dialog.getByLabel("Name").fill("new.txt");
      },
      done: () => page.locator(".entries").getByText("new.txt").waitFor(),
    },
    {
      what: "POST /v2/fs/move", place: at({ path: folder }), keys: "Enter",
      fill: async () => {
        await choose(page, "Do something with old.txt", "Rename");
        await dialog.getByLabel("Name").fill("other.txt");
      },
      done: () => page.locator(".entries").getByText("other.txt").waitFor(),
    },
    { what: "session/fork", place: "#/sessions", keys: press("What can be done with this session", /^Fork/), fill: said, done: left },
    { what: "session/fork", place: "#/sessions", keys: press("Do something with this prompt", /in a copy/), fill: said, done: left },
    { what: "session/new", place: "#/sessions", keys: press("Do something with this prompt", /^New session/), fill: said, done: left },
    {
      what: "session/list", place: "#/wire", keys: "Control+Enter",
      fill: async () => {
        await page.getByRole("button", { name: /^Send/ }).first().click();
        await dialog.getByLabel("Method").fill("session/list");
        await dialog.getByLabel("Params").focus();
      },
      done: () => dialog.locator(".json").waitFor(),
    },
  ];
  for (const { what, place, keys, fill, done } of kinds) {
    await goTo(page, place);
    await fill();
    const from = await page.evaluate(() => location.hash);
    sent.length = 0;
    hold();
    for (let i = 0; i < 3; i++) await (typeof keys === "string" ? page.keyboard.press(keys) : keys());
    go();
    await done(from);
    expect(sent.filter((one) => one.startsWith(what)), `${what} at ${place}`).toHaveLength(1);
  }
});

test("what ends when another dialog is open leaves it alone, and what failed is told", async () => {
  const folder = join(home, "late");
  mkdirSync(join(folder, "inner"), { recursive: true });
  for (const name of ["gone.txt", "renamed.txt", "moved.txt", "there.txt", "lost.txt"]) writeFileSync(join(folder, name), "");
  const { page, sent, hold, go } = await slow(at({ path: folder }), /^$/);
  const dialog = page.getByRole("dialog");
  const toast = (words: string) => page.locator(".toast").filter({ hasText: words });
  const act = (label: string) => dialog.getByRole("button", { name: label, exact: true }).click();
  const gone = (name: string) => page.locator(".entries").getByText(name, { exact: true }).waitFor({ state: "detached" });
  const seen = (name: string) => page.locator(".entries").getByText(name, { exact: true }).waitFor();
  const kinds: { begin: () => Promise<unknown>; before?: () => void; done: () => Promise<unknown> }[] = [
    { begin: async () => { await choose(page, "Do something with gone.txt", "Delete"); await act("Delete"); }, done: () => gone("gone.txt") },
    { begin: async () => { await choose(page, "Do something with renamed.txt", "Rename"); await dialog.getByLabel("Name").fill("to.txt"); await act("Rename"); }, done: () => seen("to.txt") },
    { begin: async () => { await choose(page, "Do something with moved.txt", "Move"); await dialog.getByLabel("To the folder").fill(join(folder, "inner")); await act("Move"); }, done: () => toast("moved.txt is in").waitFor() },
    { begin: async () => { await choose(page, "New", "File"); await dialog.getByLabel("Name").fill("made.txt"); await act("Make"); }, done: () => seen("made.txt") },
    { begin: async () => { await choose(page, "New", "Folder"); await dialog.getByLabel("Name").fill("folder"); await act("Make"); }, done: () => seen("folder/") },
    { begin: () => page.getByLabel("Files to upload").setInputFiles({ name: "there.txt", mimeType: "text/plain", buffer: Buffer.from("another") }), done: () => toast("Not replaced in").waitFor() },
    { begin: async () => { await choose(page, "Do something with lost.txt", "Rename"); await dialog.getByLabel("Name").fill("to2.txt"); await act("Rename"); }, before: () => rmSync(join(folder, "lost.txt")), done: () => toast("Rename lost.txt: it did not work").waitFor() },
  ];
  for (const { begin, before, done } of kinds) {
    sent.length = 0;
    hold();
    await begin();
    await expect.poll(() => sent.length).toBe(1);
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await choose(page, "New", "Folder");
    await dialog.getByLabel("Name").fill("half a name");
    before?.();
    go();
    await done();
    expect(await dialog.getByLabel("Name").inputValue()).toBe("half a name");
    expect(new URL(page.url()).hash).toBe(at({ path: folder }));
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
  }
  // A program that was asked for in a dialog that is closed.
  await goTo(page, "#/processes");
  for (const [folder, done] of [[home, "It has started"], [join(home, "nowhere"), "The program was not started"]] as const) {
    await page.getByRole("main").getByRole("button", { name: "Start a program" }).first().click();
    await page.getByRole("textbox", { name: "Command" }).fill("echo late");
    await page.getByRole("textbox", { name: /Folder/ }).fill(folder);
    hold();
    await page.keyboard.press("Enter");
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await page.getByRole("main").getByRole("button", { name: "Start a program" }).first().click();
    await page.getByRole("textbox", { name: "Command" }).fill("half a command");
    go();
    await toast(done).waitFor();
    expect(await page.getByRole("textbox", { name: "Command" }).inputValue()).toBe("half a command");
    expect(new URL(page.url()).hash).toBe("#/processes");
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
  }
});

test("what is done to a file leads nowhere once another folder is shown", async () => {
  const folder = join(home, "left");
  mkdirSync(join(folder, "next"), { recursive: true });
  const path = join(folder, "one.txt");
  writeFileSync(path, "");
  const { page, hold, go } = await slow(at({ path }), /^$/);
  await choose(page, "Do something with one.txt", "Delete");
  hold();
  await page.getByRole("dialog").getByRole("button", { name: "Delete", exact: true }).click();
  await page.keyboard.press("Escape");
  const next = at({ path: join(folder, "next") });
  await goTo(page, next);
  await page.getByText("The folder is empty").waitFor();
  const answered = page.waitForResponse((response) => response.request().method() === "DELETE");
  go();
  await (await answered).finished();
  await drawn(page);
  expect(existsSync(path)).toBe(false);
  expect(new URL(page.url()).hash).toBe(next);
});

test("a file that is not saved says so where one is by then", async () => {
  const path = join(home, "unsaved.txt");
  writeFileSync(path, "before");
  const { page, hold, go } = await slow(at({ path }), /^$/);
  await page.getByRole("button", { name: "Edit" }).click();
  await page.getByRole("textbox", { name: "Text of unsaved.txt" }).fill("mine");
  hold();
  await page.keyboard.press("Control+s");
  await goTo(page, "#/wire");
  await page.getByRole("heading", { name: "Wire" }).waitFor();
  writeFileSync(path, "theirs");
  go();
  const toast = page.locator(".toast").filter({ hasText: "unsaved.txt is not saved: Somebody has changed the file" });
  await toast.getByRole("link", { name: "Show it" }).click();
  await expect.poll(() => page.getByRole("textbox", { name: "Text of unsaved.txt" }).inputValue()).toBe("mine");
});

test("whoever looks at another place of a large file is not taken to a line that was looked for before", async () => {
  const path = join(home, "large.log");
  writeFileSync(path, Array.from({ length: 60_000 }, (_, i) => `line ${i + 1} ${"x".repeat(50)}\n`).join(""));
  const page = await world.open(at({ path }));
  const shown = page.locator(".large pre.code");
  await shown.getByText("line 1 ").first().waitFor();
  let go = () => {};
  const held = new Promise<void>((resolve) => (go = resolve));
  await page.route(/\/v2\/fs\/file\?/, (route) => (route.request().headers().range ? route.continue() : held.then(() => route.continue()).catch(() => {}))); // the page may have given it up
  await page.getByRole("textbox", { name: "Go to line" }).fill("30000");
  const asked = page.waitForRequest((request) => /\/v2\/fs\/file\?/.test(request.url()));
  await page.keyboard.press("Enter");
  const request = await asked;
  const over = new Promise<void>((resolve) => { for (const how of ["requestfinished", "requestfailed"] as const) page.on(how as "requestfinished", (one) => one === request && resolve()); });
  await page.getByRole("button", { name: "End", exact: true }).click();
  await shown.getByText("line 60000 ").first().waitFor();
  go();
  await over;
  await drawn(page);
  expect(new URL(page.url()).hash).toContain("at=end");
});

test("an older list of agents does not take the place of a newer one", async () => {
  const page = await world.open("#/agents/story");
  await page.getByText("None runs.").waitFor();
  let go = () => {};
  const held = new Promise<void>((resolve) => (go = resolve));
  let older: Promise<unknown> | undefined;
  await page.route(/\/v2\/agents$/, async (route) => {
    if (older) return route.continue();
    const answer = route.fetch();
    older = answer;
    await Promise.all([answer, held]);
    await route.fulfill({ response: await answer });
  });
  const request = page.waitForRequest(/\/v2\/agents$/);
  await goTo(page, "#/sessions/new"); // asks for them
  const asked = await request;
  await older;
  await using client = new SandboxAgentClient({ baseUrl: world.gateway.url, agent: "story" });
  await client.newSession({ agent: "story", cwd: home });
  await goTo(page, "#/agents/story"); // and so does this
  await page.locator(".agent-process").waitFor();
  go();
  await (await asked.response())?.finished();
  await drawn(page);
  expect(await page.locator(".agent-process").count()).toBe(1);
});

test("the words of a search are those of the place that one goes back to", async () => {
  const folder = join(home, "words");
  mkdirSync(folder);
  writeFileSync(join(folder, "one.txt"), "foo and bar\n");
  const page = await world.open("about:blank");
  await page.clock.install();
  await page.goto(world.url(at({ below: folder, find: "foo", path: folder })));
  const words = page.getByRole("searchbox", { name: "Words to find" });
  const find = () => new URLSearchParams(new URL(page.url()).hash.split("?")[1]).get("find");
  await page.getByRole("region", { name: "Found" }).getByRole("link", { name: "foo and bar" }).click();
  await page.getByText("Line 1", { exact: true }).waitFor();
  await words.fill("bar");
  await page.clock.runFor(1000);
  await expect.poll(find).toBe("bar");
  await page.goBack();
  await expect.poll(() => words.inputValue()).toBe("foo");
  await page.clock.runFor(1000);
  expect(find()).toBe("foo");
  await page.goForward();
  await expect.poll(() => words.inputValue()).toBe("bar");
  expect(find()).toBe("bar");
});

test("a terminal that is closed twice is closed", async () => {
  await using client = new SandboxAgentClient({ baseUrl: world.gateway.url });
  const { id } = await client.processes.start({ command: "cat", tty: true });
  const page = await world.open(`#/terminal/${id}`);
  await connected(page);
  const end = page.getByRole("button", { name: "End cat" });
  await end.waitFor();
  // Its list is slow: the terminal stands there for a while.
  let go = () => {};
  const held = new Promise<void>((resolve) => (go = resolve));
  await page.route(/\/v2\/processes$/, (route) => held.then(() => route.continue()));
  for (const status of [204, 404]) {
    const answer = page.waitForResponse((response) => response.request().method() === "DELETE");
    await end.click();
    expect((await answer).status()).toBe(status);
  }
  await drawn(page);
  expect(await page.locator(".toast.bad").count()).toBe(0);
  go();
  await end.waitFor({ state: "detached" });
});

test("each upload says how far it is", async () => {
  const folder = join(home, "uploads");
  mkdirSync(folder);
  const page = await world.open(at({ path: folder }));
  await connected(page);
  const held = new Map<string, () => void>();
  await page.route(/\/v2\/fs\/file/, (route) => {
    if (route.request().method() !== "PUT") return route.continue();
    return new Promise<void>((resolve) => held.set(new URL(route.request().url()).searchParams.get("path") ?? "", resolve)).then(() => route.continue());
  });
  const says = (name: string) => page.getByRole("status").filter({ hasText: `Uploading ${name}` });
  for (const name of ["one", "two"]) {
    await page.getByLabel("Files to upload").setInputFiles({ name, mimeType: "text/plain", buffer: Buffer.from(name) });
    await says(name).waitFor();
  }
  await says("one").waitFor();
  await expect.poll(() => held.size).toBe(2);
  held.get(join(folder, "two"))!();
  await says("two").waitFor({ state: "detached" });
  await says("one").waitFor();
  held.get(join(folder, "one"))!();
  await says("one").waitFor({ state: "detached" });
});

test("lines that could not be sent are there again, whatever was shown meanwhile", async () => {
  await using client = new SandboxAgentClient({ baseUrl: world.gateway.url });
  const reads = await client.processes.start({ command: "cat" });
  const other = await client.processes.start({ command: "sleep", args: ["1000"] });
  const page = await world.open(`#/processes/${reads.id}`);
  await connected(page);
  let fail = () => {};
  const failing = new Promise<void>((resolve) => (fail = resolve));
  await page.route(/\/stdin/, (route) => failing.then(() => route.abort()));
  const input = page.getByLabel("Input");
  for (const line of ["first", "second"]) {
    await input.fill(line);
    await input.press("Enter");
    expect(await input.inputValue()).toBe("");
  }
  await goTo(page, `#/processes/${other.id}`);
  await page.getByRole("heading", { name: "sleep 1000" }).waitFor();
  await input.fill("for the other");
  fail();
  await page.getByText("It takes no input").waitFor();
  expect(await input.inputValue()).toBe("for the other");
  await goTo(page, `#/processes/${reads.id}`);
  await page.getByRole("heading", { name: "cat" }).waitFor();
  expect(await input.inputValue()).toBe("first\nsecond");
  for (const { id } of [reads, other]) await client.processes.delete(id);
});

test("a list that takes long is shown when it comes, and is waited for the next time", async () => {
  const page = await world.open("about:blank");
  await page.clock.install();
  const held: (() => void)[] = [];
  const given: string[] = [];
  await page.route(/\/v2\/processes$/, (route) => new Promise<void>((resolve) => held.push(resolve)).then(() => route.continue()));
  page.on("requestfailed", (request) => given.push(request.url()));
  await page.goto(world.url("#/processes"));
  await connected(page);
  await expect.poll(() => held.length).toBe(1);
  for (let s = 0; s < 14; s += 2) await page.clock.runFor(2000);
  await expect.poll(() => held.length).toBe(2);
  held[0]!();
  await page.getByText(/\d programs? runs? beside/).waitFor();
  expect(given.filter((url) => url.endsWith("/v2/processes")).length).toBeLessThan(2); // the other one, when it is needed no more
  await page.clock.runFor(2000);
  await expect.poll(() => held.length).toBe(3);
  for (let s = 0; s < 14; s += 2) await page.clock.runFor(2000);
  await drawn(page).catch(() => {});
  expect(held.length).toBe(3);
  for (const go of held) go();
});
