import { expect, test } from "vitest";
import { linesOf, piecesOf } from "./colours.js";
import { highlight } from "./highlight.js";

test("colours go over lines, and what looks like HTML is text", () => {
  const code = 'const a = "<b>&amp;"; /* one\ntwo */ let c;';
  const lines = linesOf(highlight(code, "typescript")!);
  expect(lines.map((l) => l.map((p) => p.text).join(""))).toEqual(code.split("\n"));
  expect(lines[0]!.find((p) => p.text === '"<b>&amp;"')?.kind).toBe("hljs-string");
  expect(lines[1]![0]).toEqual({ text: "two */", kind: "hljs-comment" });
});

test("words that changed keep their colours, and colours of another line are left out", () => {
  const line = { kind: "add" as const, old: undefined, new: 1, text: "return one + 1;", parts: [{ text: "return ", changed: false }, { text: "one", changed: true }, { text: " + 1;", changed: false }] };
  const pieces = piecesOf(line, linesOf(highlight(line.text, "typescript")!)[0]);
  expect(pieces.map((p) => p.text).join("")).toBe(line.text);
  expect(pieces.filter((p) => p.changed).map((p) => p.text).join("")).toBe("one");
  expect(pieces.find((p) => p.text === "return")?.kind).toBe("hljs-keyword");
  expect(piecesOf(line, [{ text: "other", kind: "hljs-keyword" }]).every((p) => p.kind === "")).toBe(true);
});
