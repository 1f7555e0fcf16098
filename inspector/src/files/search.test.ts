import { expect, test } from "vitest";
import { piecesOf, queryOf, searchOf, type Search } from "./search.js";

const search: Search = { below: "/a b", words: "in", by: "content", regexp: false, exactCase: false, everything: false };

test("a search is what the address says", () => {
  for (const one of [search, { ...search, by: "name" as const, words: "*.ts" }, { ...search, regexp: true, exactCase: true, everything: true }]) expect(searchOf(queryOf(one))).toEqual(one);
  expect(searchOf({ path: "/a" })).toBeUndefined();
  expect(searchOf({ below: "/a", by: "nonsense", how: "??" })).toEqual({ ...search, below: "/a", words: "" });
});

test("what was looked for is marked", () => {
  const found = (text: string, part: Partial<Search> = {}) => piecesOf(text, { ...search, ...part }).map((p) => (p.found ? `[${p.text}]` : p.text)).join("");
  expect(found("In pain")).toBe("[In] pa[in]");
  expect(found("In pain", { exactCase: true })).toBe("In pa[in]");
  expect(found("In pain", { regexp: true })).toBe("In pain");
  expect(found("İn in")).toBe("İn in"); // its small letter is longer
  expect(found("", {})).toBe("");
  expect(found("anything", { words: "" })).toBe("anything");
});
