import type { ContentBlock, SessionInfo, SessionMcpServer } from "sandbox-agent";
import type { BackgroundItem } from "./items.js";
import type { ConfigOption } from "./options.js";
import type { Command, Doing, Usage } from "./transcript.js";

/** What is sent in one go. */
export type Prompt = readonly ContentBlock[];

/** A prompt that is not sent, or of which nobody knows whether it has arrived. */
export interface Kept {
  readonly blocks: Prompt;
  /** The newest event when it was sent: if it has arrived, the session tells of it behind that. Undefined where it was not sent. */
  readonly behind?: number | undefined;
}

/** A prompt that waits for the running turn to end, or for a person. */
export interface Waiting extends Kept {
  readonly id: number;
}

export interface ConversationState {
  readonly phase: "loading" | "live" | "reading" | "failed";
  /** Why there is nothing to see; where it is live, why nothing new comes. */
  readonly problem: string | undefined;
  readonly info: SessionInfo | undefined;
  /** What the session does, as it says. */
  readonly doing: Doing;
  /** Whether a turn runs, of whomever: prompts wait for its end. */
  readonly running: boolean;
  /** Whether this page has asked to stop and the turn has not ended. */
  readonly stopping: boolean;
  /** Grows with each prompt that a person sends here. */
  readonly sent: number;
  readonly queue: readonly Waiting[];
  /** The queue waits for a person, because a turn was stopped or failed. */
  readonly held: boolean;
  readonly options: readonly ConfigOption[];
  readonly commands: readonly Command[];
  readonly usage: Usage | undefined;
  /** What the agent does though no turn waits for it. */
  readonly background: readonly BackgroundItem[];
  readonly title: string | undefined;
  /** What was asked for when it was made and had no effect. */
  readonly unsupported: readonly { readonly field: string; readonly reason: string }[];
  readonly continuity: string | undefined;
  /** Why the gateway cannot write the session: nothing of it is shown meanwhile. */
  readonly unwritable: string | undefined;
  /** What the session has besides what was said; undefined before the gateway was asked. */
  readonly given: Given | undefined;
  /** Events before the first one that is shown. */
  readonly earlier: number;
  readonly loadingEarlier: boolean;
}

/** What a session was given, and how its MCP servers are. */
export interface Given {
  readonly servers: readonly SessionMcpServer[];
  readonly instructions: NonNullable<SessionInfo["instructions"]>;
  readonly skills: readonly string[];
}

/** Before anything is known of a session. */
export const empty: ConversationState = {
  phase: "loading", problem: undefined, info: undefined, doing: "idle", running: false, stopping: false, sent: 0, queue: [], held: false, options: [], commands: [],
  usage: undefined, background: [], title: undefined, unsupported: [], continuity: undefined, unwritable: undefined, given: undefined, earlier: 0, loadingEarlier: false,
};
