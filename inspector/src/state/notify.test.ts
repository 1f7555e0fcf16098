import type { SessionInfo } from "sandbox-agent";
import { expect, test, vi } from "vitest";
import { Notifier } from "./notify.js";
import type { SettingsStore } from "./settings.js";

test("who has seen a turn end is not told of it when the list says so later", () => {
  const told: string[] = [];
  class Told {
    static permission = "granted";
    constructor(title: string) {
      told.push(title);
    }
  }
  const page = { hidden: false };
  vi.stubGlobal("Notification", Told);
  vi.stubGlobal("window", { Notification: Told });
  vi.stubGlobal("document", page);
  const followed = new Map<string, string>();
  const notifier = new Notifier({ get: () => ({ notify: true }) } as SettingsStore, (info) => followed.get(info.sessionId) ?? info.state, () => {});
  const listed = (state: string) => ["seen", "other"].map((id) => ({ sessionId: id, title: id, agent: "a", cwd: "/", state }) as unknown as SessionInfo);
  notifier.seen(listed("running"));
  followed.set("seen", "idle"); // the conversation that is open says so first
  page.hidden = true;
  notifier.know(listed("running"));
  notifier.seen(listed("idle"));
  expect(told).toEqual(["other is done"]);
  // What ends out of sight is told, also where it is followed.
  followed.set("seen", "running");
  notifier.seen(listed("running"));
  followed.set("seen", "idle");
  notifier.seen(listed("running"));
  notifier.seen(listed("idle"));
  expect(told).toEqual(["other is done", "seen is done", "other is done"]);
  vi.unstubAllGlobals();
});
