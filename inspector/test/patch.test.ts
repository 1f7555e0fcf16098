import { execFileSync } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { filesOf } from "../src/conversation/patch.js";

const dir = mkdtempSync(join(tmpdir(), "patch-"));
afterAll(() => rmSync(dir, { recursive: true }));

const git = (...args: string[]) => execFileSync("git", ["-C", dir, "-c", "user.name=x", "-c", "user.email=x@example.test", ...args], { encoding: "utf8", env: { PATH: process.env.PATH, GIT_CONFIG_NOSYSTEM: "1", HOME: dir } });

test("what git writes of every kind of change is read", () => {
  git("init", "-q");
  const many = Array.from({ length: 30 }, (_, i) => `line ${i}\n`).join("");
  const put = (name: string, text: string | Buffer) => writeFileSync(join(dir, name), text);
  for (const name of ["plain.txt", "two words.txt", "straße \"x\".txt", "moved.txt", "gone.txt", "mode.sh"]) put(name, many);
  put("gone.txt", "bye\n");
  put("picture.bin", Buffer.from([0, 1, 2]));
  git("add", ".");
  git("commit", "-qm", "x");
  for (const name of ["plain.txt", "two words.txt", "straße \"x\".txt"]) put(name, many.replace("line 3\n", "line three\n").replace("line 25\n", ""));
  git("mv", "moved.txt", "moved to.txt");
  git("rm", "-q", "gone.txt");
  chmodSync(join(dir, "mode.sh"), 0o755);
  put("picture.bin", Buffer.from([0, 9]));
  put("new.txt", "a\nb\n");
  put("empty.txt", "");
  git("add", "new.txt", "empty.txt");
  const files = filesOf(git("diff", "HEAD", "-M"));
  expect(files.map((f) => [f.path, f.kind, f.added, f.removed, f.note, f.from])).toEqual([
    ["empty.txt", "new", 0, 0, "It is empty.", undefined],
    ["gone.txt", "deleted", 0, 1, undefined, undefined],
    ["mode.sh", "changed", 0, 0, "Its rights have changed.", undefined],
    ["moved to.txt", "moved", 0, 0, "Its text is the same.", "moved.txt"],
    ["new.txt", "new", 2, 0, undefined, undefined],
    ["picture.bin", "changed", 0, 0, "It is not text.", undefined],
    ["plain.txt", "changed", 1, 2, undefined, undefined],
    ["straße \"x\".txt", "changed", 1, 2, undefined, undefined],
    ["two words.txt", "changed", 1, 2, undefined, undefined],
  ]);
  const plain = files.find((f) => f.path === "plain.txt")!;
  expect(plain.hunks).toHaveLength(2);
  const changed = plain.hunks[0]!.lines.filter((l) => l.kind !== "same");
  expect(changed.map((l) => [l.kind, l.old, l.new, l.text])).toEqual([["del", 4, undefined, "line 3"], ["add", undefined, 4, "line three"]]);
  expect(changed[1]!.parts).toEqual([{ text: "line ", changed: false }, { text: "three", changed: true }]);
});

test("a patch that is cut off shows what is whole", () => {
  const whole = "diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n";
  const files = filesOf(`${whole}${whole.replaceAll("/x", "/y").slice(0, -4)}`);
  expect(files.map((f) => [f.path, f.added, f.note])).toEqual([["x", 1, undefined], ["y", 0, "The end of its changes is cut off."]]);
  expect(filesOf("")).toEqual([]);
});
