import type { SessionInfo } from "sandbox-agent";
import { nameOf } from "../sessions/marks.js";
import { titleOf, type Ask } from "./inbox.js";
import type { SettingsStore } from "./settings.js";

/** Tells of what needs a person, by the browser, while the page is out of sight and a person wants it. */
export class Notifier {
  #states = new Map<string, string>();

  /** stateOf is how a session is as far as the page knows: where it is followed, that comes before what a list says. */
  constructor(private readonly settings: SettingsStore, private readonly stateOf: (info: SessionInfo) => string, private readonly go: (sessionId: string | undefined) => void) {}

  /** Whether the browser can tell at all. */
  get possible(): boolean {
    return "Notification" in window && Notification.permission !== "denied";
  }

  /** Asks the browser, once; false when it, or the person, does not want it. */
  async turn(on: boolean): Promise<boolean> {
    const allowed = on && this.possible && (Notification.permission === "granted" || (await Notification.requestPermission()) === "granted");
    this.settings.change({ notify: allowed });
    return allowed === on;
  }

  asked(ask: Ask, info: SessionInfo | undefined): void {
    this.#tell(`${info ? nameOf(info) : "An agent"} asks`, titleOf(ask), ask.sessionId);
  }

  /** Looks which sessions have ended their turns since. */
  seen(all: readonly SessionInfo[]): void {
    for (const info of all) {
      if (["running", "waiting"].includes(this.#states.get(info.sessionId) ?? "") && this.stateOf(info) === "idle") this.#tell(`${nameOf(info)} is done`, "The agent has ended its turn.", info.sessionId);
    }
    this.know(all);
  }

  /** What a person could see until now is not told later. */
  know(all: readonly SessionInfo[]): void {
    this.#states = new Map(all.map((info) => [info.sessionId, this.stateOf(info)]));
  }

  #tell(title: string, body: string, sessionId: string | undefined): void {
    if (!this.settings.get().notify || !document.hidden || !this.possible) return;
    const note = new Notification(title, { body, tag: sessionId ?? "sandbox-agent", icon: "./icon.svg" });
    note.onclick = () => {
      window.focus();
      this.go(sessionId);
      note.close();
    };
  }
}
