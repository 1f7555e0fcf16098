import { META, SandboxAgentClient, type Agent } from "sandbox-agent";
import type { Client } from "../state/gateway.js";
import { gateway, traffic } from "../state/page.js";

/** A way to log in that an agent offers. */
export interface LoginMethod {
  readonly id: string;
  readonly name: string;
  readonly description: string | undefined;
  /** The agent's own command, for a terminal. Without it the agent does it by itself. */
  readonly command: readonly string[] | undefined;
}

/** A connection to one agent, for its login. Logins that wait for a browser end with it. */
export class LoginConnection {
  readonly #client: Client;
  readonly #own: boolean;

  constructor(agent: string) {
    this.#own = agent === gateway.get().agent; // at a hub none is
    this.#client = this.#own ? gateway.client : new SandboxAgentClient<2>({
      acpVersion: gateway.client.acpVersion, baseUrl: gateway.machineUrl, agent, autoConnect: false, fetch: traffic.fetch, onEnvelope: traffic.envelope, reconnect: false, ...(gateway.token === undefined ? {} : { token: gateway.token }),
    });
  }

  async methods(): Promise<readonly LoginMethod[]> {
    if (!this.#own) await this.#client.connect();
    const { authMethods } = await this.#client.initialized();
    return (authMethods ?? []).map((raw) => {
      const m = raw as { id?: string; methodId?: string; name: string; description?: string | null; _meta?: Record<string, { command?: unknown }> | null };
      const command = m._meta?.[META]?.command;
      const words = Array.isArray(command) && command.length > 0 && command.every((w) => typeof w === "string") ? (command as string[]) : undefined;
      return { id: m.methodId ?? m.id ?? "", name: m.name, description: m.description ?? undefined, command: words };
    });
  }

  /** Has the agent log in by itself. Returns what a person has to do, as far as it says so. */
  async authenticate(method: string): Promise<{ readonly address: string | undefined; readonly code: string | undefined }> {
    const result = (await this.#client.authenticate({ methodId: method })) as { _meta?: Record<string, { login?: Record<string, unknown> }> | null } | null;
    const login = Object.entries(result?._meta?.[META]?.login ?? {});
    const found = (fits: (name: string, value: string) => boolean) => login.find(([name, value]) => typeof value === "string" && fits(name, value))?.[1] as string | undefined;
    return { address: found((_, value) => /^https?:/.test(value)), code: found((name) => /code$/i.test(name)) };
  }

  close(): void {
    if (!this.#own) void this.#client.disconnect();
  }
}

/** Runs a program with its folder in PATH, then a shell: what follows the login can be done there, too. */
const script = `case "$0" in /*) PATH="$(dirname -- "$0"):$PATH"; export PATH;; esac
[ "$#" -gt 0 ] && { "$0" "$@"; echo; echo "(It ended with code $?. This is a shell with the agent's program in its PATH.)"; }
for s in "$SHELL" bash; do if command -v "$s" >/dev/null 2>&1; then exec "$s" -i; fi; done; exec sh -i`;

/** Starts a terminal with an agent's login; without a command a shell that has the agent's program. */
export async function loginTerminal(agent: Agent, command: readonly string[] | undefined): Promise<LoginTerminal> {
  const words = command ?? [agent.path ?? "sh"];
  const { processes } = gateway.machine;
  const of = asideOf(agent.id);
  const { id } = await processes.start({ command: "sh", args: ["-c", script, ...words], tty: true, env: { TERM: "xterm-256color" } });
  return { id, of, end: () => void processes.delete(id).catch(() => {}) };
}

/**
 * Login terminals that nobody sees since one has gone elsewhere in the page, by machine and agent: at most one for each. They are shown again where
 * the agent wants its login. One has served when its agent, which was not logged in, is: nothing leads back to it then.
 */
const aside = new Map<string, { readonly terminal: LoginTerminal; wanted: boolean }>();

const asideOf = (agent: string) => `${gateway.machineUrl} ${agent}`;

gateway.subscribe(look);

function look(): void {
  if (aside.size === 0) return;
  for (const { id, authState } of gateway.get().agents) {
    const kept = aside.get(asideOf(id));
    if (kept && authState !== "authenticated") kept.wanted = true;
    else if (kept?.wanted) takeAside(id)?.end();
  }
}

/** Keeps a terminal for who comes back. One that was kept before ends. */
export function putAside(terminal: LoginTerminal): void {
  aside.get(terminal.of)?.terminal.end();
  aside.set(terminal.of, { terminal, wanted: false });
  look();
  void gateway.refreshAgents().catch(() => {}); // what the page knows may be from before the agent was refused
}

/** The terminal that was kept of an agent, which is the caller's now. */
export function takeAside(agent: string): LoginTerminal | undefined {
  const kept = aside.get(asideOf(agent))?.terminal;
  aside.delete(asideOf(agent));
  return kept;
}

export interface LoginTerminal {
  readonly id: string;
  /** The machine and the agent that it is of. */
  readonly of: string;
  /** Ends it where it runs, whatever machine the page shows by then. */
  end(): void;
}
