// The page of a hub: its nodes, the sessions of all of them, and what is left of those whose node is away.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from "vitest";
import { Hub } from "./hub.js";
import { bothThemes, chat, connected, inaccessible, phone, picture, settled, World, type Page } from "./world.js";

let hub: Hub;
let world: World;
beforeAll(async () => {
  hub = await Hub.start({ "box-1": ["env=dev"], "box-2": ["env=ci"] });
  world = await World.startAt(hub);
});
afterEach(async ({ task }) => world?.closeWindows(task));
afterAll(async () => {
  await world?.stop();
  await hub?.stop();
});

const log = (page: Page) => page.getByRole("log");
const list = (page: Page) => page.getByRole("complementary", { name: "Sessions" });
const rowOf = (page: Page, id: string) => list(page).locator(`a[href$="${id}"]`);

/** The page with a token, once it is connected. */
async function open(hash: string, token = hub.token, options = {}): Promise<Page> {
  const page = await world.open(`${hash}${hash.includes("?") ? "&" : "?"}token=${token}`, options);
  await connected(page);
  return page;
}

/** Makes a session at a node and waits until it has said something. */
async function sessionAt(page: Page, node: string, prompt: string): Promise<string> {
  await page.evaluate((n) => (location.hash = `#/sessions/new?node=${n}`), node);
  const form = page.locator(".new-session");
  await expect.poll(() => form.getByLabel("Node", { exact: true }).inputValue()).toBe(node);
  await expect.poll(() => form.getByLabel("Agent", { exact: true }).locator("option[value=mock]").count()).toBe(1);
  await form.getByLabel("Agent", { exact: true }).selectOption("mock");
  await form.getByLabel("Folder", { exact: true }).fill("/tmp");
  await form.getByLabel("First prompt").fill(prompt);
  await page.waitForFunction(() => !document.querySelector(".new-session [aria-busy=true]"));
  await form.getByRole("button", { name: "Start", exact: true }).click();
  await page.getByRole("textbox", { name: "Prompt", exact: true }).waitFor();
  return decodeURIComponent(new URL(page.url()).hash.split("/")[2] ?? "");
}

test("a node that is forgotten does not come back with an older list", async () => {
  const other = await Hub.start({ goes: [], stays: [] });
  const own = await World.startAt(other);
  onTestFinished(async () => {
    await own.stop();
    await other.stop();
  });
  const page = await own.open(`#/nodes/goes?token=${other.token}`);
  const nodes = page.getByRole("list", { name: "Nodes" }).getByRole("link");
  await expect.poll(() => nodes.count()).toBe(2);
  await other.nodes.get("goes")!.stop();
  await page.getByRole("button", { name: "Forget" }).click();
  let go = () => {};
  const held = new Promise<void>((resolve) => (go = resolve));
  let older: Promise<unknown> | undefined;
  await page.route(/\/v2\/nodes$/, async (route) => {
    if (older) return route.continue();
    const answer = route.fetch();
    older = answer;
    await Promise.all([answer, held]);
    await route.fulfill({ response: await answer }).catch(() => {}); // the page may have given it up
  });
  const request = await page.waitForRequest(/\/v2\/nodes$/);
  await older;
  const over = new Promise<void>((resolve) => { for (const how of ["requestfinished", "requestfailed"] as const) page.on(how as "requestfinished", (one) => one === request && resolve()); });
  await page.getByRole("dialog").getByRole("button", { name: "Forget" }).click();
  await expect.poll(() => nodes.count()).toBe(1);
  go();
  await over;
  await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
  expect(await nodes.count()).toBe(1);
});

test("without a token the page says where one is from, and with one it shows the nodes", async () => {
  const page = await world.open();
  await page.getByText("The hub wants a token").waitFor();
  await page.getByText(`sandbox-hub token create --endpoint ${hub.url} --kind client --scope drive`).waitFor();
  expect(world.complaints.splice(0)).toEqual([expect.stringContaining("401")]); // of the browser
  await page.getByLabel("Token", { exact: true }).fill(hub.token);
  await page.getByRole("button", { name: "Connect" }).click();
  await page.getByRole("heading", { name: "Nodes" }).waitFor();
  await page.getByText("2 of 2 online").waitFor();
  const nodes = page.getByRole("list", { name: "Nodes" });
  expect(await nodes.getByRole("link").allInnerTexts()).toEqual([expect.stringMatching(/box-1[^]*online[^]*env=dev/), expect.stringMatching(/box-2[^]*online[^]*env=ci/)]);
  await page.getByRole("searchbox", { name: "Search the nodes" }).fill("env=ci");
  await expect.poll(() => nodes.getByRole("link").count()).toBe(1);
  await nodes.getByRole("link", { name: /box-2/ }).click();
  const detail = page.getByRole("region", { name: "box-2" });
  await detail.getByText("Mock", { exact: false }).first().waitFor();
  await detail.getByText(/of \d+ are ready/).waitFor();
  await bothThemes(page, "nodes");
  await page.setViewportSize(phone);
  expect(await page.locator("#main").evaluate((e) => e.scrollWidth)).toBeLessThanOrEqual(390);
  await bothThemes(page, "nodes-phone");
});

test("sessions of all nodes are listed, narrowed, and driven as at a gateway", async () => {
  const page = await open("#/sessions");
  const one = await sessionAt(page, "box-1", "echo said at the first");
  await log(page).locator(".agent").getByText("said at the first").waitFor();
  await settled(page);
  const two = await sessionAt(page, "box-2", "echo said at the second");
  await log(page).locator(".agent").getByText("said at the second").waitFor();
  await page.locator(".conversation-head").getByText("box-2").waitFor();
  await settled(page);
  await chat(page, "echo and once more");
  await log(page).locator(".agent").getByText("and once more").waitFor();
  await rowOf(page, one).getByText("box-1").waitFor();
  await rowOf(page, two).getByText("box-2").waitFor();
  await list(page).getByLabel("Node or label").selectOption("label env=dev");
  await rowOf(page, two).waitFor({ state: "detached" });
  await rowOf(page, one).waitFor();
  await list(page).getByLabel("State").selectOption("gone");
  await list(page).getByText("There is no such session").waitFor();
  await list(page).getByLabel("State").selectOption("");
  await bothThemes(page, "hub-sessions");
  // Another window shows all of it from the beginning, and what is said there comes here.
  const other = await open(`#/sessions/${two}`);
  await log(other).locator(".agent").getByText("said at the second").waitFor();
  await chat(other, "echo from the other window");
  await log(page).locator(".agent").getByText("from the other window").waitFor();
  // It is closed in one window. The list, which is late, has the other one open it no more.
  await settled(page);
  const asked: string[] = [];
  page.on("request", (request) => /\/v2\/sessions\?/.test(request.url()) && asked.push(request.url()));
  await other.getByRole("button", { name: "What can be done with this session" }).click();
  await other.getByRole("menuitem", { name: /^Close/ }).click();
  await page.getByText("This session is closed").waitFor();
  await expect.poll(async () => (await hub.ask<{ state: string }>("GET", `/v2/sessions/${two}`)).state).toBe("closed");
  const later = await sessionAt(other, "box-1", "echo said later"); // of which the list tells behind that
  await rowOf(page, later).getByText("box-1").waitFor();
  expect((await hub.ask<{ state: string }>("GET", `/nodes/box-2/v2/sessions/${two}`)).state).toBe("closed");
  await page.getByText("This session is closed").waitFor();
  expect(asked).toEqual([]); // the hub tells what changes
  expect(world.complaints).toEqual([]);
});

// Which of two is faster is not known: what the node says that it leaves, or the hub that follows it to the other one.
test.each([true, false])("a session that moves says so once, and goes on; heard of the node that it leaves: %s", async (heard) => {
  const page = await world.open("about:blank");
  await page.routeWebSocket(/\/v2\/rpc/, (socket) => {
    const server = socket.connectToServer();
    server.onMessage((message) => {
      if (heard || !String(message).includes('"_sandboxagent/session/ended"')) socket.send(message);
    });
  });
  await page.goto(world.url(`#/sessions?token=${hub.token}`));
  await connected(page);
  const id = await sessionAt(page, "box-1", "echo before it moves");
  await log(page).locator(".agent").getByText("before it moves").waitFor();
  await settled(page);
  await hub.ask("POST", `/v2/sessions/${id}/move`, { node: "box-2" });
  await log(page).getByText("The session was moved: it goes on at the node box-2 of the same hub").waitFor();
  await page.locator(".conversation-head").getByText("box-2").waitFor();
  await chat(page, "echo where it is now");
  await log(page).locator(".agent").getByText("where it is now").waitFor();
  expect(await log(page).getByText(/^The session was/).count()).toBe(1);
  expect(world.complaints).toEqual([]);
});

test("what agents ask at any node comes into the inbox, and is answered there", async () => {
  const page = await open("#/sessions");
  const id = await sessionAt(page, "box-1", "permission");
  await page.locator(".ask").waitFor();
  const other = await open("#/nodes");
  await other.getByRole("link", { name: "1 session waits for an answer" }).click();
  await rowOf(other, id).waitFor();
  await expect.poll(() => list(other).locator(".session-row").count()).toBe(1); // when the list is narrowed
  await other.evaluate(() => (location.hash = "#/inbox"));
  const ask = other.locator(".ask");
  await ask.getByRole("button", { name: /allow/i }).first().click();
  await ask.waitFor({ state: "detached" });
  await settled(page);
  await page.locator(".ask").waitFor({ state: "detached" });
});

test("files, programs, terminals and agents are those of a node that somebody chooses", async () => {
  const page = await open("#/processes");
  await page.getByRole("heading", { name: "Choose a node" }).waitFor();
  expect(await inaccessible(page)).toEqual([]);
  await page.getByRole("main").getByRole("button", { name: "box-2" }).click();
  await page.waitForURL(/node=box-2/);
  await page.getByRole("heading", { name: "Processes" }).waitFor();
  await hub.ask("POST", "/nodes/box-2/v2/processes", { command: "sleep", args: ["77"] });
  await page.getByText("sleep 77").first().waitFor();
  await page.getByRole("combobox", { name: "Node" }).selectOption("box-1");
  await page.getByText("sleep 77").first().waitFor({ state: "detached" });
  await page.evaluate(() => (location.hash = "#/files?path=/tmp&node=box-1"));
  await page.getByRole("navigation", { name: "Path" }).or(page.getByRole("link", { name: "tmp", exact: true })).first().waitFor();
  await page.evaluate(() => (location.hash = "#/agents/mock"));
  await page.waitForURL(/#\/agents\/mock\?node=box-1/);
  await page.getByRole("combobox", { name: "Node" }).waitFor();
  // The page of the node itself leads back to that of all.
  await page.evaluate(() => (location.hash = "#/nodes/box-1"));
  await page.getByRole("link", { name: "Its own page" }).click();
  await page.waitForURL(/\/nodes\/box-1\/ui\//);
  await page.getByRole("link", { name: "All nodes" }).click();
  await page.getByText("2 of 2 online").waitFor();
});

test("files that are uploaded arrive where they were dropped, whatever node is shown meanwhile", async () => {
  const folder = mkdtempSync(join(tmpdir(), "uploads-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const page = await open(`#/files?path=${folder}&node=box-1`);
  const arrived: string[] = [];
  let goOn = () => {};
  const waits = new Promise<void>((resolve) => (goOn = resolve));
  await page.route(/\/v2\/fs\/file\?/, async (route) => {
    if (route.request().method() === "PUT") {
      arrived.push(new URL(route.request().url()).pathname.split("/")[2] ?? "");
      await waits;
    }
    await route.continue();
  });
  await page.getByText("The folder is empty").waitFor();
  await page.getByLabel("Files to upload").setInputFiles(["a.txt", "b.txt"].map((name) => ({ name, mimeType: "text/plain", buffer: Buffer.from(name) })));
  await expect.poll(() => arrived).toEqual(["box-1"]);
  await page.getByRole("combobox", { name: "Node" }).selectOption("box-2");
  await page.waitForURL(/node=box-2/);
  goOn();
  await page.getByText("Uploaded 2 files").waitFor();
  expect(arrived).toEqual(["box-1", "box-1"]);
});

test("a token to read sees sessions and cannot act, and one of a node sees no other", async () => {
  const admin = await open("#/sessions");
  const id = await sessionAt(admin, "box-1", "echo to be read");
  await log(admin).locator(".agent").getByText("to be read").waitFor();
  const hidden = await sessionAt(admin, "box-2", "echo not for everybody");
  await expect.poll(async () => (await hub.ask<{ sessions: { sessionId: string }[] }>("GET", "/v2/sessions?limit=1000")).sessions.map((s) => s.sessionId)).toContain(hidden);
  const token = await hub.newToken({ kind: "client", scope: "read", node: "box-1" });
  const page = await open(`#/sessions/${id}`, token);
  await log(page).locator(".agent").getByText("to be read").waitFor();
  await page.getByText("Your token is for reading").waitFor();
  expect(await page.getByRole("textbox", { name: "Prompt", exact: true }).count()).toBe(0);
  await rowOf(page, id).waitFor();
  expect(await rowOf(page, hidden).count()).toBe(0);
  // What is said goes on to be seen.
  await admin.evaluate((s) => (location.hash = `#/sessions/${s}`), id);
  await chat(admin, "echo live for readers");
  await log(page).locator(".agent").getByText("live for readers").waitFor();
  // What was always allowed is shown, and taken back by others.
  await chat(admin, "permission");
  await admin.locator(".ask").getByRole("button", { name: "Always allow" }).click();
  await log(admin).locator(".agent").getByText("permission: allow_always").waitFor();
  await page.getByRole("button", { name: "About this session" }).click();
  const about = page.getByRole("dialog", { name: "About this session" });
  await about.getByRole("list", { name: "Allowed always" }).getByText("Edit notes.txt").waitFor();
  expect(await about.getByRole("button", { name: /Take back/ }).count()).toBe(0);
  await page.keyboard.press("Escape");
  await page.evaluate(() => (location.hash = "#/nodes"));
  await page.getByText("1 of 1 online").waitFor();
  // What changes a machine is disabled and says why.
  for (const [place, ...names] of [["terminal", "New terminal"], ["processes", "Start a program"]] as const) {
    await page.evaluate((p) => (location.hash = `#/${p}?node=box-1`), place);
    for (const name of names) {
      const button = page.getByRole("button", { name }).first();
      await button.waitFor();
      expect([await button.isDisabled(), await button.getAttribute("title")]).toEqual([true, expect.stringContaining("for reading")]);
    }
  }
});

test("a form for a node that goes away stays one for this node", async () => {
  const page = await open("#/sessions/new?node=box-2");
  const form = page.locator(".new-session");
  const start = form.getByRole("button", { name: "Start", exact: true });
  await expect.poll(() => form.getByLabel("Node", { exact: true }).inputValue()).toBe("box-2");
  await expect.poll(() => start.isEnabled()).toBe(true);
  await form.getByLabel("First prompt").fill("for this machine alone");
  await hub.nodes.get("box-2")!.kill("SIGKILL");
  await form.getByText("It is away. Wait for it, or choose another one.").waitFor();
  expect(await form.getByLabel("Node", { exact: true }).inputValue()).toBe("box-2");
  expect(await start.isDisabled()).toBe(true);
  expect(await inaccessible(page)).toEqual([]);
  await hub.nodes.get("box-2")!.restart();
  await expect.poll(() => start.isEnabled()).toBe(true);
  expect(await form.getByLabel("First prompt").inputValue()).toBe("for this machine alone");
  world.complaints.splice(0); // of the browser, about a node that is not there
});

test.each(["is revoked", "expires"])("a token that %s while the page is open is asked for anew", async (how) => {
  const expires = how === "expires" ? { expires: new Date(Date.now() + 15_000).toISOString() } : {};
  const { id, token } = await hub.ask<{ id: string; token: string }>("POST", "/v2/tokens", { kind: "client", scope: "drive", ...expires });
  const page = await open("#/nodes/box-1", token);
  await page.getByText("2 of 2 online").waitFor();
  if (how === "is revoked") await hub.ask("DELETE", `/v2/tokens/${id}`);
  await page.getByRole("alert").getByText("The token is not taken any more").waitFor();
  await page.getByRole("button", { name: "Give another token" }).click();
  await page.getByLabel("Token", { exact: true }).fill(hub.token);
  await page.getByRole("button", { name: "Connect", exact: true }).click();
  await connected(page);
  await page.waitForURL(/#\/nodes\/box-1$/); // where it was
  await page.getByText("2 of 2 online").waitFor();
  world.complaints.splice(0); // of the browser, about 401
});

// Buttons that look again at what a reader may not see, say why, and what would hide other buttons.
const looks = /^(Try again|Load again|Look again|Connect again|Disconnect|Hide the list|Send a request)$/;

test("nothing that a token for reading may not do is offered", async () => {
  const admin = await open("#/sessions");
  const asks = await sessionAt(admin, "box-1", "permission");
  await admin.locator(".ask").waitFor();
  const works = await sessionAt(admin, "box-1", "slow");
  onTestFinished(async () => {
    for (const session of [works, asks]) await hub.ask("DELETE", `/nodes/box-1/v2/sessions/${session}`); // what asks here would be in the inbox of the next test
  });
  await log(admin).locator(".agent").getByText("tick 3").waitFor();
  await admin.close();
  const token = await hub.newToken({ kind: "client", scope: "read", node: "box-1" });
  const page = await open(`#/sessions/${asks}`, token);
  const refused: string[] = [];
  let doing = "";
  const note = (what: string) => doing && refused.push(`${doing}: ${what}`);
  page.on("response", (response) => response.status() === 403 && note(`${response.request().method()} ${new URL(response.url()).pathname}`));
  page.on("websocket", (socket) => socket.on("framereceived", ({ payload }) => String(payload).includes("permission_denied") && note("a request")));
  await page.reload(); // so that its WebSocket is heard
  await connected(page);
  const tried: string[] = [];
  const button = (name: string) => page.locator("main").getByRole("button", { name, exact: true });
  // Each place, and what is there when all of it is.
  const places: readonly (readonly [string, ReturnType<Page["locator"]>])[] = [
    [`sessions/${asks}`, button("Copy the prompt")], [`sessions/${works}`, log(page).locator(".agent").getByText(/tick/)], ["sessions/new?node=box-1", button("Cancel")], ["inbox", page.locator("main").getByText(/session waits for an answer/)],
    ["files?node=box-1", button("Type a path")], ["processes?node=box-1", button("Start a program")], ["terminal?node=box-1", button("New terminal")], ["agents?node=box-1", page.locator("main").getByText("Mock agent").first()],
    ["agents/mock?node=box-1", button("Install again")], ["nodes", page.locator("main").getByText("box-1", { exact: true })], ["nodes/box-1", page.locator("main").getByText("Labels", { exact: true })], ["usage", button("Load again")],
  ];
  for (const [place, there] of places) {
    const go = async () => {
      doing = "";
      await page.evaluate(() => (location.hash = "#/wire")); // what a button has opened goes with its place
      await page.locator("main").getByRole("heading", { name: "Wire", exact: true }).waitFor();
      await page.evaluate((p) => (location.hash = `#/${p}`), place);
      await there.first().waitFor();
      await page.evaluate(() => fetch("v2/version").then(() => {}, () => {})); // what the area asks for first was answered
    };
    await go();
    const buttons = page.locator("main button:enabled:visible");
    const menus: string[] = [];
    for (const name of new Set(await buttons.evaluateAll((all) => all.map((b) => (b.getAttribute("aria-label") ?? (b as HTMLElement).innerText).trim())))) {
      const first = button(name).first();
      if (name === "" || looks.test(name) || !(await first.isVisible().catch(() => false))) continue;
      if ((await first.getAttribute("aria-haspopup")) === "menu") {
        if (name.startsWith("Do something with")) menus.unshift(name); // before rows leave the list
        else menus.push(name);
        continue;
      }
      doing = `${place}, ${name}`;
      await first.click().then(() => tried.push(doing), async (error: unknown) => {
        if (await first.isVisible()) throw error; // what the agent says moves others out of sight
      });
      await page.evaluate(() => fetch("v2/version").then(() => {}, () => {})); // what the button has asked for was asked before
      await page.keyboard.press("Escape");
      await go();
    }
    for (const name of menus) {
      const menu = button(name).first();
      await menu.click();
      await page.getByRole("menuitem").first().waitFor();
      const items = await page.getByRole("menuitem").evaluateAll((all) => all.filter((i) => !(i as HTMLButtonElement).disabled).map((i) => i.firstChild?.textContent ?? ""));
      await page.keyboard.press("Escape");
      await page.getByRole("menuitem").first().waitFor({ state: "detached" });
      for (const item of items) {
        if (tried.some((t) => t.endsWith(`, ${name}, ${item}`))) continue; // in another place
        await menu.click();
        doing = `${place}, ${name}, ${item}`;
        tried.push(doing);
        await page.getByRole("menuitem").filter({ hasText: item }).first().click();
        const confirm = page.getByRole("dialog").getByRole("button", { name: /^(Delete|End|Rename|Move)$/ });
        if (await confirm.count()) await confirm.first().click({ timeout: 1000 }).catch(() => {});
        await page.evaluate(() => fetch("v2/version").then(() => {}, () => {}));
        await page.keyboard.press("Escape");
        await go();
      }
    }
  }
  expect(refused).toEqual([]);
  for (const one of ["About this session", "What can be done with this session, Save as Markdown", "What can be done with this session, Detach", "How the list is shown, Archive", "files?node=box-1, Type a path"]) expect(tried.filter((t) => t.includes(one)), one).not.toEqual([]);
  world.complaints.splice(0); // of the browser, about what is looked at and refused
});

test("a node that is killed while its agent asks takes the question with it, and its session goes on when it is back", async () => {
  const page = await open("#/sessions");
  const id = await sessionAt(page, "box-1", "permission");
  await page.locator(".ask").waitFor();
  await page.getByRole("link", { name: /Inbox/ }).getByText("1", { exact: true }).waitFor();
  await chat(page, "echo in the queue");
  await page.getByRole("region", { name: "Prompts that wait" }).getByText("in the queue").waitFor();
  const node = hub.nodes.get("box-1")!;
  await node.kill("SIGKILL");
  // Nobody can answer it now, here or in the inbox, and the list does not say that it works.
  await page.getByRole("group", { name: "box-1 is away" }).waitFor();
  await page.locator(".ask").waitFor({ state: "detached" });
  await page.getByRole("link", { name: /Inbox/ }).getByText("1", { exact: true }).waitFor({ state: "detached" });
  await rowOf(page, id).getByText("offline").waitFor();
  await list(page).getByRole("heading", { name: "Working" }).waitFor({ state: "detached" });
  await rowOf(page, id).getByText("1 open").waitFor({ state: "detached" });
  await node.restart();
  await log(page).getByText("the gateway was ended while the turn ran").waitFor();
  await page.getByRole("textbox", { name: "Prompt", exact: true }).waitFor();
  await settled(page);
  // What waited is sent when a person says so; the next prompt is sent and ends.
  await page.getByRole("button", { name: "Send it now" }).click();
  await log(page).locator(".agent").getByText("in the queue").waitFor();
  await settled(page);
  await chat(page, "echo behind the break");
  await log(page).locator(".agent").getByText("behind the break").waitFor();
  await page.locator(".conversation-head").getByText("idle", { exact: true }).waitFor();
  expect(await page.locator(".ask").count()).toBe(0);
});

test("a session whose node is away is read from the hub's copy, and goes on when it is back", async () => {
  const page = await open("#/sessions");
  const id = await sessionAt(page, "box-2", "echo said before it went away");
  await log(page).locator(".agent").getByText("said before it went away").waitFor();
  await settled(page);
  await expect.poll(async () => (await hub.ask<{ replica: { missing: number; lastSeq: number; bundle?: number } }>("GET", `/v2/sessions/${id}`)).replica).toMatchObject({ missing: 0, bundle: expect.any(Number) });
  const node = hub.nodes.get("box-2")!;
  await node.kill("SIGKILL");
  await page.getByRole("group", { name: "box-2 is away" }).waitFor();
  await page.getByText("Nothing that the node has told of is missing").waitFor();
  // A window that opens it now has it all from the copy.
  const other = await open(`#/sessions/${id}`);
  await other.getByRole("group", { name: "box-2 is away" }).waitFor();
  await log(other).locator(".agent").getByText("said before it went away").waitFor();
  await rowOf(other, id).getByText("offline").waitFor();
  await bothThemes(other, "hub-copy");
  await other.evaluate(() => (location.hash = "#/nodes/box-2"));
  await other.getByText(/It was last here/).waitFor();
  await other.evaluate((s) => (location.hash = `#/sessions/${s}`), id);
  await node.restart();
  for (const window of [page, other]) {
    await window.getByRole("textbox", { name: "Prompt", exact: true }).waitFor();
    await expect.poll(() => log(window).locator(".agent").getByText("said before it went away").count()).toBe(1);
  }
  await chat(other, "echo and it goes on");
  await log(page).locator(".agent").getByText("and it goes on").waitFor();
  await settled(page);

  // Without its node it goes on at another one.
  await expect.poll(async () => (await hub.ask<{ replica: { missing: number; lastSeq: number; bundle?: number } }>("GET", `/v2/sessions/${id}`)).replica.missing).toBe(0);
  await node.kill("SIGKILL");
  await other.getByRole("button", { name: "Go on at another node" }).click();
  await other.getByText("It goes on at box-1").waitFor();
  await chat(other, "echo at the other node");
  await log(other).locator(".agent").getByText("at the other node").waitFor();
  await node.restart();
});
