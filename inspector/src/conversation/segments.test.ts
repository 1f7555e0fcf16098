import { describe, expect, test } from "vitest";
import { Segments } from "./segments.js";

function of(text: string, size = text.length || 1): Segments {
  const segments = new Segments();
  for (let i = 0; i < text.length; i += size) segments.push(text.slice(i, i + size));
  return segments;
}

const texts = (s: Segments) => s.all.map((x) => x.text.trim());

describe.each([1, 3, 1000])("written %d characters at a time", (size) => {
  test("paragraphs are segments", () => {
    expect(texts(of("one\n\ntwo\ntwo still\n\n\nthree", size))).toEqual(["one", "two\ntwo still", "three"]);
  });

  test("a code block with blank lines is one segment", () => {
    expect(texts(of("before\n\n```js\na\n\nb\n```\n\nafter", size))).toEqual(["before", "```js\na\n\nb\n```", "after"]);
  });

  test("a list with blank lines is one segment", () => {
    expect(texts(of("1. one\n\n   still one\n\n2. two\n\nafter", size))).toEqual(["1. one\n\n   still one\n\n2. two", "after"]);
  });

  test.each([["$$", "$$"], ["\\[", "\\]"]])("a formula in %s with blank lines is one segment", (begin, end) => {
    const text = `${begin}\na\n\n+ b\n${end}`;
    expect(texts(of(`before\n\n${text}\n\nafter\n\n${begin}c${end}\n\nlast`, size))).toEqual(["before", text, "after", `${begin}c${end}`, "last"]);
  });

  test("two signs that nothing ends hold up to some thousand characters together, and nothing behind", () => {
    const s = of("$$\n\n" + `${"word ".repeat(20)}\n\n`.repeat(60), size);
    expect(s.all[0]!.text.length).toBeLessThan(2500);
    expect(s.all.length).toBeGreaterThan(30);
    expect(texts(of("$$ is money\n\nmore", size))).toEqual(["$$ is money", "more"]);
  });

  test("a fence inside a longer fence does not end it", () => {
    expect(texts(of("````md\n```\nx\n\n```\n````\n\nafter", size))).toEqual(["````md\n```\nx\n\n```\n````", "after"]);
  });
});

const lines = (n: number) => Array.from({ length: n }, (_, i) => (i % 7 === 0 ? "\n" : `${i} ${"x".repeat(95)}\n`)).join("");

test("a code block of some thousand characters is whole", () => {
  const text = `\`\`\`ts\n${lines(500)}\`\`\`\n`;
  const s = of(text, 777);
  expect(s.all.length).toBe(1);
  expect(s.all[0]!.text).toBe(text);
});

test("a very long code block is cut at a line and opened again, and copied as a whole", () => {
  const code = lines(2000);
  const s = of(`Look:\n\`\`\`ts\n${code}\`\`\`\n\nafter`, 777);
  expect(s.all.length).toBeGreaterThan(3);
  const parts = s.all.slice(0, -1);
  for (const [i, segment] of parts.entries()) {
    expect(segment.text.length).toBeLessThan(61_000);
    expect(segment.text.startsWith(i === 0 ? "Look:\n```ts\n" : "```ts\n")).toBe(true);
    expect(segment.text.trimEnd().endsWith("```")).toBe(true);
    expect(segment.begun?.text).toBe(i === 0 ? undefined : code);
    expect(segment.cut?.text).toBe(i === parts.length - 1 ? undefined : code);
  }
  expect(parts.map((x) => x.text.replace("Look:\n", "").replace("```ts\n", "").replace(/\n```\n?$/, "\n")).join("")).toBe(code);
  expect(s.all.at(-1)).toMatchObject({ text: "after", begun: undefined });
});

test("a line without an end in a code block is cut, and copied as it was", () => {
  const code = "0123456789".repeat(15_000);
  const s = of(`\`\`\`\n${code}\n\`\`\`\n`, 5000);
  expect(s.all.length).toBeGreaterThan(2);
  expect(s.all[0]!.cut?.text).toBe(`${code}\n`);
});

test("a long table has its head in each part", () => {
  const head = "| a | b |\n|---|:-:|\n";
  const row = `| ${"y".repeat(90)} | z |\n`;
  const s = of(`${head}${row.repeat(500)}\nafter`, 333);
  expect(s.all.length).toBeGreaterThan(3);
  for (const segment of s.all.slice(0, -1)) expect(segment.text.startsWith(head + row)).toBe(true);
  expect(s.all.map((x) => x.text).join("\n").match(/y{90}/g)?.length).toBe(500);
  expect(s.all.at(-1)!.text).toBe("after");
});

test.each([1, 50])("a table that ends where it is cut leaves no empty one, written %d characters at a time", (size) => {
  const head = "| a |\n|---|\n";
  let rows = "";
  while (head.length + rows.length <= 16_000) rows += `| ${"y".repeat(96)} |\n`;
  const s = of(`${head}${rows}\nafter`, size);
  expect(s.all.map((x) => x.text.trim())).toEqual([`${head}${rows}`.trim(), "after"]);
});

test("a text without any line end is cut, and nothing of it is lost", () => {
  const words = Array.from({ length: 20_000 }, (_, i) => `word${i} `).join("");
  const s = of(words, 50);
  expect(Math.max(...s.all.map((x) => x.text.length))).toBeLessThanOrEqual(8000);
  expect(s.all.map((x) => x.text).join("")).toBe(words);
});

test("what is closed stays the same object", () => {
  const s = of("one\n\ntwo\n\nthree");
  const first = s.all[0];
  s.push(" and more\n\nfour");
  expect(s.all[0]).toBe(first);
  s.close();
  expect(s.all.every((x) => x.closed)).toBe(true);
});

test("adding costs what is added, not what there is", () => {
  const s = new Segments();
  const cost = (n: number) => {
    const began = performance.now();
    for (let i = 0; i < n; i++) s.push(`word${i} `);
    return performance.now() - began;
  };
  cost(20_000);
  const early = cost(20_000);
  cost(200_000);
  expect(cost(20_000)).toBeLessThan(early * 10 + 50);
});
