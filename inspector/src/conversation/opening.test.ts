import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Client } from "../state/gateway.js";
import { Opening } from "./opening.js";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const opening = () => new Opening({} as Client);

test("it waits longer with each error that passes, and for no longer than a bound", async () => {
  const one = opening();
  const waited: number[] = [];
  for (let i = 0; i < 7; i++) {
    const began = Date.now();
    const pause = one.pause();
    await vi.advanceTimersToNextTimerAsync();
    await pause;
    waited.push(Date.now() - began);
  }
  expect(waited).toEqual([500, 1000, 2000, 4000, 8000, 15_000, 15_000]);
});

test("one that is over waits no more, and takes nothing", async () => {
  const one = opening();
  const pause = one.pause();
  const taken: string[] = [];
  let answer!: (log: string) => void;
  const read = one.read(() => new Promise<string>((resolve) => (answer = resolve)), (log) => void taken.push(log));
  const next = one.read(async () => "next", (log) => void taken.push(log));
  one.behind(() => taken.push("behind"));
  one.end();
  answer("log");
  await Promise.all([pause, read, next, one.pause()]);
  expect([taken, vi.getTimerCount(), one.reading]).toEqual([[], 0, false]);
});
