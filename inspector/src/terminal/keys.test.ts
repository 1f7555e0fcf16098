import { expect, test } from "vitest";
import { Keys, withCtrl } from "./keys.js";

test("letters with Ctrl are what terminals know", () => {
  expect(["c", "C", "[", " ", "?", "_", "1", "~"].map(withCtrl)).toEqual(["\x03", "\x03", "\x1b", "\0", "\x7f", "\x1f", "1", "~"]);
});

test("Ctrl is for the next letter, not for what the screen itself says", () => {
  const sent: string[] = [];
  const keys = new Keys({ start: () => () => {}, input: (data) => void sent.push(data), resize: () => {} });
  keys.toggleCtrl();
  keys.input("\x1b[?1;2c"); // an answer to a program's question
  expect(keys.get().ctrl).toBe(true);
  keys.input("d");
  keys.input("d");
  keys.toggleCtrl();
  keys.toggleCtrl();
  keys.input("c");
  keys.press("\x1b[A");
  expect(sent).toEqual(["\x1b[?1;2c", "\x04", "d", "c", "\x1b[A"]);
});
