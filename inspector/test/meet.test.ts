// What a person loses, or is told wrongly, where two events meet.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandboxAgentClient } from "sandbox-agent";
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from "vitest";
import { chat, connected, newSession, settled, storyAgent, World, type Page } from "./world.js";

let world: World;
beforeAll(async () => void (world = await World.start(["--no-token", ...storyAgent])));
afterEach(async ({ task }) => world?.closeWindows(task));
afterAll(async () => world?.stop());

const log = (page: Page) => page.getByRole("log");
const prompt = (page: Page) => page.getByRole("textbox", { name: "Prompt", exact: true });

/** Cuts the page's connection, and lets it have none until the result is called. */
async function breakable(page: Page): Promise<{ cut(): void; mend(): void }> {
  let broken = false;
  const open = new Set<{ close(): unknown }>();
  await page.routeWebSocket(/\/v2\/rpc/, (socket) => {
    if (broken) return void socket.close();
    socket.connectToServer();
    open.add(socket);
  });
  return {
    cut() {
      broken = true;
      for (const socket of open) socket.close();
      open.clear();
    },
    mend: () => void (broken = false),
  };
}

test("a prompt that is sent while the connection is broken, and a reload", async () => {
  const page = await world.open("about:blank");
  const network = await breakable(page);
  await page.goto(world.url());
  await newSession(page, { prompt: "echo before" });
  await log(page).locator(".agent").getByText("before", { exact: true }).waitFor();
  await settled(page);
  network.cut();
  await page.getByText("The connection is broken").waitFor();
  await chat(page, "echo said into the void");
  await log(page).getByText("echo said into the void").waitFor();
  const asked = page.waitForEvent("dialog").then((dialog) => dialog.accept());
  await page.reload();
  await asked;
  network.mend();
  await connected(page);
  await page.getByText("echo said into the void").first().waitFor();
});

test("a prompt that is sent while the connection is broken, and a gateway that has another token", async () => {
  const dir = mkdtempSync(join(tmpdir(), "inspector-meet-"));
  const file = join(dir, "token");
  writeFileSync(file, "the-first-token-of-it", { mode: 0o600 });
  const other = await World.start([], { SANDBOX_AGENT_TOKEN_FILE: file });
  onTestFinished(async () => {
    await other.stop();
    rmSync(dir, { recursive: true, force: true });
  });
  const page = await other.open("#/sessions&token=the-first-token-of-it");
  await newSession(page, { prompt: "echo before" });
  await log(page).locator(".agent").getByText("before", { exact: true }).waitFor();
  await settled(page);
  await other.gateway.kill("SIGKILL");
  await page.getByText("The connection is broken").waitFor();
  await chat(page, "echo said into the void");
  writeFileSync(file, "the-second-token-of-it");
  await other.gateway.restart();
  await page.getByRole("alert").getByText("The token is not taken any more").waitFor();
  await page.getByRole("button", { name: "Give another token" }).click();
  await page.getByLabel("Token").first().fill("the-second-token-of-it");
  await page.getByRole("button", { name: "Connect", exact: true }).click();
  await connected(page);
  await expect.poll(() => prompt(page).inputValue()).toBe("echo said into the void");
});

/** What the session is in when things happen. */
const scenes = ["a turn runs", "a prompt waits for it", "the agent asks"] as const;

interface Scene {
  readonly page: Page;
  readonly own: World;
  readonly network: { cut(): void; mend(): void };
  readonly other: SandboxAgentClient;
  readonly id: string;
}
const events: Record<string, (_: Scene) => unknown> = {
  "the page is loaded anew": ({ page }) => page.reload(),
  "the connection breaks": ({ network }) => (network.cut(), network.mend()),
  "the gateway is killed": async ({ own }) => {
    await own.gateway.kill("SIGKILL");
    await own.gateway.restart();
  },
  "another client deletes": ({ other, id }) => other.deleteSession(id),
  "another client closes": ({ other, id }) => other.closeSession(id),
  "another client cancels": ({ other, id }) => other.cancel(id),
  "another client sends": async ({ other, id }) => void other.prompt({ sessionId: id, prompt: "echo theirs" }).catch(() => {}),
  "another client answers": async ({ other }) => void other.onPermission(() => "allow_once"),
};

/** Numbers from a seed. */
function random(seed: number): (below: number) => number {
  let x = seed;
  return (below) => ((x ^= x << 13), (x ^= x >>> 17), (x ^= x << 5), (x >>> 0) % below);
}

const seeds = process.env.SANDBOX_AGENT_LONG ? Array.from({ length: 60 }, (_, i) => i + 1) : [10];
test("two events: what is shown is how it is, and what was written is there", async () => {
  const own = await World.start(["--no-token"]);
  onTestFinished(() => own.stop());
  for (const seed of seeds) {
    const next = random(seed * 7919);
    for (let i = 0; i < 5; i++) next(2);
    const names = Object.keys(events);
    const [scene, first, second] = [scenes[next(scenes.length)]!, names[next(names.length)]!, names[next(names.length)]!];
    const page = await own.open("about:blank");
    page.on("dialog", (dialog) => void dialog.accept());
    const network = await breakable(page);
    await page.goto(own.url());
    const id = await newSession(page, { prompt: scene === "the agent asks" ? "permission" : "slow" });
    if (scene === "the agent asks") await page.getByRole("region", { name: "The agent asks" }).waitFor();
    else await page.getByRole("button", { name: "Stop", exact: true }).waitFor();
    if (scene === "a prompt waits for it") await chat(page, "echo what waits");
    await using other = new SandboxAgentClient({ baseUrl: own.gateway.url, retry: { firstDelayMs: 10, maxDelayMs: 100 } });
    await other.resumeSession({ sessionId: id });
    const what = `${scene}, ${first}, ${second}`;
    try {
      const at = { page, own, network, other, id };
      for (const name of [first, second]) await Promise.resolve(events[name]!(at)).catch((error: unknown) => expect(error).toMatchObject({ name: "AcpRpcError" }));
      await connected(page);
      await expect.poll(async () => {
        const info = await other.api.session(id).catch(() => undefined);
        const works = info?.state === "running" || info?.state === "waiting";
        const shown = await page.locator("body").innerText();
        return {
          asks: (info?.pending ?? 0) > 0 === ((await page.getByRole("region", { name: "The agent asks" }).count()) > 0),
          works: works === ((await page.getByRole("button", { name: /^Stop(ping)?$/ }).count()) > 0),
          words: scene !== "a prompt waits for it" || shown.includes("what waits") || (await prompt(page).inputValue()).includes("what waits"),
        };
      }, { timeout: 20_000 }).toEqual({ asks: true, works: true, words: true });
      expect(own.complaints.filter((one) => one.startsWith("error:"))).toEqual([]);
    } catch (cause) {
      throw new Error(`seed ${seed}: ${what}: ${(await page.locator("body").innerText()).slice(-600)}`, { cause });
    }
    await own.closeWindows();
  }
}, 900_000);
