import { ProblemError } from "sandbox-agent";
import { expect, test, vi } from "vitest";
import { Viewer } from "./viewer.js";

test("a terminal is tried as long as somebody looks, and given up when the gateway has it no more", async () => {
  vi.useFakeTimers();
  try {
    let tries = 0;
    let gone = false;
    const terminal = async () => {
      tries++;
      throw gone ? new ProblemError({ type: "about:blank", title: "Not found", status: 404, detail: "no such process" }) : new TypeError("Failed to fetch");
    };
    const viewer = new Viewer({ terminal } as never, "p");
    const stop = viewer.start({ cols: 80, rows: 24 } as never);
    await vi.advanceTimersByTimeAsync(3_600_000);
    expect(viewer.get().phase).toBe("reconnecting");
    expect(tries).toBeGreaterThan(400);
    gone = true;
    await vi.advanceTimersByTimeAsync(10_000);
    expect(viewer.get()).toEqual({ phase: "failed", words: "no such process" });
    stop();
  } finally {
    vi.useRealTimers();
  }
});
