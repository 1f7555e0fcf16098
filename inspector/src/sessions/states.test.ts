import { expect, test } from "vitest";
import { shownState } from "./states.js";

test("a session is shown in one state, in the list and beside its conversation", () => {
  // That no turn runs does not make an agent idle that has no process.
  for (const state of ["dormant", "idle", "closed", "ended", "offline"]) expect(shownState({ state }, "idle")).toEqual(shownState({ state }));
  // What a session says itself of its turn comes before the list.
  expect(shownState({ state: "running" }, "idle").words).toBe("idle");
  expect(shownState({ state: "dormant" }, "running").words).toBe("running");
  expect(shownState({ state: "idle" }, "requires_action").words).toBe("waiting");
  expect(shownState({ state: "running", background: 2 }, "idle").words).toBe("idle, 2 in the background");
});
