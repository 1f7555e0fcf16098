import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { SandboxAgentClient } from "sandbox-agent";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { bothThemes, chat, desktop, inaccessible, newSession, phone, picture, settled, storyAgent, theme, World } from "./world.js";

let world: World;
beforeAll(async () => {
  world = await World.startWithBoth(["--no-token", ...storyAgent]);
});
afterEach(async ({ task }) => world?.closeWindows(task));
afterAll(async () => world?.stop());

test("a session is made, its turns stream, and everything they show is there", async () => {
  const page = await world.open("", { viewport: { width: 1280, height: 2600 } }); // all rows are in sight
  await newSession(page, { agent: "story", prompt: "story" });
  await page.getByRole("log").getByText("The review found nothing.").waitFor();
  await page.getByText("48.2k").waitFor();
  await settled(page);
  const log = page.getByRole("log");

  // Markdown, and what looks like HTML is text.
  await log.getByRole("heading", { name: "What I found" }).waitFor();
  await log.getByRole("cell", { name: "Infinity" }).waitFor();
  await log.getByText('<script>alert("no")</script>').waitFor();
  await log.locator(".hljs-keyword").first().waitFor();

  // A thought is folded; a plan, the colours of a command, a diff in both ways, a subagent, a picture.
  const thought = log.getByRole("group", { name: "Thought" });
  expect(await thought.getByText("The tests come first.").count()).toBe(0);
  await thought.getByRole("button").click();
  await thought.getByText("The tests come first.").waitFor();
  await log.getByRole("group", { name: "Tool: npm test" }).getByRole("button", { name: /npm test/ }).click();
  const failed = log.getByText("✗ divides by zero");
  await failed.waitFor();
  expect(await failed.evaluate((e) => getComputedStyle(e).color)).not.toBe(await log.getByText(" adds numbers ").evaluate((e) => getComputedStyle(e).color));
  const edit = log.getByRole("group", { name: "Tool: Edit src/divide.ts" });
  await edit.getByRole("link", { name: "src/divide.ts:3" }).waitFor();
  await expect.poll(() => edit.locator("tr.add").count()).toBe(1);
  await edit.locator("tr.add .hljs-keyword").getByText("throw").waitFor();
  await edit.getByRole("radio", { name: "Split" }).check();
  await edit.locator("table.split").waitFor();
  await edit.getByRole("radio", { name: "Unified" }).check();
  await log.getByRole("group", { name: "Subagent" }).getByText("Read divide.ts").waitFor();
  await log.getByRole("button", { name: /Picture/ }).waitFor();

  // The subagent stands below its session, and has a place of its own.
  await page.getByRole("complementary", { name: "Sessions" }).getByRole("link", { name: /Ask a subagent to review/ }).click();
  const subagent = page.getByRole("region", { name: "Subagent: Ask a subagent to review" });
  await subagent.getByText("Read divide.ts").waitFor();
  expect(await subagent.getByText("The review found nothing.").count()).toBe(1);
  expect(await inaccessible(page)).toEqual([]);
  await picture(page, "subagent");
  await subagent.getByRole("link", { name: "The whole session" }).click();
  await log.getByText("What I found").waitFor();
  await page.getByText("$0.18").first().waitFor();

  await page.getByRole("button", { name: "About this session" }).click();
  const about = page.getByRole("dialog", { name: "About this session" });
  await about.getByText(/^1 turn, \d tool calls, 2k tokens in, 345 out/).waitFor();
  await about.getByText("It remembers all of it.").waitFor();
  expect(await inaccessible(page)).toEqual([]);
  await picture(page, "about");
  await page.keyboard.press("Escape");
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
  // A folder without git answers so, which browsers note.
  expect(world.complaints.filter((c) => !c.includes("status of 409"))).toEqual([]);
});

test("what an agent says beside the conversation: a notice, and what becomes of compactions", async () => {
  const page = await world.open();
  await newSession(page, { agent: "story", prompt: "remarks" });
  // A plan that is Markdown is set as such.
  const plan = page.getByRole("group", { name: "Plan" });
  await plan.getByRole("heading", { name: "The way" }).waitFor();
  expect(await plan.locator("li strong").textContent()).toBe("Read");
  const log = page.getByRole("log");
  await log.getByText("The model is busy").waitFor();
  await log.getByText("The conversation was compacted, from 90k to 8k tokens").waitFor();
  await log.getByText("The conversation was not compacted").waitFor();
  expect(await log.getByText("Compacting the conversation").count()).toBe(0); // it is the same row
  await log.getByRole("status").filter({ hasText: "from 90k" }).getByText("Details").click();
  await log.getByText("They talked.").waitFor();
  expect(await inaccessible(page)).toEqual([]);
  await page.reload(); // as it is replayed
  await log.getByText("The conversation was compacted, from 90k to 8k tokens").waitFor();
  await log.getByText("The conversation was not compacted").waitFor();
});

test("what goes on in the background is shown until it ends", async () => {
  const page = await world.open();
  const id = await newSession(page, { agent: "mock2", prompt: "background 60000" });
  const background = page.getByRole("region", { name: "In the background" });
  await background.getByText("Run tick").waitFor();
  await settled(page);
  // The list and the head call it the same.
  for (const place of [page.locator(".conversation-head"), page.locator(".session-row[aria-current]")]) await place.getByText("idle, 1 in the background").waitFor();
  await bothThemes(page, "background");
  await page.setViewportSize(phone);
  expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
  await page.reload(); // as it is replayed
  await background.getByText("Run tick").waitFor();
  // Another client, of the other version, ends it.
  await using other = new SandboxAgentClient({ baseUrl: world.gateway.url, agent: "mock2", acpVersion: 2 });
  const session = await other.loadSession({ sessionId: id });
  const [work] = session.activity?.background ?? [];
  await other.cancelTerminal(id, (work as { terminalId: string }).terminalId);
  await page.getByRole("log").getByText("The command in the background is cancelled.").waitFor();
  await background.waitFor({ state: "detached" });
  await page.setViewportSize(desktop);
  for (const place of [page.locator(".conversation-head"), page.locator(".session-row[aria-current]")]) await place.getByText("idle", { exact: true }).waitFor();
});

test("a session's MCP servers are shown with what is wrong with them, and what it was told to know", async () => {
  const page = await world.open("", { permissions: ["clipboard-read", "clipboard-write"] });
  await newSession(page, { agent: "mock" });
  await using other = new SandboxAgentClient({ baseUrl: world.gateway.url, agent: "mock" });
  const made = await other.newSession({
    cwd: "/tmp", instructions: "Answer in rhymes.", skills: { paths: ["/skills"] },
    mcpServers: [{ name: "files", command: "files-mcp", args: [], env: [{ name: "KEY", value: "a-value-that-nobody-sees" }] }],
  });
  await page.goto(world.url(`#/sessions/${made.id}`));
  await page.locator(`a[aria-current][href$="${made.id}"]`).waitFor(); // else it is the other session's button
  await page.getByRole("button", { name: "About this session" }).click();
  const about = page.getByRole("dialog", { name: "About this session" });
  const server = (name: string) => about.getByRole("list", { name: "MCP servers" }).getByRole("listitem").filter({ has: page.getByText(name, { exact: true }) });
  await server("files").getByText("not known").waitFor();
  await about.getByText("Instructions", { exact: false }).getByText("17 characters").click();
  await about.getByText("Answer in rhymes.").waitFor();
  await about.getByRole("link", { name: "/skills" }).waitFor();
  // As it happens, with the panel open.
  await made.prompt("mcp");
  await server("files").getByText("ready").waitFor();
  await server("files").getByText("stdio, of this session").waitFor();
  await server("files").getByText("2 tools").click();
  await server("files").getByText("Finds words in files").waitFor();
  await server("broken").getByText("no such program: broken-mcp").waitFor();
  await server("issues").getByText("needs a login").waitFor();
  await server("broken").getByRole("button", { name: "Copy what broken says" }).click();
  await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toBe("no such program: broken-mcp");
  expect(await about.innerText()).not.toContain("nobody-sees");
  await bothThemes(page, "mcp");
  await page.setViewportSize(phone);
  expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
  await page.keyboard.press("Escape");
  await page.setViewportSize(desktop);
  // A reload shows the same, and the head says that something is wrong.
  await page.reload();
  await page.getByRole("button", { name: "1 MCP server failed, 1 needs a login" }).click();
  await server("broken").getByText("no such program: broken-mcp").waitFor();
  // Without its process a server is stopped.
  await made.close();
  await page.getByText("This session is closed").waitFor();
  await server("files").getByText("stopped").waitFor();
});

test("what was always allowed is shown, and taken back by the keyboard", async () => {
  const page = await world.open();
  await newSession(page, { agent: "mock" });
  await using other = new SandboxAgentClient({ baseUrl: world.gateway.url, agent: "mock" });
  let asked = 0;
  other.onPermission(() => (asked++, "allow_always"));
  const made = await other.newSession({ cwd: "/tmp" });
  await page.goto(world.url(`#/sessions/${made.id}`));
  await page.locator(`a[aria-current][href$="${made.id}"]`).waitFor();
  await page.getByRole("button", { name: "About this session" }).click();
  const about = page.getByRole("dialog", { name: "About this session" });
  await about.getByText("Nothing: Mock agent asks as its mode says.").waitFor();
  // As it happens, with the panel open.
  for (const prompt of ["permission", "permission fetch", "permission fetch"]) await made.prompt(prompt);
  const allowed = about.getByRole("list", { name: "Allowed always" }).getByRole("listitem");
  await allowed.filter({ hasText: "Use a tool: fetch" }).waitFor();
  expect([await allowed.count(), asked]).toEqual([2, 2]);
  await bothThemes(page, "allowed");
  await page.setViewportSize(phone);
  expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
  await page.setViewportSize(desktop);
  await about.getByRole("button", { name: "Take back Edit notes.txt" }).focus();
  await page.keyboard.press("Enter");
  await allowed.filter({ hasText: "Edit notes.txt" }).waitFor({ state: "detached" });
  await expect.poll(() => page.evaluate(() => document.activeElement?.textContent)).toBe("Allowed always");
  expect((await made.prompt("permission")).text).toBe("permission: allow_always"); // it asked again
  await allowed.filter({ hasText: "Edit notes.txt" }).waitFor();
  // While a turn runs it is refused, and nothing is lost.
  const turn = made.prompt("slow");
  await expect.poll(async () => (await other.api.session(made.id)).state).toBe("running");
  await about.getByRole("button", { name: "Take back all" }).click();
  await page.getByText("It could not be taken back: ", { exact: false }).waitFor();
  await made.cancel();
  await turn;
  // A list that cannot be loaded again stays until it can.
  const permissions = /\/permissions$/;
  await page.route(permissions, (route) => route.fulfill({ status: 503, contentType: "application/problem+json", body: JSON.stringify({ title: "It is away", status: 503 }) }));
  await made.prompt("hello");
  const again = about.getByRole("button", { name: "Try again" });
  await again.waitFor();
  expect(await allowed.count()).toBe(2);
  await page.unroute(permissions);
  const back = again.waitFor({ state: "detached" });
  await Promise.race([again.click().catch(() => {}), back]); // what the page still hears of the turn brings it back, too
  await back;
  // Who goes on elsewhere meanwhile stays there.
  let goOn = () => {};
  const held = new Promise<void>((resolve) => (goOn = resolve));
  await page.route(permissions, (route) => (route.request().method() === "DELETE" ? held.then(() => route.continue()) : route.continue()));
  await about.getByRole("button", { name: "Take back all" }).click();
  await about.getByRole("button", { name: "Close" }).focus();
  goOn();
  await about.getByText("Nothing: Mock agent asks as its mode says.").waitFor();
  expect(await page.evaluate(() => document.activeElement?.getAttribute("aria-label"))).toBe("Close");
  expect(await other.api.sessionPermissions(made.id)).toEqual([]);
});

test("a large difference is found without holding up the page, and one that is too large is named", async () => {
  const page = await world.open();
  await newSession(page, { agent: "story", prompt: "rewrite 3000 half" });
  const half = page.getByRole("group", { name: "Tool: Rewrite half" });
  await half.getByText("+1500").waitFor();
  expect(await half.locator("tr").nth(2).innerText()).toContain("same 1");
  await chat(page, "rewrite 9000 all");
  const all = page.getByRole("group", { name: "Tool: Rewrite all" });
  await all.getByText("Too many lines differ to compare them.").waitFor();
  await all.getByText("old 0", { exact: true }).waitFor();
});

test("a conversation is copied, searched, gone through by its prompts, and written on with files and prompts of before", async () => {
  const folder = join(world.gateway.dir, "project");
  mkdirSync(join(folder, "src"), { recursive: true });
  writeFileSync(join(folder, "src", "divide.ts"), "");
  const page = await world.open("", { permissions: ["clipboard-read", "clipboard-write"] });
  await newSession(page, { agent: "story", cwd: folder, prompt: "first words" });
  const log = page.getByRole("log");
  const clipboard = () => page.evaluate(() => navigator.clipboard.readText());
  const prompt = page.getByRole("textbox", { name: "Prompt", exact: true });
  await log.getByText("text: first words").waitFor();
  await settled(page);
  await chat(page, "many 1500");
  await log.getByText("The end of many.").waitFor();
  await settled(page);
  await chat(page, "last words");
  await log.getByText("text: last words").waitFor();
  await settled(page);

  // A message, a prompt, and all of it.
  await log.getByText("text: last words").hover();
  await log.getByRole("button", { name: "Copy the message" }).last().click();
  await expect.poll(clipboard).toBe("text: last words");
  await page.getByRole("button", { name: "What can be done with this session" }).click();
  await page.getByRole("menuitem", { name: /^Copy the conversation/ }).click();
  await expect.poll(clipboard).toMatch(/## Prompt\n\nfirst words\n\ntext: first words[\s\S]*word1008 [\s\S]*last words/);

  // For others: a page that needs nothing but itself.
  await page.getByRole("button", { name: "What can be done with this session" }).click();
  const [saved] = await Promise.all([page.waitForEvent("download"), page.getByRole("menuitem", { name: /^Save as a page/ }).click()]);
  expect(saved.suggestedFilename()).toMatch(/\.html$/);
  const shared = readFileSync(await saved.path(), "utf8");
  expect(shared).toContain("text: first words");
  expect(shared).toMatch(/word1008 [\s\S]*last words[\s\S]*<\/html>\n$/);

  // And for another gateway.
  await page.getByRole("button", { name: "What can be done with this session" }).click();
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("menuitem", { name: /^Save for another gateway/ }).click()]);
  expect(file.suggestedFilename()).toMatch(/\.tar\.zst$/);
  expect(readFileSync(await file.path()).subarray(0, 4)).toEqual(Buffer.from([0x28, 0xb5, 0x2f, 0xfd]));

  // What is not on the page is found.
  expect(await log.getByText("word1008").count()).toBe(0);
  await page.keyboard.press("Control+f");
  const find = page.getByRole("search", { name: "Find in the conversation" });
  await find.getByRole("searchbox").fill("WORD1008");
  await find.getByText("1 of 1").waitFor();
  await log.getByText("word1008").first().waitFor();
  await expect.poll(() => page.evaluate(() => CSS.highlights.get("found")?.size)).toBe(1);
  await find.getByRole("searchbox").fill("nowhere");
  await find.getByText("Not found").waitFor();
  await find.getByRole("searchbox").fill("words");
  await find.getByText("4 of 4").waitFor();
  await page.keyboard.press("Enter");
  await find.getByText("3 of 4").waitFor();
  expect(await inaccessible(page)).toEqual([]);
  await picture(page, "find");
  await page.keyboard.press("Escape");
  await find.waitFor({ state: "detached" });
  expect(await page.evaluate(() => CSS.highlights.has("found"))).toBe(false);

  // From prompt to prompt.
  await page.keyboard.press("Alt+ArrowUp");
  await page.keyboard.press("Alt+ArrowUp");
  await page.keyboard.press("Alt+ArrowUp");
  await expect.poll(() => log.locator(".bubble").first().innerText()).toContain("first words");
  await page.keyboard.press("Alt+ArrowDown");
  await log.locator(".bubble").getByText("many 1500").waitFor();
  // Keys that come faster than the page can show what they ask for.
  await page.evaluate(() => {
    for (const key of ["ArrowDown", "ArrowUp"]) document.body.dispatchEvent(new KeyboardEvent("keydown", { key, altKey: true, bubbles: true }));
  });
  await expect.poll(async () => {
    const [bubble, list] = await Promise.all([log.locator(".bubble").getByText("many 1500").boundingBox(), log.boundingBox()]);
    return bubble && list ? Math.round((bubble.y - list.y) / 100) : undefined;
  }).toBe(0);

  // Prompts of before, then what was being written.
  await prompt.focus();
  await page.keyboard.press("ArrowUp");
  expect(await prompt.inputValue()).toBe("last words");
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("ArrowUp");
  expect(await prompt.inputValue()).toBe("first words");
  for (let i = 0; i < 3; i++) await page.keyboard.press("ArrowDown");
  expect(await prompt.inputValue()).toBe("");

  // A prompt is taken up again; what was being written stays behind it.
  await prompt.fill("and more");
  await page.getByRole("button", { name: "To the end" }).click();
  await log.locator(".said.user").filter({ hasText: "last words" }).getByRole("button", { name: "Write it again" }).click();
  expect(await prompt.inputValue()).toBe("last words\n\nand more");
  await prompt.fill("");

  // A file of the session's folder.
  await prompt.pressSequentially("look at @sr");
  await page.getByRole("option", { name: "@src/" }).waitFor();
  await page.keyboard.press("Tab");
  await page.getByRole("option", { name: "@src/divide.ts" }).waitFor();
  await page.keyboard.press("Enter");
  expect(await prompt.inputValue()).toBe("look at @src/divide.ts ");
  await page.keyboard.press("Enter");
  await log.getByText("resource_link, text: look at @src/divide.ts").waitFor();
  await log.locator('.user a[href*="divide.ts"]').waitFor();
  await settled(page);
  await chat(page, "wait");
  await page.locator(".elapsed").getByText(/^\d+ s/).waitFor();
});

test("changes of the working tree are looked through, and remarks on them go into the prompt", async () => {
  const dir = join(world.gateway.dir, "reviewed");
  mkdirSync(join(dir, "src"), { recursive: true });
  const git = (...args: string[]) => execFileSync("git", ["-C", dir, "-c", "user.name=x", "-c", "user.email=x@example.test", ...args]);
  git("init", "-q");
  writeFileSync(join(dir, "src/sum.ts"), "export function sum(a, b) {\n  return a - b;\n}\n");
  git("add", ".");
  git("commit", "-qm", "first");
  const page = await world.open();
  await newSession(page, { agent: "story", cwd: dir });
  const prompt = page.getByRole("textbox", { name: "Prompt", exact: true });
  await prompt.fill("half a thought");
  await page.getByRole("button", { name: "Review the changes" }).click();
  const review = page.getByRole("dialog", { name: "Changes since the last commit" });
  await review.getByText("Nothing has changed").waitFor();

  // Somebody changes something meanwhile.
  writeFileSync(join(dir, "src/sum.ts"), "export function sum(a, b) {\n  return a + b;\n}\n");
  writeFileSync(join(dir, "notes.txt"), "new\n");
  await review.getByRole("button", { name: "Load again" }).click();
  await review.locator("tr.add mark").getByText("+").waitFor();
  await review.getByRole("link", { name: "notes.txt" }).waitFor();
  expect(await review.getByRole("button", { name: "Put remarks into the prompt" }).isDisabled()).toBe(true);

  await review.getByRole("button", { name: "Remark on src/sum.ts, line 2", exact: true }).click();
  await page.keyboard.type("What of strings?");
  expect(await inaccessible(page)).toEqual([]);
  await picture(page, "review");
  await page.keyboard.press("Control+Enter");
  await review.getByText("What of strings?").waitFor();
  await review.getByRole("button", { name: "Remark on src/sum.ts, removed line 2", exact: true }).click();
  await page.keyboard.type("never mind");
  await page.keyboard.press("Escape"); // the remark is given up, the dialog stays
  expect(await review.getByText("never mind").count()).toBe(0);

  // Looking elsewhere loses nothing, neither the remark nor what was being written.
  await review.getByRole("button", { name: "Close" }).click();
  expect(await prompt.inputValue()).toBe("half a thought");
  await prompt.evaluate((e: HTMLElement) => e.blur());
  await page.keyboard.press("c");
  await review.getByText("What of strings?").waitFor();
  expect(await inaccessible(page)).toEqual([]);
  await review.getByRole("button", { name: "Put 1 remark into the prompt" }).click();
  await review.waitFor({ state: "detached" });
  expect(await prompt.inputValue()).toBe("half a thought\n\nRemarks on the changes in the working tree:\n\nsrc/sum.ts:2\n>   return a + b;\nWhat of strings?");
  expect(await prompt.evaluate((e) => e === document.activeElement)).toBe(true);
  await page.keyboard.press("Enter");
  await page.getByRole("log").locator(".bubble").getByText("What of strings?").waitFor();

  // A folder without git says so.
  await newSession(page, { agent: "story", cwd: world.gateway.dir });
  await page.getByRole("button", { name: "Review the changes" }).click();
  await review.getByText("The changes cannot be shown").waitFor();
  await page.keyboard.press("Escape");
  await review.waitFor({ state: "detached" });
});

test("the plan of a turn stays in sight while the agent works", async () => {
  const page = await world.open();
  await newSession(page, { agent: "story", prompt: "plan" });
  await page.getByRole("log").getByText("waiting").waitFor();
  const now = page.locator(".plan-now");
  await now.getByText("1 of 3 Change it").waitFor();
  expect(await now.getByText("Run the tests").isVisible()).toBe(false);
  await now.locator("summary").focus();
  await page.keyboard.press("Enter");
  await now.getByText("Run the tests").waitFor();
  expect(await inaccessible(page)).toEqual([]);
  await picture(page, "plan");
  await page.getByRole("button", { name: "Stop the turn" }).click();
  await now.waitFor({ state: "detached" });
  await page.keyboard.press("Alt+ArrowUp");
  await page.getByRole("log").getByRole("group", { name: "Plan" }).getByText("1 of 3").waitFor();
});
