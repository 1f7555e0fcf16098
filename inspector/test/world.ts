// A gateway with the page in it, and a browser that looks at it.
import { mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import type { Browser, BrowserContext, BrowserContextOptions, Page } from "playwright-core";
import { launch } from "../../sdk-ts/test/browser.js";
import { Gateway } from "../../sdk-ts/test/gateway.js";

export type { Browser, BrowserContext, Page };

const screenshots = resolve(import.meta.dirname, "screenshots");
const axePath = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

export const desktop = { width: 1280, height: 800 };
export const phone = { width: 390, height: 844 };

/** What one file of tests needs. Everything it opened ends with `stop`. */
export class World {
  readonly #contexts: BrowserContext[] = [];
  /** What pages complained about; tests that expect nothing check that it is empty. */
  readonly complaints: string[] = [];

  private constructor(readonly gateway: Gateway, readonly browser: Browser) {}

  static async start(args: readonly string[] = ["--no-token"], env: Record<string, string> = {}): Promise<World> {
    const gateway = await Gateway.start(args, env);
    return new World(gateway, await launch());
  }

  /** The page's address in this gateway. */
  url(hash = ""): string {
    return `${this.gateway.url}/ui/${hash}`;
  }

  /** A window of its own: another person, as far as the page knows. */
  async open(hash = "", options: BrowserContextOptions = {}): Promise<Page> {
    const context = await this.browser.newContext({ viewport: desktop, colorScheme: "light", reducedMotion: "reduce", ...options });
    this.#contexts.push(context);
    const page = await context.newPage();
    page.setDefaultTimeout(15_000);
    page.on("pageerror", (error) => this.complaints.push(`error: ${error.message}`));
    page.on("console", (message) => {
      if (message.type() === "error") this.complaints.push(`console: ${message.text()}`);
    });
    await page.goto(this.url(hash));
    return page;
  }

  async stop(): Promise<void> {
    for (const context of this.#contexts) await context.close();
    await this.browser.close();
    await this.gateway.stop();
  }
}

/** Waits until the page is connected and shows an area. */
export async function connected(page: Page): Promise<void> {
  await page.locator("#nav .dot.good").waitFor({ state: "attached" });
}

/** Keeps a picture of the page, for people to look at. */
export async function picture(page: Page, name: string): Promise<void> {
  mkdirSync(screenshots, { recursive: true });
  await page.screenshot({ path: join(screenshots, `${name}.png`) });
}

/** What is not accessible on the page, one line for each finding. */
export async function inaccessible(page: Page): Promise<string[]> {
  // Through the debugger: the page's policy lets no script in.
  await page.evaluate(await axeSource());
  return page.evaluate(async () => {
    const axe = (globalThis as unknown as { axe: { run(options: object): Promise<{ violations: { id: string; help: string; nodes: { target: string[]; failureSummary?: string }[] }[] }> } }).axe;
    const { violations } = await axe.run({ resultTypes: ["violations"] });
    return violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${v.help}: ${n.target.join(" ")}: ${n.failureSummary?.split("\n").slice(1).join("; ").trim() ?? ""}`));
  });
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
  // Colours that are on their way are nobody's.
  await page.waitForFunction(() => document.getAnimations().every((a) => !(a instanceof CSSTransition)));
}
