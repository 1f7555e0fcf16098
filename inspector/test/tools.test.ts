// The wire, and the agents.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { bothThemes, connected, phone, picture, storyAgent, World, type Locator, type Page } from "./world.js";

const token = "inspector-Secret-4711";

/** A registry with one agent, whose program comes slowly: what a person sees of it takes a moment. */
class Registry {
  private constructor(private readonly server: Server, readonly url: string) {}
  /** Lets the rest of the download pass. */
  finish: () => void = () => {};

  static async start(): Promise<Registry> {
    const program = Buffer.from(`#!/bin/sh\ncase "$1" in\n--version) echo 'goose 9.8.7' ;;\nacp) read -r line; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentInfo":{"name":"goose","version":"9.8.7"}}}' ;;\n*) exit 2 ;;\nesac\nexit\n${"# nothing\n".repeat(300_000)}`);
    const registry: { it?: Registry } = {};
    const server = createServer((request, response) => {
      if (request.url === "/registry.json") {
        const binary = { archive: "https://files.test/goose", cmd: "./goose", args: ["acp"], sha256: createHash("sha256").update(program).digest("hex") };
        response.end(JSON.stringify({ version: "1.0.0", agents: [{ id: "goose", name: "goose", version: "9.8.7", description: "x", distribution: { binary: Object.fromEntries(["linux-x86_64", "linux-aarch64", "darwin-aarch64", "darwin-x86_64"].map((p) => [p, binary])) } }] }));
      } else if (request.url === "/files/goose") {
        response.writeHead(200, { "Content-Length": program.length });
        let sent = 0;
        const drip = setInterval(() => {
          if (sent < 1_500_000) response.write(program.subarray(sent, (sent += 100_000)));
        }, 50);
        registry.it!.finish = () => {
          clearInterval(drip);
          response.end(program.subarray(sent));
        };
        response.on("close", () => clearInterval(drip));
      } else response.writeHead(404).end();
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return (registry.it = new Registry(server, `http://127.0.0.1:${(server.address() as AddressInfo).port}`));
  }

  stop(): void {
    this.server.closeAllConnections();
    this.server.close();
  }
}

let world: World;
let registry: Registry;
beforeAll(async () => {
  registry = await Registry.start();
  world = await World.start([...storyAgent, "--token", token, "--registry-url", `${registry.url}/registry.json`, "--mirror", `https://files.test=${registry.url}/files`, "--agent-command", "dies=sh -c 'echo first a warning >&2; echo cannot open config >&2; exit 3'", "--agent-command", `grumbler=sh -c 'echo "no config found" >&2; exec "$0" mock-agent' ${process.env.SANDBOX_AGENT_BIN}`], { SANDBOX_AGENT_SOURCES: "registry" });
});
afterEach(async ({ task }) => world?.closeWindows(task));
afterAll(async () => {
  await world?.stop();
  registry?.stop();
});


async function at(area: string, options = {}): Promise<Page> {
  const page = await world.open(`#token=${token}`, options);
  await connected(page);
  await page.evaluate((hash) => void (location.hash = hash), area);
  return page;
}

test("everything that goes over the wire is seen, searched, copied and exported without secrets", async () => {
  const page = await at("#/wire", { permissions: ["clipboard-read", "clipboard-write"] });
  const list = page.getByRole("listbox", { name: "Traffic" });
  await list.getByText("GET /v2/version").waitFor();
  await list.getByRole("option", { name: /sent initialize/ }).waitFor();
  // Any request can be sent: methods are proposed, params drafted, mistakes named.
  await page.getByRole("button", { name: "Send a request" }).click();
  const dialog = page.getByRole("dialog", { name: "Send a request" });
  await expect.poll(() => page.locator("#wire-methods option").count()).toBeGreaterThan(15);
  await dialog.getByRole("combobox", { name: "Method" }).fill("session/new");
  const params = dialog.getByRole("textbox", { name: "Params" });
  expect(JSON.parse(await params.inputValue())).toEqual({ cwd: "/", mcpServers: [] });
  await params.fill("{");
  await dialog.getByText("This is not JSON").waitFor();
  await params.fill(JSON.stringify({ cwd: "/tmp", mcpServers: [{ type: "stdio", name: "m", command: "true", args: [], env: [{ name: "M_KEY", value: "hidden-4712" }] }] }));
  await dialog.getByRole("button", { name: "Send", exact: true }).click();
  const made = JSON.parse((await dialog.getByLabel("Result").textContent()) ?? "") as { sessionId: string };
  await bothThemes(page, "wire-send");
  await dialog.getByRole("combobox", { name: "Method" }).fill("session/nonsense");
  await dialog.getByRole("button", { name: "Send", exact: true }).click();
  await dialog.getByText(/Error -326\d\d/).waitFor();
  await dialog.getByRole("contentinfo").getByRole("button", { name: "Close" }).or(dialog.getByRole("button", { name: "Close" }).last()).first().click();
  // The new session's id is known to the form.
  await page.keyboard.press("n");
  await dialog.getByRole("combobox", { name: "Method" }).fill("session/prompt");
  expect(JSON.parse(await params.inputValue())).toMatchObject({ sessionId: made.sessionId });
  await params.fill(JSON.stringify({ sessionId: made.sessionId, prompt: [{ type: "text", text: "stream 30 20" }] }));
  await page.keyboard.press("Control+Enter");
  await dialog.getByLabel("Result").getByText("messageId").waitFor(); // the turn has begun
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  // Search, then look at one.
  await page.getByRole("searchbox", { name: "Search" }).fill('"stopReason":"end_turn"');
  const entry = page.getByRole("region", { name: "Entry" });
  await list.getByRole("option", { name: /state_update: end_turn/ }).click();
  await entry.getByText('"end_turn"').waitFor();
  await page.getByRole("searchbox", { name: "Search" }).fill('"messageId":"sa.');
  await list.getByRole("option", { name: /received session.prompt result/ }).click();
  await bothThemes(page, "wire");
  await entry.getByRole("button", { name: "Its request" }).click();
  await entry.getByText("stream 30 20").waitFor();
  await entry.getByRole("radio", { name: "Raw" }).check();
  await entry.getByRole("button", { name: "Copy as JSON" }).click();
  await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toContain('"method":"session/prompt"');
  // The command does what the page did.
  await entry.getByRole("button", { name: "Copy as a command" }).click();
  await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toContain("sandbox-agent rpc call");
  const command = await page.evaluate(() => navigator.clipboard.readText());
  expect(command).not.toContain(token);
  const answer = execFileSync("bash", ["-c", `sandbox-agent() { "$SANDBOX_AGENT_BIN" "$@"; }; ${command.replace("stream 30 20", "echo from a command").replace("rpc call", "rpc call --json")}`], { env: { ...process.env, SANDBOX_AGENT_TOKEN: token }, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  expect(JSON.parse(answer)).toMatchObject({ messageId: expect.stringContaining("sa.") as string });
  // The filters, and the keyboard.
  await page.getByRole("searchbox", { name: "Search" }).fill("");
  await page.getByRole("radio", { name: "HTTP" }).check();
  await expect.poll(() => list.getByText("session/prompt").count()).toBe(0);
  await list.focus();
  await page.keyboard.press("Home");
  await entry.getByText("GET /v2/version").first().waitFor();
  await entry.getByText("authorization: (removed)").waitFor();
  await entry.getByRole("button", { name: "Copy as curl" }).click();
  await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toContain("/v2/version");
  const version = execFileSync("bash", ["-c", await page.evaluate(() => navigator.clipboard.readText())], { env: { ...process.env, SANDBOX_AGENT_TOKEN: token }, encoding: "utf8" });
  expect(JSON.parse(version)).toMatchObject({ protocolVersion: 1 });
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export" }).click()]);
  const lines = readFileSync(await download.path(), "utf8");
  expect(lines).toContain('"session/prompt"');
  expect(lines).toContain('"M_KEY"');
  for (const secret of [token, "hidden-4712"]) expect(lines, secret).not.toContain(secret);
  for (const line of lines.trimEnd().split("\n")) JSON.parse(line);
  // Nothing is recorded while it is paused.
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByRole("button", { name: "Clear" }).click();
  await page.getByText("Nothing is recorded").waitFor();
});

test("frames are held against the schema, sent again, and compared", async () => {
  const page = await at("#/wire");
  const list = page.getByRole("listbox", { name: "Traffic" });
  const entry = page.getByRole("region", { name: "Entry" });
  const search = page.getByRole("searchbox", { name: "Search" });
  const params = page.getByRole("textbox", { name: "Params" });
  const filters = () => page.getByRole("search", { name: "Filter the traffic" }).locator("input").evaluateAll((all) => all.map((e) => e.getBoundingClientRect().x));
  await search.waitFor();
  const places = await filters();
  await page.getByRole("button", { name: "Send a request" }).click();
  const ask = async (method: string, value: object) => {
    await page.getByRole("combobox", { name: "Method" }).fill(method);
    await params.fill(JSON.stringify(value));
    await page.keyboard.press("Control+Enter");
  };
  await ask("session/new", { cwd: "/tmp", mcpServers: [], _meta: { "sandboxagent.dev": { agent: "story" } } });
  const { sessionId } = JSON.parse((await page.getByLabel("Result").textContent()) ?? "") as { sessionId: string };
  await ask("session/prompt", { sessionId, prompt: [{ type: "text", text: "wrong" }] });
  await page.getByLabel("Result").getByText("messageId").waitFor();
  await page.keyboard.press("Escape");
  // Of all that went over the wire one frame is wrong, and says where.
  await page.getByRole("radio", { name: "ACP" }).check();
  await list.getByText("1 violation of the schema").waitFor({ state: "attached" });
  expect(await page.locator(".wire-wrong").count()).toBe(1);
  await page.getByText("1 entry violates the schema").waitFor();
  expect(await filters(), "the filters stay under the mouse").toEqual(places);
  await page.getByRole("checkbox", { name: "Violations only" }).check();
  await expect.poll(() => list.getByRole("option").count()).toBe(1);
  await page.getByRole("checkbox", { name: "Violations only" }).uncheck();
  await page.getByRole("button", { name: "The next violation" }).click();
  await list.getByRole("option", { name: /usage_update/, selected: true }).waitFor();
  await entry.getByText("1 violation of the schema of version").waitFor();
  await entry.getByText("/params/update/used").waitFor();
  await entry.getByText("is a string, and has to be an integer").waitFor();
  await bothThemes(page, "wire-violation");
  // The same in the other version, as the log has it.
  await search.fill('"text":"wrong"');
  await list.getByRole("option", { name: /agent_message_chunk/ }).click();
  await entry.getByText('"messageId"').waitFor();
  await entry.getByRole("radio", { name: "Version 1" }).check();
  const first = entry.getByLabel("Message of version 1");
  await first.getByText('"agent_message_chunk"').waitFor();
  expect(await first.textContent()).not.toContain("messageId");
  // A prompt is sent again, changed; the dialog says what that does.
  await search.fill('"method":"session/prompt"');
  await list.getByRole("option").click();
  await entry.getByText("It fits the schema of version").waitFor();
  await entry.getByText(/first update after .* answered after/).or(entry.getByText(/answered after/)).first().waitFor();
  await entry.getByRole("button", { name: "Send again" }).click();
  const dialog = page.getByRole("dialog", { name: "Send a request again" });
  await dialog.getByText("It starts another turn").waitFor();
  expect(JSON.parse(await params.inputValue())).toEqual({ sessionId, prompt: [{ type: "text", text: "wrong" }] });
  await bothThemes(page, "wire-again");
  await params.fill((await params.inputValue()).replace("wrong", "changed"));
  await page.keyboard.press("Control+Enter");
  await dialog.getByLabel("Result").waitFor();
  await page.keyboard.press("Escape");
  // Two entries are compared.
  await expect.poll(() => list.getByRole("option").count()).toBe(2);
  await entry.getByRole("button", { name: "Compare with" }).click();
  await page.getByText("Choose another entry in the list.").waitFor();
  await list.getByRole("option").last().click();
  const comparison = page.getByRole("region", { name: "Comparison" });
  await comparison.locator(".del").getByText('"text": "wrong"').waitFor();
  await comparison.locator(".add").getByText('"text": "changed"').waitFor();
  await bothThemes(page, "wire-compare");
  await comparison.getByRole("button", { name: "Swap" }).click();
  await comparison.locator(".add").getByText('"text": "wrong"').waitFor();
  await comparison.getByRole("button", { name: "Stop comparing" }).click();
  await entry.waitFor();
  // What cannot be sent again says why.
  await search.fill('"method":"initialize"');
  await list.getByRole("option").first().click();
  await entry.getByText("A connection is initialized once.").waitFor();
  expect(await entry.getByRole("button", { name: "Send again" }).count()).toBe(0);
});

test("an agent is installed before everybody's eyes, and removed", async () => {
  const page = await at("#/agents");
  await page.getByText("Choose an agent").waitFor();
  await page.getByRole("list", { name: "Agents" }).getByRole("link", { name: /goose/ }).click();
  const goose = page.getByRole("article", { name: "goose" });
  await goose.getByRole("button", { name: "Install" }).click();
  await goose.getByText(/downloads.* 1\.\d MB of 3\.0 MB/).waitFor();
  expect(Number(await goose.getByRole("progressbar").getAttribute("value"))).toBeGreaterThan(0.3);
  await bothThemes(page, "agents-install");
  // It goes on when one looks elsewhere.
  await page.evaluate(() => void (location.hash = "#/wire"));
  await page.getByRole("listbox").waitFor();
  await page.evaluate(() => void (location.hash = "#/agents/goose"));
  await goose.getByRole("progressbar").waitFor();
  // It would end with the page: the browser asks.
  const asked = page.waitForEvent("dialog");
  await page.close({ runBeforeUnload: true });
  await (await asked).dismiss();
  await goose.getByRole("button", { name: "Cancel" }).click();
  await goose.getByRole("progressbar").waitFor({ state: "detached" });
  await goose.getByRole("button", { name: "Install", exact: true }).click();
  await goose.getByText(/downloads.* 1\.\d MB of 3\.0 MB/).waitFor();
  registry.finish();
  await goose.getByText("Installed: 9.8.7 from registry").waitFor();
  await goose.getByText("registry", { exact: true }).waitFor();
  await goose.getByText("by a checksum of the server that it is from").waitFor();
  await goose.getByRole("button", { name: "Remove" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await goose.getByText("not installed").waitFor();
});

test("an installation that fails says why", async () => {
  const page = await at("#/agents/kimi");
  const kimi = page.getByRole("article", { name: "Kimi CLI" });
  await kimi.getByRole("button", { name: "Install" }).click();
  await kimi.getByRole("alert").getByText("It could not be installed").waitFor();
  await kimi.getByRole("alert").getByText(/registry/).first().waitFor();
});

test("a process is seen with what it complains about, and the doctor says what is missing", async () => {
  const page = await at("#/agents/grumbler");
  await page.getByText("None runs.").waitFor();
  await page.evaluate(() => void (location.hash = "#/wire"));
  await page.getByRole("button", { name: "Send a request" }).click();
  await page.getByRole("combobox", { name: "Method" }).fill("session/new");
  await page.getByRole("textbox", { name: "Params" }).fill(JSON.stringify({ cwd: "/tmp", mcpServers: [], _meta: { "sandboxagent.dev": { agent: "grumbler" } } }));
  await page.keyboard.press("Control+Enter");
  await page.getByLabel("Result").waitFor();
  await page.keyboard.press("Escape");
  await page.evaluate(() => void (location.hash = "#/agents/grumbler"));
  await page.getByText(/wrote to stderr \(1 line\)/).click();
  await page.getByText("no config found").waitFor();
  await page.getByText(/1 session/).waitFor();
  await page.evaluate(() => void (location.hash = "#/agents?view=doctor"));
  await page.getByText("data directory").waitFor();
  await bothThemes(page, "agents-doctor");
  await page.getByRole("radio", { name: "Features" }).click();
  await page.getByRole("columnheader", { name: "Claude Code" }).waitFor();
  await page.getByRole("rowheader", { name: "Permissions" }).waitFor();
  await bothThemes(page, "agents-matrix");
});

test("an agent that dies at its start leaves the reason where its processes are listed", async () => {
  const page = await at("#/sessions/new?agent=dies&cwd=/tmp");
  await page.locator(".new-session").getByRole("button", { name: "Start", exact: true }).click();
  await page.getByRole("alert").getByText("cannot open config").waitFor();
  await page.evaluate(() => void (location.hash = "#/agents/dies"));
  await page.getByRole("region", { name: "Processes" }).getByText(/The last failure: [^]* code 3[^]*cannot open config/).waitFor();
});

test("on a phone", async () => {
  const page = await at("#/agents/claude", { viewport: phone });
  await page.getByRole("article", { name: "Claude Code" }).waitFor();
  await bothThemes(page, "agents-phone");
  await page.evaluate(() => void (location.hash = "#/wire"));
  // There is room for the list or for an entry.
  const list = page.getByRole("listbox", { name: "Traffic" });
  const entry = page.getByRole("region", { name: "Entry" });
  const comparison = page.getByRole("region", { name: "Comparison" });
  const insight = (part: Locator) => part.evaluate((el) => {
    const { top, bottom } = el.getBoundingClientRect();
    return Math.min(bottom, innerHeight) - Math.max(top, 0);
  });
  for (const viewport of [{ width: 360, height: 640 }, { width: 844, height: 390 }, { width: 1200, height: 400 }, phone]) {
    await page.setViewportSize(viewport);
    const name = `wire-${viewport.width}x${viewport.height}`;
    await list.getByRole("option", { name: /received initialize/ }).first().click();
    await entry.getByText('"protocolVersion"').waitFor();
    await list.waitFor({ state: "hidden" });
    await picture(page, name);
    // All of it can be brought into sight, below its head.
    await entry.locator(".json").evaluate((el) => el.scrollIntoView({ block: "start" }));
    expect(await insight(entry), name).toBeGreaterThan(viewport.height * 0.75);
    await entry.getByRole("button", { name: "Compare with" }).click();
    await page.getByText("Choose another entry in the list.").waitFor();
    await picture(page, `${name}-compare`);
    expect(await insight(list), name).toBeGreaterThan(100);
    await list.getByRole("option", { name: /sent initialize/ }).first().click();
    await comparison.getByRole("button", { name: "Stop comparing" }).waitFor();
    expect(await insight(comparison), name).toBeGreaterThan(viewport.height * 0.75);
    await picture(page, `${name}-compared`);
    await comparison.getByRole("button", { name: "Stop comparing" }).click();
    await entry.getByRole("button", { name: "All entries" }).click();
    await list.waitFor();
    await entry.waitFor({ state: "detached" });
  }
  await list.getByRole("option").first().click();
  await bothThemes(page, "wire-phone");
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
});
