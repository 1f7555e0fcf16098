import { Store } from "./store.js";

export type Theme = "system" | "light" | "dark";

/** What a person has chosen for this browser. No secrets. */
export interface Settings {
  readonly theme: Theme;
  readonly diff: "split" | "unified";
  /** Whether single letters are shortcuts; they disturb some input methods. */
  readonly letters: boolean;
  /** How the list of sessions is grouped. */
  readonly group: "time" | "folder";
  /** Whether the browser tells of what agents ask and end, while the page is out of sight. */
  readonly notify: boolean;
  /** Widths of parts of the page that a person has chosen, in pixels. */
  readonly panes: Readonly<Record<string, number>>;
  /** Whether the list of sessions stands beside what is open, where there is room for both. */
  readonly list: boolean;
}

const key = "sandbox-agent:settings";
const standard: Settings = { theme: "system", diff: "unified", letters: true, group: "time", notify: false, panes: {}, list: true };

/** Settings, kept in the browser. Without storage they last as long as the page. */
export class SettingsStore extends Store<Settings> {
  constructor(private readonly storage: Pick<Storage, "getItem" | "setItem"> | undefined) {
    super({ ...standard, ...read(storage) });
  }

  change(part: Partial<Settings>): void {
    this.patch(part);
    try {
      this.storage?.setItem(key, JSON.stringify(this.get()));
    } catch {
      // A full or forbidden storage costs a choice, nothing else.
    }
  }
}

function read(storage: Pick<Storage, "getItem"> | undefined): Partial<Settings> {
  try {
    const value: unknown = JSON.parse(storage?.getItem(key) ?? "{}");
    if (typeof value !== "object" || value === null) return {};
    const { panes, ...rest } = value as Partial<Settings>;
    return { ...rest, ...(typeof panes === "object" && panes !== null ? { panes: Object.fromEntries(Object.entries(panes).filter(([, width]) => Number.isFinite(width))) } : {}) };
  } catch {
    return {};
  }
}

/** The theme that is shown. */
export function shownTheme(theme: Theme, systemDark: boolean): "light" | "dark" {
  return theme === "system" ? (systemDark ? "dark" : "light") : theme;
}
