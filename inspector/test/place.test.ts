// A person looks at something: what comes meanwhile, or takes its time, does not take it out of sight.
import { SandboxAgentClient } from "sandbox-agent";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { chat, connected, newSession, settled, storyAgent, World, type Page } from "./world.js";

let world: World;
beforeAll(async () => {
  world = await World.start(["--no-token", ...storyAgent]);
});
afterEach(async ({ task }) => world?.closeWindows(task));
afterAll(async () => world?.stop());

const log = (page: Page) => page.getByRole("log");
const elsewhere = async (page: Page) => {
  await page.evaluate(() => void (location.hash = "#/wire"));
  await page.getByRole("heading", { name: "Wire" }).waitFor();
};
/** The first element that is wholly below the top of a list, and how far. */
const top = (page: Page, list: string, item: string) => page.locator(list).evaluate((e, selector) => {
  const from = e.getBoundingClientRect().top;
  const found = [...e.querySelectorAll<HTMLElement>(selector)].map((one) => ({ at: Math.round(one.getBoundingClientRect().top - from), text: one.innerText.slice(0, 60) })).filter((one) => one.at >= 0);
  return found.sort((a, b) => a.at - b.at)[0];
}, item);

test("what takes its time and is done when one looks elsewhere says so, with a link", async () => {
  const page = await world.open("about:blank");
  let go = () => {};
  let held = Promise.resolve();
  const hold = () => (held = new Promise((resolve) => (go = resolve)));
  await page.routeWebSocket(/\/v2\/rpc/, (socket) => {
    const gateway = socket.connectToServer();
    socket.onMessage((message) => void (/"session\/(fork|new)"/.test(String(message)) ? held.then(() => gateway.send(message)) : gateway.send(message)));
  });
  await page.route(/\/v2\/processes$/, (route) => void (route.request().method() === "POST" ? held.then(() => route.continue()) : route.continue()));
  await page.goto(world.url());
  const id = await newSession(page, { prompt: "echo the first" });
  await settled(page);
  const menu = async (of: string, item: RegExp) => {
    await page.getByRole("button", { name: of }).first().click();
    await page.getByRole("menuitem", { name: item }).click();
  };
  const begin: Record<string, () => Promise<unknown>> = {
    "The copy is made": () => menu("What can be done with this session", /^Fork/),
    "Sent in a copy": () => menu("Do something with this prompt", /in a copy/),
    "The new session is ready": () => menu("Do something with this prompt", /^New session/),
    "The terminal is open": () => page.getByRole("button", { name: "New terminal" }).first().click(),
  };
  for (const [words, start] of Object.entries(begin)) {
    const place = words.includes("terminal") ? "#/terminal" : `#/sessions/${id}`;
    await page.evaluate((to) => void (location.hash = to), place);
    if (place !== "#/terminal") await log(page).getByText("echo the first").first().hover();
    hold();
    await start();
    await elsewhere(page);
    go();
    const toast = page.locator(".toast").filter({ hasText: words });
    await toast.waitFor();
    expect(new URL(page.url()).hash).toBe("#/wire");
    await toast.getByRole("link", { name: "Show it" }).click();
    await page.waitForFunction((from) => location.hash !== "#/wire" && location.hash !== from, place);
    await toast.waitFor({ state: "detached" });
  }
  expect(world.complaints).toEqual([]);
});

test("sessions that come, and those that go to the top, leave the list where it was", async () => {
  await using client = new SandboxAgentClient({ baseUrl: world.gateway.url, agent: "mock" });
  const made = async (title: string) => (await client.newSession({ cwd: "/tmp", title })).id;
  for (let i = 0; i < 40; i++) await made(`Session ${i} of many`);
  const page = await world.open("#/sessions");
  await connected(page);
  const list = page.locator(".session-rows");
  await list.getByText("Session 39 of many").waitFor();
  await list.evaluate((e) => (e.scrollTop = 700));
  await list.getByText("Session 26 of many").waitFor();
  const before = await top(page, ".session-rows", "li");
  const height = await list.evaluate((e) => e.scrollHeight);
  for (let i = 0; i < 3; i++) await made(`A newer one ${i}`);
  await expect.poll(() => list.evaluate((e) => e.scrollHeight)).toBe(height + 3 * 62);
  await expect.poll(() => top(page, ".session-rows", "li")).toEqual(before);
  // Another search begins at its beginning.
  await page.getByRole("searchbox", { name: "Search the sessions" }).fill("of many");
  await list.getByText("Session 39 of many").waitFor();
  expect(await list.evaluate((e) => e.scrollTop)).toBe(0);
});

test("in a long conversation what was before comes above what one reads, is found, and both ends have a key", async () => {
  const page = await world.open();
  const id = await newSession(page, { agent: "story", prompt: "many 9000" });
  await log(page).getByText("The end of many.").waitFor();
  await settled(page);
  await chat(page, "plain words");
  await settled(page);
  await page.reload();
  await log(page).getByText("plain words").first().waitFor();
  const rows = page.locator(".rows");
  const rest = () => rows.evaluate((e) => Math.round(e.scrollHeight - e.scrollTop - e.clientHeight));
  await rows.focus();
  await page.keyboard.press("Home");
  const more = page.getByRole("button", { name: /what was before/ });
  await more.waitFor();
  await expect.poll(() => rows.evaluate((e) => e.scrollTop)).toBe(0);
  await page.keyboard.press("End");
  await expect.poll(rest).toBeLessThan(2);
  await page.keyboard.press("Home");
  // A past that cannot be read holds up nothing that is said now.
  await page.route(/\/events\?/, (route) => route.abort());
  await more.click();
  await page.getByText("Earlier events could not be read").waitFor();
  await page.unroute(/\/events\?/);
  await chat(page, "is heard");
  await settled(page);
  await rows.focus();
  await page.keyboard.press("Home");
  await more.waitFor();
  await expect.poll(() => rows.evaluate((e) => e.scrollTop)).toBe(0);
  const before = await rows.locator(".row-slot").nth(1).innerText();
  const height = await rows.evaluate((e) => e.scrollHeight);
  await more.click();
  await expect.poll(() => rows.evaluate((e) => e.scrollHeight)).toBeGreaterThan(height + 1000);
  // The first row is longer now; the second one is what it was.
  await expect.poll(() => rows.evaluate((e, text) => [...e.querySelectorAll<HTMLElement>(".row-slot")].some((slot) => slot.innerText === text && slot.getBoundingClientRect().top < e.getBoundingClientRect().bottom), before)).toBe(true);
  // A search looks back as far as one wants.
  await page.reload();
  await log(page).getByText("plain words").first().waitFor();
  await page.keyboard.press("Control+f");
  await page.keyboard.type("many 9000");
  await page.getByRole("search").getByText("Not found").waitFor();
  await page.getByRole("search").getByRole("button", { name: "Look further back" }).click();
  await page.getByRole("search").getByText("1 of 1").waitFor();
  await log(page).locator(".found").getByText("many 9000").waitFor();
  expect(decodeURIComponent(page.url())).toContain(id);
});

test("what one reads stays when a session is followed for long; at its end the page lets go of the oldest events", async () => {
  const page = await world.open();
  const id = await newSession(page, { agent: "story", prompt: "many 21000" });
  await log(page).getByText("The end of many.").waitFor();
  await settled(page);
  const first = () => top(page, ".rows", ".row-slot");
  const before = page.getByRole("button", { name: /what was before/ });
  await log(page).focus();
  await page.keyboard.press("Home");
  await log(page).getByText("many 21000").waitFor();
  await expect.poll(async () => [await first(), await first()].map((one) => one?.at)).toSatisfy(([a, b]: number[]) => a === b); // it has come to rest
  const read = await first();
  await using client = new SandboxAgentClient({ baseUrl: world.gateway.url, agent: "story" });
  const session = await client.resumeSession({ sessionId: id, cwd: "/tmp" });
  await session.prompt("many 5000");
  await session.prompt("echo and then");
  await settled(page);
  await expect.poll(first).toEqual(read);
  // Where one searches nothing goes either, also at the end.
  await page.keyboard.press("Control+f");
  await page.keyboard.type("many 21000");
  await page.getByRole("search").getByText("1 of 1").waitFor();
  await page.getByRole("button", { name: "To the end" }).click();
  await log(page).getByText("echo and then").first().waitFor();
  await session.prompt("echo meanwhile");
  await log(page).getByText("echo meanwhile").first().waitFor();
  await page.getByRole("searchbox", { name: "Find" }).press("Enter");
  await log(page).locator(".found").getByText("many 21000").waitFor();
  await page.keyboard.press("Escape");
  await log(page).focus();
  await page.keyboard.press("End");
  const whole = () => log(page).evaluate((e) => e.scrollHeight);
  const held = await whole();
  await session.prompt("echo at the end");
  await log(page).getByText("echo at the end").first().waitFor();
  await expect.poll(whole).toBeLessThan(held / 2); // it has let go of them
  await page.keyboard.press("Home");
  await before.waitFor();
  expect(await log(page).getByText("many 21000").count()).toBe(0);
});
