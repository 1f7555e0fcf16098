import type { Child, SessionInfo } from "sandbox-agent";
import { baseName } from "../kit/text.js";
import { away } from "./states.js";

/** What people have put onto a session. It stands in the session's metadata at the gateway, so that every window sees it. */
export interface Marks {
  /** Of a page or a gateway of before; now a title is the session's own. */
  readonly title?: string;
  readonly pinned?: boolean;
  readonly archived?: boolean;
}

/** The member of the metadata that is this page's; the others are left alone. */
const member = "inspector";

const objectOf = (value: unknown): Record<string, unknown> => (typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {});

export function marksOf(info: Pick<SessionInfo, "metadata"> | undefined): Marks {
  const { title, pinned, archived } = objectOf(objectOf(info?.metadata)[member]);
  return { ...(typeof title === "string" && title !== "" ? { title } : {}), ...(pinned === true ? { pinned } : {}), ...(archived === true ? { archived } : {}) };
}

/** The metadata of a session with other marks. */
export function withMarks(info: Pick<SessionInfo, "metadata">, part: Marks): Record<string, unknown> {
  const marks = Object.fromEntries(Object.entries({ ...marksOf(info), ...part }).filter(([, value]) => value !== false && value !== ""));
  return { ...objectOf(info.metadata), [member]: marks };
}

/** What a session is called: what a person says, what its agent says, how its first prompt begins, its folder. */
export function nameOf(info: SessionInfo): string {
  return marksOf(info).title || info.title || info.gist || baseName(info.cwd);
}

/** Whether it works, or waits for a person who can answer now. */
export const working = (info: SessionInfo) => !away.has(info.state) && (info.state === "running" || info.state === "waiting" || info.pending > 0);

/** A part of the list, with a heading. */
export interface Section {
  readonly title: string;
  readonly sessions: readonly SessionInfo[];
}

/** The list in parts: pinned ones, those that work, and the others by time or by folder. The order within is that of the gateway. */
export function sectionsOf(all: readonly SessionInfo[], by: "time" | "folder", now: number = Date.now()): Section[] {
  const pinned = all.filter((s) => marksOf(s).pinned);
  const rest = all.filter((s) => !marksOf(s).pinned);
  const parts = new Map<string, SessionInfo[]>([["Pinned", pinned], ["Working", rest.filter(working)]]);
  for (const info of rest) {
    if (working(info)) continue;
    const title = by === "folder" ? info.cwd : day(Date.parse(info.updatedAt), now);
    parts.set(title, [...(parts.get(title) ?? []), info]);
  }
  return [...parts].filter(([, sessions]) => sessions.length > 0).map(([title, sessions]) => ({ title, sessions }));
}

function day(at: number, now: number): string {
  const start = new Date(now);
  start.setHours(0, 0, 0, 0);
  if (at >= start.getTime()) return "Today";
  if (at >= start.getTime() - 86_400_000) return "Yesterday";
  if (at >= start.getTime() - 6 * 86_400_000) return "This week";
  return "Earlier";
}

/** What a subagent is called. */
export const titleOfChild = (child: Child): string => child.title || "Subagent";
