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

  test("a fence inside a longer fence does not end it", () => {
    expect(texts(of("````md\n```\nx\n\n```\n````\n\nafter", size))).toEqual(["````md\n```\nx\n\n```\n````", "after"]);
  });
});

test("a long code block is cut at a line and opened again", () => {
  const line = `${"x".repeat(99)}\n`;
  const s = of(`\`\`\`ts\n${line.repeat(100)}\`\`\`\n`, 777);
  expect(s.all.length).toBeGreaterThan(2);
  for (const [i, segment] of s.all.entries()) {
    expect(segment.text.length).toBeLessThan(8100);
    expect(segment.text.startsWith("```ts\n")).toBe(true);
    expect(segment.text.trimEnd().endsWith("```")).toBe(true);
    expect(segment.continued).toBe(i > 0);
  }
  expect(s.all.map((x) => x.text).join("\n").match(/x{99}/g)?.length).toBe(100);
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
