import type { ContentBlock, NewSessionResponse, SessionConfigOption, SessionUpdate, SetSessionConfigOptionResponse } from "@agentclientprotocol/sdk/unstable";
import type { SandboxAgentClient } from "./client.js";
import { metaOf } from "./meta.js";
import type { Turn } from "./turn.js";

/** What the gateway answers when it makes or opens a session. */
export type SessionResult = NewSessionResponse & { sessionId: string };

/** A field that an agent could not honour. */
export interface Unsupported {
  readonly field: string;
  readonly reason: string;
}

/** One session that the client is attached to. */
export class Session implements AsyncDisposable {
  /** The agent of the session. */
  readonly agent: string | undefined;
  /** What was asked for and had no effect. */
  readonly unsupported: readonly Unsupported[];
  /** What the agent remembers of a session that was opened again: all, the text it was given, or nothing. */
  readonly continuity: "native" | "replayed" | "fresh" | undefined;

  /** @internal */
  constructor(private readonly client: SandboxAgentClient, readonly id: string, /** The gateway's own answer. */ readonly result: SessionResult) {
    const meta = metaOf(result);
    this.agent = meta.agent as string | undefined;
    this.continuity = meta.continuity as Session["continuity"];
    this.unsupported = (meta.unsupported as Unsupported[] | undefined) ?? [];
  }

  /** Modes, models and thought levels, as the agent offered them when the session was opened. */
  get configOptions(): readonly SessionConfigOption[] {
    return this.result.configOptions ?? [];
  }

  /** Sends a prompt. Await it for the result, iterate it for the updates. */
  prompt(prompt: string | ContentBlock[], options: { signal?: AbortSignal; _meta?: Record<string, unknown> } = {}): Turn {
    return this.client.prompt({ sessionId: this.id, prompt, ...options });
  }

  cancel(): Promise<void> {
    return this.client.cancel(this.id);
  }

  setMode(modeId: string): Promise<void> {
    return this.client.setSessionMode(this.id, modeId);
  }

  setConfigOption(configId: string, value: string): Promise<SetSessionConfigOptionResponse> {
    return this.client.setSessionConfigOption({ sessionId: this.id, configId, value });
  }

  /** Tells of every update of the session, those of other clients' turns too. */
  onUpdate(listener: (update: SessionUpdate) => void): () => void {
    return this.client.onUpdate(({ sessionId, update }) => {
      if (sessionId === this.id) listener(update as SessionUpdate);
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
