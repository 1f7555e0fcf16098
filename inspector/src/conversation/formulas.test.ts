import { Marked, type Token } from "marked";
import { expect, test } from "vitest";
import { mathsInMarkdown, type MathsToken } from "./formulas.js";

const marked = new Marked({ gfm: true }).use(mathsInMarkdown);

function formulas(text: string): string[] {
  const out: string[] = [];
  const walk = (tokens: readonly Token[] | undefined) => {
    for (const t of tokens ?? []) {
      if (t.type === "maths") out.push(`${(t as MathsToken).display ? "block" : "inline"} ${(t as MathsToken).tex}`);
      if ("tokens" in t) walk(t.tokens);
      if (t.type === "list") for (const item of (t as { items: { tokens: Token[] }[] }).items) walk(item.tokens);
    }
  };
  walk(marked.lexer(text));
  return out;
}

test("formulas are found as they are written", () => {
  expect(formulas("so $a^2 + b^2 = c^2$ holds")).toEqual(["inline a^2 + b^2 = c^2"]);
  expect(formulas("so \\(x_1\\) and $y$.")).toEqual(["inline x_1", "inline y"]);
  expect(formulas("text\n\n$$\n\\sum_{i=1}^n i\n$$\n\nmore")).toEqual(["block \\sum_{i=1}^n i"]);
  expect(formulas("text\n\\[\n\\begin{aligned} a &= b \\\\ c &= d \\end{aligned}\n\\]\n")).toEqual(["block \\begin{aligned} a &= b \\\\ c &= d \\end{aligned}"]);
  expect(formulas("text\n\n$$\na\n\n+ b\n$$\n\nmore $x$")).toEqual(["block a\n\n+ b", "inline x"]);
  expect(formulas("- one $x$\n- two $$y$$")).toEqual(["inline x", "block y"]);
  expect(formulas("**$x < y$** and $\\text{a \\$ sign}$")).toEqual(["inline x < y", "inline \\text{a \\$ sign}"]);
});

test("money, shells and code are no formulas", () => {
  for (const text of ["it costs $5 and $6", "`$HOME/$USER`", "echo $HOME and $PATH", "```sh\necho $$ $x$\n```", "a lone $ sign", "\\$x\\$", "$$", "$$$$", "$ x $", "\\\\(no\\\\)", "costs 5$ or 6$"]) {
    expect(formulas(text), text).toEqual([]);
  }
});

// One that went back and forth in it would not end within the time that a test may take.
test("what looks like a formula for long comes to an end", () => {
  for (const text of ["$".repeat(20_000), "$a".repeat(10_000), "\\(".repeat(10_000), "$$ ".repeat(5000), `$${"\\".repeat(20_000)}`, "\\[".repeat(5000)]) {
    expect(formulas(text.slice(0, 4000)), text.slice(0, 10)).toBeDefined(); // what a segment has
  }
});
