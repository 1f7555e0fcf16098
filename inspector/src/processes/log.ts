import type { Terminal as Xterm } from "@xterm/xterm";
import type { Client } from "../state/gateway.js";
import { messageOf } from "../state/explain.js";
import type { Feed } from "../terminal/Screen.js";

/** The output of a program without a terminal, as it comes. */
export class LogFeed implements Feed {
  constructor(private readonly client: Client, private readonly id: string, private readonly onEnd: () => void) {}

  start(screen: Xterm): () => void {
    const control = new AbortController();
    void this.#run(screen, control.signal);
    return () => control.abort();
  }

  async #run(screen: Xterm, signal: AbortSignal): Promise<void> {
    const write = (data: string | Uint8Array) => new Promise<void>((resolve) => screen.write(data, resolve));
    try {
      for await (const output of this.client.processes.follow(this.id, {}, { signal })) {
        if ("missed" in output) await write(`\x1b[2m[${output.missed} bytes are not kept any more]\x1b[0m\n`);
        else if (output.stream === "stderr") {
          await write("\x1b[31m");
          await write(output.data);
          await write("\x1b[39m");
        } else await write(output.data);
        if (signal.aborted) return;
      }
      this.onEnd();
    } catch (error) {
      if (!signal.aborted) await write(`\x1b[31m${messageOf(error)}\x1b[0m\n`);
    }
  }
}
