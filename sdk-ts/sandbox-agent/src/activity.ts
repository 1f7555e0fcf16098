import type { BackgroundWork, SessionUpdate, SubagentUpdate, TerminalExitStatus, TerminalUpdate } from "@agentclientprotocol/sdk/experimental/v2/unstable";

/** A subagent: a session of its own, within another. */
export interface Subagent {
  readonly sessionId: string;
  /** The session that it works for, which may be a subagent, too. */
  readonly parentId: string;
  readonly title: string | undefined;
  readonly description: string | undefined;
  /** What it is doing; undefined when nobody can tell. */
  readonly state: string | undefined;
  /** `cancel` of the client ends what it does. */
  readonly cancellable: boolean;
}

/** A command that the agent runs, or has run. */
export interface Command {
  readonly terminalId: string;
  /** The session, or the subagent, whose it is. */
  readonly sessionId: string;
  readonly command: string | undefined;
  readonly cwd: string | undefined;
  /** The end of what it has written, at most 256 KiB. */
  readonly output: Uint8Array;
  /** How it has ended; undefined while it runs. */
  readonly exitStatus: TerminalExitStatus | undefined;
  readonly cancellable: boolean;
}

/** The newest are kept. */
const maxSubagents = 1024;
const maxCommands = 256;
const maxOutput = 256 << 10;

/** What a session is doing, as version 2 of ACP tells it: a fold of its updates and those of its subagents. */
export class Activity {
  #state = "idle";
  #background: readonly BackgroundWork[] = [];
  readonly #subagents = new Map<string, Subagent>();
  readonly #commands = new Map<string, Command>();

  constructor(readonly sessionId: string) {}

  /** `running`, `requires_action`, `idle`, or what a later version knows. */
  get state(): string {
    return this.#state;
  }

  /** What goes on though no turn runs. */
  get background(): readonly BackgroundWork[] {
    return this.#background;
  }

  /** By session id. */
  get subagents(): ReadonlyMap<string, Subagent> {
    return this.#subagents;
  }

  command(terminalId: string, sessionId: string = this.sessionId): Command | undefined {
    return this.#commands.get(keyOf(sessionId, terminalId));
  }

  /** The newest commands, oldest first. */
  get commands(): readonly Command[] {
    return [...this.#commands.values()];
  }

  /**
   * Forgets what was told of subagents and commands: updates were lost, and what has ended in them would be shown for ever.
   * @internal
   */
  restart(): void {
    this.#subagents.clear();
    this.#commands.clear();
  }

  /**
   * Takes an update of the session or of a subagent; true when the activity has changed.
   * @internal
   */
  take(sessionId: string, update: SessionUpdate): boolean {
    switch (update.sessionUpdate) {
      case "state_update":
        if (sessionId !== this.sessionId) return false;
        this.#state = "state" in update ? String(update.state) : this.#state;
        this.#background = ("background" in update ? (update.background as BackgroundWork[] | null | undefined) : undefined) ?? [];
        return true;
      case "subagent_update":
        this.#subagent(sessionId, update as SubagentUpdate);
        return true;
      case "terminal_update":
        this.#terminal(sessionId, update as TerminalUpdate);
        return true;
      case "terminal_output_chunk": {
        const { terminalId, data } = update as { terminalId: string; data: string };
        const before = this.#known(sessionId, terminalId);
        this.#keep({ ...before, output: tail(before.output, bytesOf(data)) });
        return true;
      }
      default:
        return false;
    }
  }

  #subagent(parentId: string, update: SubagentUpdate): void {
    const { sessionId, title, description, capabilities, state } = update;
    const before = this.#subagents.get(sessionId) ?? { sessionId, parentId, title: undefined, description: undefined, state: undefined, cancellable: false };
    this.#subagents.set(sessionId, {
      ...before,
      title: patched(title, before.title),
      description: patched(description, before.description),
      state: state === undefined ? before.state : state === null ? undefined : String(state.state),
      cancellable: capabilities === undefined ? before.cancellable : capabilities?.cancel != null,
    });
    bound(this.#subagents, maxSubagents);
  }

  #terminal(sessionId: string, update: TerminalUpdate): void {
    const { terminalId, command, cwd, output, exitStatus, capabilities } = update;
    const before = this.#known(sessionId, terminalId);
    this.#keep({
      ...before,
      command: patched(command, before.command),
      cwd: patched(cwd, before.cwd),
      output: output === undefined ? before.output : output === null ? new Uint8Array() : tail(new Uint8Array(), bytesOf(output.data)),
      exitStatus: patched(exitStatus, before.exitStatus),
      cancellable: capabilities === undefined ? before.cancellable : capabilities?.cancel != null,
    });
  }

  #known(sessionId: string, terminalId: string): Command {
    return this.#commands.get(keyOf(sessionId, terminalId))
      ?? { terminalId, sessionId, command: undefined, cwd: undefined, output: new Uint8Array(), exitStatus: undefined, cancellable: false };
  }

  #keep(command: Command): void {
    this.#commands.set(keyOf(command.sessionId, command.terminalId), command);
    bound(this.#commands, maxCommands);
  }
}

const keyOf = (sessionId: string, terminalId: string) => `${sessionId} ${terminalId}`;

/** A field of an update: what is not there stays, and null clears. */
function patched<T>(value: T | null | undefined, before: T | undefined): T | undefined {
  return value === undefined ? before : value === null ? undefined : value;
}

function bound<T>(all: Map<string, T>, most: number): void {
  for (const oldest of all.keys()) {
    if (all.size <= most) return;
    all.delete(oldest);
  }
}

function bytesOf(base64: string): Uint8Array {
  try {
    return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  } catch {
    return new Uint8Array(); // it is no base64, and so no output
  }
}

/** The two one after the other, without the beginning of what is too long. */
function tail(before: Uint8Array, more: Uint8Array): Uint8Array {
  const all = new Uint8Array(before.length + more.length);
  all.set(before);
  all.set(more, before.length);
  return all.length > maxOutput ? all.slice(all.length - maxOutput) : all;
}
