import { messageOf } from "./explain.js";
import { Store } from "./store.js";

/** What a token of a hub may do. */
export type Scope = "read" | "drive" | "admin";

/** A gateway that has joined the hub. */
export interface Node {
  readonly name: string;
  readonly state: "online" | "offline";
  readonly labels: Readonly<Record<string, string>>;
  readonly agents: readonly string[];
  readonly version: string;
  readonly hub: string;
  readonly joined: string;
  /** Not there when it is away and nobody knows since when. */
  readonly since?: string;
  /** How many it has in each state. */
  readonly sessions: Readonly<Record<string, number>>;
  /** Events that are not copied yet. */
  readonly lag: number;
}

/** What the list of sessions of a hub is narrowed to. */
export interface SessionFilter {
  readonly node?: string;
  readonly label?: readonly string[];
  readonly state?: readonly string[];
}

export interface FleetState {
  readonly nodes: readonly Node[];
  readonly loaded: boolean;
  readonly problem: string | undefined;
}

interface Source {
  nodes(signal?: AbortSignal): Promise<{ nodes: Node[] }>;
}

const everyMs = 3000;

/** The nodes of the hub that the page is connected to; none at a gateway. They are asked for as long as somebody looks. */
export class FleetStore extends Store<FleetState> {
  #source: Source | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #over = new AbortController();
  #hidden = false;

  constructor() {
    super({ nodes: [], loaded: false, problem: undefined });
  }

  use(source: Source | undefined): void {
    this.#source = source;
    this.set({ nodes: [], loaded: false, problem: undefined });
    void this.refresh();
  }

  look(hidden: boolean): void {
    if (this.#hidden === hidden) return;
    this.#hidden = hidden;
    if (!hidden) void this.refresh();
  }

  /** Asks now, and from now on again. */
  async refresh(): Promise<void> {
    clearTimeout(this.#timer);
    this.#over.abort(); // an answer to what was asked before is older
    this.#over = new AbortController();
    const over = this.#over.signal;
    try {
      const answer = await this.#source?.nodes(over);
      if (over.aborted || !answer) return;
      const nodes = answer.nodes.toSorted((a, b) => (a.name < b.name ? -1 : 1));
      if (!this.get().loaded || this.get().problem !== undefined || JSON.stringify(nodes) !== JSON.stringify(this.get().nodes)) this.set({ nodes, loaded: true, problem: undefined });
    } catch (error) {
      if (over.aborted) return;
      this.patch({ problem: messageOf(error) });
    }
    clearTimeout(this.#timer);
    if (!this.#hidden) this.#timer = setTimeout(() => void this.refresh(), everyMs);
  }
}
