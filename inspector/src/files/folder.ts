import { ProblemError, type components } from "sandbox-agent";
import type { Client } from "../state/gateway.js";
import { messageOf } from "../state/explain.js";
import { longestMs, retryMs } from "../state/retry.js";
import { Store } from "../state/store.js";

type Entry = components["schemas"]["FileListed"];
type GitStatus = components["schemas"]["GitStatus"];

export interface FolderState {
  readonly entries: readonly Entry[];
  readonly phase: "loading" | "ready" | "failed";
  readonly error: string;
  readonly more: boolean;
  readonly git: GitStatus | undefined;
  /** What git says of an entry: the worst of what is in a folder. */
  readonly marks: ReadonlyMap<string, string>;
}

/** Entries that are shown of one folder. */
const most = 5000;
/** Refusals of a watch that pass: the system or the gateway has too many just now (429, and 413 of an earlier gateway for the first), or the gateway, or the node behind a hub, is not there. */
const passes = new Set([413, 429, 502, 503, 504]);

/** One folder as it is, and as it changes. */
export class Folder extends Store<FolderState> {
  readonly #control = new AbortController();
  #again: ReturnType<typeof setTimeout> | undefined;
  /** Loads it again. */
  readonly reload = oneByOne(() => this.#list());
  // In a large repository git takes its time. What comes and goes meanwhile is shown all the same.
  readonly #mark = oneByOne(() => this.#status());

  constructor(private readonly client: Client, readonly path: string, private readonly hidden: boolean) {
    super({ entries: [], phase: "loading", error: "", more: false, git: undefined, marks: new Map() });
  }

  /** Loads and follows the folder until the returned function is called. What is told without paths may be any change. */
  open(onChange: (paths: ReadonlySet<string> | undefined) => void): () => void {
    this.reload();
    void this.#watch(onChange);
    return () => {
      this.#control.abort();
      clearTimeout(this.#again);
    };
  }

  async #list(): Promise<void> {
    const { signal } = this.#control;
    if (signal.aborted) return;
    try {
      const entries: Entry[] = [];
      let cursor: string | undefined;
      do {
        const page = await this.client.fs.list(this.path, { hidden: this.hidden, limit: 1000, signal, ...(cursor ? { cursor } : {}) });
        entries.push(...page.entries);
        cursor = page.nextCursor;
      } while (cursor && entries.length < most);
      entries.sort((a, b) => Number(b.type === "directory") - Number(a.type === "directory") || collator.compare(a.name, b.name));
      this.patch({ entries, phase: "ready", error: "", more: cursor !== undefined });
      this.#mark();
    } catch (error) {
      if (!signal.aborted) this.patch({ phase: "failed", error: messageOf(error) });
    }
  }

  async #status(): Promise<void> {
    const { signal } = this.#control;
    const git = await this.client.fs.gitStatus(this.path, { signal }).catch(() => undefined);
    if (!signal.aborted) this.patch({ git, marks: marksOf(git, this.path) });
  }

  /** Follows the folder, also behind a broken connection. A watch that is refused is none: there is a button too. */
  async #watch(onChange: (paths: ReadonlySet<string> | undefined) => void): Promise<void> {
    const { signal } = this.#control;
    let paths = new Set<string>();
    let failures = 0;
    // What has changed since the folder was listed, or a file in it read, is not told.
    const onReady = () => {
      this.reload();
      onChange(undefined);
    };
    while (!signal.aborted) {
      const began = performance.now();
      try {
        for await (const change of this.client.fs.watch(this.path, { hidden: this.hidden, signal, onReady })) {
          if ("path" in change && typeof change.path === "string") paths.add(change.path);
          this.#again ??= setTimeout(() => {
            this.#again = undefined;
            const changed = paths;
            paths = new Set();
            this.reload();
            onChange(changed);
          }, 200);
        }
      } catch (error) {
        // Said already, where it matters: the list could not be loaded either.
        if (error instanceof ProblemError && !passes.has(error.status)) return;
      }
      if (performance.now() - began > longestMs) failures = 0;
      await new Promise((resolve) => setTimeout(resolve, retryMs(failures++))); // as long as somebody looks
    }
  }
}

/** Work that is done once at a time, and once more when it is asked for meanwhile: what it has seen may be old by then. */
function oneByOne(work: () => Promise<void>): () => void {
  let busy = false;
  let again = false;
  const run = (): void => {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    void work().finally(() => {
      busy = false;
      if (!again) return;
      again = false;
      run();
    });
  };
  return run;
}

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

/** A letter for each entry of the folder that git sees a difference in. */
export function marksOf(git: GitStatus | undefined, folder: string): Map<string, string> {
  const out = new Map<string, string>();
  const base = folder === "/" ? "/" : `${folder}/`;
  for (const file of git?.files ?? []) {
    if (!file.path.startsWith(base)) continue;
    const inside = file.path.slice(base.length).replace(/\/$/, "");
    const slash = inside.indexOf("/");
    const name = slash < 0 ? inside : inside.slice(0, slash);
    const letter = slash >= 0 ? "•" : file.workTree !== "." ? file.workTree : file.index;
    if (!out.has(name) || letter !== "•") out.set(name, letter);
  }
  return out;
}
