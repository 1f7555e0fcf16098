import { expect, test } from "vitest";
import { columns, diffTexts } from "./diffs.js";

test("lines are numbered on both sides, and changed words are marked", () => {
  const diff = diffTexts("a\nconst one = 1;\nc\n", "a\nconst two = 1;\nc\nd\n");
  expect([diff.added, diff.removed]).toEqual([2, 1]);
  expect(diff.hunks[0]?.lines.map((l) => [l.kind, l.old, l.new, l.text])).toEqual([
    ["same", 1, 1, "a"], ["del", 2, undefined, "const one = 1;"], ["add", undefined, 2, "const two = 1;"], ["same", 3, 3, "c"], ["add", undefined, 4, "d"],
  ]);
  expect(diff.hunks[0]?.lines[1]?.parts).toEqual([{ text: "const ", changed: false }, { text: "one", changed: true }, { text: " = 1;", changed: false }]);
});

test("a new file is all new, and nothing is no difference", () => {
  expect(diffTexts(undefined, "x\ny\n")).toMatchObject({ added: 2, removed: 0 });
  expect(diffTexts("same\n", "same\n").hunks).toEqual([]);
});

test("columns pair what went with what came", () => {
  const { hunks } = diffTexts("1\n2\n3\n", "one\n3\n");
  expect(columns(hunks[0]!.lines).map((r) => [r.left?.text, r.right?.text])).toEqual([["1", "one"], ["2", undefined], ["3", "3"]]);
});

test("texts that have nothing in common do not hold the page up", () => {
  const random = (seed: number) => Array.from({ length: 20_000 }, (_, i) => `line ${(i * 7919 + seed * 104_729) % 1_000_003}`).join("\n");
  const began = performance.now();
  const diff = diffTexts(random(1), random(2));
  expect(performance.now() - began).toBeLessThan(3000);
  expect(diff.added).toBeGreaterThan(0);
});
