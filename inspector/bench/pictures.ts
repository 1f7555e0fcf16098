// Pictures of all areas, in both themes and three sizes, for people to look at. They
// go into a folder outside of the repository: PICTURES, else one for temporary files.
// ONLY=phone or ONLY=wire makes those alone. TOUR=FOLDER makes those of the
// documentation there: desktop only, and small enough to be kept.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, test } from "vitest";
import { chat, connected, desktop, newSession, phone, settled, storyAgent, theme, World, type Page } from "../test/world.js";

const tour = process.env.TOUR;
const out = tour ?? process.env.PICTURES ?? join(tmpdir(), "sandbox-agent-pictures");
const only = process.env.ONLY ?? "";
const sizes = tour ? { desktop } : { desktop, tablet: { width: 834, height: 1112 }, phone };

/** What docs/tour.mdx shows. */
const toured = new Set(["conversation", "permission", "inbox", "files", "terminal", "wire", "usage", "palette"]);

let world: World;
let home: string;
beforeAll(async () => {
  mkdirSync(out, { recursive: true });
  home = tour ? join(tmpdir(), "sandbox-agent-tour") : mkdtempSync(join(tmpdir(), "pictures-"));
  mkdirSync(join(home, "project", "src"), { recursive: true });
  writeFileSync(join(home, "project", "README.md"), "# A project\n\nIt divides numbers.\n");
  writeFileSync(join(home, "project", "src", "divide.ts"), "export function divide(a: number, b: number): number {\n  return a / b;\n}\n");
  world = await World.start(["--no-token", ...storyAgent], { HOME: home });
});
afterAll(async () => {
  await world?.stop();
  rmSync(home, { recursive: true, force: true });
  console.log(`pictures are in ${out}`);
});

/** An area, and what is done before its picture is taken. */
const areas: Record<string, { hash?: string; ready(page: Page): Promise<unknown> }> = {
  sessions: { hash: "#/sessions", ready: (page) => page.getByRole("complementary", { name: "Sessions" }).getByRole("link").nth(1).waitFor() },
  "new-session": { hash: "#/sessions/new", ready: (page) => page.getByRole("heading", { name: "New session" }).waitFor() },
  conversation: { ready: (page) => page.getByRole("log").getByText("The review found nothing.").waitFor() },
  permission: { ready: (page) => page.getByRole("region", { name: "The agent asks" }).waitFor() },
  inbox: { hash: "#/inbox", ready: (page) => page.getByRole("region", { name: "The agent asks" }).first().waitFor() },
  wire: { hash: "#/wire", ready: (page) => page.getByRole("listbox", { name: "Traffic" }).getByRole("option").nth(2).waitFor() },
  agents: { hash: "#/agents/claude", ready: (page) => page.getByRole("article").waitFor() },
  matrix: { hash: "#/agents?view=matrix", ready: (page) => page.getByRole("table").waitFor() },
  files: { ready: (page) => page.getByText("return a / b").waitFor() },
  usage: { hash: "#/usage", ready: (page) => page.getByRole("region", { name: "By agent" }).waitFor() },
  processes: { hash: "#/processes", ready: (page) => page.getByRole("heading", { name: "Processes" }).waitFor() },
  terminal: { hash: "#/terminal", ready: async (page) => {
    await page.getByRole("main").getByRole("button", { name: "New terminal" }).first().click();
    await page.getByText("Connected.").waitFor();
    await page.keyboard.type("ls --color=always -l ~/project; printf '\\033[30;46m black on cyan \\033[97;44m white on blue \\033[0m\\n'\n");
    await page.locator(".screen").getByText("white on blue").nth(1).waitFor();
  } },
  palette: { hash: "#/inbox", ready: async (page) => {
    await page.getByRole("heading", { name: "Inbox" }).waitFor();
    await page.keyboard.press("Control+k");
    await page.getByRole("dialog").getByRole("option").first().waitFor();
  } },
  connect: { hash: "#/connect", ready: (page) => page.getByRole("button", { name: "Connect", exact: true }).waitFor() },
};

test("pictures", async () => {
  const first = await world.open();
  const story = await newSession(first, { agent: "story", cwd: join(home, "project"), prompt: tour ? "story plain" : "story" });
  await first.getByText("The review found nothing.").waitFor();
  await settled(first);
  await newSession(first, { prompt: "usage" });
  await settled(first);
  const asks = await newSession(first, { prompt: "permission" });
  await chat(first, "echo this waits");
  const places: Record<string, string> = {
    conversation: `#/sessions/${story}`, permission: `#/sessions/${asks}`, files: `#/files?${new URLSearchParams({ path: join(home, "project", "src", "divide.ts") })}`,
  };
  for (const [size, viewport] of Object.entries(sizes)) {
    for (const [name, area] of Object.entries(areas)) {
      if (only !== "" && only !== size && only !== name || tour && !toured.has(name)) continue;
      const page = await world.open(area.hash ?? places[name]!, { viewport, ...(size === "phone" ? { hasTouch: true, isMobile: true } : {}) });
      if (name !== "connect") await connected(page);
      await area.ready(page);
      for (const mode of ["light", "dark"] as const) {
        await theme(page, mode);
        if (tour) writeFileSync(join(out, `${name}-${mode}.webp`), await small(page));
        else await page.screenshot({ path: join(out, `${name}-${size}-${mode}.png`) });
      }
      await page.context().close();
    }
  }
});

/** A picture in a tenth of what a PNG of it takes. */
async function small(page: Page): Promise<Buffer> {
  const debug = await page.context().newCDPSession(page);
  const { data } = await debug.send("Page.captureScreenshot", { format: "webp", quality: 80 });
  await debug.detach();
  return Buffer.from(data, "base64");
}
