import { ProblemError } from "sandbox-agent";
import type { Client } from "../state/gateway.js";
import type { Terminal as Xterm } from "@xterm/xterm";
import { messageOf } from "../state/explain.js";
import { Store } from "../state/store.js";
import type { Feed } from "./Screen.js";

type Terminal = Awaited<ReturnType<Client["terminal"]>>;

export interface ViewerState {
  readonly phase: "opening" | "open" | "reconnecting" | "ended" | "failed";
  /** How it ended or failed; otherwise what of the typing was left out. */
  readonly words: string;
}

/** What a screen sends by itself when a program asks: what it is, where its cursor is, its modes, its colours. */
const answer = /^\x1b(?:\[[?>]?[\d;]*(?:[cnRt]|\$y)|\[\?\d+u|\[[IO]|[P\]][^]*\x1b\\)$/;

/** Characters that are kept while there is no connection. What is typed or pasted beyond that is left out as a whole, which is said. */
const mostEarly = 1 << 20;
const tooMuch = "The last that you typed or pasted was not sent: it was too much to keep until the connection was there.";

/** Between two tries to connect; the last one again and again, as long as somebody looks. */
const waitsMs = [200, 500, 1000, 2000, 4000, 8000] as const;

/** Shows a terminal of the gateway's machine. A broken connection is taken up right where it ended. */
export class Viewer extends Store<ViewerState> implements Feed {
  #terminal: Terminal | undefined;
  #stopped = false;
  #replaying = false;
  #early = "";
  #size: { cols: number; rows: number } | undefined;

  constructor(private readonly client: Client, readonly id: string) {
    super({ phase: "opening", words: "" });
  }

  start(screen: Xterm): () => void {
    this.#stopped = false;
    this.#size = { cols: screen.cols, rows: screen.rows };
    void this.#run(screen);
    return () => {
      this.#stopped = true;
      void this.#terminal?.close();
    };
  }

  input(data: string): void {
    const { phase } = this.get();
    // While output is shown again, the screen answers what programs asked another one long ago.
    if (phase === "open" && this.#replaying && answer.test(data)) return;
    if (phase === "open" && this.#toTerminal((terminal) => terminal.write(data))) return;
    if (phase === "ended" || phase === "failed") return;
    if (this.#early.length + data.length <= mostEarly) this.#early += data;
    else this.patch({ words: tooMuch });
  }

  resize(cols: number, rows: number): void {
    this.#size = { cols, rows };
    if (this.get().phase === "open") this.#toTerminal((terminal) => terminal.resize(cols, rows));
  }

  /** False when the connection has just ended: then the next one is told. */
  #toTerminal(send: (terminal: Terminal) => void): boolean {
    try {
      if (this.#terminal) send(this.#terminal);
      return true;
    } catch {
      return false;
    }
  }

  async #run(screen: Xterm): Promise<void> {
    let after = 0;
    for (let failures = 0; !this.#stopped; ) {
      try {
        const terminal = (this.#terminal = await this.client.terminal(this.id, { after }));
        if (this.#stopped) return void terminal.close();
        terminal.onMissed((bytes) => screen.write(`\r\n[${bytes} bytes are not kept any more]\r\n`));
        terminal.exited.catch(() => {});
        failures = 0;
        this.#replaying = terminal.position < terminal.shown;
        this.set({ phase: "open", words: this.get().words === tooMuch ? tooMuch : "" });
        if (this.#size) terminal.resize(this.#size.cols, this.#size.rows);
        if (this.#early !== "") terminal.write(this.#early);
        this.#early = "";
        for await (const chunk of terminal) {
          // The screen takes its time: what comes meanwhile waits in the terminal, which has a bound.
          const old = Math.min(chunk.length, Math.max(0, chunk.length - (terminal.position - terminal.shown)));
          if (old > 0) await new Promise<void>((resolve) => screen.write(chunk.subarray(0, old), resolve));
          this.#replaying &&= terminal.position < terminal.shown;
          if (old < chunk.length) await new Promise<void>((resolve) => screen.write(chunk.subarray(old), resolve));
          if (this.#stopped) return;
        }
        const { exitCode, signal } = await terminal.exited;
        this.set({ phase: "ended", words: signal === undefined ? `ended with code ${exitCode}` : `ended by ${signal}` });
        return;
      } catch (error) {
        after = this.#terminal?.position ?? after;
        if (this.#stopped) return;
        if (error instanceof ProblemError) return this.set({ phase: "failed", words: messageOf(error) });
        this.set({ phase: "reconnecting", words: this.get().words });
        const wait = waitsMs[failures++] ?? waitsMs.at(-1);
        await new Promise((resolve) => setTimeout(resolve, wait));
      }
    }
  }
}
