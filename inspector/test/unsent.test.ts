// What a person has written and not sent, and what may happen to it.
import { SandboxAgentClient } from "sandbox-agent";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { chat, inaccessible, newSession, picture, settled, storyAgent, World, type Page } from "./world.js";

let world: World;
beforeAll(async () => {
  world = await World.start(["--no-token", ...storyAgent]);
});
afterEach(async ({ task }) => world?.closeWindows(task));
afterAll(async () => world?.stop());

const log = (page: Page) => page.getByRole("log");
const ask = (page: Page) => page.getByRole("region", { name: "The agent asks" });
const prompt = (page: Page) => page.getByRole("textbox", { name: "Prompt", exact: true });
const holds = (page: Page, text: string) => expect.poll(() => prompt(page).inputValue()).toBe(text);
const go = (page: Page, hash: string) => page.evaluate((to) => void (location.hash = to), hash);
const elsewhere = async (page: Page) => {
  await go(page, "#/wire");
  await page.getByRole("heading", { name: "Wire" }).waitFor();
};
/** Another program that uses the gateway. */
const other = () => new SandboxAgentClient({ baseUrl: world.gateway.url, agent: "mock" });

test("a prompt outlives a reload and other sessions", async () => {
  const page = await world.open();
  const id = await newSession(page);
  await prompt(page).fill("half a thought");
  await page.locator("input[type=file]").setInputFiles({ name: "100% sure.txt", mimeType: "text/plain", buffer: Buffer.from("sure") });
  await page.getByRole("list", { name: "Attachments" }).getByText("100% sure.txt").waitFor();
  await page.reload();
  await holds(page, "half a thought");
  await page.getByRole("list", { name: "Attachments" }).getByText("100% sure.txt").waitFor();
  for (let i = 0; i < 7; i++) await newSession(page); // more than are followed at once
  await go(page, `#/sessions/${id}`);
  await holds(page, "half a thought");
  await page.keyboard.press("i");
  await page.keyboard.press("Enter");
  await log(page).getByText("half a thought").first().waitFor();
  await settled(page);
  await page.reload();
  await log(page).getByText("half a thought").first().waitFor();
  await holds(page, "");
});

test("a prompt stays to be seen when its session takes no more", async () => {
  await using client = other();
  for (const [way, words] of [["deleteSession", "It was deleted."], ["terminateSession", "This session has ended"]] as const) {
    const page = await world.open();
    const id = await newSession(page);
    await prompt(page).fill(`written before: ${way}`);
    await client[way](id);
    await page.getByText(words).first().waitFor();
    await prompt(page).waitFor({ state: "detached" });
    const kept = page.locator(".notice").filter({ hasText: "What you have written is not sent" });
    await kept.getByText(`written before: ${way}`).waitFor();
    expect(await inaccessible(page)).toEqual([]);
    await picture(page, `not-sent-${way}`);
    await page.reload();
    await kept.getByText(`written before: ${way}`).waitFor();
    await kept.getByRole("button", { name: "Discard it" }).click();
    await kept.waitFor({ state: "detached" });
  }
});

test("prompts that wait become what is being written when one lets go of the session, or changes them", async () => {
  const page = await world.open();
  const id = await newSession(page, { prompt: "slow" });
  await log(page).getByText("tick 3 ").waitFor();
  await chat(page, "the first that waits");
  await chat(page, "the second that waits");
  await prompt(page).fill("and a thought");
  const waiting = page.getByRole("region", { name: "Prompts that wait" });
  await waiting.getByRole("listitem").filter({ hasText: "second" }).getByRole("button", { name: "Edit" }).click();
  await holds(page, "the second that waits\n\nand a thought");
  await page.getByRole("button", { name: "What can be done with this session" }).click();
  await page.getByRole("menuitem", { name: "Detach" }).click();
  await go(page, `#/sessions/${id}`);
  await holds(page, "the first that waits\n\nthe second that waits\n\nand a thought");
  await page.getByRole("button", { name: "Stop", exact: true }).click();
});

test("a form of an agent that is half filled in is there again, and the browser asks before it forgets it", async () => {
  const page = await world.open();
  const id = await newSession(page, { agent: "story", prompt: "form" });
  await ask(page).getByLabel("Replicas").fill("7");
  await elsewhere(page);
  await go(page, "#/inbox");
  await expect.poll(() => ask(page).getByLabel("Replicas").inputValue()).toBe("7");
  await go(page, `#/sessions/${id}`);
  await expect.poll(() => ask(page).getByLabel("Replicas").inputValue()).toBe("7");
  const asked = page.waitForEvent("dialog");
  await page.close({ runBeforeUnload: true });
  const dialog = await asked;
  expect(dialog.type()).toBe("beforeunload");
  await dialog.dismiss();
  await ask(page).getByLabel("Region").selectOption("eu");
  await ask(page).getByRole("button", { name: "Send" }).click();
  await log(page).getByText('"replicas":7').waitFor();
  await page.reload(); // it is sent: nothing is asked
  await log(page).getByText('"replicas":7').waitFor();
});

test("an answer in own words goes into the prompt when somebody else has answered", async () => {
  const [page, another] = [await world.open(), await world.open("#/inbox")];
  await newSession(page, { prompt: "question" });
  await ask(page).getByRole("textbox", { name: /Which color/ }).fill("none of these, since the wall is brick");
  await elsewhere(page);
  await ask(another).getByRole("radio", { name: /Blue/ }).check();
  await ask(another).getByRole("button", { name: "Answer" }).click();
  await page.getByText("Your words are in the prompt of its session.").waitFor();
  await page.goBack();
  await holds(page, "none of these, since the wall is brick");
});

test("what was typed into a form goes into the prompt when somebody else has answered, without secrets", async () => {
  const [page, another] = [await world.open(), await world.open("#/inbox")];
  await newSession(page, { agent: "story", prompt: "form" });
  await ask(page).getByLabel("Replicas").fill("7");
  await ask(page).getByLabel("Page").fill("https://example.com/a-long-address");
  await ask(another).getByRole("button", { name: "Decline" }).click();
  await page.getByText("Your words are in the prompt of its session.").waitFor();
  await holds(page, "Replicas: 7\nPage: https://example.com/a-long-address");
});

/** Opens a page of which it can be said when what it sends goes on to the gateway. */
async function slowPage() {
  const page = await world.open("about:blank");
  const sent: string[] = []; // also what waits
  const received: string[] = [];
  let go = () => {};
  let held = Promise.resolve();
  const hold = () => void (held = new Promise<void>((resolve) => (go = resolve)));
  await page.routeWebSocket(/\/v2\/rpc/, (socket) => {
    const gateway = socket.connectToServer();
    let order = Promise.resolve();
    socket.onMessage((message) => {
      sent.push(String(message));
      order = order.then(() => held).then(() => gateway.send(message));
    });
    gateway.onMessage((message) => {
      received.push(String(message));
      socket.send(message);
    });
  });
  await page.goto(world.url());
  return { page, sent, received, hold, go: () => go() };
}

test("of two people who answer at once both see the answer that counts", async () => {
  for (const [asks, later, first, words] of [["guarded", "Keep them", /^Allow this one/, "Allow this one time"], ["form", "Decline", "Send", "Sent: region: eu"]] as const) {
    const { page, hold, go } = await slowPage();
    const id = await newSession(page, { agent: "story", prompt: asks });
    const another = await world.open(`#/sessions/${id}`);
    await ask(page).waitFor();
    if (asks === "form") {
      await ask(another).getByLabel("Region").selectOption("eu");
      await ask(another).getByLabel("Replicas").fill("3");
    }
    hold();
    await ask(page).getByRole("button", { name: later }).click();
    await ask(another).getByRole("button", { name: first }).click();
    await page.getByText("Somebody else had answered already, and that counts").waitFor();
    for (const one of [page, another]) await log(one).getByText(words).first().waitFor();
    await log(page).getByText(later === "Decline" ? "The form was declined" : later).waitFor({ state: "detached" });
    go();
    await settled(page);
    await page.close();
    await another.close();
  }
});

test("a turn that ends while its session is read anew is over, also where that fails at first", async () => {
  const { page, sent, received, hold, go } = await slowPage();
  const id = await newSession(page, { agent: "story", prompt: "guarded 2" });
  const another = await world.open(`#/sessions/${id}`);
  await ask(page).waitFor();
  hold();
  let failures = 2; // one may be that of who looks for the answer
  await page.route(/\/events/, (route) => (failures-- > 0 ? route.fulfill({ status: 502 }) : route.continue()));
  await ask(page).getByRole("button", { name: "Keep them" }).click();
  const answer = () => ask(another).getByRole("button", { name: /^Allow this one/ }).click();
  await answer();
  await expect.poll(() => sent.some((message) => message.includes("session/resume"))).toBe(true); // it was read, and is taken up again
  await answer();
  await expect.poll(() => received.some((message) => message.includes('"state":"idle"'))).toBe(true);
  go();
  await log(page).getByText("guarded: y").waitFor();
  await settled(page);
});

test("a turn that ends while the past is read is over, and what waits can be sent", async () => {
  // The past is another program's, and so is the turn: thousands of frames on the page's way would be the test's own work.
  await using client = other();
  const session = await client.newSession({ agent: "story", cwd: "/tmp" });
  await session.prompt("many 3500");
  const turn = session.prompt("wait");
  const id = session.id;
  const { page, received } = await slowPage();
  await go(page, `#/sessions/${id}`);
  await log(page).getByText("waiting").waitFor();
  await chat(page, "what waited");
  await page.getByRole("region", { name: "Prompts that wait" }).getByText("what waited").waitFor();
  let read!: () => void;
  const held = new Promise<void>((resolve) => (read = resolve));
  const reading = page.waitForRequest(/\/events/);
  await page.route(/\/events/, (route) => held.then(() => route.continue()));
  await page.keyboard.press("Control+f");
  await page.keyboard.type("long ago");
  await page.getByRole("button", { name: "Look further back" }).click();
  await reading;
  received.length = 0;
  const another = await world.open(`#/sessions/${id}`);
  await another.getByRole("button", { name: "Stop", exact: true }).click();
  await expect.poll(() => received.some((message) => message.includes('"state":"idle"'))).toBe(true);
  await turn;
  read();
  await page.getByRole("button", { name: "Send it now" }).click();
  await log(page).getByText("text: what waited").waitFor();
  await settled(page);
});

test("what the page puts into the prompt is undone like what was typed, and so is sending", async () => {
  const page = await world.open();
  await newSession(page);
  await prompt(page).focus();
  const press = async (keys: string, text: string) => {
    await page.keyboard.press(keys);
    await holds(page, text);
  };
  await page.keyboard.type("echo some words");
  await press("Control+z", "");
  await press("Control+y", "echo some words");
  await page.keyboard.press("Enter");
  await log(page).locator(".agent").getByText("some words").waitFor();
  await settled(page);
  await holds(page, "");
  await press("ArrowUp", "echo some words");
  await press("Control+z", "");
  await press("Control+z", "echo some words");
  await press("Control+y", "");
  await page.keyboard.type("sent by mistake");
  await page.getByRole("button", { name: "Send", exact: true }).click();
  await holds(page, "");
  await press("Control+z", "sent by mistake");
});

test("files that are too many are told of once", async () => {
  const page = await world.open();
  await newSession(page);
  await page.locator("input[type=file]").setInputFiles(Array.from({ length: 50 }, (_, i) => ({ name: `file-${i}.txt`, mimeType: "text/plain", buffer: Buffer.from("some") })));
  await page.locator(".toast").getByText("file-10.txt and 39 other files: a prompt carries at most 10 files").waitFor();
  expect(await page.locator(".toast").count()).toBe(1);
});

test("what is written into the form for a new session is there when one comes back, and who has left it stays where they are", async () => {
  const page = await world.open("#/sessions/new");
  const first = page.getByLabel("First prompt");
  await first.fill("echo from the form");
  await page.locator(".new-session").getByLabel("Agent", { exact: true }).selectOption("mock");
  await page.getByLabel("Folder", { exact: true }).fill("/tmp");
  await elsewhere(page);
  await page.goBack();
  await expect.poll(() => first.inputValue()).toBe("echo from the form");
  await page.waitForFunction(() => !document.querySelector(".new-session [aria-busy=true]"));
  // The agent takes its time; meanwhile the person looks at something else.
  let start!: () => void;
  const held = new Promise<void>((resolve) => (start = resolve));
  await page.routeWebSocket(/\/v2\/rpc/, (socket) => {
    const gateway = socket.connectToServer();
    socket.onMessage((message) => void (String(message).includes('"session/new"') ? held.then(() => gateway.send(message)) : gateway.send(message)));
  });
  page.once("dialog", (dialog) => void dialog.accept());
  await page.reload();
  await page.locator(".new-session").getByLabel("Agent", { exact: true }).selectOption("mock");
  await page.getByLabel("Folder", { exact: true }).fill("/tmp");
  await first.fill("echo from the form");
  await page.waitForFunction(() => !document.querySelector(".new-session [aria-busy=true]"));
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await elsewhere(page);
  start();
  await page.getByText("The session has started: echo from the form").waitFor();
  expect(new URL(page.url()).hash).toBe("#/wire");
  await page.goBack();
  await expect.poll(() => first.inputValue()).toBe("");
});

test("a title that could not be given stays in its field", async () => {
  const page = await world.open();
  await newSession(page);
  await page.route(/\/v2\/sessions\//, (route) => route.abort());
  await page.getByRole("button", { name: "What can be done with this session" }).click();
  await page.getByRole("menuitem", { name: /^Rename/ }).click();
  const dialog = page.getByRole("dialog", { name: "Rename the session" });
  await dialog.getByLabel("Title").fill("A name that took long to find");
  await dialog.getByRole("button", { name: "Rename" }).click();
  await dialog.getByText(/Failed to fetch/).waitFor();
  await page.unrouteAll();
  await dialog.getByRole("button", { name: "Rename" }).click();
  await dialog.waitFor({ state: "detached" });
  await page.getByRole("heading", { level: 1, name: "A name that took long to find" }).waitFor();
});

test("files of other clients whose names are no URIs go along with a prompt that is sent again", async () => {
  const page = await world.open();
  const id = await newSession(page);
  await using client = other();
  const session = await client.loadSession({ sessionId: id, cwd: "/tmp" });
  await session.prompt([{ type: "text", text: "echo look" }, { type: "resource", resource: { uri: "file:///100%.txt", mimeType: "text/plain", text: "sure" } }]);
  await log(page).locator(".user").getByText("echo look").hover();
  await page.getByRole("button", { name: "Write it again" }).first().click();
  await page.getByRole("list", { name: "Attachments" }).getByText("100%.txt").waitFor();
});
