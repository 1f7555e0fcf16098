// Visits the page of the guide "A chat page of your own", as its reader does: with a browser, at
// the address that is the argument.
//
//   node --import tsx visit.ts ADDRESS
import assert from "node:assert/strict";
import type { Page } from "playwright-core";
import { launch, unpack } from "./browser.js";

const address = process.argv[2];
assert(address, "name the address");

/** Waits until the log's lines are as they should be. */
async function lines(page: Page, are: string): Promise<string[]> {
  await page.waitForFunction((wanted) => {
    const said = [...document.querySelectorAll("main p")].map((p) => p.textContent).join("|");
    return new RegExp(wanted).test(said);
  }, are);
  return page.locator("main p").allTextContents();
}

async function send(page: Page, text: string): Promise<void> {
  await page.getByLabel("Message").fill(text);
  await page.getByRole("button", { name: "Send" }).click();
  assert.equal(await page.getByLabel("Message").inputValue(), "", "what was sent is still in the field");
}

await unpack();
const browser = await launch();
try {
  const context = await browser.newContext(); // two windows of one browser
  const page = await context.newPage();
  const errors: unknown[] = [];
  page.on("pageerror", (error) => errors.push(error));
  await page.goto(address);
  await page.waitForFunction(() => localStorage.getItem("session of mock") !== null);
  await send(page, "echo to my own page");
  await lines(page, "^echo to my own page\\|to my own page$");

  await send(page, "permission");
  await page.getByRole("button", { name: /allow/i }).first().click();
  await lines(page, "\\|permission\\|.*(granted|allow)");

  // A reload in the middle of a turn, and another window that sees the same.
  await send(page, "slow");
  await lines(page, "tick 3");
  await page.reload();
  const all = await lines(page, "\\|tick 0 tick 1 .*tick 5");
  assert.deepEqual(all.slice(0, 2), ["echo to my own page", "to my own page"]);
  const other = await context.newPage();
  await other.goto(address);
  await lines(other, "^echo to my own page\\|to my own page\\|.*tick 6");

  // A session that is gone is no reason for a page that does nothing.
  await other.evaluate(() => localStorage.setItem("session of mock", "no-such-session"));
  await other.reload();
  await other.waitForFunction(() => localStorage.getItem("session of mock") !== "no-such-session");
  await send(other, "echo begun anew");
  await lines(other, "^echo begun anew\\|begun anew$");
  assert.deepEqual(errors, []);
  console.log("the page works");
} finally {
  await browser.close();
}
