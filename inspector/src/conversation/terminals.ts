import type { ToolContent } from "./items.js";
import type { Update } from "./updates.js";

interface Terminal {
  command: string | undefined;
  text: string;
  readonly calls: Set<string>; // that show it
  decoder: TextDecoder;
  exitCode: number | undefined;
  cancellable: boolean | undefined; // undefined before that was told
}

/** Terminals that are known; the newest. Of older ones what they have shown stays. */
const maxTerminals = 1024;
/** What is kept of an output: its end. */
const maxText = 256 << 10;

/** The commands of a session and its subagents, and what they write. Names are those of `nameIn`. */
export class Terminals {
  #all = new Map<string, Terminal>();
  readonly #shownBy = new Map<string, Set<string>>(); // calls that show what nobody has told of yet, by terminal

  command(terminalId: string): string | undefined {
    return this.#all.get(terminalId)?.command;
  }

  /** Whether it can be ended by itself. */
  cancellable(name: string): boolean {
    return this.#all.get(name)?.cancellable ?? false;
  }

  /** Takes what others knew of terminals that nobody has told of here. */
  toldOnceAs(before: Terminals): void {
    for (const [name, terminal] of this.#all) {
      terminal.command ??= before.#all.get(name)?.command;
      terminal.cancellable ??= before.#all.get(name)?.cancellable;
    }
    this.#all = new Map([...before.#all, ...this.#all]);
    bound(this.#all);
  }

  /** The calls that show it. */
  calls(terminalId: string): Iterable<string> {
    return this.#all.get(terminalId)?.calls ?? this.#shownBy.get(terminalId) ?? [];
  }

  /** What a call shows of a terminal: of one that nobody has told of its name. */
  shown(name: string, terminalId: string, call: string): ToolContent {
    const terminal = this.#all.get(name);
    if (!terminal) {
      const calls = this.#shownBy.get(name) ?? new Set();
      this.#shownBy.set(name, calls.add(call));
      bound(this.#shownBy);
      return { type: "terminal", terminalId };
    }
    terminal.calls.add(call);
    return { type: "output", terminalId, text: terminal.text, exitCode: terminal.exitCode };
  }

  /** Takes what is told of a terminal. Returns the calls that show it. */
  take(name: string, update: Update): Iterable<string> {
    let terminal = this.#all.get(name);
    if (!terminal) {
      terminal = { command: undefined, text: "", calls: this.#shownBy.get(name) ?? new Set(), decoder: new TextDecoder(), exitCode: undefined, cancellable: undefined };
      this.#shownBy.delete(name);
      this.#all.set(name, terminal);
      bound(this.#all);
    }
    if (update.sessionUpdate === "terminal_output_chunk") write(terminal, update.data);
    else {
      if (update.command !== undefined) terminal.command = update.command ?? undefined;
      if (update.output !== undefined) {
        terminal.text = "";
        terminal.decoder = new TextDecoder();
        write(terminal, update.output?.data);
      }
      if (update.capabilities !== undefined) terminal.cancellable = update.capabilities?.cancel != null;
      if (update.exitStatus !== undefined) terminal.exitCode = update.exitStatus?.exitCode ?? undefined;
    }
    return terminal.calls;
  }
}

function write(terminal: Terminal, base64: string | undefined): void {
  if (!base64) return;
  let bytes: Uint8Array;
  try {
    bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  } catch {
    return; // it is no base64, and so no output
  }
  terminal.text += terminal.decoder.decode(bytes, { stream: true });
  if (terminal.text.length > maxText) terminal.text = terminal.text.slice(-maxText / 2);
}

function bound(all: Map<string, unknown>): void {
  for (const oldest of all.keys()) {
    if (all.size <= maxTerminals) return;
    all.delete(oldest);
  }
}
