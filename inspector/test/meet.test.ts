// What a person loses, or is told wrongly, where two events meet.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandboxAgentClient } from "sandbox-agent";
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from "vitest";
import { chat, connected, inaccessible, newSession, settled, storyAgent, World, type Page } from "./world.js";

let world: World;
beforeAll(async () => void (world = await World.start(["--no-token", ...storyAgent])));
afterEach(async ({ task }) => world?.closeWindows(task));
afterAll(async () => world?.stop());

const log = (page: Page) => page.getByRole("log");
const prompt = (page: Page) => page.getByRole("textbox", { name: "Prompt", exact: true });

/** How often words are on the page: said in the session, waiting to be sent, and being written. */
async function places(page: Page, words: string): Promise<{ said: number; waits: number; written: number }> {
  const written = [...(await prompt(page).evaluateAll((boxes) => boxes.map((box) => (box as HTMLTextAreaElement).value))), ...(await page.locator(".notice", { hasText: "What you have written is not sent" }).allInnerTexts())];
  return {
    said: await log(page).locator(".user").filter({ hasText: words }).count(),
    waits: await page.getByRole("region", { name: "Prompts that wait" }).getByRole("listitem").filter({ hasText: words }).count(),
    written: written.join("\n").split(words).length - 1,
  };
}

interface Network {
  /** Lets nothing more come to the page, while what it sends still arrives. */
  deafen(): void;
  /** Cuts its connection, and lets it have none. */
  cut(): void;
  /** Lets the next message that has these words not arrive, which is refused, or is not answered; resolves when it was sent. */
  lose(words: string, refusal?: object): Promise<void>;
  mend(): void;
}

async function breakable(page: Page): Promise<Network> {
  let [deaf, broken] = [false, false];
  let lose: { readonly words: string; readonly refusal: object | undefined; done(): void } | undefined;
  const open = new Set<{ close(): unknown }>();
  await page.routeWebSocket(/\/v2\/rpc/, (socket) => {
    if (broken) return void socket.close();
    const gateway = socket.connectToServer();
    gateway.onMessage((message) => void (deaf || socket.send(message)));
    socket.onMessage((message) => {
      if (lose === undefined || !String(message).includes(lose.words)) return gateway.send(message);
      if (lose.refusal) socket.send(JSON.stringify({ jsonrpc: "2.0", id: (JSON.parse(String(message)) as { id: unknown }).id, error: lose.refusal }));
      lose.done();
      lose = undefined;
    });
    open.add(socket);
  });
  return {
    lose: (words, refusal) => new Promise((done) => (lose = { words, refusal, done })),
    deafen: () => void (deaf = true),
    cut() {
      broken = true;
      for (const socket of open) socket.close();
      open.clear();
    },
    mend: () => void ([deaf, broken] = [false, false]),
  };
}

/** A page with a session in which something was said. */
async function talk(where: World, hash = ""): Promise<{ page: Page; network: Network; id: string }> {
  const page = await where.open("about:blank");
  const network = await breakable(page);
  await page.goto(where.url(hash));
  const id = await newSession(page, { prompt: "echo before" });
  await log(page).locator(".agent").getByText("before", { exact: true }).waitFor();
  await settled(page);
  return { page, network, id };
}

const broken = (page: Page) => page.getByText("The connection is broken").waitFor();

/** Waits until the gateway has said something in a session. */
async function has(where: World, id: string, words: string, token?: string): Promise<void> {
  const client = new SandboxAgentClient({ baseUrl: where.gateway.url, autoConnect: false, ...(token === undefined ? {} : { token }) });
  await expect.poll(async () => JSON.stringify((await client.api.sessionEvents(id, { limit: 1000 })).events)).toContain(words);
}

const fates = [["has not come to the gateway", false], ["has come to the gateway", true]] as const;

test.each(fates)("a prompt that %s when the connection breaks, and a reload", async (_, arrives) => {
  const { page, network, id } = await talk(world);
  if (arrives) network.deafen();
  else network.cut();
  if (!arrives) await broken(page);
  await chat(page, "echo said into the void");
  await log(page).getByText("echo said into the void").waitFor();
  if (arrives) await has(world, id, "echo said into the void");
  network.cut();
  await broken(page);
  const asked = page.waitForEvent("dialog").then((dialog) => dialog.accept());
  await page.reload();
  await asked;
  network.mend();
  await connected(page);
  await log(page).locator(".agent").getByText("before", { exact: true }).waitFor();
  await expect.poll(() => places(page, "said into the void")).toEqual({ said: arrives ? 1 : 0, waits: arrives ? 0 : 1, written: 0 });
});

test.each(fates)("a prompt that %s when the connection breaks, and a gateway that has another token", async (_, arrives) => {
  const dir = mkdtempSync(join(tmpdir(), "inspector-meet-"));
  const file = join(dir, "token");
  writeFileSync(file, "the-first-token-of-it", { mode: 0o600 });
  const other = await World.start([], { SANDBOX_AGENT_TOKEN_FILE: file });
  onTestFinished(async () => {
    await other.stop();
    rmSync(dir, { recursive: true, force: true });
  });
  const { page, network, id } = await talk(other, "#/sessions&token=the-first-token-of-it");
  if (arrives) network.deafen();
  else await other.gateway.kill("SIGKILL");
  if (!arrives) await broken(page);
  await chat(page, "echo said into the void");
  if (arrives) await has(other, id, "echo said into the void", "the-first-token-of-it");
  await other.gateway.kill("SIGKILL");
  await broken(page);
  network.mend();
  writeFileSync(file, "the-second-token-of-it");
  await other.gateway.restart();
  await page.getByRole("alert").getByText("The token is not taken any more").waitFor();
  await page.getByRole("button", { name: "Give another token" }).click();
  await page.getByLabel("Token").first().fill("the-second-token-of-it");
  await page.getByRole("button", { name: "Connect", exact: true }).click();
  await connected(page);
  await expect.poll(() => places(page, "said into the void")).toEqual({ said: arrives ? 1 : 0, waits: arrives ? 0 : 1, written: 0 });
});

test("a prompt that is sent while the connection is broken, and a page out of sight that the browser may end", async () => {
  const { page, network } = await talk(world);
  const kept = () => page.evaluate(() => sessionStorage.getItem("sandbox-agent:waiting"));
  network.cut();
  await broken(page);
  await chat(page, "echo said into the void");
  await log(page).getByText("echo said into the void").waitFor();
  await page.evaluate(() => {
    Object.defineProperty(document, "hidden", { value: true, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  });
  expect(await kept()).toContain("said into the void");
  network.mend();
  await expect.poll(kept).toBeNull();
  expect(await places(page, "said into the void")).toEqual({ said: 1, waits: 0, written: 0 });
});

test("a prompt that is sent while the connection is broken, and a person who detaches", async () => {
  const { page, network, id } = await talk(world);
  network.cut();
  await broken(page);
  await chat(page, "echo said into the void");
  await log(page).getByText("echo said into the void").waitFor();
  await page.getByRole("button", { name: "What can be done with this session" }).click();
  await page.getByRole("menuitem", { name: "Detach" }).click();
  await log(page).waitFor({ state: "detached" });
  network.mend();
  await has(world, id, "said into the void");
  await page.evaluate((to) => void (location.hash = to), `#/sessions/${id}`);
  await expect.poll(() => places(page, "said into the void")).toEqual({ said: 1, waits: 0, written: 0 });
});

/** What the session is in when things happen. */
const scenes = ["a turn runs", "a prompt waits for it", "the agent asks"] as const;

interface Scene {
  readonly page: Page;
  readonly own: World;
  readonly network: Network;
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
        const { said, waits, written } = await places(page, "what waits");
        return {
          asks: (info?.pending ?? 0) > 0 === ((await page.getByRole("region", { name: "The agent asks" }).count()) > 0),
          works: works === ((await page.getByRole("button", { name: /^Stop(ping)?$/ }).count()) > 0),
          words: said + waits + written,
        };
      }, { timeout: 20_000 }).toEqual({ asks: true, works: true, words: scene === "a prompt waits for it" ? 1 : 0 });
      expect(own.complaints.filter((one) => one.startsWith("error:"))).toEqual([]);
    } catch (cause) {
      throw new Error(`seed ${seed}: ${what}: ${(await page.locator("body").innerText()).slice(-600)}`, { cause });
    }
    await own.closeWindows();
  }
}, 900_000);

/** Gives the page another token in its address: it connects anew. The gateway wants none. */
const anew = (page: Page) => page.evaluate(() => void (location.hash += "&token=another"));

test("a connection that breaks while the session that is shown is taken up anew", async () => {
  const { page, network } = await talk(world);
  const resumes = network.lose('"session/resume"');
  await anew(page);
  await resumes;
  network.cut();
  await broken(page);
  network.mend();
  await chat(page, "echo and after");
  await log(page).locator(".agent").getByText("and after", { exact: true }).waitFor();
});

test("a session that is shown, and that cannot be taken up anew, stays to be read, with what is written for it", async () => {
  const { page, network } = await talk(world);
  await prompt(page).fill("half a thought");
  const refused = network.lose('"session/resume"', { code: -32603, message: "its agent is not there any more" });
  await anew(page);
  await refused;
  const notice = page.locator(".notice", { hasText: "This session cannot be followed now" });
  await notice.getByText("its agent is not there any more").waitFor();
  await log(page).locator(".agent").getByText("before", { exact: true }).waitFor();
  expect(await places(page, "half a thought")).toEqual({ said: 0, waits: 0, written: 1 });
  expect(await inaccessible(page)).toEqual([]);
  await notice.getByRole("button", { name: "Try again" }).click();
  await expect.poll(() => prompt(page).inputValue()).toBe("half a thought");
});

test("a session that is shown, and that cannot be taken up for a reason that passes, says why until it can", async () => {
  const { page, network } = await talk(world);
  const full = { code: -32603, message: "the disk is full", data: { type: "urn:sandbox-agent:error:insufficient_storage" } };
  const bar = page.locator(".conversation-bar", { hasText: "This session cannot be followed now" });
  const first = network.lose('"session/resume"', full);
  await anew(page);
  await first;
  await network.lose('"session/resume"', full);
  await bar.getByText("the disk is full").waitFor();
  await bar.waitFor({ state: "detached" });
  await chat(page, "echo and after");
  await log(page).locator(".agent").getByText("and after", { exact: true }).waitFor();
});

test("a connection that breaks while the page attaches to a session that waits, of which nothing more is told", async () => {
  await using client = new SandboxAgentClient({ baseUrl: world.gateway.url, agent: "mock" });
  const session = await client.newSession({ cwd: "/tmp" });
  const turn = session.prompt("question");
  await expect.poll(async () => (await client.api.session(session.id)).pending).toBe(1);
  const page = await world.open("about:blank");
  const network = await breakable(page);
  const resumes = network.lose('"session/resume"');
  await page.goto(world.url("#/sessions"));
  await resumes;
  await client.setTitle(session.id, "the last that is told");
  await page.getByText("the last that is told").waitFor();
  network.cut();
  await broken(page);
  network.mend();
  await page.evaluate(() => void (location.hash = "#/inbox"));
  await page.getByRole("region", { name: "The agent asks" }).waitFor();
  await session.cancel();
  await turn;
});

test("a session that the client cannot attach to again behind a broken connection is taken up by the page, and what it asks is shown", async () => {
  const { page, network, id } = await talk(world);
  network.cut();
  await broken(page);
  const refused = network.lose('"session/resume"', { code: -32603, message: "its agent did not start" });
  network.mend();
  await refused;
  await using other = new SandboxAgentClient({ baseUrl: world.gateway.url });
  const session = await other.resumeSession({ sessionId: id });
  const turn = session.prompt("question");
  await page.getByRole("region", { name: "The agent asks" }).waitFor();
  await session.cancel();
  await turn;
  await session.prompt("echo theirs");
  await log(page).locator(".agent").getByText("theirs", { exact: true }).waitFor();
});

test("a form that is half filled in, and a page that connects anew", async () => {
  const { page, network } = await talk(world);
  const form = page.getByRole("region", { name: "The agent asks" });
  await newSession(page, { agent: "story", prompt: "form" });
  await form.getByLabel("Replicas").fill("7");
  const opened = page.waitForEvent("websocket");
  await anew(page);
  await opened;
  await expect.poll(() => form.getByLabel("Replicas").inputValue()).toBe("7");
  // Sent while there is no connection, and before there is another one.
  await form.getByLabel("Region").selectOption("eu");
  network.cut();
  await broken(page);
  await form.getByRole("button", { name: "Send" }).click();
  await anew(page);
  network.mend();
  await log(page).getByText('"replicas":7').waitFor();
  expect(await page.getByText("is not asked any more").count()).toBe(0);
});
