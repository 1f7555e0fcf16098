import { expect, test } from "vitest";
import { contrast, cssColours, parseAnsi, plain, readable } from "./ansi.js";

test("colours and styles begin and end", () => {
  expect(parseAnsi("\u001b[1;31mred\u001b[0m plain \u001b[4;38;5;208mx\u001b[24my")).toEqual([[
    { text: "red", style: { bold: true, fg: 1 } }, { text: " plain ", style: {} },
    { text: "x", style: { underline: true, fg: 208 } }, { text: "y", style: { fg: 208 } },
  ]]);
  expect(parseAnsi("\u001b[38;2;1;2;255mx")).toEqual([[{ text: "x", style: { fg: "#0102ff" } }]]);
  expect(parseAnsi("\u001b[97;104mx\u001b[39;49my")).toEqual([[{ text: "x", style: { fg: 15, bg: 12 } }, { text: "y", style: {} }]]);
});

test("a style goes on in the next line", () => {
  expect(parseAnsi("\u001b[32ma\nb\u001b[m")).toEqual([[{ text: "a", style: { fg: 2 } }], [{ text: "b", style: { fg: 2 } }]]);
});

test("a carriage return writes over the line", () => {
  expect(plain("10%\r50%\r100%\ndone\r\n")).toBe("100%\ndone\n");
  expect(plain("abcdef\rxy")).toBe("xycdef");
  expect(plain("wait...\r\u001b[2Kok")).toBe("okit...");
});

test("what is no text and no colour is left out", () => {
  expect(plain("\u001b]0;title\u0007a\u001b[2J\u001b[10;20Hb\u0000\u0007c\u001b(B\u001b[?25ld\u001b]8;;http://x\u001b\\link\u001b]8;;\u001b\\")).toBe("abcdlink");
  expect(plain("ab\bc")).toBe("ac");
  expect(plain("\u001b[38;5mx\u001b[38;2;1mx\u001b[;;mx\u001b[")).toMatch(/^xxx/);
});

test("every colour can be read on its ground", () => {
  for (let n = 16; n < 256; n++) {
    for (const style of [{ fg: n }, { bg: n }, { fg: n, bg: 255 - n < 16 ? 16 : 271 - n }, { fg: n, inverse: true as const }]) {
      const { color = "", background } = cssColours(style);
      const numbers = (text: string) => [...text.matchAll(/rgb\((\d+) (\d+) (\d+)\)/g)].map((m) => m.slice(1).map(Number) as [number, number, number]);
      const ground = background ? numbers(background) : [[243, 242, 238], [16, 19, 18]] as [number, number, number][];
      for (const [i, rgb] of numbers(color).entries()) expect(contrast(rgb, ground[i] ?? ground[0]!), JSON.stringify(style)).toBeGreaterThan(4.45);
    }
  }
  expect(readable([255, 0, 0], [255, 0, 0])).not.toEqual([255, 0, 0]);
});
