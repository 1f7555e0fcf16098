// Files, processes and terminals of the gateway's machine.
import { execFileSync } from "node:child_process";
import { appendFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { Proxy } from "../../sdk-ts/test/proxy.js";
import { bothThemes, connected, drop, inaccessible, phone, picture, World } from "./world.js";

let world: World;
let home: string;
beforeAll(async () => {
  home = realpathSync(mkdtempSync(join(tmpdir(), "inspector-home-")));
  world = await World.start(["--no-token"], { HOME: home });
});
afterEach(async ({ task }) => world?.closeWindows(task));
afterAll(async () => {
  await world?.stop();
  rmSync(home, { recursive: true, force: true });
});

const at = (path: string) => `#/files?${new URLSearchParams({ path }).toString()}`;

/** Waits until the file holds this. */
async function holds(path: string, text: string): Promise<void> {
  await expect.poll(() => (existsSync(path) ? readFileSync(path, "utf8") : undefined)).toBe(text);
}

test("a folder is browsed, a file is seen, edited and saved, and a conflict loses nothing", async () => {
  const repo = join(home, "repo");
  mkdirSync(join(repo, "src"), { recursive: true });
  writeFileSync(join(repo, "src", "main.go"), "package main\n\nfunc main() {}\n");
  writeFileSync(join(repo, "win.txt"), "one\r\ntwo\r\n");
  const git = (...args: string[]) => execFileSync("git", ["-C", repo, "-c", "user.name=t", "-c", "user.email=t@example.com", ...args], { stdio: "ignore" });
  git("init", "-b", "main");
  git("add", ".");
  git("commit", "-m", "first");
  const page = await world.open("#/files");
  await connected(page);
  await page.getByRole("link", { name: "repo/" }).click();
  await page.getByText("main", { exact: true }).waitFor(); // the branch
  await page.getByRole("link", { name: "src/" }).click();
  await page.getByRole("link", { name: "main.go" }).click();
  await page.getByText("func main() {}").waitFor();
  await page.getByRole("button", { name: "Edit" }).click();
  const editor = page.getByRole("textbox", { name: "Text of main.go" });
  await editor.fill("package main\n\nfunc main() { println(1) }\n");
  await page.keyboard.press("Control+s");
  await holds(join(repo, "src", "main.go"), "package main\n\nfunc main() { println(1) }\n");
  // What git sees.
  await page.locator(".git-mark", { hasText: "M" }).waitFor();
  await page.getByRole("radio", { name: "Changes" }).check();
  await page.locator(".diff").getByText("println", { exact: false }).first().waitFor();
  await bothThemes(page, "files-diff");
  await page.getByRole("radio", { name: "File" }).check();
  // Somebody else writes meanwhile.
  await page.getByRole("button", { name: "Edit" }).click();
  await editor.fill("mine\n");
  writeFileSync(join(repo, "src", "main.go"), "theirs\n");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("alert").getByText("Somebody has changed the file").waitFor();
  expect(readFileSync(join(repo, "src", "main.go"), "utf8")).toBe("theirs\n");
  expect(await editor.inputValue()).toBe("mine\n");
  await bothThemes(page, "files-conflict");
  await page.getByRole("button", { name: "Replace it" }).click();
  await holds(join(repo, "src", "main.go"), "mine\n");
  // Another's change shows by itself.
  writeFileSync(join(repo, "src", "main.go"), "changed on the machine\n");
  await page.getByText("changed on the machine").waitFor();
  // Line endings stay.
  await page.goto(world.url(at(join(repo, "win.txt"))));
  await page.getByText("changed on the machine").waitFor({ state: "detached" }); // else it is the other file's button
  await page.getByRole("button", { name: "Edit" }).click();
  await page.getByRole("textbox", { name: "Text of win.txt" }).fill("one\ntwo\nthree\n");
  await page.getByRole("button", { name: "Save" }).click();
  await holds(join(repo, "win.txt"), "one\r\ntwo\r\nthree\r\n");
});

test("what changes before a folder is watched, or while it cannot be, is shown", async () => {
  const folder = join(home, "unwatched");
  mkdirSync(folder);
  writeFileSync(join(folder, "one.txt"), "before\n");
  const proxy = await Proxy.to(world.gateway.port);
  const page = await world.open("about:blank");
  let watch!: () => void;
  const held = new Promise<void>((resolve) => (watch = resolve));
  await page.route(/\/v2\/fs\/watch\?/, async (route) => {
    await held;
    await route.continue();
  });
  await page.goto(`${proxy.url}/ui/${at(join(folder, "one.txt"))}`);
  await page.getByText("before", { exact: true }).waitFor();
  await page.locator(".entries").getByRole("link", { name: "one.txt" }).waitFor();
  writeFileSync(join(folder, "one.txt"), "after\n");
  writeFileSync(join(folder, "two.txt"), "two\n");
  watch();
  await page.getByText("after", { exact: true }).waitFor();
  await page.locator(".entries").getByRole("link", { name: "two.txt" }).waitFor();
  // Behind a broken connection it is watched again, and what has changed meanwhile is shown, too.
  proxy.cut();
  writeFileSync(join(folder, "one.txt"), "meanwhile\n");
  writeFileSync(join(folder, "three.txt"), "three\n");
  await page.getByText("meanwhile", { exact: true }).waitFor();
  await page.locator(".entries").getByRole("link", { name: "three.txt" }).waitFor();
  await proxy.stop();
});

test("what changes while git takes its time, or no watch is to be had just now, is shown", async () => {
  const folder = join(home, "busy");
  mkdirSync(folder);
  writeFileSync(join(folder, "one.txt"), "one\n");
  const page = await world.open("about:blank");
  await page.route(/\/v2\/fs\/git\/status/, () => {}); // it never ends
  let refusals = 1;
  await page.route(/\/v2\/fs\/watch\?/, async (route) => {
    // What the gateway says when the system has no more of them.
    if (refusals-- > 0) await route.fulfill({ status: 413, contentType: "application/problem+json", json: { type: "urn:sandbox-agent:error:payload_too_large", title: "Payload too large", status: 413 } });
    else await route.continue();
  });
  const watched = page.waitForResponse((response) => response.url().includes("/v2/fs/watch?") && response.ok());
  await page.goto(world.url(at(folder)));
  const entry = (name: string) => page.locator(".entries").getByRole("link", { name });
  await entry("one.txt").waitFor();
  writeFileSync(join(folder, "two.txt"), "two\n");
  await watched;
  await entry("two.txt").waitFor();
  rmSync(join(folder, "one.txt"));
  await entry("one.txt").waitFor({ state: "detached" });
});

test("what is not saved is kept, wherever one goes", async () => {
  const folder = join(home, "drafts");
  mkdirSync(folder);
  writeFileSync(join(folder, "one.txt"), "one\n");
  writeFileSync(join(folder, "two.txt"), "two\n");
  const page = await world.open(at(join(folder, "one.txt")));
  await page.getByRole("button", { name: "Edit" }).click();
  const editor = page.getByRole("textbox", { name: "Text of one.txt" });
  await editor.fill("half a thought");
  const comeBack = async () => {
    await page.getByRole("link", { name: "one.txt not saved" }).click();
    await expect.poll(() => editor.inputValue()).toBe("half a thought");
  };
  await page.getByRole("link", { name: "two.txt" }).click();
  await page.getByText("two", { exact: true }).waitFor();
  await comeBack();
  await page.getByRole("button", { name: "Close the file" }).click();
  await page.getByText("one.txt is not saved. What you wrote is kept here.").waitFor();
  await comeBack();
  await page.getByRole("link", { name: "Processes" }).first().click();
  await page.getByRole("heading", { name: "Processes" }).waitFor();
  await page.goBack();
  await expect.poll(() => editor.inputValue()).toBe("half a thought");
  // The browser asks before it forgets it.
  page.once("dialog", (dialog) => void dialog.dismiss());
  const asked = page.waitForEvent("dialog");
  await page.close({ runBeforeUnload: true });
  expect((await asked).type()).toBe("beforeunload");
  // It still knows what the file was.
  writeFileSync(join(folder, "one.txt"), "theirs\n");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("alert").getByText("Somebody has changed the file").waitFor();
  await page.getByRole("button", { name: "Replace it" }).click();
  await holds(join(folder, "one.txt"), "half a thought");
  await page.getByText("not saved", { exact: true }).waitFor({ state: "detached" });
});

test("what is typed while a file is saved stays, and so does what is written when its file cannot be deleted or is gone", async () => {
  const folder = join(home, "typing");
  mkdirSync(join(folder, "inside"), { recursive: true });
  const path = join(folder, "one.txt");
  writeFileSync(path, "one\n");
  writeFileSync(join(folder, "inside", "deep.txt"), "deep\n");
  const page = await world.open(at(path));
  let write!: () => void;
  const held = new Promise<void>((resolve) => (write = resolve));
  await page.route(/\/v2\/fs\/file/, async (route) => {
    if (route.request().method() === "PUT") await held;
    await route.continue();
  });
  await page.getByRole("button", { name: "Edit" }).click();
  const editor = page.getByRole("textbox", { name: "Text of one.txt" });
  await editor.fill("one\ntwo\n");
  const saving = page.waitForRequest((request) => request.method() === "PUT");
  await page.keyboard.press("Control+s");
  await saving;
  await editor.fill("one\ntwo\nthree\n");
  write();
  await holds(path, "one\ntwo\n");
  await page.getByText("Saved", { exact: true }).waitFor();
  await expect.poll(() => editor.inputValue()).toBe("one\ntwo\nthree\n");
  await page.keyboard.press("Control+s"); // onto what was just saved: nobody else has changed it
  await holds(path, "one\ntwo\nthree\n");
  await editor.waitFor({ state: "detached" });
  // A file that cannot be deleted keeps what was written.
  await page.getByRole("button", { name: "Edit" }).click(); // no request is on its way while routes are changed
  await page.unrouteAll();
  await page.route(/\/v2\/fs\//, (route) => (route.request().method() === "DELETE" ? route.abort() : route.continue()));
  await editor.fill("not saved yet");
  const remove = async (name: string, says: string) => {
    await page.getByRole("button", { name: `Do something with ${name}` }).click();
    await page.getByRole("menuitem", { name: "Delete" }).click();
    await page.getByRole("dialog").getByText(`What you have written and not saved goes with it: ${says}.`).waitFor();
    await page.getByRole("dialog").getByRole("button", { name: "Delete", exact: true }).click();
  };
  await remove("one.txt", "one.txt");
  await page.getByText(/^It is not deleted/).waitFor();
  await expect.poll(() => editor.inputValue()).toBe("not saved yet");
  await page.unrouteAll();
  // Nor is it lost when somebody else deletes the file: the folder leads to it, and it can be saved.
  rmSync(path);
  await page.getByRole("region", { name: "Folder" }).getByText("Not saved, and not there any more").waitFor();
  await page.getByRole("link", { name: "inside" }).click();
  await page.getByRole("link", { name: "deep.txt" }).waitFor();
  await page.goBack();
  await expect.poll(() => editor.inputValue()).toBe("not saved yet");
  expect(await inaccessible(page)).toEqual([]);
  await picture(page, "file-gone");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("button", { name: "Replace it" }).click();
  await holds(path, "not saved yet");
  await page.locator(".entries").getByRole("link", { name: "one.txt" }).waitFor();
  await page.getByText("not saved yet", { exact: true }).waitFor();
  // With a folder goes what was written for the files in it, and that is said.
  await page.evaluate((to) => void (location.hash = to), at(join(folder, "inside", "deep.txt")));
  await page.getByRole("region", { name: "deep.txt" }).getByRole("button", { name: "Edit" }).click();
  await page.getByRole("textbox", { name: "Text of deep.txt" }).fill("deeper");
  await page.evaluate((to) => void (location.hash = to), at(folder));
  await remove("inside", "deep.txt");
  await page.getByRole("link", { name: "inside" }).waitFor({ state: "detached" });
  await page.reload(); // nothing is asked
  await page.getByRole("link", { name: "one.txt" }).waitFor();
});

test("a file that is saved while it is saved, or whose answer is lost, was changed by nobody else", async () => {
  const path = join(home, "again.txt");
  writeFileSync(path, "one\n");
  const page = await world.open(at(path));
  const button = page.getByRole("button", { name: "Edit", exact: true });
  await button.waitFor();
  let write!: () => void;
  let show!: () => void;
  const held = new Promise<void>((resolve) => (write = resolve));
  const read = new Promise<void>((resolve) => (show = resolve));
  await page.route(/\/v2\/fs\/file/, async (route) => {
    await (route.request().method() === "PUT" ? held : read);
    await route.continue();
  });
  const editor = page.getByRole("textbox", { name: "Text of again.txt" });
  const edit = async (text: string) => {
    if (!(await editor.isVisible())) await button.click();
    await editor.fill(text);
  };
  await edit("two");
  for (let i = 0; i < 3; i++) await page.keyboard.press("Control+s");
  await edit("two, three");
  await page.keyboard.press("Control+s");
  write();
  await holds(path, "two, three");
  await editor.waitFor({ state: "detached" });
  await expect.poll(() => button.isDisabled()).toBe(true); // what is shown was before that
  show();
  await expect.poll(() => button.isDisabled()).toBe(false);
  await page.unrouteAll();
  const problem = page.getByText("It is not saved");
  for (const then of ["four", "four, five"]) {
    await page.route(/\/v2\/fs\/file/, async (route) => {
      if (route.request().method() !== "PUT") return route.continue();
      await route.fetch();
      await route.abort();
    });
    await edit("four");
    await page.keyboard.press("Control+s");
    await problem.waitFor();
    await page.unrouteAll();
    await edit(then);
    await page.keyboard.press("Control+s");
    await editor.waitFor({ state: "detached" });
    await holds(path, then);
  }
  await edit("six");
  writeFileSync(path, "somebody else's");
  await page.keyboard.press("Control+s");
  await page.getByText("Somebody has changed the file").waitFor();
  await holds(path, "somebody else's");
});

test("files are uploaded, downloaded, renamed and deleted", async () => {
  const folder = join(home, "drop");
  mkdirSync(folder);
  const page = await world.open(at(folder));
  await page.getByText("The folder is empty").waitFor();
  const picker = page.locator("input[type=file]");
  const data = Buffer.from([0, 1, 2, 255, ...new Array<number>(100_000).fill(7)]);
  await picker.setInputFiles([{ name: "data.bin", mimeType: "application/octet-stream", buffer: data }, { name: "a #1?.txt", mimeType: "text/plain", buffer: Buffer.from("hash") }]);
  await page.getByRole("link", { name: "data.bin" }).waitFor();
  expect(readFileSync(join(folder, "data.bin")).equals(data)).toBe(true);
  // What is there is not replaced without a question.
  await picker.setInputFiles([{ name: "a #1?.txt", mimeType: "text/plain", buffer: Buffer.from("other") }]);
  await page.getByRole("dialog", { name: "Replace 1 file?" }).waitFor();
  expect(readFileSync(join(folder, "a #1?.txt"), "utf8")).toBe("hash");
  await page.getByRole("button", { name: "Replace", exact: true }).click();
  await holds(join(folder, "a #1?.txt"), "other");
  await page.getByRole("link", { name: "a #1?.txt" }).click();
  await page.getByText("other").waitFor();
  await page.getByRole("button", { name: "Close the file" }).click();
  await page.getByRole("link", { name: "data.bin" }).click();
  await page.getByText("This file is no text").waitFor();
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download" }).click()]);
  expect(readFileSync(await download.path()).equals(data)).toBe(true);
  const act = async (name: string, what: string) => {
    await page.getByRole("button", { name: `Do something with ${name}` }).click();
    await page.getByRole("menuitem", { name: what }).click();
  };
  await act("data.bin", "Rename");
  await page.getByRole("dialog").getByRole("textbox", { name: "Name" }).fill("a/b");
  await page.getByText("A name has no slash.").waitFor();
  await page.getByRole("dialog").getByRole("textbox", { name: "Name" }).fill("renamed.bin");
  await page.getByRole("button", { name: "Rename", exact: true }).click();
  await page.locator(".entries").getByRole("link", { name: "renamed.bin" }).waitFor();
  expect(existsSync(join(folder, "renamed.bin"))).toBe(true);
  await act("renamed.bin", "Delete");
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.locator(".entries").getByRole("link", { name: "renamed.bin" }).waitFor({ state: "detached" });
  expect(existsSync(join(folder, "renamed.bin"))).toBe(false);
  await page.getByRole("button", { name: "New", exact: true }).click();
  await page.getByRole("menuitem", { name: "Folder" }).click();
  await page.getByRole("textbox", { name: "Name" }).fill("inner");
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "inner/" }).waitFor();
  // Dropped files are uploaded.
  writeFileSync(join(home, "dropped.txt"), "let go of");
  await drop(page, page.getByRole("region", { name: "Folder" }), [join(home, "dropped.txt")]);
  await holds(join(folder, "dropped.txt"), "let go of");
});

test("a folder that is dropped beside files is named, and the files are uploaded", async () => {
  const from = join(home, "from");
  mkdirSync(join(from, "whole"), { recursive: true });
  writeFileSync(join(from, "single.txt"), "single\n");
  mkdirSync(join(home, "onto"));
  const page = await world.open(at(join(home, "onto")));
  await page.getByText("The folder is empty").waitFor();
  await drop(page, page.getByRole("region", { name: "Folder" }), [join(from, "whole"), join(from, "single.txt")]);
  await page.getByText("whole: it cannot be read: a folder, or gone meanwhile").waitFor();
  await holds(join(home, "onto", "single.txt"), "single\n");
});

test("a picture is shown, a large folder stays small on the page, and a missing path is explained", async () => {
  const folder = join(home, "many");
  mkdirSync(folder);
  for (let i = 0; i < 3000; i++) writeFileSync(join(folder, `file-${i}.txt`), "");
  const png = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAYAAACNMs+9AAAAFUlEQVR42mNk+M9Qz0AEYBxVSF+FABJADveWkH6oAAAAAElFTkSuQmCC", "base64");
  writeFileSync(join(folder, "a.png"), png);
  const page = await world.open(at(folder));
  await page.getByRole("link", { name: "a.png" }).click();
  await expect.poll(() => page.getByRole("img", { name: "a.png" }).evaluate((img) => (img as HTMLImageElement).naturalWidth)).toBe(10);
  await page.getByRole("link", { name: "file-0.txt" }).waitFor();
  expect(await page.locator(".entries li").count()).toBeLessThan(100);
  await page.getByRole("searchbox", { name: "Filter by name" }).fill("file-2999");
  await page.getByRole("link", { name: "file-2999.txt" }).waitFor();
  await page.goto(world.url(at(join(home, "nowhere"))));
  await page.getByRole("alert").getByText("nowhere").waitFor();
});

test("words are found in all files below a folder, and a match is shown in its place", async () => {
  const folder = join(home, "hunt");
  mkdirSync(join(folder, "deep", "deeper"), { recursive: true });
  mkdirSync(join(folder, "other"));
  writeFileSync(join(folder, "deep", "deeper", "long.ts"), `${Array.from({ length: 400 }, (_, i) => `const line${i + 1} = ${i};`).join("\n")}\nconst Needle = "<img src=x onerror=alert(1)>";\n`);
  writeFileSync(join(folder, "other", "notes.md"), "a needle (in) a haystack\nNeedles and needles\n");
  writeFileSync(join(folder, "other", ".hidden"), "needle\n");
  writeFileSync(join(folder, "other", "data.bin"), Buffer.from([0, 1, 2]));
  const page = await world.open(at(folder));
  await page.getByRole("link", { name: "deep/" }).waitFor();
  await page.keyboard.press("/");
  const pane = page.getByRole("region", { name: "Search" });
  const words = pane.getByRole("searchbox", { name: "Words to find" });
  await page.keyboard.type("needle"); // where one types at once
  await pane.getByText("3 lines in 2 files.").waitFor();
  await pane.getByText("1 file was not looked into").waitFor();
  expect(await pane.locator("mark").allTextContents()).toEqual(["Needle", "needle", "Needle", "needle"]);
  await bothThemes(page, "files-search");
  // A match is gone to by keys, and seen at its line; the search stays beside it.
  await pane.getByRole("link", { name: /^401/ }).focus();
  await page.keyboard.press("Enter");
  const mark = page.locator(".line-mark");
  await mark.waitFor();
  expect(await mark.innerText()).toBe("Line 401");
  const inSight = async () => {
    const [line, file] = await Promise.all([mark.boundingBox(), page.locator(".file-content").boundingBox()]);
    return line !== null && file !== null && line.y > file.y && line.y + line.height < file.y + file.height;
  };
  await expect.poll(inSight).toBe(true);
  // The mark, and so the number, is at the line that it names. Only coloured code has an element for the string.
  const code = await page.locator(".numbered pre.code .hljs-string", { hasText: "<img src=x" }).boundingBox();
  const marked = await mark.boundingBox();
  expect(Math.abs((code?.y ?? 0) + (code?.height ?? 0) / 2 - (marked?.y ?? 1000) - (marked?.height ?? 0) / 2)).toBeLessThan(3);
  expect(await page.evaluate(() => document.activeElement?.textContent)).toContain("Needle"); // it keeps the focus
  await bothThemes(page, "files-match");
  // All of it is in the address.
  await page.reload();
  await expect.poll(inSight).toBe(true);
  expect(await words.inputValue()).toBe("needle");
  await pane.getByRole("checkbox", { name: "Match case" }).check();
  await pane.getByText("2 lines in 1 file.").waitFor();
  await pane.getByRole("checkbox", { name: "Hidden and ignored" }).check();
  await pane.getByText("3 lines in 2 files.").waitFor();
  await pane.getByRole("checkbox", { name: "Regular expression" }).check();
  await words.fill("needle (");
  await pane.getByRole("alert").getByText("missing closing )").waitFor();
  await words.fill("^Needles? and");
  await pane.getByText("1 line in 1 file.").waitFor();
  await pane.getByRole("radio", { name: "Names" }).check({ force: true });
  await pane.getByRole("searchbox", { name: "Part of a name" }).fill("*.ts");
  await pane.getByText("1 name.").waitFor();
  await pane.getByRole("link", { name: "deep/deeper/long.ts" }).waitFor();
  await pane.getByRole("searchbox").fill("nowhere");
  await pane.getByText("Nothing was found.").waitFor();
  await pane.getByRole("button", { name: "Close the search" }).click();
  await pane.waitFor({ state: "detached" });
  await page.getByRole("heading", { name: "long.ts" }).waitFor();
  expect(world.complaints.filter((c) => c.startsWith("error"))).toEqual([]);
});

test("a large file is seen by parts, and its end is followed", async () => {
  const file = join(home, "large.log");
  const line = (i: number) => `${String(i).padStart(7, "0")} grüße ${"x".repeat(40)}`;
  const lines = Array.from({ length: 60_000 }, (_, i) => line(i + 1));
  writeFileSync(file, `${lines.join("\n")}\n`); // 3.4 MB
  const page = await world.open(at(file));
  const shown = async () => (await page.locator(".large pre.code").innerText()).trimEnd().split("\n");
  const where = page.locator(".large-where");
  await where.getByText("from byte 0 on").waitFor();
  let now = await shown();
  expect(now[0]).toBe(line(1));
  expect(now).toEqual(lines.slice(0, now.length)); // whole lines
  const seen = now.length;
  await page.getByRole("button", { name: "After" }).click();
  await page.getByText(line(seen + 1)).waitFor();
  now = await shown();
  expect(now).toEqual(lines.slice(seen, seen + now.length)); // nothing between is left out
  await page.getByRole("button", { name: "Before" }).click();
  await expect.poll(async () => (await shown())[0]).toBe(line(1));
  await page.getByRole("textbox", { name: "Go to line" }).fill("45678");
  await page.keyboard.press("Enter");
  await expect.poll(async () => (await shown())[0]).toBe(line(45_678));
  await page.getByRole("textbox", { name: "Go to line" }).fill("70000");
  await page.keyboard.press("Enter");
  await page.getByText("The file has fewer than 70000 lines.").waitFor();
  await page.getByRole("slider", { name: "Place" }).fill("50");
  await page.getByText(line(30_100)).waitFor();
  await bothThemes(page, "files-large", [".large pre.code"]);
  // The place is in the address.
  await page.reload();
  await page.getByText(line(30_100)).waitFor();
  await page.getByRole("button", { name: "End" }).click();
  await page.getByText(line(60_000)).waitFor();
  appendFileSync(file, "and one more\n");
  await page.getByText("and one more").waitFor();
  // It is found as well, and gone to.
  await page.goto(world.url(`#/files?${new URLSearchParams({ path: file, line: "12345" }).toString()}`));
  await expect.poll(async () => (await shown())[0]).toBe(line(12_345));
  expect(world.complaints.filter((c) => c.startsWith("error"))).toEqual([]);
});

test("a picture that is a text has a source, and what is in it does nothing", async () => {
  const file = join(home, "drawing.svg");
  const source = `<svg xmlns="http://www.w3.org/2000/svg" width="20" height="10" onload="document.title='taken'"><script>document.title = "taken"</script><foreignObject><img src="x" onerror="document.title='taken'"/></foreignObject><rect width="20" height="10"/></svg>\n`;
  writeFileSync(file, source);
  const page = await world.open(at(file));
  await expect.poll(() => page.getByRole("img", { name: "drawing.svg" }).evaluate((img) => (img as HTMLImageElement).naturalWidth)).toBe(20);
  await page.getByRole("radio", { name: "Source" }).check({ force: true });
  await page.getByText("<rect width=\"20\"").waitFor();
  expect(await page.locator(".numbered pre.code").innerText()).toBe(source);
  await bothThemes(page, "files-svg");
  await page.getByRole("button", { name: "Edit" }).click();
  await page.getByRole("textbox", { name: "Text of drawing.svg" }).fill(source.replace('width="20"', 'width="30"'));
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("radio", { name: "Picture" }).check({ force: true });
  await expect.poll(() => page.getByRole("img", { name: "drawing.svg" }).evaluate((img) => (img as HTMLImageElement).naturalWidth)).toBe(30);
  expect(await page.title()).not.toContain("taken");
});

test("files are moved by drag and by keys, and nothing is replaced by it", async () => {
  const folder = join(home, "moving");
  mkdirSync(join(folder, "inner"), { recursive: true });
  writeFileSync(join(folder, "one.txt"), "one\n");
  writeFileSync(join(folder, "two.txt"), "two\n");
  const page = await world.open(at(join(folder, "one.txt")));
  const link = (name: string) => page.locator(".entries").getByRole("link", { name });
  await link("one.txt").dragTo(link("inner/"));
  await holds(join(folder, "inner", "one.txt"), "one\n");
  expect(existsSync(join(folder, "one.txt"))).toBe(false);
  // What was open is open where it is now.
  await expect.poll(() => new URLSearchParams(new URL(page.url()).hash.split("?")[1]).get("path")).toBe(join(folder, "inner", "one.txt"));
  const path = page.getByRole("navigation", { name: "Path" });
  await path.getByRole("link", { name: "inner" }).waitFor(); // and with it the folder's list
  await link("one.txt").dragTo(path.getByRole("link", { name: "moving" }));
  await holds(join(folder, "one.txt"), "one\n");
  // What is there is not replaced.
  writeFileSync(join(folder, "inner", "two.txt"), "another\n");
  await page.goto(world.url(at(folder)));
  await link("inner/").waitFor(); // else it is the other two.txt, of the list that goes
  await link("two.txt").dragTo(link("inner/"));
  await page.getByText("two.txt is not moved").waitFor();
  expect([readFileSync(join(folder, "two.txt"), "utf8"), readFileSync(join(folder, "inner", "two.txt"), "utf8")]).toEqual(["two\n", "another\n"]);
  await page.getByRole("button", { name: "Do something with one.txt" }).focus();
  await page.keyboard.press("Enter");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog", { name: "Move one.txt" });
  await dialog.getByLabel("To the folder").fill(join(folder, "nowhere"));
  await page.keyboard.press("Enter");
  await dialog.getByText("nowhere").last().waitFor();
  await bothThemes(page, "files-move");
  await dialog.getByLabel("To the folder").fill(join(folder, "inner"));
  await page.keyboard.press("Enter");
  await holds(join(folder, "inner", "one.txt"), "one\n");
  await dialog.waitFor({ state: "detached" });
});

test("the width of the folder is changed by drag and by keys, and kept", async () => {
  const file = join(home, "pane.txt");
  writeFileSync(file, "pane\n");
  const page = await world.open(at(file));
  const edge = page.getByRole("separator", { name: "Width of the folder" });
  const width = async () => Math.round((await page.getByRole("region", { name: "Folder" }).boundingBox())?.width ?? 0);
  await edge.waitFor();
  expect(await width()).toBe(340);
  const box = (await edge.boundingBox())!;
  await page.mouse.move(box.x, box.y + 100);
  await page.mouse.down();
  await page.mouse.move(box.x + 60, box.y + 100, { steps: 3 });
  await page.mouse.up();
  await expect.poll(width).toBe(400);
  await edge.focus();
  await page.keyboard.press("ArrowLeft");
  await expect.poll(width).toBe(376);
  expect(await edge.getAttribute("aria-valuenow")).toBe("376");
  await page.reload();
  await expect.poll(width).toBe(376);
  await edge.focus();
  await page.keyboard.press("Home");
  await expect.poll(width).toBe(240);
  await page.keyboard.press("Enter");
  await expect.poll(width).toBe(340);
});

test("a list that takes longer than until it is asked for again is shown", async () => {
  const page = await world.open("about:blank");
  await page.clock.install();
  const held: (() => void)[] = [];
  let fails = false;
  let failed = 0;
  await page.route(/\/v2\/processes(\?|$)/, async (route) => {
    if (fails) return failed++, route.abort();
    await new Promise<void>((resolve) => held.push(resolve));
    await route.continue().catch(() => {}); // the page may have given it up
  });
  await page.goto(world.url("#/processes"));
  await expect.poll(() => held.length).toBe(1);
  await page.clock.runFor(5000);
  held[0]!();
  await page.getByText("No program runs").waitFor();
  // One whose answer never comes is asked for again, and waited for longer.
  await page.clock.runFor(2000);
  await expect.poll(() => held.length).toBe(2);
  await page.clock.runFor(12_000);
  await expect.poll(() => held.length).toBe(3);
  await page.clock.runFor(12_000);
  expect(held.length).toBe(3);
  await page.clock.runFor(10_000);
  await expect.poll(() => held.length).toBe(4);
  // That it fails by now is told while the older one still hangs, and it is asked for again as usual.
  fails = true;
  await page.clock.pauseAt(await page.evaluate(() => Date.now() + 1000));
  while (failed === 0) await page.clock.runFor(1000);
  await page.getByText("Failed to fetch").waitFor();
  fails = false;
  await page.clock.runFor(4000);
  await expect.poll(() => held.length).toBe(5);
});

test("a program is started, watched, spoken to, and ended", async () => {
  const page = await world.open("#/processes");
  await page.getByText("No program runs").waitFor();
  await bothThemes(page, "processes-empty");
  await page.getByRole("main").getByRole("button", { name: "Start a program" }).first().click();
  await page.getByRole("textbox", { name: "Command" }).fill(`echo "to stderr" >&2; printf '\\033[32mgreen\\033[0m\\n'; echo in $PWD with $COLOR; while read line; do echo "got $line"; done; echo end; exit 3`);
  await page.getByRole("textbox", { name: /Folder/ }).fill(home);
  await page.getByRole("textbox", { name: /Environment/ }).fill("COLOR=blue");
  await page.getByRole("dialog").getByRole("button", { name: "Start" }).click();
  const output = page.locator(".screen");
  await output.getByText(`in ${home} with blue`).first().waitFor();
  await page.getByRole("textbox", { name: "Input" }).fill("a line");
  await page.keyboard.press("Enter");
  await output.getByText("got a line").first().waitFor();
  await bothThemes(page, "processes");
  // What is typed while a line is on its way stays, and so does a line that did not arrive.
  const input = page.getByRole("textbox", { name: "Input" });
  let go!: () => void;
  const held = new Promise<void>((resolve) => (go = resolve));
  const isInput = /\/v2\/processes\/[^/]+\/stdin/;
  await page.route(isInput, (route) => held.then(() => route.continue()));
  await input.fill("first");
  await page.keyboard.press("Enter");
  await input.fill("second");
  go();
  await output.getByText("got first").first().waitFor();
  await page.waitForFunction(() => document.querySelector<HTMLTextAreaElement>("textarea[aria-label=Input]")?.value === "second");
  await page.unrouteAll();
  await page.route(isInput, (route) => route.abort());
  await page.keyboard.press("Enter");
  await page.locator(".toast").getByText("It takes no input").first().waitFor();
  expect(await input.inputValue()).toBe("second");
  await input.press("End");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("third");
  await page.unrouteAll();
  await page.keyboard.press("Enter");
  await output.getByText("got second").first().waitFor();
  await output.getByText("got third").first().waitFor();
  await page.getByRole("button", { name: "End its input" }).click();
  await page.locator(".process-detail").getByText("ended with code 3").waitFor();
  await page.getByRole("button", { name: "Forget" }).click();
  await page.getByText("This program is not there any more").waitFor();
});

test("a terminal is a real one: size, colours, an editor of lines, and it outlives the page", async () => {
  const page = await world.open("#/terminal");
  await page.getByText("No terminal is open").waitFor();
  await page.getByRole("main").getByRole("button", { name: "New terminal" }).first().click();
  const screen = page.locator(".screen");
  await page.getByText(/^Connected\./).waitFor();
  await page.keyboard.type(`stty size; echo tty is $(tty >/dev/null && echo real)\n`);
  await screen.getByText("tty is real").first().waitFor();
  const rows = async () => screen.locator(".xterm-rows > div").allTextContents();
  await expect.poll(async () => (await rows()).some((row) => /^\d{2,} \d{2,}\s*$/.test(row.trim()))).toBe(true);
  // Ctrl-C ends what is in front, and it is in front once it has said so itself.
  await page.keyboard.type("sh -c 'echo in front: $((40 + 2)); exec sleep 1000'\n");
  await screen.getByText("in front: 42").first().waitFor();
  await page.keyboard.press("Control+c");
  await page.keyboard.type("echo here again: $((40 + 3))\n");
  await screen.getByText("here again: 43").first().waitFor();
  await bothThemes(page, "terminal");
  // Another size reaches the program.
  await page.keyboard.type("trap 'echo now $(stty size)' WINCH; echo the trap is $((1 + 0))\n");
  await screen.getByText("the trap is 1").first().waitFor();
  const { length: high } = await rows();
  await page.setViewportSize({ width: 900, height: 500 });
  await expect.poll(async () => (await rows()).length).toBeLessThan(high); // the line that ends next comes behind it
  await page.keyboard.type("\n");
  await expect.poll(async () => (await rows()).join("\n")).toMatch(/now \d+ \d+/);
  // A second window sees the same, and the page may go.
  const address = page.url();
  const other = await world.open(address.slice(address.indexOf("#")));
  await other.getByText(/^Connected\./).waitFor();
  await other.locator(".screen").getByText(/now \d+/).first().waitFor();
  await page.reload();
  await page.locator(".screen").getByText(/now \d+/).first().waitFor();
  await page.getByText(/^Connected\./).waitFor();
  await page.keyboard.type("exit 7\n");
  await page.getByText("The program has ended with code 7.").waitFor();
  await other.getByText("The program has ended with code 7.").waitFor();
});

test("a screen that is opened again does not answer old questions", async () => {
  const page = await world.open("#/terminal");
  await page.getByRole("main").getByRole("button", { name: "New terminal" }).first().click();
  await page.getByText(/^Connected\./).waitFor();
  const screen = page.locator(".screen");
  // It asks the terminal what it is, and shows each answer.
  await page.keyboard.type("stty -echo -icanon; sh -c 'printf \"\\033[c\"; echo rea\"\"dy; exec cat -v'\n");
  const shown = async () => (await screen.locator(".xterm-rows > div").allTextContents()).join("\n");
  await expect.poll(shown).toContain("ready");
  await page.keyboard.type("first\n");
  await expect.poll(shown).toContain("first");
  await expect.poll(shown).toContain("^[[?1;2c");
  const answers = (await shown()).split("^[[?1;2c").length;
  await page.reload();
  await page.getByText(/^Connected\./).waitFor();
  await expect.poll(shown).toContain("first");
  await screen.click();
  await page.keyboard.type("second\n");
  await expect.poll(shown).toContain("second");
  expect((await shown()).split("^[[?1;2c").length).toBe(answers);
});

test("the first screen that shows a question answers it, also when nobody looked when it was asked", async () => {
  const line = 'stty -echo -icanon; printf "\\033[c"; echo ready; exec cat -v';
  const started = await fetch(`${world.gateway.url}/v2/processes`, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ command: "sh", args: ["-c", line], tty: true }),
  });
  const { id } = (await started.json()) as { id: string };
  const printed = async () => {
    const logs = (await (await fetch(`${world.gateway.url}/v2/processes/${id}/logs`)).json()) as { chunks: { data: string }[] };
    return logs.chunks.map((c) => Buffer.from(c.data, "base64").toString()).join("");
  };
  await expect.poll(printed).toContain("ready");
  const page = await world.open(`#/terminal/${id}`);
  const shown = async () => (await page.locator(".screen .xterm-rows > div").allTextContents()).join("\n");
  await expect.poll(shown).toContain("^[[?1;2c");
  await page.reload();
  await page.getByText(/^Connected\./).waitFor();
  await page.keyboard.insertText("again");
  await expect.poll(shown).toContain("again");
  expect((await shown()).split("^[[?1;2c").length).toBe(2);
});

test("what is typed while a terminal is opened, while its old output is shown, and while its connection is broken reaches the program", async () => {
  const proxy = await Proxy.to(world.gateway.port);
  const page = await world.open();
  await page.goto(`${proxy.url}/ui/#/terminal`);
  await page.getByRole("main").getByRole("button", { name: "New terminal" }).first().click();
  await page.getByText(/^Connected\./).waitFor();
  const screen = page.locator(".screen");
  await page.keyboard.type("seq 100000; echo all $((40 + 2)) shown\n");
  await screen.getByText("all 42 shown").first().waitFor();
  await page.reload();
  await screen.locator("textarea").waitFor({ state: "attached" });
  await page.keyboard.insertText(`echo early > ${home}/early`);
  await page.keyboard.press("Enter");
  await page.getByText(/^Connected\./).waitFor();
  await page.keyboard.insertText(`echo soon > ${home}/soon`);
  await page.keyboard.press("Enter");
  await holds(join(home, "early"), "early\n");
  await holds(join(home, "soon"), "soon\n");
  proxy.refusing = true;
  proxy.cut();
  const status = page.getByRole("region", { name: /^shell in/ }).getByRole("status");
  await status.getByText("The connection is broken").waitFor();
  await page.keyboard.insertText(`echo late > ${home}/late`);
  await page.keyboard.press("Enter");
  const paste = (text: string) => screen.locator("textarea").evaluate((area, pasted) => {
    const clipboardData = new DataTransfer();
    clipboardData.setData("text/plain", pasted);
    area.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true }));
  }, text);
  const many = Array.from({ length: 2000 }, (_, i) => `: line ${i}`).join("\n");
  await paste(`${many}\necho pasted > ${home}/pasted\n`);
  await paste("x".repeat(2_000_000));
  await status.getByText("The last that you typed or pasted was not sent").waitFor();
  await page.keyboard.press("Enter");
  proxy.refusing = false;
  await holds(join(home, "late"), "late\n");
  await holds(join(home, "pasted"), "pasted\n");
  await proxy.stop();
});

test("a light screen is readable whatever colours a program chooses, and takes what comes without keys", async () => {
  const page = await world.open("#/terminal");
  await page.getByRole("main").getByRole("button", { name: "New terminal" }).first().click();
  await page.getByText(/^Connected\./).waitFor();
  await page.keyboard.type("printf '\\033[30;46mheadline\\033[0m \\033[97;107mbright\\033[0m \\033[93mgold\\033[0m\\n'\n");
  const spans = page.locator(".xterm-rows span");
  const contrast = (text: string) => spans.getByText(text, { exact: true }).or(spans.filter({ hasText: new RegExp(`^${text}\\s*$`) })).last().evaluate((e) => {
    const light = (color: string) => {
      const [r, g, b] = color.match(/[\d.]+/g)!.map((c) => Number(c) / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)) as [number, number, number];
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const own = getComputedStyle(e);
    const back = own.backgroundColor === "rgba(0, 0, 0, 0)" ? getComputedStyle(e.closest(".screen")!).backgroundColor : own.backgroundColor;
    const [a, b] = [light(own.color), light(back)].sort((x, y) => y - x) as [number, number];
    return (a + 0.05) / (b + 0.05);
  });
  for (const text of ["headline", "bright", "gold"]) await expect.poll(() => contrast(text), { message: text }).toBeGreaterThan(4.4);
  await page.keyboard.insertText("echo put$((40 + 2))in");
  await page.keyboard.press("Enter");
  await page.locator(".screen").getByText("put42in").first().waitFor();
});

test("on a phone", async () => {
  mkdirSync(join(home, "repo"), { recursive: true });
  writeFileSync(join(home, "repo", "needle.txt"), "a needle\n");
  const page = await world.open(at(home), { viewport: phone, hasTouch: true, isMobile: true });
  await page.getByRole("link", { name: "repo/" }).waitFor();
  await bothThemes(page, "files-phone");
  await page.getByRole("button", { name: "Search", exact: true }).tap();
  await page.getByRole("searchbox", { name: "Words to find" }).fill("needle");
  await page.getByRole("region", { name: "Search" }).getByText(/^\d+ lines? in/).waitFor();
  await bothThemes(page, "files-search-phone");
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
  await page.goto(world.url("#/terminal"));
  await page.getByRole("main").getByRole("button", { name: "New terminal" }).first().click();
  await page.getByText(/^Connected\./).waitFor();
  // Keys that its keyboard lacks.
  const screen = page.locator(".screen");
  const keys = page.getByRole("toolbar", { name: "Keys" });
  await page.keyboard.insertText("echo first$((1 + 1))");
  await page.keyboard.press("Enter");
  await screen.getByText("first2").first().waitFor();
  await keys.getByRole("button", { name: "Up" }).tap();
  await page.keyboard.press("Enter");
  await expect.poll(() => screen.getByText("first2", { exact: true }).count()).toBeGreaterThan(1);
  await page.keyboard.insertText("sh -c 'echo in front: $((40 + 2)); exec sleep 1000'");
  await page.keyboard.press("Enter");
  await screen.getByText("in front: 42").first().waitFor(); // what is not in front is not ended
  await keys.getByRole("button", { name: "Ctrl" }).tap();
  expect(await keys.getByRole("button", { name: "Ctrl" }).getAttribute("aria-pressed")).toBe("true");
  await page.keyboard.insertText("c");
  await screen.getByText("^C").first().waitFor();
  expect(await keys.getByRole("button", { name: "Ctrl" }).getAttribute("aria-pressed")).toBe("false");
  await page.keyboard.insertText("echo back$((40 + 2))");
  await page.keyboard.press("Enter");
  await screen.getByText("back42").first().waitFor();
  expect(await inaccessible(page)).toEqual([]);
  await picture(page, "terminal-phone");
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
});
