// What the page shows of each version of ACP: what only version 2 tells, live, as it is
// read again, and behind a gateway that was killed; and a gateway of version 1.
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { bothThemes, chat, desktop, newSession, phone, picture, settled, World, type Page } from "./world.js";

let world: World;
beforeAll(async () => {
  world = await World.startWithBoth(["--no-token"]);
});
afterEach(async ({ task }) => world?.closeWindows(task));
afterAll(async () => world?.stop());

const log = (page: Page) => page.getByRole("log");
const ask = (page: Page) => page.getByRole("region", { name: "The agent asks" });
const state = (page: Page, text: string) => page.locator(".conversation-head .badge").getByText(text, { exact: true });

/** What the conversation shows, without times. All of it is in sight. */
const shown = (page: Page) => log(page).evaluate((element) => [...element.querySelectorAll(".bubble, .said.agent .markdown, .tool-title, .tool-state, .tool-answer, .output pre, .notice-title, .turn-end strong")].map((e) => e.textContent!.trim()));

/** Whether it is the same after a reload, and when the gateway was killed and is back. */
async function lasts(page: Page, of: World): Promise<void> {
  const before = await shown(page);
  expect(before.length).toBeGreaterThan(3);
  await page.reload();
  await expect.poll(() => shown(page)).toEqual(before);
  await of.gateway.kill("SIGKILL");
  await page.getByText("The connection is broken").waitFor();
  await of.gateway.restart();
  await page.getByText("The connection is broken").waitFor({ state: "detached" });
  await chat(page, "echo back again");
  await log(page).locator(".said.agent").getByText("back again", { exact: true }).waitFor();
  await settled(page);
  expect((await shown(page)).slice(0, before.length)).toEqual(before);
  await page.reload();
  await expect.poll(async () => (await shown(page)).slice(0, before.length)).toEqual(before);
  expect((await shown(page)).filter((text) => text === "back again")).toHaveLength(1);
}

test("the state is what the session says, in each window and after a reload", async () => {
  const page = await world.open();
  await newSession(page, { agent: "mock2", prompt: "requires_action" });
  await state(page, "waiting").waitFor();
  // What is asked for is a command of no call.
  await ask(page).getByText("May I?").waitFor();
  await ask(page).getByText("It is needed.").waitFor();
  await ask(page).getByText("rm -r x").waitFor();
  await ask(page).getByText("in /", { exact: true }).waitFor();
  await bothThemes(page, "asked-command");
  await page.reload();
  await state(page, "waiting").waitFor();
  await ask(page).getByRole("button", { name: "Allow" }).click();
  await log(page).getByText("permission: allow_once").waitFor();
  await state(page, "idle").waitFor();
  await log(page).getByText("May I?: Allow").waitFor(); // what was answered stays to be seen
  // Another window sees what this one begins, and ends it.
  const other = await world.open(new URL(page.url()).hash);
  await state(other, "idle").waitFor();
  await chat(page, "cancellable");
  for (const one of [page, other]) await state(one, "running").waitFor();
  await page.reload();
  await state(page, "running").waitFor();
  await other.getByRole("button", { name: "Stop the turn" }).click();
  for (const one of [page, other]) await state(one, "idle").waitFor();
});

test("what goes on in the background is ended alone", async () => {
  const page = await world.open();
  await newSession(page, { agent: "mock2", prompt: "background 60000" });
  const background = page.getByRole("region", { name: "In the background" });
  await state(page, "idle, 1 in the background").waitFor();
  await bothThemes(page, "background-stop");
  await page.setViewportSize(phone);
  await picture(page, "background-stop-phone");
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(phone.width);
  await background.getByRole("button", { name: "Stop Run tick" }).click();
  await log(page).getByText("The command in the background is cancelled.").waitFor();
  await background.waitFor({ state: "detached" });
});

test("a message that is replaced, a terminal, a notice and a compaction are there once, however one comes to them", async () => {
  const own = await World.startWithBoth(["--no-token"]);
  try {
    const page = await own.open("", { viewport: { width: desktop.width, height: 2400 } });
    await newSession(page, { agent: "mock2", prompt: "upsert" });
    await log(page).getByText("The final text.", { exact: true }).waitFor();
    expect(await log(page).getByText("draft").count()).toBe(0);
    await settled(page);
    await chat(page, "shell");
    const tool = page.getByRole("group", { name: "Tool: Run count" });
    await tool.getByText("Done").waitFor({ state: "attached" });
    await tool.getByRole("button", { name: /Run count/ }).click();
    await tool.getByText("It ended with code 3.").waitFor();
    expect((await tool.getByLabel("Output").first().innerText()).trim()).toBe("one\ntwo");
    await tool.getByText("counted").waitFor();
    await bothThemes(page, "terminal-of-agent");
    await tool.getByRole("button", { name: /Run count/ }).click();
    await chat(page, "notice");
    await log(page).getByText("The disk is nearly full").waitFor();
    await settled(page);
    await chat(page, "compaction");
    await log(page).getByText("The conversation was compacted").waitFor();
    await settled(page);
    await lasts(page, own);
  } finally {
    await own.stop();
  }
});

test.each([["mock2", "child-permission", "Look around", "Delete all"], ["mock", "subagent", "Look around", "Edit notes.txt"]])("%s: a subagent asks in its session, and is there once", async (agent, prompt, title, asks) => {
  const own = await World.startWithBoth(["--no-token"]);
  try {
    const page = await own.open("", { viewport: { width: desktop.width, height: 2400 } });
    const id = await newSession(page, { agent, prompt });
    await state(page, "waiting").waitFor();
    await ask(page).waitFor();
    await page.reload();
    await state(page, "waiting").waitFor();
    await ask(page).getByRole("button", { name: /^Allow/ }).first().click();
    const sub = page.getByRole("group", { name: `Tool: ${title}` });
    await sub.getByRole("group", { name: "Subagent" }).getByText(/allow_once/).waitFor();
    await settled(page);
    await state(page, "idle").waitFor();
    expect(await ask(page).count(), asks).toBe(0);
    await sub.getByText("Done").first().waitFor({ state: "attached" });
    await bothThemes(page, `subagent-${agent}`);
    await lasts(page, own);
    // It has a place of its own.
    const { children } = (await (await fetch(`${own.gateway.url}/v2/sessions/${encodeURIComponent(id)}`)).json()) as { children: { sessionId: string }[] };
    await page.evaluate((hash) => void (location.hash = hash), `#/sessions/${encodeURIComponent(id)}/${encodeURIComponent(children[0]!.sessionId)}`);
    await page.getByRole("region", { name: `Subagent: ${title}` }).getByText(/allow_once/).waitFor();
    await page.setViewportSize(phone);
    await picture(page, `subagent-${agent}-phone`);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(phone.width);
  } finally {
    await own.stop();
  }
});

test.each([["mock", "permission"], ["mock2", "requires_action"], ["mock2", "child-permission"]])("%s: %s is over when the gateway was killed meanwhile, in the page that is open, too", async (agent, prompt) => {
  const own = await World.startWithBoth(["--no-token"]);
  try {
    const page = await own.open("", { viewport: { width: desktop.width, height: 2400 } });
    await newSession(page, { agent, prompt });
    const inbox = await own.open("#/inbox");
    for (const one of [page, inbox]) await one.getByRole("button", { name: /^Allow/ }).first().waitFor();
    await page.waitForFunction(() => document.title.startsWith("(1) "));
    await own.gateway.kill("SIGKILL");
    for (const one of [page, inbox]) await one.getByText("The connection is broken").waitFor();
    await own.gateway.restart();
    await ask(page).waitFor({ state: "detached" });
    await inbox.getByText("Nobody asks anything").waitFor();
    await page.waitForFunction(() => !document.title.startsWith("("));
    await state(page, "dormant").waitFor(); // the agent is started by the next prompt
    await log(page).getByText("The turn failed").waitFor();
    expect(await log(page).locator(".tool-title").getByText("other").count()).toBe(0);
    expect(await log(page).locator(".tool-state").getByText("Running").count()).toBe(0);
    const before = await shown(page);
    await page.reload();
    await expect.poll(() => shown(page)).toEqual(before);
    if (prompt === "child-permission") await page.getByRole("group", { name: "Tool: Look around" }).getByText("Failed").waitFor({ state: "attached" });
  } finally {
    await own.stop();
  }
});

test("a gateway that speaks version 1 only is followed as well", async () => {
  const own = await World.start(["--no-token", "--acp-versions", "1"]);
  try {
    const page = await own.open("", { viewport: { width: desktop.width, height: 2400 } });
    await newSession(page, { prompt: "permission" });
    await state(page, "waiting").waitFor();
    await ask(page).getByRole("button", { name: /^Allow/ }).first().click();
    await log(page).getByText("permission: allow_once").waitFor();
    await state(page, "idle").waitFor();
    for (const [prompt, said] of [["run", "Tool:"], ["diff", "Tool:"], ["plan", "Plan"]] as const) {
      await chat(page, prompt);
      await page.getByRole("group", { name: new RegExp(said) }).last().waitFor();
      await settled(page);
    }
    await chat(page, "subagent");
    await ask(page).getByRole("button", { name: /^Allow/ }).first().click();
    await page.getByRole("group", { name: "Tool: Look around" }).getByRole("group", { name: "Subagent" }).getByText(/allow_once/).waitFor();
    await settled(page);
    await lasts(page, own);
    await page.evaluate(() => void (location.hash = "#/wire"));
    await page.getByRole("searchbox", { name: "Search" }).fill('"protocolVersion":1');
    await page.getByRole("option", { name: /received initialize/ }).last().waitFor();
    await page.locator("#nav .dot.good").waitFor({ state: "attached" });
  } finally {
    await own.stop();
  }
});
