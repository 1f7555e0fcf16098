// Formulas and diagrams of agents: they are shown, and do nothing else.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { bothThemes, chat, inaccessible, newSession, phone, picture, settled, storyAgent, theme, World, type Page } from "./world.js";

let world: World;
beforeAll(async () => {
  world = await World.start(["--no-token", ...storyAgent]);
});
afterEach(async ({ task }) => world?.closeWindows(task));
afterAll(async () => world?.stop());

const log = (page: Page) => page.getByRole("log");
const fence = (language: string, text: string) => `\`\`\`${language}\n${text}\n\`\`\``;

/** The agent says what it is told. */
async function say(page: Page, text: string): Promise<void> {
  await chat(page, `show\n\n${text}`);
  await settled(page);
}

test("formulas are set, and what is no formula stays as it is", async () => {
  const page = await world.open();
  await newSession(page, { agent: "story" });
  await say(page, "The sum is $\\sum_{i=1}^{n} i = \\frac{n(n+1)}{2}$, and it costs $5 and $6.\n\n$$\n\\begin{pmatrix} a & b \\\\ c & d \\end{pmatrix}\n$$\n\n- in a list \\(x^2\\)\n\n| head |\n|---|\n| $y_1$ |\n\nwrong: $\\frac{1}$");
  const said = log(page).locator(".said.agent");
  await expect.poll(() => said.locator("math").count()).toBe(4);
  expect(await said.locator("math mfrac").count()).toBe(1);
  expect(await said.locator("math mtable mtd").count()).toBe(4);
  await said.getByText("and it costs $5 and $6.").waitFor();
  await said.locator(".maths-source", { hasText: "$\\frac{1}$" }).waitFor();
  expect(await said.locator(".maths-source").getAttribute("title")).toMatch(/^This formula cannot be shown: /);
  await bothThemes(page, "formulas");
});

test("diagrams are drawn in both themes, shown large, and have their source", async () => {
  const page = await world.open("", { permissions: ["clipboard-read", "clipboard-write"] });
  const id = await newSession(page, { agent: "story" });
  const flow = "flowchart LR\n  A[Write a test] --> B{Does it fail?}\n  B -->|yes| C[Make it pass]\n  B -->|no| A";
  await say(page, [
    fence("mermaid", flow),
    fence("mermaid", "sequenceDiagram\n  participant C as Client\n  participant G as Gateway\n  C->>G: session/prompt\n  G-->>C: session/update\n  Note over G: a turn"),
    fence("mermaid", "pie title Tokens\n  \"in\" : 80\n  \"out\" : 20"),
    fence("mermaid", "this is no diagram"),
    fence("mermaid", "mindmap\n  root"),
    fence("mermaid", `flowchart TD\n  A-->B\n  %% ${"x".repeat(20_000)}`),
  ].join("\n\n"));
  const said = log(page).locator(".said.agent");
  // The first of them is above what is in sight.
  const first = said.locator(".diagram, .diagram-source").filter({ has: page.getByRole("img", { name: "Diagram: flowchart LR" }).or(page.getByText("A[Write a test]")) });
  await log(page).hover();
  await expect.poll(async () => {
    await page.mouse.wheel(0, -2000);
    return first.count();
  }).toBe(1);
  await first.getByRole("img").waitFor();
  expect(await first.getByRole("img").evaluate((img) => [(img as HTMLImageElement).naturalWidth > 100, (img as HTMLImageElement).alt, (img as HTMLImageElement).src.startsWith("blob:")])).toEqual([true, "Diagram: flowchart LR", true]);
  const svg = () => first.getByRole("img").evaluate((img) => (img as HTMLImageElement).src);
  const light = await svg();
  const alone = await page.context().newPage();
  await alone.goto(light);
  expect(await alone.locator("svg").first().textContent()).toContain("Write a test");
  expect(await alone.locator("foreignObject").count()).toBe(0); // letters, no page in the picture
  // All that was drawn is in the picture.
  expect(await alone.evaluate(() => {
    const [drawn, box] = [(document.documentElement as unknown as SVGSVGElement).getBBox(), (document.documentElement as unknown as SVGSVGElement).viewBox.baseVal];
    return drawn.x >= box.x && drawn.y >= box.y && drawn.x + drawn.width <= box.x + box.width && drawn.y + drawn.height <= box.y + box.height;
  })).toBe(true);
  await alone.close();
  for (const name of ["light", "dark"] as const) {
    await theme(page, name);
    await first.getByRole("img").waitFor();
    await first.evaluate((e) => e.scrollIntoView({ block: "start" }));
    expect(await inaccessible(page)).toEqual([]);
    await picture(page, `diagrams-${name}`);
  }
  await expect.poll(svg).not.toBe(light); // it has the colours of the other theme
  // By keys: large, and its source.
  await said.getByRole("button", { name: "Diagram: flowchart LR, show large" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("dialog", { name: "Diagram" }).getByRole("img").waitFor();
  await page.keyboard.press("Escape");
  await first.getByRole("radio", { name: "Source" }).check({ force: true });
  await first.getByText("A[Write a test]").waitFor();
  await first.getByRole("radio", { name: "Diagram" }).check({ force: true });
  await first.getByRole("button", { name: "Copy the source" }).click();
  await expect.poll(() => page.evaluate(() => navigator.clipboard.readText())).toBe(flow);
  // What cannot be drawn says why, and is there as it was written.
  await page.getByRole("button", { name: "To the end" }).click();
  await said.getByText("This diagram cannot be drawn: No diagram type detected").waitFor();
  await said.getByText("This diagram cannot be drawn: diagrams of this kind are not drawn here").waitFor();
  await said.getByText("This diagram cannot be drawn: it has more than 20000 characters").waitFor();
  await said.getByText("this is no diagram").last().waitFor();
  // Nothing of the drawing stays in the page.
  expect(await page.locator(".drawing-place, body > svg, body > style").count()).toBe(0);
  // A phone, and all of it once more.
  const small = await world.open(`#/sessions/${id}`, { viewport: phone, hasTouch: true, isMobile: true });
  await small.locator(".diagram img").or(small.getByText("This diagram cannot be drawn")).last().waitFor();
  expect(await inaccessible(small)).toEqual([]);
  await picture(small, "diagrams-phone");
  expect(await small.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
});

test("the diagrams of the documentation are drawn", async () => {
  const docs = join(import.meta.dirname, "../../docs");
  const diagrams = readdirSync(docs).filter((name) => name.endsWith(".mdx"))
    .flatMap((name) => [...readFileSync(join(docs, name), "utf8").matchAll(/^```mermaid\n(.*?)\n```$/gms)].map((match) => ({ name, text: match[1]! })));
  expect(diagrams.length).toBeGreaterThan(2);
  const page = await world.open();
  await newSession(page, { agent: "story" });
  const drawn = log(page).locator(".diagram, .diagram-source").last();
  for (const [i, { name, text }] of diagrams.entries()) {
    await say(page, `${fence("mermaid", text)}\n\nend of ${i}, in ${name}`);
    await log(page).getByText(`end of ${i}, in ${name}`, { exact: true }).waitFor();
    await drawn.locator("img").or(drawn.getByText("This diagram cannot be drawn")).waitFor();
    expect([name, await drawn.locator("img").count()]).toEqual([name, 1]);
    await picture(page, `documentation-${i}`);
  }
});

const script = "window.taken=1";
/** What has been tried against pages that show diagrams and formulas. */
const attacks: readonly (readonly [language: "mermaid" | "maths", text: string])[] = [
  ...[
    `flowchart LR\n A["<img src=x onerror=${script}>"] --> B`,
    `flowchart LR\n A["<script>${script}</script>"] --> B`,
    `flowchart LR\n A["<svg onload=${script}>"] --> B["<iframe srcdoc='<script>parent.${script}</script>'>"]`,
    `flowchart LR\n A[a] --> B[b]\n click A "javascript:${script}" "tip"`,
    `flowchart LR\n A[a] --> B[b]\n click A call alert("taken")\n click B href "data:text/html,<script>${script}</script>"`,
    `flowchart LR\n A[a]\n style A fill:url(http://127.0.0.1:1/taken),background:url(http://127.0.0.1:1/taken)`,
    `flowchart LR\n A[a]:::x\n classDef x fill:#f00;}*{background:url(http://127.0.0.1:1/taken)}`,
    `%%{init: {"securityLevel": "loose", "htmlLabels": true, "flowchart": {"htmlLabels": true}}}%%\nflowchart LR\n A["<img src=x onerror=${script}>"]`,
    `%%{init: {"themeCSS": "} * { background: url(http://127.0.0.1:1/taken) } a {"}}%%\nflowchart LR\n A[a]`,
    `%%{init: {"themeCSS": ":not(&) { display: none !important }"}}%%\nflowchart LR\n A[a]`,
    `%%{init: {"fontFamily": "x;} * { visibility: hidden } a {"}}%%\nflowchart LR\n A[a]`,
    `%%{init: {"themeVariables": {"primaryColor": "red;} body { display: none } x {"}}}%%\nflowchart LR\n A[a]`,
    `%%{init: {"dompurifyConfig": {"ADD_TAGS": ["script", "iframe"], "ADD_ATTR": ["onerror"]}}}%%\nflowchart LR\n A["<img src=x onerror=${script}>"]`,
    `%%{init: {"__proto__": {"securityLevel": "loose"}, "constructor": {"prototype": {"taken": 1}}}}%%\nflowchart LR\n A[a]`,
    `---\nconfig:\n  securityLevel: loose\n  htmlLabels: true\n---\nflowchart LR\n A["<img src=x onerror=${script}>"]`,
    `flowchart LR\n A@{ img: "http://127.0.0.1:1/taken.png", label: "x", pos: "t", w: 60, h: 60, constraint: "off" }`,
    `flowchart LR\n A@{ icon: "x:y", form: "square", label: "<img src=x onerror=${script}>" }`,
    `sequenceDiagram\n participant A as <img src=x onerror=${script}>\n A->>A: <script>${script}</script>\n link A: bad @ javascript:${script}\n links A: {"x": "javascript:${script}"}`,
    `sequenceDiagram\n A->>B: $$\\href{javascript:${script}}{x}$$`,
    `classDiagram\n class A["<img src=x onerror=${script}>"]\n click A href "javascript:${script}"\n link A "javascript:${script}"`,
    `classDiagram\n class A~<img src=x onerror=${script}>~\n A : +<svg/onload=${script}>()`,
    `stateDiagram-v2\n [*] --> A : <img src=x onerror=${script}>\n note right of A : <iframe src=javascript:${script}>`,
    `erDiagram\n "<img src=x onerror=${script}>" ||--o{ B : "<svg onload=${script}>"`,
    `gantt\n title <img src=x onerror=${script}>\n dateFormat YYYY-MM-DD\n section <script>${script}</script>\n a :a1, 2020-01-01, 1d\n click a1 href "javascript:${script}"`,
    `gantt\n dateFormat YYYY-MM-DD\n tickInterval 1second\n axisFormat %S\n a :a1, 0001-01-01, 9999-12-31`,
    `pie title <img src=x onerror=${script}>\n "<svg onload=${script}>" : 1`,
    `journey\n title <img src=x onerror=${script}>\n section <script>${script}</script>\n a: 5: <img src=x onerror=${script}>`,
    `timeline\n title <img src=x onerror=${script}>\n 2020 : <svg onload=${script}>`,
    `gitGraph\n commit id: "<img src=x onerror=${script}>" tag: "<svg onload=${script}>"`,
    `flowchart LR\n ${"subgraph a\n".repeat(300)}`,
  ].map((text) => ["mermaid", text] as const),
  ...[
    `\\href{javascript:${script}}{x}`, `\\url{javascript:${script}}`, `\\includegraphics{http://127.0.0.1:1/taken.png}`,
    `\\htmlStyle{background:url(http://127.0.0.1:1/taken)}{x}`, `\\class{menu-list}{x}`, `\\id{root}{x}`, `\\htmlData{x=y}{z}`, `\\style{position:fixed;inset:0}{x}`,
    `\\text{<img src=x onerror=${script}>}`, `\\color{red;background:url(http://127.0.0.1:1/taken)}{x}`, `\\colorbox{url(http://127.0.0.1:1/taken)}{x}`, `\\textcolor{"onload="${script}}{x}`,
    `\\unicode{x3c}script>`, `\\def\\a{\\a\\a}\\a`, `\\def\\a#1{#1#1#1#1}\\a{\\a{\\a{\\a{\\a{\\a{\\a{x}}}}}}}`, `${"{".repeat(1500)}x${"}".repeat(1500)}`, `${"\\sqrt{".repeat(400)}x${"}".repeat(400)}`,
    `\\rule{9999em}{9999em}`, `\\kern{-9999em}\\rule{9999em}{99em}`, `\\raisebox{999em}{x}`, `\\hspace{-5000px}\\text{To the end}`, `\\begin{matrix}${"&".repeat(1500)}\\end{matrix}`,
    `\\tag{<img src=x onerror=${script}>}x`, `\\label{root}\\ref{root}`, `\\bf\\require{html}\\href{x}{y}`,
  ].map((text) => ["maths", text] as const),
];

test("what agents put into formulas and diagrams does nothing", async () => {
  const asked: string[] = [];
  const page = await world.open("about:blank");
  page.on("request", (request) => asked.push(request.url()));
  const dialogs: string[] = [];
  page.on("dialog", (dialog) => {
    dialogs.push(dialog.message());
    void dialog.dismiss();
  });
  await page.addInitScript(() => {
    const seen: string[] = [];
    (globalThis as unknown as { violations: string[] }).violations = seen;
    document.addEventListener("securitypolicyviolation", (e) => seen.push(`${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}:${e.lineNumber}:${e.columnNumber}`));
  });
  await page.goto(world.url("#/sessions"));
  await newSession(page, { agent: "story" });
  await say(page, "hello");
  // A library of the page has tried whether it may make functions out of texts; it may not.
  await page.evaluate(() => ((globalThis as unknown as { violations: string[] }).violations.length = 0));
  for (const [i, [language, text]] of attacks.entries()) {
    await say(page, `attack ${i}\n\n${language === "mermaid" ? fence("mermaid", text) : `$$${text}$$`}\n\nend ${i}`);
    const said = log(page).locator(".said.agent");
    await said.getByText(`end ${i}`, { exact: true }).waitFor();
    // It is a picture, or there as it was written.
    const shown = language === "mermaid" ? said.locator(".diagram img").or(said.getByText("This diagram cannot be drawn")) : said.locator("math, .maths-source");
    await shown.last().waitFor().catch((error: unknown) => {
      throw new Error(`attack ${i}, ${text.slice(0, 200)}: ${String(error)}`);
    });
    if (language === "mermaid") await expect.poll(() => page.evaluate(() => document.querySelector(".drawing-place") === null), { message: text }).toBe(true);
    expect(await page.evaluate(() => (globalThis as unknown as { violations: string[] }).violations), text).toEqual([]);
    // No attack reaches out of its place, nor into another one.
    const state = await page.evaluate(() => ({
      taken: "taken" in globalThis || "taken" in {}, frames: frames.length,
      bad: document.querySelectorAll("script:not([src]), iframe, object, embed, a[href^='javascript' i], a[href^='data' i], [onerror], [onload], math [href], math [id], math [class*='menu'], math [style*='url'], math [style*='position']").length,
      seen: getComputedStyle(document.body).display !== "none" && getComputedStyle(document.body).visibility === "visible",
      place: [...document.querySelectorAll(".maths, .maths-block")].every((e) => getComputedStyle(e).contain.includes("paint")),
    }));
    expect(state, text).toEqual({ taken: false, frames: 0, bad: 0, seen: true, place: true });
  }
  const outside = await page.evaluate(() => (globalThis as unknown as { violations: string[] }).violations);
  expect({ outside, dialogs, asked: asked.filter((url) => !url.startsWith(world.gateway.url) && !url.startsWith("blob:") && !url.startsWith("data:")) }).toEqual({ outside: [], dialogs: [], asked: [] });
  expect(world.complaints.filter((c) => c.startsWith("error"))).toEqual([]);
  // The page is as quick as before.
  await say(page, "still here");
  await log(page).getByText("still here").last().waitFor();
}, 240_000);
