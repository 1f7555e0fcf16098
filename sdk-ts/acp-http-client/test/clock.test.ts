import { afterEach, expect, test, vi } from "vitest";
import { Backoff, heard, ofStream } from "../src/clock.js";

afterEach(() => {
  vi.restoreAllMocks();
  vi.useRealTimers();
});

test.each([0, 3_600_000])("the time in which nobody could try is not counted: suspended for %i ms", async (suspended) => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  let now = 1_000;
  vi.spyOn(performance, "now").mockImplementation(() => now);
  const backoff = new Backoff({ firstDelayMs: 1_000, maxDelayMs: 8_000, giveUpAfterMs: 20_000 }, new AbortController().signal);
  let tries = 0;
  for (let goesOn = true; goesOn && tries < 50; ) {
    const timers = vi.getTimerCount();
    const next = backoff.next();
    const wait = vi.getTimerCount() > timers ? 4_000 : 0; // about
    now += wait + (wait > 0 ? suspended : 0);
    await vi.advanceTimersByTimeAsync(8_000);
    goesOn = await next;
    if (goesOn) tries++;
  }
  expect(tries).toBeGreaterThan(3);
  expect(tries).toBeLessThan(50);
});

test("a try in which the machine was suspended is counted as one that takes long", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  let now = 1_000;
  vi.spyOn(performance, "now").mockImplementation(() => now);
  const backoff = new Backoff({ firstDelayMs: 1_000, maxDelayMs: 8_000, giveUpAfterMs: 60_000 }, new AbortController().signal);
  const next = async () => {
    const goesOn = backoff.next();
    await vi.advanceTimersByTimeAsync(8_000);
    return goesOn;
  };
  expect(await next()).toBe(true);
  now += 3_600_000;
  expect(await next()).toBe(true);
  now += 30_000;
  expect(await next()).toBe(false); // what is no suspension counts
});

test("work that ends while the server is asked has its signal for itself: a body may have begun", async () => {
  const asked = new AbortController();
  let signal: AbortSignal | undefined;
  const ask = (mine: AbortSignal) => {
    asked.abort();
    return new Promise((_, reject) => mine.addEventListener("abort", () => setImmediate(reject)));
  };
  await heard(20, undefined, ask, (mine) => {
    signal = mine;
    return new Promise<void>((resolve) => asked.signal.addEventListener("abort", () => resolve()));
  }, true);
  await new Promise(setImmediate);
  await new Promise(setImmediate);
  expect(signal?.aborted).toBe(false);
});

test("a stream is silent when the comment is late that comes every 15 s", () => {
  expect([ofStream(), ofStream(10_000), ofStream(60_000), ofStream(0)]).toEqual([45_000, 20_000, 60_000, 0]);
});

test.each([true, false])("a server that nobody reaches is given up, and not for one question that fails: %s", async (back) => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  let asked = 0;
  const ask = () => (++asked > 2 && back ? Promise.resolve() : Promise.reject(new TypeError("fetch failed")));
  let answer = (_: string) => {};
  const given = heard(8_000, undefined, ask, (signal) => new Promise<string>((resolve, reject) => {
    answer = resolve;
    signal.addEventListener("abort", () => reject(signal.reason as Error));
  })).catch((error: Error) => error.message);
  await vi.advanceTimersByTimeAsync(60_000);
  answer("it is there");
  expect(await given).toBe(back ? "it is there" : "nothing was heard for 8 s");
});
