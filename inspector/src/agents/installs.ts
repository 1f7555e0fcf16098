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

/** The installations that this page began. They go on when another area is shown. */
export class Installs extends Store<Readonly<Record<string, Install>>> {
  constructor() {
    super({});
  }

  async begin(api: Api, agent: string, options: { agentVersion?: string; reinstall?: boolean } = {}): Promise<void> {
    if (this.get()[agent]?.state === "running") return;
    this.#put(agent, { state: "running", progress: undefined, words: "begins" });
    try {
      const result = await api.installAgent(agent, options, { onProgress: (progress) => this.#put(agent, { state: "running", progress, words: wordsOf(progress) }) });
      this.#put(agent, { state: "done", progress: undefined, words: `${result.already ? "It was installed already" : "Installed"}: ${[result.version, `from ${result.source}`].filter((w) => w !== "").join(" ")}` });
    } catch (error) {
      this.#put(agent, { state: "failed", progress: undefined, words: messageOf(error) });
    }
  }

  dismiss(agent: string): void {
    const { [agent]: _, ...rest } = this.get();
    this.set(rest);
  }

  #put(agent: string, install: Install): void {
    this.set({ ...this.get(), [agent]: install });
  }
}

function wordsOf(p: Progress): string {
  return [steps[p.step] ?? p.step, p.source && `(${p.source})`, p.detail].filter(Boolean).join(" ");
}

/** How much of a download is there, between 0 and 1; undefined when nobody knows. */
export function fraction(p: Progress | undefined): number | undefined {
  return p && p.step === "download" && p.total > 0 ? Math.min(1, p.done / p.total) : undefined;
}
