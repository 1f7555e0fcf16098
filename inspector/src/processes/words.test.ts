import { expect, test } from "vitest";
import { commandOf, stateOf, wordsOf } from "./words.js";

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

test("a program that ended before it began, as the clock has it, did not take less than nothing", () => {
  const ended = { state: "exited", startedAt: "2026-01-01T12:00:00Z", exitCode: 3 };
  expect(stateOf({ ...ended, endedAt: "2026-01-01T12:00:02.500Z" })).toBe("ended with code 3 after 2.5 s");
  expect(stateOf({ ...ended, endedAt: "2026-01-01T11:00:00Z", signal: "SIGTERM" })).toBe("ended by SIGTERM");
});
