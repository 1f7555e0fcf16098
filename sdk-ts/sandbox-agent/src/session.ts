import type { SandboxAgentClient } from "./client.js";
import { metaOf } from "./meta.js";
import type { Turn } from "./turn.js";
import type { Acp, AcpVersion } from "./versions.js";

/** What the gateway answers when it makes or opens a session. */
export type SessionResult<V extends AcpVersion = 1> = Acp<V, "NewSessionResponse"> & { sessionId: string };

/** A field that an agent could not honour. */
export interface Unsupported {
  readonly field: string;
  readonly reason: string;
}

/** One session that the client is attached to. */
export class Session<V extends AcpVersion = 1> implements AsyncDisposable {
  /** The agent of the session. */
  readonly agent: string | undefined;
  /** What was asked for and had no effect. */
  readonly unsupported: readonly Unsupported[];
  /** What the agent remembers of a session that was opened again: all, the text it was given, or nothing. */
  readonly continuity: "native" | "replayed" | "fresh" | undefined;

  /** @internal */
  constructor(private readonly client: SandboxAgentClient<V>, readonly id: string, /** The gateway's own answer. */ readonly result: SessionResult<V>) {
    const meta = metaOf(result);
    this.agent = meta.agent as string | undefined;
    this.continuity = meta.continuity as Session["continuity"];
    this.unsupported = (meta.unsupported as Unsupported[] | undefined) ?? [];
  }

  /** Modes, models and thought levels, as the agent offered them when the session was opened. */
  get configOptions(): readonly Acp<V, "SessionConfigOption">[] {
    return this.result.configOptions ?? [];
  }

  /** What the session is doing, its subagents and its commands: in version 2, of sessions that the client is attached to. */
  get activity(): Acp<V, "Activity"> | undefined {
    return this.client.activity(this.id);
  }

  /** Sends a prompt. Await it for the result, iterate it for the updates. */
  prompt(prompt: string | Acp<V, "ContentBlock">[], options: { signal?: AbortSignal; _meta?: Record<string, unknown> } = {}): Turn<V> {
    return this.client.prompt({ sessionId: this.id, prompt, ...options });
  }

  cancel(): Promise<void> {
    return this.client.cancel(this.id);
  }

  setMode(modeId: string): Promise<void> {
    return this.client.setSessionMode(this.id, modeId, {}, modeOption(this.configOptions));
  }

  setConfigOption(configId: string, value: string): Promise<Acp<V, "SetSessionConfigOptionResponse">> {
    return this.client.setSessionConfigOption({ sessionId: this.id, configId, value, ...(this.client.acpVersion === 2 ? { type: "id" } : {}) } as unknown as Acp<V, "SetSessionConfigOptionRequest">);
  }

  /** Tells of every update of the session, those of other clients' turns too. */
  onUpdate(listener: (update: Acp<V, "SessionUpdate">) => void): () => void {
    return this.client.onUpdate(({ sessionId, update }) => {
      if (sessionId === this.id) listener(update as Acp<V, "SessionUpdate">);
    });
  }

  /** Ends the agent's part; `loadSession` or `resumeSession` opens the session again. */
  close(): Promise<void> {
    return this.client.closeSession(this.id);
  }

  delete(): Promise<void> {
    return this.client.deleteSession(this.id);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** The option that is the mode, in version 2, where modes are options. */
function modeOption(options: readonly { id?: unknown; configId?: unknown; category?: unknown }[]): string {
  const option = options.find(({ category }) => category === "mode");
  return typeof option?.configId === "string" ? option.configId : "mode";
}
