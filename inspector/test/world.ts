// A gateway with the page in it, and a browser that looks at it.
import { mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import type { Browser, BrowserContext, BrowserContextOptions, Dialog, Locator, Page } from "playwright-core";
import { expect } from "vitest";
import { launch } from "../../sdk-ts/test/browser.js";
import { Gateway } from "../../sdk-ts/test/gateway.js";

export type { Browser, BrowserContext, Dialog, Locator, Page };

const screenshots = resolve(import.meta.dirname, "screenshots");
const axePath = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

/** How late each request of a page may reach the gateway: what tests take for granted shows with TEST_DELAY_MS=1500. */
const delayMs = Number(process.env.TEST_DELAY_MS ?? 0);

export const desktop = { width: 1280, height: 800 };
export const phone = { width: 390, height: 844 };

/** What one file of tests needs. Everything it opened ends with `stop`. */
export class World {
  readonly #contexts: BrowserContext[] = [];
  /** What pages complained about; tests that expect nothing check that it is empty. */
  readonly complaints: string[] = [];

  private constructor(readonly gateway: Gateway, readonly browser: Browser) {}

  /** With the page of a hub, which the caller ends. */
  static async startAt(hub: { readonly url: string }): Promise<World> {
    return new World({ url: hub.url, stop: async () => {} } as Gateway, await launch());
  }

  static async start(args: readonly string[] = ["--no-token"], env: Record<string, string> = {}): Promise<World> {
    const gateway = await Gateway.start(args, env);
    return new World(gateway, await launch());
  }

  /** With the mock agent in both versions of ACP: `mock` and `mock2`. */
  static async startWithBoth(args: readonly string[]): Promise<World> {
    return new World(await Gateway.startWithBoth(args), await launch());
  }

  /** The page's address in this gateway. */
  url(hash = ""): string {
    return `${this.gateway.url}/ui/${hash}`;
  }

  /** A window of its own: another person, as far as the page knows. */
  async open(hash = "", options: BrowserContextOptions = {}): Promise<Page> {
    const context = await this.browser.newContext({ viewport: desktop, colorScheme: "light", reducedMotion: "reduce", ...options });
    this.#contexts.push(context);
    if (delayMs > 0) await context.route(/\/v2\//, async (route) => {
      await new Promise((later) => setTimeout(later, Math.random() * delayMs));
      await route.continue().catch(() => {}); // the page may be gone
    });
    const page = await context.newPage();
    page.setDefaultTimeout(45_000);
    page.on("pageerror", (error) => this.complaints.push(`error: ${error.message}`));
    page.on("console", (message) => {
      if (message.type() === "error") this.complaints.push(`console: ${message.text()}`);
    });
    await page.goto(hash === "about:blank" ? hash : this.url(hash));
    return page;
  }

  /** Closes all windows, with a picture of each when the test failed. */
  async closeWindows(test?: { readonly name: string; readonly result?: { readonly state: string } | undefined }): Promise<void> {
    if (test?.result?.state === "fail") {
      for (const [i, page] of this.#contexts.flatMap((c) => c.pages()).entries()) await picture(page, `failed-${test.name.replace(/\W+/g, "-").slice(0, 60)}-${i}`).catch(() => {});
    }
    for (const context of this.#contexts.splice(0)) await context.close();
  }

  async stop(): Promise<void> {
    await this.closeWindows();
    await this.browser.close();
    await this.gateway.stop();
  }
}

/** Waits until the page is connected and shows an area. */
export async function connected(page: Page): Promise<void> {
  await page.locator("#nav .dot.good").waitFor({ state: "attached" });
}

/** Keeps a picture of the page, for people to look at: where nobody does, only of one that failed. */
export async function picture(page: Page, name: string): Promise<void> {
  if (process.env.CI && !name.startsWith("failed-")) return;
  mkdirSync(screenshots, { recursive: true });
  await page.screenshot({ path: join(screenshots, `${name}.png`) });
}

/** What is not accessible on the page, one line for each finding; by these rules, or by all. What is left out is too much to be looked at line by line. */
export async function inaccessible(page: Page, rules?: readonly string[], without: readonly string[] = []): Promise<string[]> {
  // Through the debugger: the page's policy lets no script in. Half a megabyte, so once for each page.
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(await axeSource());
  return page.evaluate(async ([runOnly, exclude]) => {
    const axe = (globalThis as unknown as { axe: { run(context: object, options: object): Promise<{ violations: { id: string; help: string; nodes: { target: string[]; failureSummary?: string }[] }[] }> } }).axe;
    const { violations } = await axe.run({ exclude }, { resultTypes: ["violations"], ...(runOnly && { runOnly }) });
    return violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${v.help}: ${n.target.join(" ")}: ${n.failureSummary?.split("\n").slice(1).join("; ").trim() ?? ""}`));
  }, [rules, without] as const);
}

let source: Promise<string> | undefined;
async function axeSource(): Promise<string> {
  source ??= import("node:fs/promises").then((fs) => fs.readFile(axePath, "utf8"));
  return source;
}

/** Shows the page in the other theme. */
export async function theme(page: Page, name: "light" | "dark"): Promise<void> {
  await page.emulateMedia({ colorScheme: name });
  await page.waitForFunction((wanted) => document.documentElement.dataset.theme === wanted, name);
}

/** Looks at what the page shows in both themes, and keeps a picture of each. It is light then. */
export async function bothThemes(page: Page, name: string, without: readonly string[] = []): Promise<void> {
  // Nothing but colours is another one in the dark.
  for (const [mode, rules] of [["light", undefined], ["dark", ["color-contrast", "link-in-text-block"]]] as const) {
    await theme(page, mode);
    expect(await inaccessible(page, rules, without)).toEqual([]);
    await picture(page, `${name}-${mode}`);
  }
  await theme(page, "light");
}

/** The flags that give a gateway the agent of agent.mjs. */
export const storyAgent = ["--agent-command", `story=${process.execPath} ${join(import.meta.dirname, "agent.mjs")}`];

/** Makes a session with the page's form and waits until it takes prompts. */
export async function newSession(page: Page, options: { agent?: string; prompt?: string; cwd?: string } = {}): Promise<string> {
  await connected(page);
  await page.evaluate(() => (location.hash = "#/sessions/new"));
  await page.locator(".new-session").getByLabel("Agent", { exact: true }).selectOption(options.agent ?? "mock");
  await page.getByLabel("Folder", { exact: true }).fill(options.cwd ?? "/tmp");
  if (options.prompt) await page.getByLabel("First prompt").fill(options.prompt);
  // What the gateway tells about the agent changes the form, and moves its button.
  await page.waitForFunction(() => !document.querySelector(".new-session [aria-busy=true]"));
  await page.getByRole("button", { name: "Start", exact: true }).click();
  await page.getByRole("textbox", { name: "Prompt", exact: true }).waitFor().catch(async (error: unknown) => {
    throw new Error(`${String(error)}\n\nThe page, at ${page.url()}, says:\n${await page.locator("body").innerText()}`);
  });
  return decodeURIComponent(new URL(page.url()).hash.split("/")[2] ?? "");
}

/** Types a prompt and sends it. */
export async function chat(page: Page, text: string): Promise<void> {
  await page.getByRole("textbox", { name: "Prompt", exact: true }).fill(text);
  await page.keyboard.press("Enter");
}

/** Drags files of this machine into the middle of an element and lets go of them. What is there must not move: the browser drops nothing on what it has not asked. */
export async function drop(page: Page, onto: Locator, files: readonly string[]): Promise<void> {
  const box = await onto.boundingBox();
  if (!box) throw new Error("there is nothing to drop files onto");
  const debug = await page.context().newCDPSession(page);
  for (const type of ["dragEnter", "dragOver", "drop"] as const) {
    await debug.send("Input.dispatchDragEvent", { type, x: box.x + box.width / 2, y: box.y + box.height / 2, data: { items: [], files: [...files], dragOperationsMask: 1 } });
  }
  await debug.detach();
}

/** Waits until the agent has nothing to do. */
export async function settled(page: Page): Promise<void> {
  await page.locator(".working, .ask").waitFor({ state: "detached" });
}

/** Waits until what is asked takes keys: not before it has stood there for a moment. */
export async function answerable(page: Page): Promise<void> {
  await page.locator(".ask [role=group]:not([aria-disabled])").first().waitFor();
}

/** How long the page's frames are while something happens. */
export async function smoothness(page: Page, run: () => Promise<unknown>): Promise<{ longestFrameMs: number; longTasks: number[]; tookMs: number; frames: number }> {
  await page.evaluate(() => {
    const seen = { longest: 0, tasks: [] as number[], frames: 0, began: performance.now(), on: true };
    (globalThis as unknown as { seen: typeof seen }).seen = seen;
    let last = performance.now();
    const frame = (now: number) => {
      seen.longest = Math.max(seen.longest, now - last);
      last = now;
      seen.frames++;
      if (seen.on) requestAnimationFrame(frame);
    };
    requestAnimationFrame((now) => {
      last = now;
      requestAnimationFrame(frame);
    });
    new PerformanceObserver((list) => seen.tasks.push(...list.getEntries().map((e) => e.duration))).observe({ type: "longtask" });
  });
  await run();
  return page.evaluate(() => {
    const { seen } = globalThis as unknown as { seen: { longest: number; tasks: number[]; frames: number; began: number; on: boolean } };
    seen.on = false;
    return { longestFrameMs: seen.longest, longTasks: seen.tasks, tookMs: performance.now() - seen.began, frames: seen.frames };
  });
}
