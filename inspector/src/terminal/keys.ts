import type { Terminal as Xterm } from "@xterm/xterm";
import { Store } from "../state/store.js";
import type { Feed } from "./Screen.js";

/** Keys that keyboards of phones do not have. */
export const keys = [
  { label: "Esc", name: "Esc", data: "\x1b" },
  { label: "Tab", name: "Tab", data: "\t" },
  { label: "←", name: "Left", data: "\x1b[D" },
  { label: "↑", name: "Up", data: "\x1b[A" },
  { label: "↓", name: "Down", data: "\x1b[B" },
  { label: "→", name: "Right", data: "\x1b[C" },
  { label: "|", name: "Pipe", data: "|" },
  { label: "/", name: "Slash", data: "/" },
  { label: "~", name: "Tilde", data: "~" },
  { label: "-", name: "Dash", data: "-" },
] as const;

/** Passes on what is typed, and keys that are pressed on the page. */
export class Keys extends Store<{ readonly ctrl: boolean }> implements Feed {
  #screen: Xterm | undefined;

  constructor(private readonly feed: Required<Feed>) {
    super({ ctrl: false });
  }

  start(screen: Xterm): () => void {
    this.#screen = screen;
    return this.feed.start(screen);
  }

  resize(cols: number, rows: number): void {
    this.feed.resize(cols, rows);
  }

  input(data: string): void {
    // One letter behind Ctrl; what the screen answers to programs is longer and none.
    if (this.get().ctrl && /^[\x20-\x7e]$/.test(data)) {
      this.patch({ ctrl: false });
      data = withCtrl(data);
    }
    this.feed.input(data);
  }

  /** Holds Ctrl for the next letter, or lets go of it. */
  toggleCtrl(): void {
    this.patch({ ctrl: !this.get().ctrl });
    this.#screen?.focus();
  }

  press(data: string): void {
    // Programs of a whole screen may want arrows in their other form.
    this.input(this.#screen?.modes.applicationCursorKeysMode ? data.replace(/^\x1b\[/, "\x1bO") : data);
    this.#screen?.focus();
  }
}

/** What a letter is with Ctrl; what has none stays as it is. */
export function withCtrl(letter: string): string {
  if (letter === "?") return "\x7f";
  const code = (letter === " " ? "@" : letter.toUpperCase()).charCodeAt(0);
  return code >= 64 && code < 96 ? String.fromCharCode(code - 64) : letter;
}
