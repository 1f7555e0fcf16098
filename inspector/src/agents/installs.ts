import type { Api, components } from "sandbox-agent";
import { messageOf } from "../state/explain.js";
import { Store } from "../state/store.js";

type Progress = components["schemas"]["InstallProgress"];

/** An installation that runs, or how it ended. */
export interface Install {
  readonly state: "running" | "done" | "failed";
  readonly progress: Progress | undefined;
  readonly words: string;
}

const steps: Record<Progress["step"], string> = {
  wait: "waits for another installation", resolve: "looks for the newest version", download: "downloads", unpack: "unpacks",
  package: "installs the package", verify: "checks who signed it", prove: "starts it to see that it works", land: "puts it in its place",
};

/**
 * The installations that this page began, by machine and agent. They go on when another area is shown. One for which nobody
 * waits any more, no other client either, is ended by the gateway.
 */
export class Installs extends Store<Readonly<Record<string, Install>>> {
  readonly #stops = new Map<string, AbortController>();

  constructor() {
    super({});
  }

  /** Whether something would end with the page. */
  get running(): boolean {
    return this.#stops.size > 0;
  }

  async begin(api: Api, place: string, agent: string, options: { agentVersion?: string; reinstall?: boolean } = {}): Promise<void> {
    if (this.#stops.has(place)) return;
    const stop = new AbortController();
    this.#stops.set(place, stop);
    this.#put(place, { state: "running", progress: undefined, words: "begins" });
    try {
      const result = await api.installAgent(agent, options, { signal: stop.signal, onProgress: (progress) => this.#put(place, { state: "running", progress, words: wordsOf(progress) }) });
      this.#put(place, { state: "done", progress: undefined, words: `${result.already ? "It was installed already" : "Installed"}: ${[result.version, `from ${result.source}`].filter((w) => w !== "").join(" ")}` });
    } catch (error) {
      if (stop.signal.aborted) this.dismiss(place);
      else this.#put(place, { state: "failed", progress: undefined, words: messageOf(error) });
    } finally {
      this.#stops.delete(place);
    }
  }

  /** Waits no longer for it. */
  cancel(place: string): void {
    this.#stops.get(place)?.abort();
  }

  dismiss(place: string): void {
    const { [place]: _, ...rest } = this.get();
    this.set(rest);
  }

  #put(place: string, install: Install): void {
    this.set({ ...this.get(), [place]: install });
  }
}

function wordsOf(p: Progress): string {
  return [steps[p.step] ?? p.step, p.source && `(${p.source})`, p.detail].filter(Boolean).join(" ");
}

/** How much of a download is there, between 0 and 1; undefined when nobody knows. */
export function fraction(p: Progress | undefined): number | undefined {
  return p && p.step === "download" && p.total > 0 ? Math.min(1, p.done / p.total) : undefined;
}
