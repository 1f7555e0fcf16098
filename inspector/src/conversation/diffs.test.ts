import { expect, test } from "vitest";
import { columns, diffTexts, maxEdits, wholeTexts } from "./diffs.js";

test("lines are numbered on both sides, and changed words are marked", () => {
  const diff = diffTexts("a\nconst one = 1;\nc\n", "a\nconst two = 1;\nc\nd\n");
  expect([diff?.added, diff?.removed]).toEqual([2, 1]);
  expect(diff?.hunks[0]?.lines.map((l) => [l.kind, l.old, l.new, l.text])).toEqual([
    ["same", 1, 1, "a"], ["del", 2, undefined, "const one = 1;"], ["add", undefined, 2, "const two = 1;"], ["same", 3, 3, "c"], ["add", undefined, 4, "d"],
  ]);
  expect(diff?.hunks[0]?.lines[1]?.parts).toEqual([{ text: "const ", changed: false }, { text: "one", changed: true }, { text: " = 1;", changed: false }]);
});

test("a new file is all new, and nothing is no difference", () => {
  expect(diffTexts(undefined, "x\ny\n")).toMatchObject({ added: 2, removed: 0 });
  expect(diffTexts("same\n", "same\n")?.hunks).toEqual([]);
});

test("columns pair what went with what came", () => {
  const { hunks } = diffTexts("1\n2\n3\n", "one\n3\n")!;
  expect(columns(hunks[0]!.lines).map((r) => [r.left?.text, r.right?.text])).toEqual([["1", "one"], ["2", undefined], ["3", "3"]]);
});

test("texts that differ much are not compared at once, and are whole until they are", () => {
  const lines = (word: string, n: number) => Array.from({ length: n }, (_, i) => (i % 2 === 0 ? `${word} ${i}` : `same ${i}`)).join("\n");
  expect(diffTexts(lines("old", 600), lines("new", 600))).toBeUndefined();
  expect(diffTexts(lines("old", 600), lines("new", 600), maxEdits.inWorker)).toMatchObject({ added: 300, removed: 300, whole: false });
  expect(wholeTexts("a\nb\n", "c\n")).toMatchObject({ added: 1, removed: 2, whole: true });
  expect(diffTexts("", lines("new", 20_000))).toMatchObject({ added: 20_000, removed: 0, whole: false }); // nothing to compare with
});
