import { expect, test } from "vitest";
import { badName, crumbs, endings, join, parentOf, pictureType, textOf, wholeLines, withCRLF, withLF } from "./paths.js";
import { marksOf } from "./folder.js";

test("paths", () => {
  expect(["/", "/a", "/a/", "/a/b", "/a/b/"].map(parentOf)).toEqual(["/", "/", "/", "/a", "/a"]);
  expect([join("/", "x"), join("/a/", "x"), join("/a", "x")]).toEqual(["/x", "/a/x", "/a/x"]);
  expect(crumbs("/a b/c")).toEqual([{ name: "/", path: "/" }, { name: "a b", path: "/a b" }, { name: "c", path: "/a b/c" }]);
  expect(["x", "x y", ".x"].map(badName)).toEqual([undefined, undefined, undefined]);
  for (const bad of ["", " ", "a/b", ".", ".."]) expect(badName(bad), bad).toBeTypeOf("string");
  expect([pictureType("a.PNG"), pictureType("a.svg"), pictureType("a.png.txt"), pictureType("png")]).toEqual(["image/png", "image/svg+xml", undefined, "image/png"]);
});

test("a text is told from what is none", () => {
  const bytes = (...b: number[]) => new Uint8Array(b);
  expect(textOf(new TextEncoder().encode("grüße 漢"))).toBe("grüße 漢");
  expect(textOf(bytes())).toBe("");
  expect(textOf(bytes(0xef, 0xbb, 0xbf, 0x61))).toBe("\ufeffa"); // a mark at the beginning is not lost
  expect(textOf(bytes(0x61, 0, 0x62))).toBeUndefined();
  expect(textOf(bytes(0xff, 0xfe, 0x61))).toBeUndefined();
});

test("line endings survive a text field", () => {
  expect(["", "a\nb", "a\r\nb\r\n", "a\r\nb\n"].map(endings)).toEqual(["lf", "lf", "crlf", "mixed"]);
  expect(withCRLF(withLF("a\r\nb\r\n"))).toBe("a\r\nb\r\n");
});

test("git's findings belong to the entries of a folder", () => {
  const file = (path: string, index: string, workTree: string) => ({ path, index, workTree });
  const git = { root: "/r", ahead: 0, behind: 0, truncated: false, files: [file("/r/a", ".", "M"), file("/r/d/x", "A", "."), file("/r/new/", "?", "?"), file("/r/staged", "M", "."), file("/other", ".", "M")] };
  expect(Object.fromEntries(marksOf(git as never, "/r"))).toEqual({ a: "M", d: "•", new: "?", staged: "M" });
  expect(Object.fromEntries(marksOf(git as never, "/r/d"))).toEqual({ x: "A" });
  expect(marksOf(undefined, "/r").size).toBe(0);
});

test("a part of a file is cut to whole lines, or to whole characters where a line is longer", () => {
  const whole = new TextEncoder().encode("eins\nzwölf\n漢漢漢😀 ohne Ende");
  // However it is cut, the parts follow one another and none is broken.
  for (let length = 6; length <= whole.length; length++) {
    let text = "";
    let at = 0;
    for (let turns = 0; at < whole.length && turns < 100; turns++) {
      const part = whole.subarray(at, Math.min(whole.length, at + length));
      const { from, to } = wholeLines(part, true, at + part.length === whole.length);
      const said = textOf(part.subarray(from, to));
      expect(said, `${length} bytes from ${at} on`).toBeDefined();
      text += said;
      expect(to).toBeGreaterThan(0);
      at += to;
    }
    expect(text).toBe(new TextDecoder().decode(whole));
  }
  // Somewhere in the middle, it begins with the next line.
  for (let at = 1; at < whole.length - 1; at++) {
    const part = whole.subarray(at);
    const { from, to } = wholeLines(part, false, true);
    const said = textOf(part.subarray(from, to))!;
    expect(said).toBe(at < 5 ? "zwölf\n漢漢漢😀 ohne Ende" : at < 12 ? "漢漢漢😀 ohne Ende" : new TextDecoder().decode(part).replace(/^\ufffd+/, ""));
  }
});
