import { expect, test } from "vitest";
import { Inputs, Typed, withLines } from "./typed.js";

/** A program's input, whose writes wait until they are let, and the field from which they come. */
function world() {
  const sent: string[] = [];
  const ends: { arrive(): void; fail(): void }[] = [];
  const errors: unknown[] = [];
  let field = "";
  const write = (text: string, close: boolean) => {
    sent.push(close ? "end" : text);
    return new Promise<void>((resolve, reject) => ends.push({ arrive: resolve, fail: () => reject(new Error("no network")) }));
  };
  const typed = new Typed(write, (lines, error) => {
    field = withLines(lines, field);
    errors.push(error);
  });
  const next = async (how: "arrive" | "fail") => {
    ends.shift()![how]();
    await new Promise((resolve) => setTimeout(resolve));
  };
  return { sent, errors, typed, next, type: (text: string) => (field = text), field: () => field };
}

test("lines go out one after the other, and the end of the input behind them", async () => {
  const { sent, typed, next, field } = world();
  typed.line("first");
  typed.line("");
  typed.close();
  expect(sent).toEqual(["first\n"]);
  for (let i = 0; i < 3; i++) await next("arrive");
  expect([sent, field()]).toEqual([["first\n", "\n", "end"], ""]);
});

test("behind a line that fails nothing is sent, and all come back before what is typed by then, in order", async () => {
  const { sent, errors, typed, next, type, field } = world();
  typed.line("first");
  typed.line("second");
  typed.line("third");
  typed.close();
  type("begun");
  await next("arrive");
  await next("fail");
  expect([sent, field(), errors.length]).toEqual([["first\n", "second\n"], "second\nthird\nbegun", 1]);
  typed.line(field());
  expect(sent.at(-1)).toBe("second\nthird\nbegun\n");
  await next("fail");
  expect(field()).toMatch(/^second\nthird\nbegun/);
});

test("what waits has a bound, and its end comes behind it", async () => {
  const { sent, typed, next } = world();
  const taken = Array.from({ length: 70 }, (_, i) => typed.line(String(i))).filter(Boolean);
  expect(taken).toHaveLength(64);
  typed.close();
  typed.close();
  for (let i = 0; i < 65; i++) await next("arrive");
  expect([sent.length, sent.at(-1)]).toEqual([65, "end"]);
});

test("a line that was copied with its end is one line", async () => {
  const { sent, typed, next } = world();
  for (const text of ["yes\n", "one\ntwo\n", "one\n\n", "\n", ""]) {
    typed.line(text);
    await next("arrive");
  }
  expect(sent).toEqual(["yes\n", "one\ntwo\n", "one\n\n", "\n\n", "\n"]);
});

test("what is typed for a program is kept, and goes by the way that was given last", async () => {
  const inputs = new Inputs();
  const sent: string[] = [];
  const by = (way: string) => async (text: string) => void sent.push(`${way} ${text}`);
  inputs.of("program", by("reading"), () => {}).type("kept");
  const again = inputs.of("program", by("driving"), () => {});
  expect(again.get()).toBe("kept");
  again.send();
  await expect.poll(() => sent).toEqual(["driving kept\n"]);
});
