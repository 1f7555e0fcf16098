// What the page reads of version 2 of ACP. Everything that it shows comes in this form:
// what a gateway says in version 1 is brought into it, see raise.ts.
import { META, type ContentBlock } from "sandbox-agent";
import type { FileChange, ToolContent, Usage } from "./items.js";
import { headOf, parts, passagesOf, type Passage } from "./passages.js";

export type Meta = Record<string, unknown> | null;

/** An update of a session, with the members of all kinds. What is null is cleared, what is not there stays. */
export interface Update {
  readonly sessionUpdate: string;
  readonly messageId?: string | null;
  /** A block of a chunk, all blocks of a message, what a tool call shows. */
  readonly content?: unknown;
  readonly toolCallId?: string;
  readonly title?: string | null;
  readonly kind?: string | null;
  readonly status?: string | null;
  readonly locations?: readonly { readonly path: string; readonly line?: number | null }[] | null;
  readonly rawInput?: unknown;
  readonly rawOutput?: unknown;
  readonly terminalId?: string;
  readonly command?: string | null;
  readonly output?: { readonly data: string } | null;
  readonly data?: string;
  readonly exitStatus?: { readonly exitCode?: number | null; readonly signal?: string | null } | null;
  readonly plan?: Plan;
  readonly planId?: string;
  readonly availableCommands?: readonly { readonly name: string; readonly description?: string; readonly input?: { readonly hint?: unknown } | null }[];
  readonly configOptions?: readonly unknown[];
  readonly used?: number;
  readonly size?: number;
  readonly cost?: { readonly amount: number; readonly currency: string } | null;
  /** Of the session; of a subagent it is an object. */
  readonly state?: string | State | null;
  readonly stopReason?: string | null;
  readonly error?: string | { readonly code?: number; readonly message?: string } | null;
  readonly usage?: Usage | null;
  readonly background?: readonly Background[] | null;
  /** Of a call, a terminal, and a subagent: whether it can be ended by itself. */
  readonly capabilities?: { readonly cancel?: unknown } | null;
  /** Of a subagent. */
  readonly sessionId?: string;
  readonly severity?: string;
  readonly description?: string | null;
  readonly compactionId?: string;
  readonly summary?: readonly ContentBlock[] | null;
  readonly _meta?: Meta;
}

interface State {
  readonly state: string;
  readonly stopReason?: string | null;
}

export interface Plan {
  readonly type: string;
  readonly planId: string;
  readonly entries?: readonly { readonly content: string; readonly status: string; readonly priority?: string }[];
  readonly content?: string;
  readonly uri?: string;
}

export interface Background {
  readonly type: string;
  readonly toolCallId?: string;
  readonly terminalId?: string;
  readonly sessionId?: string;
}

/** A tool call as it stands in an update, and in a permission. */
export type Call = Pick<Update, "toolCallId" | "title" | "kind" | "locations" | "rawInput" | "content" | "_meta">;

/** What a permission is asked for. */
export interface PermissionParams {
  readonly sessionId: string;
  readonly title: string;
  readonly description?: string | null;
  readonly subject?: { readonly type: string; readonly toolCall?: Call; readonly command?: string; readonly cwd?: string; readonly toolCallId?: string | null } | null;
  readonly options: readonly { readonly optionId: string; readonly kind: string; readonly name: string }[];
}

/** The call that a permission is about, as it is named in the session to which it belongs. */
export function askedCall({ sessionId, subject }: PermissionParams, session: string): string | undefined {
  const call = subject?.toolCall?.toolCallId ?? subject?.toolCallId ?? undefined;
  return call === undefined ? undefined : nameIn(session, sessionId, call);
}

/** How the page names a call, or a terminal, in a session: those of subagents have ids of their own, which the session may use, too. */
export const nameIn = (session: string, of: string, id: string): string => (of === session ? id : `${of} ${id}`);

/** What the gateway adds to an update. */
export function ownOf(update: { readonly _meta?: Meta }): Record<string, unknown> {
  const own = update._meta?.[META];
  return typeof own === "object" && own !== null ? (own as Record<string, unknown>) : {};
}

/** The blocks of a message or of one piece of it. */
export function blocksOf(content: unknown): readonly ContentBlock[] {
  return Array.isArray(content) ? (content as ContentBlock[]) : typeof content === "object" && content !== null ? [content as ContentBlock] : [];
}

type Raw = { readonly type: string; readonly content?: ContentBlock; readonly terminalId?: string; readonly path?: string; readonly oldText?: string | null; readonly newText?: string; readonly changes?: readonly Change[]; readonly patch?: { readonly format: string; readonly text: string } | null };
type Change = { readonly operation?: string; readonly path?: string; readonly oldPath?: string; readonly fileType?: string | null };

/** What a call shows. A patch becomes what each of its passages was and is. */
export function contentsOf(content: unknown): ToolContent[] {
  return (Array.isArray(content) ? (content as readonly Raw[]) : []).flatMap((c): ToolContent[] => {
    if (c.type === "content" && c.content) return [{ type: "content", content: c.content }];
    if (c.type === "terminal" && c.terminalId !== undefined) return [{ type: "terminal", terminalId: c.terminalId }];
    if (c.type !== "diff") return [];
    if (c.newText !== undefined) return [{ type: "diff", path: c.path ?? "", oldText: c.oldText ?? undefined, newText: c.newText }];
    return changesOf(c);
  });
}

const operations = { changed: "modify", new: "add", deleted: "delete", moved: "move" } as const;

/** Each change of a diff, with its lines where the patch has them. What only the patch tells of follows. */
function changesOf({ changes, patch }: Raw): ToolContent[] {
  const told = (changes ?? []).flatMap(({ operation = "modify", path, oldPath, fileType }): FileChange[] => (path === undefined ? [] : [{ operation, path, from: oldPath, fileType: fileType ?? undefined }]));
  const files = patch?.format === "git_patch" ? parts(patch.text).map((part) => ({ ...headOf(part), passages: passagesOf(part) })) : [];
  // Paths in a patch are those of the changes; some agents leave out what all have in common.
  const changeOf = (path: string) => (path === "" ? told[0] : undefined) ?? told.find((change) => change.path === path) ?? told.find((change) => change.path.endsWith(`/${path}`));
  const passages = new Map<FileChange, readonly Passage[]>(told.map((change) => [change, []]));
  for (const file of files) {
    const change = changeOf(file.path) ?? { operation: operations[file.kind], path: file.path, from: file.from, fileType: undefined };
    passages.set(change, [...(passages.get(change) ?? []), ...file.passages]);
  }
  const shown = [...passages].flatMap(([change, all]): ToolContent[] =>
    all.length === 0 ? [{ type: "change", change }] : all.map(({ was, is }) => ({ type: "diff", path: change.path, oldText: was, newText: is, change })));
  return patch?.text && files.length === 0 ? [...shown, text(patch.text)] : shown;
}

const text = (words: string): ToolContent => ({ type: "content", content: { type: "text", text: words } });

/** Whether an update says how things are: told again at its event it changes nothing. */
export const lasting = (update: Update): boolean => update.sessionUpdate === "subagent_update" || (update.sessionUpdate === "state_update" && typeof update.stopReason !== "string");
