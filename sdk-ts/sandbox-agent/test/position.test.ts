// How far a client has come, against a gateway that is cut anywhere: between the frames of one event, too.
import { expect, test } from "vitest";
import { Position } from "../src/position.js";

/** A generator of numbers that is the same in each run. */
function numbers(seed: number): (below: number) => number {
  let state = seed * 2654435761 + 1;
  return (below) => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9) | 0;
    return (state >>> 8) % below;
  };
}

test.each([[1, false], [1, true], [2, true]] as const)("version %i, events in parts %s: whatever is cut, each frame comes once and in order", (version, parts) => {
  for (let seed = 1; seed <= 500; seed++) {
    const random = numbers(seed);
    const log = Array.from({ length: 30 }, (_, i) => Array.from({ length: parts ? 1 + random(3) : 1 }, (_, frame) => `${i + 1}.${frame}`));
    const position = new Position(version, parts, 0);
    const given: string[] = [];
    let breaks = 0;
    for (let from = 0, first = true; ; first = false) {
      // The connection brings what is behind `from` up to now, the session's state in version 2, and what comes then.
      const now = first ? 0 : Math.min(log.length, Math.max(position.after, from) + random(3));
      const frames: { seq: number; frame: string }[] = [];
      for (let seq = from + 1; seq <= log.length; seq++) {
        if (seq === now + 1 && !first && version === 2) frames.push({ seq: now, frame: "state" });
        for (const frame of log[seq - 1] ?? []) frames.push({ seq, frame });
      }
      if (now === log.length && version === 2) frames.push({ seq: now, frame: "state" });
      const cut = random(frames.length + 1);
      const lasts = breaks > 40 || cut === frames.length;
      for (const { seq, frame } of lasts ? frames : frames.slice(0, cut)) {
        if (position.fresh(seq) && frame !== "state") given.push(frame);
      }
      if (lasts) break;
      breaks++;
      from = position.goOn(false);
    }
    expect(given, `seed ${seed}, ${breaks} breaks`).toEqual(log.flat());
  }
});

test("who waits for the state is told it, and others are not told it twice", () => {
  for (const asked of [true, false]) {
    const position = new Position(2, true, 0);
    expect([position.fresh(4), position.fresh(5)]).toEqual([true, true]);
    position.state(5);
    expect(position.goOn(asked)).toBe(5);
    expect(position.fresh(5)).toBe(asked); // the state
    expect([position.fresh(6), position.after]).toEqual([true, 6]);
  }
});

test.each([1, 2] as const)("version %i: a request is noted before the other frames of its event, which come once", (version) => {
  const position = new Position(version, true, 4);
  position.asked(5);
  expect([position.fresh(5), position.fresh(5), position.after]).toEqual([true, true, 5]);
  expect(position.goOn(false)).toBe(4);
  position.asked(5);
  expect([position.fresh(5), position.fresh(5), position.fresh(5)]).toEqual([false, false, true]);
});

test.each([[1, false], [1, true], [2, true]] as const)("version %i, events in parts %s: what was asked for comes again from where it begins, what came on the way before once", (version, parts) => {
  const position = new Position(version, parts, 0);
  for (const seq of [1, 2, 3]) position.fresh(seq);
  const upTo: number[] = [];
  position.again = (seq) => upTo.push(seq);
  expect([position.fresh(4), position.again !== undefined, upTo]).toEqual([true, true, []]); // it was on its way
  expect([1, 2, 3, 4, 5].map((seq) => position.fresh(seq))).toEqual([true, true, true, true, true]);
  expect([upTo, position.again !== undefined, position.after]).toEqual([[4], false, 5]);
  expect(position.fresh(4)).toBe(false);
});

test("an event of one frame may be all that comes again", () => {
  const position = new Position(1, false, 3);
  position.again = () => {};
  expect([position.fresh(3), position.fresh(3)]).toEqual([true, false]);
});

test("a new connection brings again nothing that came: who asked asks on it", () => {
  const position = new Position(1, false, 3);
  position.again = () => expect.unreachable();
  expect([position.goOn(false), position.again !== undefined, position.fresh(3), position.fresh(2)]).toEqual([3, false, false, false]);
});
