import type { components } from "./api.gen.js";
import type { Acp, AcpVersion } from "./versions.js";

/** One question of an agent to the user. */
export interface Question {
  readonly id: string;
  /** Short. */
  readonly header: string;
  readonly question: string;
  readonly options: readonly { readonly label: string; readonly description: string }[];
  readonly multiSelect: boolean;
  /** The person's own words are an answer, too. */
  readonly ownWords?: boolean;
}

/** What an agent wants to know. */
export interface QuestionRequest {
  readonly sessionId: string;
  readonly toolCallId?: string;
  readonly questions: readonly Question[];
}

/** For each question the labels chosen, or the user's own words. */
export interface QuestionResponse {
  readonly outcome: "answered" | "rejected" | "cancelled";
  readonly answers: readonly (readonly string[])[];
}

/** A session, or the process behind it, ended. */
export interface SessionEnded {
  readonly sessionId: string;
  readonly data: components["schemas"]["End"];
}

/** A session that the client could not attach to again on a new connection, and why. It goes on; the client gets no more of it until it opens it again. */
export interface SessionLost {
  readonly sessionId: string;
  readonly error: Error;
}

/** At a hub: a session goes on at another node. Requests go there by themselves. */
export interface SessionMoved {
  readonly sessionId: string;
  /** The node that it left. */
  readonly from: string;
  readonly node: string;
  /** How many events the node before it has taken with it, when it was lost. */
  readonly missing: number;
}

/** The gateway cannot write a session, or can again: nothing of it is shown meanwhile. */
export interface SessionStorage {
  readonly sessionId: string;
  readonly writable: boolean;
  readonly reason?: string;
}

/** Events of a session that were let go of, or are damaged, and that the client was not told of. */
export interface EventsLost {
  readonly sessionId: string;
  readonly firstSeq: number;
  readonly lastSeq: number;
}

/** An MCP server of a session. */
export type SessionMcpServer = components["schemas"]["MCPServer"];

/** How the MCP servers of a session are now: all of them. */
export interface SessionMcpServers {
  readonly sessionId: string;
  readonly servers: readonly SessionMcpServer[];
}

/** The agent wrote something that is no message; it goes on. */
export interface Unparsed {
  readonly sessionId?: string;
  readonly error: string;
  readonly raw: string;
  readonly rawHash: string;
}

export type InstallProgress = components["schemas"]["InstallProgress"];

/** A model that an agent offers. */
export interface Model {
  readonly modelId: string;
  readonly name?: string;
  readonly description?: string;
  readonly variants?: readonly string[];
  readonly defaultVariant?: string;
}

export interface ModelList {
  readonly availableModels: readonly Model[];
  readonly currentModelId?: string;
}

/** Answers permission requests: with an option's id, with a whole response, or with undefined to leave it to others. */
export type PermissionHandler<V extends AcpVersion = 1> = (
  request: Acp<V, "RequestPermissionRequest">,
  context: { /** Aborts when somebody else answered or the turn was cancelled. */ readonly signal: AbortSignal },
) => Answer<string | Acp<V, "RequestPermissionResponse">>;

/** Answers questions, or leaves them to others with undefined. */
export type QuestionHandler = (request: QuestionRequest, context: { readonly signal: AbortSignal }) => Answer<QuestionResponse>;

export type Answer<T> = T | undefined | Promise<T | undefined>;

export const QUESTION = "_sandboxagent/session/request_question";
export const ENDED = "_sandboxagent/session/ended";
export const MOVED = "_sandboxagent/session/moved";
export const DAMAGED = "_sandboxagent/session/events_damaged";
export const STORAGE = "_sandboxagent/session/storage";
export const MCP_SERVERS = "_sandboxagent/session/mcp_servers";
export const TURN_ENDED = "_sandboxagent/session/turn_ended";
export const UNPARSED = "_sandboxagent/agent/unparsed";
export const PROGRESS = "_sandboxagent/agent/install_progress";
