import type { Tone } from "../kit/show.js";

const tones: Record<string, Tone> = { running: "busy", waiting: "warn", idle: "good", dormant: "plain", closed: "plain", ended: "plain" };

/** The colour of a session's state. */
export const stateTone = (state: string): Tone => tones[state] ?? "plain";
