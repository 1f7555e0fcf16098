import { expect, test } from "vitest";
import { commandOf, wordsOf } from "./words.js";

test.each([
  ["ls -l", ["ls", "-l"]],
  ["  a   b ", ["a", "b"]],
  [`a 'b c' "d e"`, ["a", "b c", "d e"]],
  [`a\\ b 'it''s' "say \\"x\\" \\n"`, ["a b", "its", `say "x" \\n`]],
  [`x '' ""`, ["x", "", ""]],
  [`--name="a b"`, ["--name=a b"]],
])("%s", (line, words) => {
  expect(wordsOf(line)).toEqual({ words });
});

test("what is no command line is said", () => {
  for (const bad of ["", "  ", "'a", `"a`, "a\\"]) expect(wordsOf(bad), bad).toHaveProperty("error");
});

test("a command shown is the command", () => {
  for (const words of [["sh", "-c", "echo 'a b' | cat"], ["x", ""], ["a b", "c'd", "ü"]]) {
    expect(wordsOf(commandOf({ command: words[0]!, args: words.slice(1) }))).toEqual({ words });
  }
});
