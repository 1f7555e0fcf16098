// What happens between a person and an agent: permissions, questions, stopping,
// reloading, other windows, a broken network.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { Proxy } from "../../sdk-ts/test/proxy.js";
import { answerable, bothThemes, chat, connected, drop, inaccessible, newSession, phone, picture, settled, storyAgent, World, type Dialog, type Page } from "./world.js";

let world: World;
beforeAll(async () => {
  world = await World.start(["--no-token", ...storyAgent]);
});
afterEach(async ({ task }) => world?.closeWindows(task));
afterAll(async () => world?.stop());

/** A picture of one dot. */
const dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const log = (page: Page) => page.getByRole("log");
const ask = (page: Page) => page.getByRole("region", { name: "The agent asks" });

/**
 * Which row is in the middle, or the one of that index, and where, once the list has not scrolled for a while. How far it has scrolled
 * says less: that changes when a row above gets its height, and what is read stays where it is.
 */
const placeAtRest = (page: Page, of?: string) => log(page).evaluate(async (list, of) => {
  await new Promise<void>((rests) => {
    let timer: ReturnType<typeof setTimeout>;
    const again = () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        list.removeEventListener("scroll", again);
        rests();
      }, 200);
    };
    list.addEventListener("scroll", again);
    again();
  });
  const { top, height } = list.getBoundingClientRect();
  const row = [...list.querySelectorAll<HTMLElement>("[data-index]")].find((r) => of === undefined ? r.getBoundingClientRect().bottom > top + height / 2 : r.dataset.index === of);
  return { row: row?.dataset.index, top: Math.round((row?.getBoundingClientRect().top ?? 0) - top) };
}, of);

test("a command that needs a permission can be read to its end", async () => {
  const page = await world.open("", { viewport: phone });
  await newSession(page, { agent: "story", prompt: "command" });
  const command = ask(page).locator("pre.code");
  await command.getByText("…").waitFor();
  expect(await command.textContent()).not.toContain("the-end");
  expect(await ask(page).getByRole("button", { name: /allow|reject|_ask/ }).allTextContents()).toEqual(["allow_once", "allow_always", "reject_once", "reject_always", "_ask_later"].map((kind) => expect.stringContaining(kind) as string));
  await picture(page, "command-phone");
  await ask(page).getByRole("button", { name: "Show all of the command" }).click();
  await command.getByText("rm -rf /tmp/the-end").waitFor();
  // It is wrapped: nothing is beside it, or below.
  expect(await command.evaluate((e) => e.scrollWidth <= e.clientWidth && e.scrollHeight <= e.clientHeight)).toBe(true);
  expect(await inaccessible(page)).toEqual([]);
  await ask(page).getByRole("button", { name: "_ask_later" }).click();
  await log(page).getByText("command: o").waitFor();
});

test("a permission is given in the conversation, refused by key, and told as it was", async () => {
  const page = await world.open();
  await newSession(page, { prompt: "permission" });
  await ask(page).getByRole("button", { name: /^Allow/ }).first().click();
  await log(page).getByText("permission: allow_once").waitFor();
  await settled(page);
  await chat(page, "permission");
  await ask(page).waitFor();
  await picture(page, "permission");
  // Keys are shown where they work: while a text is typed they do not.
  await page.getByRole("textbox", { name: "Prompt", exact: true }).focus();
  expect(await ask(page).locator("kbd:visible").count()).toBe(0);
  await page.keyboard.press("Escape"); // leaves the text, for the conversation
  expect(await log(page).evaluate((e) => e === document.activeElement)).toBe(true);
  await ask(page).locator("kbd:visible").first().waitFor();
  expect(await page.locator("[data-asked]").textContent()).toContain("The agent asks");
  await answerable(page);
  await page.keyboard.press("x");
  await log(page).getByText("permission: reject_once").waitFor();
  await log(page).getByRole("group", { name: "Tool: Edit notes.txt" }).last().getByText("Rejected").waitFor();
  await expect.poll(() => page.locator("[data-announced]").textContent()).toContain("permission: reject_once");
});

test("the inbox has what agents of other windows ask, and the first answer counts", async () => {
  const [one, other] = [await world.open(), await world.open("#/inbox")];
  await connected(other);
  const id = await newSession(one, { prompt: "permission" });
  await ask(one).waitFor();
  await ask(other).waitFor(); // it was attached to a session that it did not make
  await bothThemes(other, "inbox");
  await ask(other).getByRole("button", { name: /^Reject/ }).click();
  await ask(one).waitFor({ state: "detached" });
  await log(one).getByText("permission: reject_once").waitFor();
  await other.getByText("Nobody asks anything").waitFor();
  // From the inbox into the conversation, in the middle of a turn.
  await chat(one, "permission");
  await ask(other).getByRole("link").first().click();
  await other.waitForURL(new RegExp(`#/sessions/${id}$`));
  await log(other).getByText("permission: reject_once").waitFor();
  await ask(other).getByRole("button", { name: /^Allow/ }).click();
  await log(other).getByText("permission: allow_once").waitFor();
  await log(one).getByText("permission: allow_once").waitFor();
  await settled(other);
});

test("a session that waits for an answer stays in the inbox when its conversation is let go", async () => {
  const [one, other] = [await world.open(), await world.open("#/inbox")];
  await connected(other);
  const id = await newSession(one, { prompt: "permission" });
  await ask(other).getByRole("link").first().click();
  await other.waitForURL(new RegExp(`#/sessions/${id}$`));
  await ask(other).waitFor();
  // More conversations than a page follows at once.
  for (let i = 0; i < 6; i++) await newSession(other);
  await other.evaluate(() => void (location.hash = "#/inbox"));
  await ask(other).getByRole("button", { name: /^Allow/ }).first().click();
  await log(one).getByText("permission: allow_once").waitFor();
  await other.getByText("Nobody asks anything").waitFor();
  // Nobody else holds the session here: it is let go when nothing is asked in it, and watched again for the next time.
  await chat(one, "permission");
  await ask(other).getByRole("button", { name: /^Reject/ }).click();
  await log(one).getByText("permission: reject_once").waitFor();
});

test("what takes the place of a card under the pointer is not answered by a press that was meant for that", async () => {
  const page = await world.open();
  for (let i = 0; i < 2; i++) {
    await newSession(page, { prompt: "permission" });
    await ask(page).waitFor();
  }
  await page.evaluate(() => void (location.hash = "#/inbox"));
  const cards = page.locator(".inbox .ask");
  await expect.poll(() => cards.count()).toBe(2);
  await answerable(page);
  const box = (await cards.first().getByRole("button", { name: /Allow/ }).first().boundingBox())!;
  const at = { x: box.x + box.width / 2, y: box.y + box.height / 2 };
  // The second press of a double one, as early as it can come.
  await page.evaluate(({ x, y }) => {
    new MutationObserver((_, changes) => {
      if (document.querySelectorAll(".inbox .ask").length !== 1) return;
      changes.disconnect();
      const under = document.elementFromPoint(x, y)?.closest("button");
      document.title = `pressed: ${under?.textContent}`;
      under?.click();
    }).observe(document.body, { childList: true, subtree: true });
  }, at);
  await page.mouse.click(at.x, at.y);
  await page.waitForFunction(() => document.title.startsWith("pressed: Allow"));
  await answerable(page);
  expect(await cards.count()).toBe(1);
  await cards.getByRole("button", { name: /Allow/ }).first().click();
  await page.getByText("Nobody asks anything").waitFor();
});

test("who looks elsewhere is told of what is asked and of what ends, when they want it", async () => {
  const page = await world.open("about:blank", { permissions: ["notifications"] });
  await page.addInitScript(() => {
    const told: { title: string; body: string; onclick?: () => void }[] = [];
    class Told {
      static permission = "granted";
      static requestPermission = async () => "granted";
      onclick?: () => void;
      constructor(readonly title: string, readonly options: { body: string }) {
        told.push(this as never);
      }
      close() {}
    }
    Object.assign(globalThis, { Notification: Told, told });
    let hidden = false;
    Object.defineProperty(document, "hidden", { get: () => hidden });
    Object.assign(globalThis, {
      hide: (now: boolean) => {
        hidden = now;
        document.dispatchEvent(new Event("visibilitychange"));
      },
    });
  });
  const told = () => page.evaluate(() => (globalThis as unknown as { told: { title: string; options: { body: string } }[] }).told.map((t) => `${t.title}: ${t.options.body}`));
  const hide = (now: boolean) => page.evaluate((h) => (globalThis as unknown as { hide(now: boolean): void }).hide(h), now);
  await page.goto(world.url("#/inbox"));
  await page.getByRole("checkbox", { name: /^Notify me/ }).check();
  const id = await newSession(page, { prompt: "permission" });
  await ask(page).waitFor();
  expect(await told()).toEqual([]); // it is in sight
  await page.waitForFunction(() => document.title.startsWith("(1) permission"));
  await page.locator('link[rel="icon"][href*="waiting"]').waitFor({ state: "attached" });
  await ask(page).getByRole("button", { name: /^Reject/ }).first().click();
  await settled(page);
  await page.waitForFunction(() => document.title.startsWith("permission"));
  await page.evaluate(() => (location.hash = "#/wire"));
  await hide(true);
  const other = await world.open(`#/sessions/${id}`);
  await chat(other, "permission");
  await expect.poll(told).toEqual([expect.stringMatching(/^permission asks: Edit notes/)]);
  await page.evaluate(() => (globalThis as unknown as { told: { onclick(): void }[] }).told[0]!.onclick());
  await page.waitForURL(new RegExp(`#/sessions/${id}$`));
});

test("questions are answered, with options and in own words", async () => {
  const page = await world.open();
  await newSession(page, { prompt: "question 2" });
  const card = ask(page);
  await card.getByText("Which color do you like?").waitFor();
  expect(await card.getByRole("button", { name: "Answer" }).isDisabled()).toBe(true);
  await card.getByRole("radio", { name: /Blue/ }).check();
  await card.getByRole("checkbox", { name: /Apple/ }).check();
  await card.getByRole("textbox", { name: /Which fruits/ }).fill("Quince");
  expect(await inaccessible(page)).toEqual([]);
  await picture(page, "question");
  await card.getByRole("button", { name: "Answer" }).click();
  await log(page).getByText('answers: [["Blue"],["Apple","Quince"]]').waitFor();
  await settled(page);
  await chat(page, "question");
  await ask(page).getByRole("button", { name: "Decline" }).click();
  await log(page).getByText("question rejected").waitFor();
});

test("a form of an agent is filled in, and says what is missing", async () => {
  const page = await world.open();
  await newSession(page, { agent: "story", prompt: "form" });
  const card = ask(page);
  await card.getByRole("button", { name: "Send" }).click();
  await expect.poll(() => card.getByText("This is needed.").count()).toBe(2);
  await card.getByRole("combobox", { name: "Region" }).selectOption("eu");
  await card.getByRole("spinbutton", { name: "Replicas" }).fill("12");
  await card.getByRole("button", { name: "Send" }).click();
  await card.getByText("It must be at most 9.").waitFor();
  await card.getByRole("textbox", { name: "Page" }).fill("example.com");
  await card.getByRole("textbox", { name: "Settings" }).fill("none");
  await card.getByRole("button", { name: "Send" }).click();
  await card.getByText("This is not an address").waitFor();
  await card.getByText("This is not JSON").waitFor();
  expect(await inaccessible(page)).toEqual([]);
  await picture(page, "form");
  await card.getByRole("textbox", { name: "Page" }).fill("https://example.com");
  await card.getByRole("textbox", { name: "Settings" }).fill('{"depth": 2}');
  await card.getByRole("spinbutton", { name: "Replicas" }).fill("3");
  await card.getByRole("button", { name: "Send" }).click();
  await log(page).getByText('"content":{"region":"eu","replicas":3,"notify":false,"page":"https://example.com","settings":{"depth":2}}').waitFor();
});

test("what a person answered stays to be seen, here, in other windows and later", async () => {
  const page = await world.open("", { viewport: phone, hasTouch: true, isMobile: true });
  const id = await newSession(page, { agent: "story", prompt: "guarded" });
  const other = await world.open(`#/sessions/${id}`);
  const allow = ask(page).getByRole("button", { name: /^Allow this one time/ });
  await allow.waitFor();
  expect(await allow.evaluate((e) => e.scrollWidth <= e.clientWidth && e.getBoundingClientRect().right <= innerWidth)).toBe(true); // all of it is to be read
  await ask(other).waitFor();
  await ask(page).getByRole("button", { name: "Keep them" }).click();
  const tool = (p: Page) => log(p).getByRole("group", { name: /^Tool: Remove the tests/ });
  for (const one of [page, other]) {
    await tool(one).getByText("Keep them").waitFor();
    await tool(one).getByText("Rejected").waitFor();
    expect(await tool(one).evaluate((e) => e.classList.contains("failed"))).toBe(false);
  }
  await page.reload();
  await tool(page).getByText("Keep them").waitFor();
  await newSession(other, { prompt: "question" });
  await ask(other).getByRole("radio", { name: /Red/ }).check();
  await ask(other).getByRole("button", { name: "Answer" }).click();
  await log(other).getByText("Which color do you like? Red").waitFor();
});

test("what is sent is shown, wherever one was reading", async () => {
  const page = await world.open();
  await newSession(page, { prompt: "stream 400 60" });
  // Writing goes on where a session was made.
  await page.getByRole("textbox", { name: "Prompt", exact: true }).and(page.locator(":focus")).waitFor();
  await log(page).getByText("399 x").waitFor();
  await settled(page);
  await log(page).hover();
  await page.mouse.wheel(0, -5000);
  await page.getByRole("button", { name: "To the end" }).waitFor();
  await chat(page, "echo down here");
  await log(page).locator(".user").getByText("echo down here").waitFor();
  await page.getByRole("button", { name: "To the end" }).waitFor({ state: "detached" });
  await page.keyboard.press("Escape");
  await page.keyboard.press("n");
  await expect.poll(() => page.getByLabel("First prompt").evaluate((e) => e === document.activeElement)).toBe(true);
});

test("who looks elsewhere while the agent writes is left there, in whichever way they went", async () => {
  const page = await world.open();
  await newSession(page, { prompt: "stream 400 60" });
  await log(page).getByText("399 x").waitFor();
  await settled(page);
  await chat(page, "slow");
  const ticks = () => log(page).evaluate((e) => e.scrollHeight);
  const away = page.getByRole("button", { name: "To the end" });
  const ways: Record<string, () => Promise<unknown>> = {
    "the wheel": () => log(page).hover().then(() => page.mouse.wheel(0, -2500)),
    "a key": () => log(page).press("PageUp"),
    // These go no further than the end is wide, as the first steps of the others do.
    "a short turn of the wheel": () => log(page).hover().then(() => page.mouse.wheel(0, -30)),
    "a key for a line": () => log(page).press("ArrowUp"),
    // Screen readers, searching in the page, and what tests a page move it without a key or a pointer.
    "another program": () => log(page).evaluate((e) => (e.scrollTop -= 2000)),
  };
  for (const [name, go] of Object.entries(ways)) {
    await log(page).getByText(/tick/).last().waitFor();
    await go();
    await away.waitFor();
    const place = await placeAtRest(page);
    const before = await ticks();
    await expect.poll(ticks, { message: name }).toBeGreaterThan(before);
    expect(await placeAtRest(page, place.row), name).toEqual(place);
    await away.click();
    await away.waitFor({ state: "detached" });
  }
  await page.keyboard.press("Escape");
  await settled(page);
});

test("a turn is stopped, and what waited is held back", async () => {
  const page = await world.open();
  await newSession(page, { prompt: "slow" });
  await log(page).getByText("tick 5").waitFor();
  await chat(page, "echo later");
  await page.getByRole("region", { name: "Prompts that wait" }).getByText("echo later").waitFor();
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await log(page).getByText("Stopped").waitFor();
  await settled(page);
  expect(await log(page).getByText("later", { exact: true }).count()).toBe(0);
  // Nobody would send it: the browser asks first.
  const asked = page.waitForEvent("dialog");
  await page.close({ runBeforeUnload: true });
  const dialog = await asked;
  expect(dialog.type()).toBe("beforeunload");
  await dialog.dismiss();
  await page.evaluate(() => 0); // it stands still until the dialog is gone
  // Who reloads it all the same has it there, held back.
  const leave = (dialog: Dialog) => void dialog.accept();
  page.on("dialog", leave);
  await page.reload();
  page.off("dialog", leave);
  await page.getByRole("region", { name: "Prompts that wait" }).getByText("echo later").waitFor();
  await settled(page);
  expect(await log(page).getByText("later", { exact: true }).count()).toBe(0);
  await page.getByRole("button", { name: "Send it now" }).click();
  await log(page).getByText("later", { exact: true }).waitFor();
  await settled(page);
  await page.reload(); // it is sent: nothing is asked, and nothing waits
  await log(page).getByText("later", { exact: true }).waitFor();
  expect(await page.getByRole("region", { name: "Prompts that wait" }).count()).toBe(0);
});

test("a page that is reloaded in the middle of a turn goes on with it", async () => {
  const page = await world.open();
  const id = await newSession(page, { prompt: "slow" });
  await log(page).getByText("tick 10 ").waitFor();
  await page.reload();
  await log(page).getByText("tick 10 ").waitFor();
  await log(page).locator(".user").getByText("slow").waitFor();
  const number = async () => Number(/tick (\d+) $/.exec(`${(await log(page).locator(".agent").last().innerText()).trimEnd()} `)?.[1]);
  const then = await number();
  await expect.poll(number).toBeGreaterThan(then + 5);
  const all = (await log(page).locator(".agent").last().innerText()).match(/\d+/g)!.map(Number);
  expect(all).toEqual(all.map((_, i) => all[0]! + i)); // none missing, none twice
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await log(page).getByText("Stopped").waitFor();
  await expect.poll(async () => (await fetch(`${world.gateway.url}/v2/sessions/${id}`)).json()).toMatchObject({ state: "idle" });
});

test("two windows show the same session, whoever writes", async () => {
  const one = await world.open();
  const id = await newSession(one, { prompt: "hello" });
  await log(one).getByText("I am the mock agent").waitFor();
  const two = await world.open(`#/sessions/${id}`);
  await log(two).getByText("I am the mock agent").waitFor();
  await chat(two, "echo from the second window");
  await settled(two);
  await chat(one, "echo from the first window");
  await settled(one);
  for (const page of [one, two]) {
    await log(page).locator(".agent").getByText("from the second window", { exact: true }).waitFor();
    await log(page).locator(".agent").getByText("from the first window", { exact: true }).waitFor();
  }
  const texts = async (page: Page) => (await log(page).locator(".bubble, .agent").allInnerTexts()).map((t) => t.trim());
  await expect.poll(() => texts(two)).toEqual(await texts(one));
});

test("a broken network is said and mended, without losing the place", async () => {
  const proxy = await Proxy.to(world.gateway.port);
  const page = await world.open();
  const id = await newSession(page, { prompt: "stream 400 60" });
  await log(page).getByText("399 x").waitFor(); // what waits in the page is gone with it
  await page.goto(`${proxy.url}/ui/#/sessions/${id}`);
  await log(page).getByText("399 x").waitFor();
  await log(page).hover();
  await page.mouse.wheel(0, -2500);
  await page.getByRole("button", { name: "To the end" }).waitFor();
  const place = await placeAtRest(page);
  proxy.refusing = true;
  proxy.cut();
  await page.getByText("The connection is broken").waitFor();
  // Meanwhile another client writes.
  const other = await world.open(`#/sessions/${id}`);
  await log(other).getByText("399 x").waitFor();
  await chat(other, "echo while you were away");
  await log(other).locator(".agent").getByText("while you were away", { exact: true }).waitFor();
  proxy.refusing = false;
  await page.getByText("The connection is broken").waitFor({ state: "detached" });
  expect(await placeAtRest(page, place.row)).toEqual(place);
  await page.getByRole("button", { name: "To the end" }).click();
  await log(page).locator(".agent").getByText("while you were away", { exact: true }).waitFor();
  await chat(page, "echo and back");
  await log(page).locator(".agent").getByText("and back", { exact: true }).waitFor();
  await proxy.stop();
});

test("a page that slept while its gateway was away goes on when both are back, with what was being written", async () => {
  const proxy = await Proxy.to(world.gateway.port);
  const page = await world.open("about:blank");
  await page.clock.install();
  await page.goto(`${proxy.url}/ui/`);
  await newSession(page, { agent: "story", prompt: "form" });
  await ask(page).getByLabel("Replicas").fill("7");
  proxy.refusing = true;
  proxy.cut();
  const bar = page.locator(".connection-bar");
  await bar.getByText("Trying again").waitFor();
  const refused = page.waitForEvent("console", (message) => message.text().includes("WebSocket connection"));
  await page.clock.fastForward("08:00:00"); // timers that are due fire once, as when a lid is opened
  await refused;
  await page.clock.fastForward("00:10:00");
  await bar.getByText("Trying again").waitFor();
  expect(await bar.getByRole("button", { name: "Connect again" }).count()).toBe(0);
  await bar.getByRole("button", { name: "Details" }).waitFor();
  proxy.refusing = false;
  await page.clock.fastForward("00:10:00");
  await bar.waitFor({ state: "detached" });
  expect(await ask(page).getByLabel("Replicas").inputValue()).toBe("7");
  await ask(page).getByLabel("Region").selectOption("eu");
  await ask(page).getByRole("button", { name: "Send" }).click();
  await log(page).getByText('"replicas":7').waitFor();
  await proxy.stop();
});

test("a gateway that is killed and comes back is followed again", async () => {
  const own = await World.start(["--no-token"]);
  try {
    const page = await own.open();
    await newSession(page, { prompt: "hello" });
    await log(page).getByText("I am the mock agent").waitFor();
    await settled(page);
    await own.gateway.kill("SIGKILL");
    await page.getByText("The connection is broken").waitFor();
    expect(await page.locator(".connection-bar").textContent()).not.toContain("nothing is lost"); // a turn may be
    // The word in the footer is whole, in one line.
    const phase = page.locator(".nav-phase").getByText("Reconnecting", { exact: true });
    expect(await phase.evaluate((e) => [e.getClientRects().length, e.clientHeight < 25, e.scrollWidth <= e.clientWidth])).toEqual([1, true, true]);
    await page.locator("#nav").screenshot({ path: "test/screenshots/nav-reconnecting.png" });
    await own.gateway.restart();
    await page.getByText("The connection is broken").waitFor({ state: "detached" });
    await chat(page, "echo again");
    await log(page).locator(".agent").getByText("again", { exact: true }).waitFor();
  } finally {
    await own.stop();
  }
});

test("commands of the agent are completed, pictures and files go along, options are set", async () => {
  const page = await world.open();
  await newSession(page, { agent: "story", prompt: "story" });
  await log(page).getByText("The review found nothing.").waitFor();
  await settled(page);
  const prompt = page.getByRole("textbox", { name: "Prompt", exact: true });
  await prompt.pressSequentially("/re");
  await page.getByRole("option", { name: /\/review/ }).waitFor();
  await page.keyboard.press("Tab");
  expect(await prompt.inputValue()).toBe("/review ");
  await prompt.fill("look");
  await page.locator("input[type=file]").setInputFiles([
    { name: "notes.txt", mimeType: "text/plain", buffer: Buffer.from("a note") },
    { name: "dot.png", mimeType: "image/png", buffer: Buffer.from(dot, "base64") },
    { name: "data.bin", mimeType: "application/octet-stream", buffer: Buffer.from([0, 255, 254]) },
  ]);
  await page.getByText("data.bin: it is neither a picture nor a text").waitFor();
  await page.getByRole("button", { name: "Send" }).click();
  await log(page).getByText("resource, image, text: look").waitFor();

  const id = await newSession(page, {});
  await page.getByRole("combobox", { name: "Model", exact: true }).selectOption("mock-large");
  await page.getByRole("combobox", { name: "Mode", exact: true }).selectOption("plan");
  await expect.poll(async () => ((await (await fetch(`${world.gateway.url}/v2/sessions/${id}`)).json()) as { model: string }).model).toBe("mock-large");
});

test("files are dropped and pasted into a conversation, and beside it do no harm", async () => {
  const page = await world.open("", { permissions: ["clipboard-read", "clipboard-write"] });
  await newSession(page, { agent: "story", prompt: "story" });
  await settled(page);
  const folder = join(world.gateway.dir, "dropped");
  mkdirSync(join(folder, "inner"), { recursive: true });
  const files = ["one.txt", "two.txt", "three.txt"].map((name) => join(folder, name));
  for (const file of files) writeFileSync(file, `this is ${file}`);
  const attached = page.getByRole("list", { name: "Attachments" }).getByRole("listitem");
  // One batch behind the other: the second is not read on what was there before the first. All of the conversation
  // takes files; its head does not move while the rest of it is still being drawn.
  const head = page.locator(".conversation-head");
  await drop(page, head, files.slice(0, 2));
  await drop(page, head, files.slice(2));
  await expect.poll(() => attached.count()).toBe(3);
  await page.evaluate(async (png) => {
    const bytes = Uint8Array.from(atob(png), (c) => c.charCodeAt(0));
    await navigator.clipboard.write([new ClipboardItem({ "image/png": new Blob([bytes], { type: "image/png" }) })]);
  }, dot);
  const prompt = page.getByRole("textbox", { name: "Prompt", exact: true });
  await prompt.focus();
  await page.keyboard.press("Control+v");
  await expect.poll(() => attached.count()).toBe(4);
  await drop(page, head, [join(folder, "inner")]);
  await page.getByText("inner: it cannot be read").waitFor();
  // A text that is pasted or dropped is text.
  await page.evaluate(() => navigator.clipboard.writeText("look"));
  await page.keyboard.press("Control+v");
  expect(await prompt.inputValue()).toBe("look");
  // Beside the conversation nothing takes files, and the page stays.
  await drop(page, page.getByRole("complementary", { name: "Sessions" }), files);
  expect(await attached.count()).toBe(4);
  await page.getByRole("button", { name: "Send" }).click();
  await log(page).getByText("resource, resource, resource, image, text: look").waitFor();
  // What is said of a file is about this session: elsewhere it is gone.
  await drop(page, head, [join(folder, "inner")]);
  await page.getByText("inner: it cannot be read").first().waitFor();
  await page.evaluate(() => (location.hash = "#/sessions/new"));
  await page.getByLabel("First prompt").and(page.locator(":focus")).waitFor(); // then the conversation is gone, too
  expect(await page.getByText("inner: it cannot be read").count()).toBe(0);
});

test("on a phone a session is made, read and answered", async () => {
  const page = await world.open("", { viewport: phone, hasTouch: true, isMobile: true });
  await newSession(page, { prompt: "question" });
  await ask(page).waitFor();
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(phone.width);
  await bothThemes(page, "phone");
  await ask(page).getByRole("radio", { name: /Red/ }).check();
  await ask(page).getByRole("button", { name: "Answer" }).click();
  await log(page).getByText('answers: [["Red"]]').waitFor();
  await page.getByRole("link", { name: "All sessions" }).click();
  await page.getByRole("complementary", { name: "Sessions" }).getByRole("link", { name: /tmp/ }).first().waitFor();
  expect(await inaccessible(page)).toEqual([]);
});
