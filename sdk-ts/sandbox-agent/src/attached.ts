import type { Activity } from "./activity.js";
import type { SessionInfo } from "./api.js";
import type { SessionEnded } from "./extensions.js";
import type { Position } from "./position.js";

/** What a session that this client is attached to needs on a new connection. */
export interface Attached {
  readonly cwd: string | undefined; // undefined: as it is
  readonly params: Record<string, unknown>; // mcpServers, additionalDirectories, _meta
  position: Position;
  readonly activity: Activity | undefined; // in version 2
  turnAt: number; // in version 1: the newest event that said whose turn it is
  newest: number; // the newest event that there was when the client was attached last
  over?: boolean; // the program was told that the session is closed or has ended, and nothing was said in it since
  opening?: number | undefined; // in version 2: the client has asked to open it behind this event, and was not told the state, which ends what was
}

/** How a session ended that is over, as far as the gateway still says. */
export function endOf({ ended, metadata, updatedAt: at, state }: SessionInfo): SessionEnded["data"] {
  const went = (metadata as { movedTo?: string } | undefined)?.movedTo;
  return ended ?? { at, reason: state, terminatedBy: "", ...(went && { reason: "moved", message: `it goes on at ${went}` }) };
}

/** States in which nobody follows a session. */
export const over = (state: string | undefined): boolean => state === "closed" || state === "ended";
