import { Api, ProblemError, ProtocolVersionError, SandboxAgentClient, type Agent, type components, type Envelope, type SandboxAgentClientOptions } from "sandbox-agent";
import type { HubClient } from "../nodes/hub.js";
import type { Scope } from "./fleet.js";
import { explain, explainAddress, explainSilence, withSlash, WrongVersion, type Explanation } from "./explain.js";
import { Store } from "./store.js";
import type { Traffic } from "./traffic.js";

export type Phase = "idle" | "connecting" | "open" | "reconnecting" | "failed";
export type Remember = "no" | "tab" | "browser";

/** Where to connect. The token is not part of it: it is in no snapshot. */
export interface Target {
  readonly endpoint: string;
  /** The agent of the connection; undefined lets the page choose. */
  readonly agent: string | undefined;
}

export interface GatewayState extends Target {
  readonly phase: Phase;
  readonly problem: Explanation | undefined;
  readonly version: components["schemas"]["Version"] | undefined;
  /** What the token may do, where it is a hub that the page is connected to. */
  readonly hub: { readonly scope: Scope } | undefined;
  /** The node of the hub whose machine the page shows: its files, programs and agents. */
  readonly node: string | undefined;
  /** The page of the hub, where the gateway is a node of one. */
  readonly above: string | undefined;
  readonly agents: readonly Agent[];
  readonly remember: Remember;
  readonly hasToken: boolean;
  /** Grows with each new client: what hangs on one is made anew. */
  readonly generation: number;
}

type Storages = { readonly tab: Pick<Storage, "getItem" | "setItem" | "removeItem"> | undefined; readonly browser: Pick<Storage, "getItem" | "setItem" | "removeItem"> | undefined };
type Elicit = NonNullable<SandboxAgentClientOptions<2>["onElicitation"]>;

/**
 * The page's client. It speaks version 2 of ACP, and version 1 where the gateway has no
 * other: then `acpVersion` says so, and what it tells is brought into version 2.
 */
export type Client = SandboxAgentClient<2>;

const targetKey = "sandbox-agent:target";
const nodeKey = (endpoint: string) => `sandbox-agent:node:${endpoint}`;
const tokenKey = (endpoint: string) => `sandbox-agent:token:${new URL(endpoint).origin}`;

/** How long the first connection is tried before somebody is told what is wrong. */
const patienceMs = 120_000;

/** The versions of ACP that this page speaks, the best one first. */
const versions = [2, 1] as const;

/**
 * The page's one connection to a gateway. The token is in memory; where a person
 * asked for it also in a storage of the browser, by the gateway's address.
 */
export class GatewayStore extends Store<GatewayState> {
  #client: Client | undefined;
  #token: string | undefined;
  #attempt = 0;
  #asked = 0; // for the list of agents
  #told = 0; // by the answer to which of them it is as it is
  #machines = new Map<string, Client>(); // of nodes; they have no connection
  #options: { token?: string; fetch?: typeof fetch } = {};
  /** Answers forms of agents; set before connecting. */
  onElicitation: Elicit | undefined;
  /** Sees each message; set before connecting. */
  onFrame: ((envelope: Envelope) => void) | undefined;

  constructor(private readonly origin: string, private readonly storages: Storages, readonly traffic: Traffic) {
    const kept = parse(storages.browser?.getItem(targetKey));
    const endpoint = typeof kept.endpoint === "string" && URL.canParse(kept.endpoint) ? kept.endpoint : origin;
    super({
      endpoint, agent: typeof kept.agent === "string" ? kept.agent : undefined,
      phase: "idle", problem: undefined, version: undefined, hub: undefined, node: undefined, above: undefined, agents: [], remember: "tab", hasToken: false, generation: 0,
    });
    this.#takeKept();
  }

  /** The client; there is one in every phase behind `connecting`. */
  get client(): Client {
    if (!this.#client) throw new Error("there is no connection yet");
    return this.#client;
  }

  get api(): Api {
    return this.client.api;
  }

  /** The client's part for a hub, undefined at a gateway. */
  get fleet(): HubClient | undefined {
    return this.get().hub ? (this.client as unknown as HubClient) : undefined;
  }

  /** Where the API of the machine is that the page shows. */
  get machineUrl(): string {
    const { endpoint, hub, node } = this.get();
    if (!hub) return endpoint;
    if (node === undefined) throw new Error("Choose a node first.");
    return `${endpoint.replace(/\/$/, "")}/nodes/${encodeURIComponent(node)}`;
  }

  /** The files, programs and agents of the machine that the page shows: the gateway's, or at a hub the chosen node's. */
  get machine(): Client {
    const { hub, node } = this.get();
    if (!hub) return this.client;
    const baseUrl = this.machineUrl;
    const machine: Client = this.#machines.get(node!) ?? new SandboxAgentClient<2>({ ...this.#options, baseUrl, acpVersion: 2, autoConnect: false });
    this.#machines.set(node!, machine);
    return machine;
  }

  /** Shows the machine of another node. */
  visit(node: string | undefined): void {
    if (!this.get().hub || node === this.get().node) return;
    this.patch({ node, agents: [] });
    if (this.fleet) this.fleet.node = node;
    try {
      if (node === undefined) this.storages.tab?.removeItem(nodeKey(this.get().endpoint));
      else this.storages.tab?.setItem(nodeKey(this.get().endpoint), node);
    } catch {
      // Then a reload asks for it again.
    }
    void this.refreshAgents().catch(() => {});
  }

  /** The token, for the commands that a person copies on purpose. */
  get token(): string | undefined {
    return this.#token;
  }

  #takeKept(): void {
    const key = tokenKey(this.get().endpoint);
    const tab = read(this.storages.tab, key);
    const browser = read(this.storages.browser, key);
    this.#token = tab ?? browser;
    this.patch({ remember: tab !== undefined ? "tab" : browser !== undefined ? "browser" : "tab", hasToken: this.#token !== undefined });
  }

  /** Sets what the next connection uses. */
  aim(target: Partial<Target>): void {
    const before = this.get().endpoint;
    this.patch(target);
    if (this.get().endpoint !== before && URL.canParse(this.get().endpoint)) this.#takeKept();
  }

  /** Takes a token out of the page's address. It is for the gateway of the page, whichever was used last. */
  use(token: string): void {
    if (this.get().endpoint !== this.origin) this.aim({ endpoint: this.origin, agent: undefined });
    this.setToken(token, this.get().remember);
  }

  setToken(token: string | undefined, remember: Remember): void {
    this.#token = token === "" ? undefined : token;
    this.patch({ remember, hasToken: this.#token !== undefined });
    this.#keepToken();
  }

  #keepToken(): void {
    const { endpoint, remember } = this.get();
    if (!URL.canParse(endpoint)) return;
    for (const place of ["tab", "browser"] as const) {
      try {
        if (place === remember && this.#token !== undefined) this.storages[place]?.setItem(tokenKey(endpoint), this.#token);
        else this.storages[place]?.removeItem(tokenKey(endpoint));
      } catch {
        // Without storage it is asked for again.
      }
    }
  }

  /**
   * Connects anew. What goes wrong is in `problem`; the promise does not reject. The agent
   * that is aimed at is installed only where a person asks for it now: `install`.
   */
  async connect({ install = false }: { readonly install?: boolean } = {}): Promise<void> {
    const attempt = ++this.#attempt;
    const { endpoint } = this.get();
    const before = this.#client;
    const bad = explainAddress(endpoint, this.origin);
    if (bad) return this.patch({ phase: "failed", problem: bad });
    this.#keepToken();
    this.patch({ phase: "connecting", problem: undefined });
    await before?.disconnect();
    try {
      const token = this.#token;
      const options = { ...(token === undefined ? {} : { token }), fetch: this.#fetch };
      const api = new Api(endpoint, options);
      const version: components["schemas"]["Version"] & { readonly role?: string; readonly scope?: Scope } = await api.version();
      const hub = version.role === "hub" ? { scope: version.scope ?? "read" } : undefined;
      if (attempt !== this.#attempt) return;
      if (typeof version.version !== "string") throw new WrongVersion(`${endpoint} does not say which version it is: it is another program than sandbox-agent.`);
      if (!versions.some((v) => v === version.protocolVersion)) throw new WrongVersion(`This page speaks versions ${versions.toSorted().join(" and ")} of ACP, the gateway ${version.version} speaks ${version.protocolVersion}. Open the page that the gateway serves: ${new URL("ui/", withSlash(endpoint)).href}`);
      const agents = hub ? [] : await api.agents();
      const make = hub ? (await import("../nodes/hub.js")).HubClient : SandboxAgentClient<2>;
      if (attempt !== this.#attempt) return;
      const agent = hub ? undefined : chooseAgent(agents, this.get().agent, install);
      this.#options = options; // before the client can be open: an answer to the token of before may still come
      const client = await this.#speak((acpVersion) => this.#newClient(make, acpVersion, { ...options, baseUrl: endpoint, clientInfo: { name: "sandbox-agent-inspector", version: version.version }, ...(agent === undefined ? {} : { agent }) }), () => attempt === this.#attempt);
      if (attempt !== this.#attempt) return void client.disconnect();
      this.#machines.clear();
      const node = hub && (read(this.storages.tab, nodeKey(endpoint)) ?? undefined);
      this.patch({ phase: "open", problem: undefined, version, hub, node, above: undefined, agents, agent, generation: this.get().generation + 1 });
      if (this.fleet) this.fleet.node = node;
      this.#keepTarget();
      if (hub) void this.refreshAgents().catch(() => {});
      else void this.#lookAbove(attempt);
    } catch (error) {
      if (attempt !== this.#attempt) return;
      const problem = error instanceof TypeError ? explainSilence({ endpoint, pageOrigin: new URL(this.origin).origin, answers: await answers(endpoint) }) : explain(error, endpoint, this.#token !== undefined, error instanceof ProblemError && error.status === 401 && (await isHub(endpoint)));
      if (attempt === this.#attempt) this.patch({ phase: "failed", problem });
    }
  }

  readonly #fetch: typeof fetch = async (input, init) => {
    const response = await this.traffic.fetch(input, init);
    if (response.status === 401 && (this.get().phase === "open" || this.get().phase === "reconnecting")) void this.#refused();
    return response;
  };

  /**
   * A token that was taken and is not any more: it was revoked, or the gateway has another one since. A browser does not say
   * so of a broken connection, and what a node answers says it of the node alone. The client tries on.
   */
  async #refused(): Promise<void> {
    const client = this.#client;
    const { endpoint, hub } = this.get();
    const error: unknown = await new Api(endpoint, { ...this.#options, fetch: this.traffic.fetch }).version().then(() => undefined, (e: unknown) => e);
    const { phase } = this.get();
    if (!(error instanceof ProblemError) || error.status !== 401 || client !== this.#client || (phase !== "open" && phase !== "reconnecting")) return;
    this.patch({ phase: "failed", problem: { ...explain(error, endpoint, true, hub !== undefined), title: "The token is not taken any more" } });
  }

  /** Connects a client of the best version that the gateway has, too. */
  async #speak(make: (acpVersion: 1 | 2) => Client, wanted: () => boolean): Promise<Client> {
    for (const acpVersion of versions) {
      const client = make(acpVersion);
      this.#client = client;
      try {
        await client.connect();
        return client;
      } catch (error) {
        if (!(error instanceof ProtocolVersionError) || acpVersion === versions.at(-1) || !wanted()) throw error;
      }
    }
    throw new Error("there is no version to speak");
  }

  /** Finds out whether the gateway is a node, with the page of its hub above. */
  async #lookAbove(attempt: number): Promise<void> {
    const hub = /^(.*)\/nodes\/[^/]+\/?$/.exec(this.get().endpoint)?.[1];
    if (hub !== undefined && (await isHub(hub)) && attempt === this.#attempt) this.patch({ above: `${hub}/ui/` });
  }

  #newClient(make: new (options: SandboxAgentClientOptions<2>) => Client, acpVersion: 1 | 2, options: Omit<SandboxAgentClientOptions<2>, "acpVersion">): Client {
    let been = false; // connected: then it is tried for as long as the page is open, through a night with the lid closed, too
    const client: Client = new make({
      ...options, acpVersion: acpVersion as 2, autoConnect: false, onEnvelope: (envelope) => {
        this.traffic.envelope(envelope);
        this.onFrame?.(envelope);
      },
      retry: {
        get giveUpAfterMs() {
          return been ? Infinity : patienceMs;
        },
      },
      // Version 2 has all of this without being asked.
      ...(acpVersion === 1 ? { capabilities: { session: { configOptions: { boolean: {} }, notices: {}, compaction: {} } } as object } : {}),
      ...(this.onElicitation ? { onElicitation: this.onElicitation } : {}),
    });
    client.onState((state) => {
      been ||= state === "open";
      if (client !== this.#client) return;
      if (state === "open") this.patch({ phase: "open", problem: undefined });
      else if (state === "reconnecting") this.patch({ phase: "reconnecting" });
      else if (state === "idle" && this.get().phase === "reconnecting") {
        void client.initialized().catch((error: unknown) => this.patch({ phase: "failed", problem: explain((error as Error).cause ?? error, this.get().endpoint) }));
      }
    });
    return client;
  }

  #keepTarget(): void {
    const { endpoint, agent } = this.get();
    try {
      if (endpoint === this.origin) this.storages.browser?.removeItem(targetKey);
      else this.storages.browser?.setItem(targetKey, JSON.stringify({ endpoint, agent }));
    } catch {
      // Then the next visit begins at the page's own gateway.
    }
  }

  async refreshAgents(): Promise<void> {
    const { hub, node, generation } = this.get();
    if (hub && node === undefined) return;
    const asked = ++this.#asked;
    const agents = await this.machine.api.agents();
    if (asked < this.#told || node !== this.get().node || generation !== this.get().generation) return;
    this.#told = asked;
    this.patch({ agents });
  }

  /** Ends the connection and forgets the token. */
  async leave(): Promise<void> {
    this.#attempt++;
    const client = this.#client;
    this.setToken(undefined, "tab");
    this.patch({ phase: "idle", problem: undefined });
    await client?.disconnect();
  }
}

/** The connection's own agent: sessions can have another. To look at the page installs none, as long as there is one that can be used. */
function chooseAgent(agents: readonly Agent[], wanted: string | undefined, install: boolean): string | undefined {
  const named = agents.find((a) => a.id === wanted);
  if (named && (named.installed || install)) return named.id;
  const standard = agents.find((a) => a.default);
  const mock = agents.find((a) => a.id === "mock");
  return ([standard, mock, ...agents].find((a) => a?.installed) ?? mock ?? standard)?.id;
}

/** Whether something answers, though its answer may not be read. */
async function answers(endpoint: string): Promise<boolean> {
  try {
    await fetch(new URL("v2/health", withSlash(endpoint)), { mode: "no-cors", cache: "no-store" });
    return true;
  } catch {
    return false;
  }
}

/** Whether a hub answers at the address. */
async function isHub(endpoint: string): Promise<boolean> {
  try {
    const answer = await fetch(new URL("v2/health", withSlash(endpoint)), { cache: "no-store" });
    return ((await answer.json()) as { role?: unknown }).role === "hub";
  } catch {
    return false;
  }
}

function read(storage: Pick<Storage, "getItem"> | undefined, key: string): string | undefined {
  try {
    return storage?.getItem(key) ?? undefined;
  } catch {
    return undefined;
  }
}

function parse(text: string | null | undefined): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text ?? "{}");
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}
