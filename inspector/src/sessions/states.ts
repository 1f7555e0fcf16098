import type { Tone } from "../kit/show.js";

const tones: Record<string, Tone> = { running: "busy", waiting: "warn", idle: "good", dormant: "plain", closed: "plain", ended: "plain", offline: "plain", gone: "bad", moved: "plain" };

/** The colour of a session's state. */
export const stateTone = (state: string): Tone => tones[state] ?? "plain";

/** At a hub, of a session whose node nobody can ask: what it counted last goes on or not. */
export const away: ReadonlySet<string> = new Set(["offline", "gone", "moved"]);

/** A state as the page says it, in the list and beside a conversation. */
export interface ShownState {
  readonly words: string;
  readonly tone: Tone;
}

/**
 * How a session is. The gateway says it, and counts the tool calls that go on though the turn is
 * over: it calls such a session running, and here it is idle. Where the session is followed, what it
 * says itself of a turn counts, since that comes first; turn is undefined where nobody follows it. That
 * no turn runs is no state of its own: a session without a process is dormant, in the list and here.
 */
export function shownState({ state, background = 0 }: { readonly state: string; readonly background?: number | undefined }, turn?: string): ShownState {
  if (background > 0 && !away.has(state) && (turn ?? "idle") === "idle") return { words: `idle, ${background} in the background`, tone: "busy" };
  state = stateNow({ state }, turn);
  return { words: state, tone: stateTone(state) };
}

/** The word for it, whatever goes on in the background. */
export function stateNow({ state }: { readonly state: string }, turn?: string): string {
  if (turn !== undefined && turn !== "idle") return turn === "requires_action" ? "waiting" : turn;
  return turn === "idle" && (state === "running" || state === "waiting") ? "idle" : state; // the gateway says it a little later
}
