import { expect, test } from "vitest";
import { promptOf, withRemark, type Remark } from "./remarks.js";

const at = (path: string, line: number, says: string, removed = false): Remark => ({ path, line, removed, text: `text ${line}`, says });

test("there is one remark for a line, and one that says nothing is none", () => {
  let all = withRemark(withRemark(withRemark([], at("b", 2, "x")), at("a", 9, " y\n")), at("a", 1, "z"));
  expect(all.map((r) => [r.path, r.line, r.says])).toEqual([["a", 1, "z"], ["a", 9, "y"], ["b", 2, "x"]]);
  all = withRemark(withRemark(all, at("b", 2, "better")), at("a", 9, " "));
  expect(all.map((r) => r.says)).toEqual(["z", "better"]);
  expect(withRemark(all, at("a", 1, "of before", true))).toHaveLength(3);
});

test("an agent reads where a remark belongs", () => {
  expect(promptOf([at("src/a.ts", 12, "Two lines\nof it."), { ...at("b", 4, "Why?", true), text: "x".repeat(300) }])).toBe(
    `Remarks on the changes in the working tree:\n\nsrc/a.ts:12\n> text 12\nTwo lines\nof it.\n\nb:4 (removed)\n> ${"x".repeat(200)}…\nWhy?`,
  );
});
