/**
 * The client of Sandbox Agent.
 *
 * @module
 */
export { SandboxAgentClient, type SandboxAgentClientOptions } from "./client.js";
export { Session, type Unsupported } from "./session.js";
export { Turn, type TurnResult } from "./turn.js";
export { Activity, type Command, type Subagent } from "./activity.js";
export type { Acp, AcpVersion, UpdateKind, UpdateOf } from "./versions.js";
export type { TurnEnded } from "./prompts.js";
export { Api, type Agent, type ApiOptions, type Child, type ImportedSession, type InstallResult, type RequestOptions, type SessionChange, type SessionEvent, type SessionInfo, type SessionPermission, type Token } from "./api.js";
export { Files, type FileChange, type FileContent, type FileEntry } from "./files.js";
export { Processes, type HostProcess, type ProcessOutput, type ProcessResult } from "./processes.js";
export { Terminal, type TerminalExit } from "./terminal.js";
export * from "./errors.js";
export { passes } from "./passing.js";
export type { EventsLost, InstallProgress, Model, ModelList, PermissionHandler, Question, QuestionHandler, QuestionRequest, QuestionResponse, SessionEnded, SessionLost, SessionMcpServer, SessionMcpServers, SessionMoved, SessionStorage, Unparsed } from "./extensions.js";
export { META, type NewSessionParams, type OpenSessionParams, type SessionMetadata } from "./meta.js";
export type { ConnectionState, Envelope, RetryOptions, WebSocketConstructor } from "acp-http-client";
export type { components, paths } from "./api.gen.js";
export type { ContentBlock, McpServer, PromptResponse, RequestPermissionRequest, RequestPermissionResponse, SessionNotification, SessionUpdate, StopReason, ToolCall, ToolCallUpdate } from "@agentclientprotocol/sdk/unstable";
