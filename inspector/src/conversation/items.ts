import type { ContentBlock } from "sandbox-agent";
import type { Segments } from "./segments.js";

/** What happened to a file, as the agent tells it: `add`, `delete`, `modify`, `move`, `copy`, or what is newer than this page. */
export interface FileChange {
  readonly operation: string;
  readonly path: string;
  /** Where it was, of what was moved or copied. */
  readonly from: string | undefined;
  readonly fileType: string | undefined;
}

/** What a call shows. `change` is one of a file whose lines the agent does not show; `output` is what a command has written in a terminal that the agent tells of. */
export type ToolContent =
  | { readonly type: "content"; readonly content: ContentBlock }
  | { readonly type: "diff"; readonly path: string; readonly oldText: string | undefined; readonly newText: string; readonly change?: FileChange }
  | { readonly type: "change"; readonly change: FileChange }
  | { readonly type: "terminal"; readonly terminalId: string }
  | { readonly type: "output"; readonly terminalId: string; readonly text: string; readonly exitCode: number | undefined };
export type ToolStatus = "pending" | "in_progress" | "completed" | "failed" | "cancelled";
export interface PlanEntry {
  readonly content: string;
  readonly status: string;
  readonly priority?: string;
}

/** What a person said. */
export interface UserItem {
  readonly kind: "user";
  readonly key: string;
  readonly at: number;
  readonly messageId: string | undefined;
  /** The event of the session's log that told of it; undefined of a prompt of this page before that. */
  readonly place: number | undefined;
  readonly blocks: readonly ContentBlock[];
}

/** What the agent says, or thinks. `segments` grows in place; `version` with it. */
export interface TextItem {
  readonly kind: "text" | "thought";
  readonly key: string;
  readonly at: number;
  readonly messageId: string | undefined;
  readonly segments: Segments;
  /** Images and other things that are no text. */
  readonly blocks: readonly ContentBlock[];
  readonly version: number;
  readonly done: boolean;
}

/** What the agent does. Calls of its subagents are in `children`. */
export interface ToolItem {
  readonly kind: "tool";
  readonly key: string;
  readonly at: number;
  readonly endedAt: number | undefined;
  readonly id: string;
  readonly title: string;
  readonly tool: string;
  readonly status: ToolStatus;
  readonly content: readonly ToolContent[];
  readonly locations: readonly { readonly path: string; readonly line?: number | null }[];
  readonly rawInput: unknown;
  readonly rawOutput: unknown;
  readonly parent: string | undefined;
  readonly children: readonly ChildItem[];
  /** Whether it can be ended by itself. */
  readonly cancellable: boolean;
  /** What a person was asked about it. */
  readonly asked: Asked | undefined;
}

/** A permission for a tool call: how long it was waited for, and what came. */
export interface Asked {
  /** Since when it is waited for; undefined when nobody has to answer any more. */
  readonly since: number | undefined;
  readonly waitedMs: number;
  readonly answer: { readonly kind: string; readonly name: string } | undefined;
}

export type ChildItem = ToolItem | TextItem;

export interface PlanItem {
  readonly kind: "plan";
  readonly key: string;
  readonly at: number;
  /** Its steps; none of a plan that is a document, or was taken back. */
  readonly entries: readonly PlanEntry[];
  /** What it is when it is no list of steps. */
  readonly document: PlanDocument | undefined;
}

export type PlanDocument =
  | { readonly type: "markdown"; readonly text: string }
  | { readonly type: "file"; readonly uri: string }
  | { readonly type: "unknown"; readonly name: string };

/** What a turn has used. */
export interface Usage {
  readonly totalTokens: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly cachedReadTokens?: number | null;
  readonly thoughtTokens?: number | null;
}

/** What goes on though no turn runs. */
export interface BackgroundItem {
  readonly key: string;
  readonly title: string;
  /** What ends it alone; undefined where nothing does. */
  readonly stop: Stop | undefined;
}

/** Something that can be ended by itself, as the protocol names it. */
export type Stop =
  | { readonly kind: "tool_call"; readonly toolCallId: string }
  | { readonly kind: "terminal"; readonly terminalId: string }
  | { readonly kind: "subagent"; readonly sessionId: string };

/** The end of a turn. */
export interface TurnItem {
  readonly kind: "turn";
  readonly key: string;
  readonly at: number;
  readonly tookMs: number | undefined;
  readonly stopReason: string | undefined;
  readonly error: string | undefined;
  /** The error's code of JSON-RPC. */
  readonly code: number | undefined;
  readonly usage: Usage | undefined;
}

/** Something the gateway or the page has to say. */
export interface NoteItem {
  readonly kind: "note";
  readonly key: string;
  readonly at: number;
  /** `answer` is what a person answered. */
  readonly tone: "info" | "warn" | "bad" | "answer";
  /** The event that it is; undefined where the page says it by itself. */
  readonly place?: number | undefined;
  readonly title: string;
  readonly detail: string | undefined;
}

export type Item = UserItem | TextItem | ToolItem | PlanItem | TurnItem | NoteItem;

/** One row of the list: an item, or one segment of a text. A row that changes is another object. */
export interface Row {
  readonly key: string;
  readonly item: Item;
  /** Which segment of the text; -1 for what is no segment. */
  readonly segment: number;
  /** The event with which the item begins; undefined where no event has told of it. */
  readonly place?: number | undefined;
}
