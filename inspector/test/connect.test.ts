import { createServer } from "node:http";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from "vitest";
import { bothThemes, connected, desktop, newSession, phone, World } from "./world.js";

const token = "a-token-of-the-tests";
let world: World;
beforeAll(async () => {
  world = await World.start([], { SANDBOX_AGENT_TOKEN: token });
});
afterEach(async ({ task }) => world?.closeWindows(task));
afterAll(async () => world?.stop());

test("a gateway with a token is let in with the right one, and says so with a wrong one", async () => {
  const page = await world.open("#/inbox");
  await page.getByText("The gateway wants a token").waitFor();
  await page.getByText(/sandbox-agent server --port \d+ --new-token/).waitFor();
  for (const [size, where] of [[desktop, "desktop"], [phone, "phone"]] as const) {
    await page.setViewportSize(size);
    await bothThemes(page, `connect-${where}`);
  }
  await page.setViewportSize(desktop);
  await page.getByLabel("Token").first().fill("wrong");
  await page.getByRole("button", { name: "Connect" }).click();
  await page.getByText("The token is not right").waitFor();
  await page.getByLabel("Token").first().fill(token);
  await page.getByRole("radio", { name: "Do not keep" }).check();
  await page.getByRole("button", { name: "Connect" }).click();
  await connected(page);
  expect(new URL(page.url()).hash).toBe("#/inbox"); // where the link led
  expect(await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }))).not.toContain(token);
  await page.reload();
  await page.getByText("The gateway wants a token").waitFor();
  // A link with the token, opened while the page asks for one.
  await page.evaluate((secret) => (location.hash = `#/wire&token=${secret}`), token);
  await connected(page);
  expect(page.url()).not.toContain(token);
  await page.reload();
  await connected(page);
  expect(new URL(page.url()).hash).toBe("#/wire");
  expect(await page.evaluate(() => JSON.stringify(localStorage))).not.toContain(token); // this tab's, no other's
});

test("a gateway that comes back with another token says so, and nothing that was written is lost", async () => {
  const dir = mkdtempSync(join(tmpdir(), "inspector-token-"));
  const file = join(dir, "token");
  writeFileSync(file, "the-first-token-of-it", { mode: 0o600 });
  const other = await World.start([], { SANDBOX_AGENT_TOKEN_FILE: file });
  onTestFinished(async () => {
    await other.stop();
    rmSync(dir, { recursive: true, force: true });
  });
  const page = await other.open("#/sessions&token=the-first-token-of-it");
  const id = await newSession(page);
  const prompt = page.getByRole("textbox", { name: "Prompt", exact: true });
  await prompt.fill("half a thought");
  await other.gateway.kill("SIGKILL");
  await page.getByText("The connection is broken").waitFor();
  writeFileSync(file, "the-second-token-of-it");
  await other.gateway.restart();
  await page.getByRole("alert").getByText("The token is not taken any more").waitFor();
  await page.getByRole("button", { name: "Give another token" }).click();
  await page.getByLabel("Token").first().fill("the-second-token-of-it");
  await page.getByRole("button", { name: "Connect", exact: true }).click();
  await connected(page);
  await page.waitForURL(new RegExp(`#/sessions/${id}$`)); // where it was
  await expect.poll(() => prompt.inputValue()).toBe("half a thought");
});

test("a token in the address is taken out of it, and kept only when that is asked for", async () => {
  const page = await world.open(`#/sessions/new&token=${token}`);
  await connected(page);
  expect(page.url()).not.toContain(token);
  expect(new URL(page.url()).hash).toBe("#/sessions/new");
  await newSession(page, { prompt: "hello" });
  await page.getByRole("log").getByText("I am the mock agent").waitFor(); // a prompt that waits in the page is gone with it
  await page.reload();
  await page.getByRole("log").getByText("I am the mock agent").waitFor();
  expect(await page.evaluate(() => JSON.stringify(localStorage))).not.toContain(token);
  // Leaving forgets it.
  await page.goto(world.url("#/connect"));
  await page.getByRole("button", { name: "Disconnect" }).click();
  expect(await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }))).not.toContain(token);
});

test("a gateway that is not running, that lets this page not in, and another program are told apart", async () => {
  const closed = await World.start(["--no-token"]);
  const page = await world.open("#/connect");
  const connect = async (endpoint: string) => {
    await page.getByLabel("Endpoint").fill(endpoint);
    await page.getByRole("button", { name: "Connect" }).click();
  };
  await connect(closed.gateway.url);
  await page.getByText("The gateway does not let this page in").waitFor();
  await page.getByText(`--cors-allow-origin ${new URL(world.gateway.url).origin}`, { exact: false }).first().waitFor();
  const { url, port } = closed.gateway;
  await closed.stop();
  await connect(url);
  await page.getByText("Nothing answers at this address").waitFor();
  await page.getByText(`sandbox-agent server --port ${port} --new-token`).waitFor();
  const other = createServer((_, response) => response.writeHead(404, { "Access-Control-Allow-Origin": "*", "Access-Control-Allow-Headers": "*" }).end("not here"));
  await new Promise<void>((done) => other.listen(0, "127.0.0.1", done));
  const address = other.address();
  await connect(`http://127.0.0.1:${typeof address === "object" && address ? address.port : 0}`);
  await page.getByText("This is not a gateway that this page knows").waitFor();
  other.close();
  await page.getByLabel("Endpoint").fill("http:/");
  await page.getByRole("button", { name: "Connect" }).click();
  await page.getByText("This is not an address").or(page.locator("input:invalid")).first().waitFor();
});

test("a page of another gateway is let in by the flag that the page names", async () => {
  const other = await World.start(["--cors-allow-origin", world.gateway.url], { SANDBOX_AGENT_TOKEN: "another-token" });
  const page = await world.open("#/connect");
  await page.getByLabel("Endpoint").fill(`${other.gateway.url}/ui/`);
  await page.getByLabel("Token").first().fill("another-token");
  await page.getByRole("button", { name: "Connect" }).click();
  await connected(page);
  await newSession(page, { prompt: "hello" });
  await page.getByRole("log").getByText("I am the mock agent").waitFor();
  await other.stop();
});

test("a link that names an agent fills in a form, and the agent is installed when a person says so", async () => {
  const page = await world.open("about:blank");
  const sent: string[] = [];
  page.on("websocket", (socket) => {
    sent.push(socket.url());
    socket.on("framesent", (frame) => sent.push(String(frame.payload)));
  });
  const asked = () => sent.filter((body) => body.includes("goose"));
  // Without a token the page asks for one first: what it then connects with is not what the form is about.
  await page.goto(world.url("#/sessions/new?agent=goose"));
  await page.getByText("The gateway wants a token").waitFor();
  expect(await page.getByLabel("Agent of the connection").inputValue()).toBe("");
  await page.getByLabel("Token").first().fill(token);
  await page.getByRole("button", { name: "Connect" }).click();
  const agent = page.locator(".new-session").getByLabel("Agent", { exact: true });
  await agent.waitFor();
  expect(await agent.inputValue()).toBe("goose");
  await page.reload();
  await agent.waitFor();
  await page.getByText("It is installed when the session starts.").waitFor();
  expect(await agent.inputValue()).toBe("goose");
  await page.goto(world.url("#/connect?agent=goose"));
  await page.reload();
  await page.getByText("Connected", { exact: true }).waitFor();
  expect(await page.getByLabel("Agent of the connection").inputValue()).toBe("goose");
  // Nor does a look at what it keeps itself.
  await page.goto(world.url("#/sessions/elsewhere"));
  await page.getByLabel("Agent", { exact: true }).selectOption("goose");
  await page.getByText("Goose is not installed").waitFor();
  await page.getByRole("button", { name: "Install and ask" }).waitFor();
  expect(sent.some((body) => body.includes('"initialize"'))).toBe(true);
  expect(asked()).toEqual([]);
  // Now it is asked for.
  await page.goto(world.url("#/connect?agent=goose"));
  await page.getByRole("button", { name: "Connect", exact: true }).click();
  await expect.poll(() => asked().length).toBeGreaterThan(0);
});

test("where nothing is to be connected by itself there is the form, with what the address names", async () => {
  const page = await world.open(`#/connect&token=${token}`);
  const endpoint = page.getByLabel("Endpoint");
  await page.getByText("Connected", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Disconnect" }).click();
  await page.getByRole("button", { name: "Disconnect" }).waitFor({ state: "detached" });
  expect(await endpoint.inputValue()).toBe(world.gateway.url);
  await page.reload();
  await page.getByText("The gateway wants a token").waitFor();
  // A link in a new window, and another one in the same.
  const named = await world.open("#/connect?endpoint=http%3A%2F%2Fone.example%3A1");
  await expect.poll(() => named.getByLabel("Endpoint").inputValue()).toBe("http://one.example:1");
  await named.evaluate(() => void (location.hash = "#/connect?endpoint=http%3A%2F%2Ftwo.example%3A2"));
  await expect.poll(() => named.getByLabel("Endpoint").inputValue()).toBe("http://two.example:2");
  // Elsewhere it is the page's own gateway that is connected to.
  await named.evaluate(() => void (location.hash = "#/sessions"));
  await named.getByText("The gateway wants a token").waitFor();
  expect(await named.getByLabel("Endpoint").inputValue()).toBe(world.gateway.url);
});

test("the token of a link is for the gateway that the link leads to, whichever was used before", async () => {
  const other = await World.start(["--no-token", "--cors-allow-origin", world.gateway.url]);
  onTestFinished(() => other.stop());
  const page = await world.open("#/connect");
  const leaked: string[] = [];
  const at = new URL(other.gateway.url).host;
  page.on("request", (request) => new URL(request.url()).host === at && JSON.stringify(request.headers()).includes(token) && leaked.push(request.url()));
  const sockets: string[] = [];
  page.on("websocket", (socket) => sockets.push(new URL(socket.url()).host));
  const aimAtOther = async () => {
    await page.getByLabel("Endpoint").fill(other.gateway.url);
    await page.getByRole("button", { name: "Connect", exact: true }).click();
    await connected(page);
  };
  // When the page is opened, and in a page that is open.
  await aimAtOther();
  await page.goto("about:blank");
  sockets.length = 0;
  await page.goto(world.url(`#/wire&token=${token}`));
  await connected(page);
  expect(sockets).toEqual([new URL(world.gateway.url).host]);
  await page.goto(world.url("#/connect"));
  await aimAtOther();
  sockets.length = 0;
  await page.evaluate((secret) => (location.hash = `#/wire&token=${secret}`), token);
  await expect.poll(() => sockets).toEqual([new URL(world.gateway.url).host]);
  await connected(page);
  expect(leaked).toEqual([]);
  await page.reload(); // and so it stays
  await connected(page);
  expect(sockets).not.toContain(at);
});
