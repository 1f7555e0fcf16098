import { Activity } from "./activity.js";
import type { SessionInfo } from "./api.js";
import type { SessionEnded } from "./extensions.js";
import { kept, metaOf } from "./meta.js";
import { Position } from "./position.js";
import type { AcpVersion } from "./versions.js";

/** What a session that this client is attached to needs on a new connection. */
export interface Attached {
  readonly cwd: string | undefined; // undefined: as it is
  readonly params: Record<string, unknown>; // mcpServers, additionalDirectories, _meta
  position: Position;
  readonly activity: Activity | undefined; // in version 2
  turnAt: number; // in version 1: the newest event that said whose turn it is
  newest: number; // the newest event that there was when the client was attached last
  over?: boolean; // the program was told that the session is closed or has ended, and nothing was said in it since
  stateAt: number; // in version 2: the event whose state the program was told last
  opening?: number | undefined; // in version 2: the client has asked to open it behind this event, and the gateway has not said yet in which state it was then
}

/** The sessions that a client is attached to, and how far it has come in them. */
export class Attachments {
  readonly #of = new Map<string, Attached>();
  #arrivals: (() => void)[] = []; // of who waits for an event

  /** With `parts` an event may be several frames: in version 2, and for who knows subagents. With `oneStream` all sessions come on one. */
  constructor(private readonly version: AcpVersion, private readonly parts: boolean, private readonly oneStream: boolean) {}

  get(sessionId: string): Attached | undefined {
    return this.#of.get(sessionId);
  }

  has(sessionId: string): boolean {
    return this.#of.has(sessionId);
  }

  clear(): void {
    this.#of.clear();
  }

  [Symbol.iterator](): IterableIterator<[string, Attached]> {
    return this.#of.entries();
  }

  /** Resolves with the next event, or when something else is noted of a session or the connection. */
  next(): Promise<void> {
    return new Promise((resolve) => this.#arrivals.push(resolve));
  }

  /** Wakes who waits. */
  arrived(): void {
    for (const arrived of this.#arrivals.splice(0)) arrived();
  }

  /** Whoever waits for an event of the session looks at what is noted of it now. */
  note(sessionId: string, attached: Attached | undefined): void {
    if (attached) this.#of.set(sessionId, attached);
    else this.#of.delete(sessionId);
    this.arrived();
  }

  /** A session of which nothing has come behind an event. */
  begun(sessionId: string, after: number): Attached {
    return { cwd: undefined, params: {}, position: this.position(after), activity: this.version === 2 ? new Activity(sessionId) : undefined, turnAt: 0, newest: 0, stateAt: 0 };
  }

  position(after: number): Position {
    return new Position(this.version, this.parts, after);
  }

  /** Takes the response to a request that makes or opens a session, where it came: between the updates around it. */
  opened(params: Record<string, unknown>, result: Record<string, unknown>): void {
    const sessionId = String(result.sessionId ?? params.sessionId);
    if (this.#of.has(sessionId)) return;
    const { seq } = metaOf(result);
    // In version 1, and where sessions have streams of their own, what a new one has to say comes now.
    const before = "sessionId" in params || this.version === 2 && this.oneStream;
    this.note(sessionId, { ...this.begun(sessionId, before && typeof seq === "number" ? seq : 0), cwd: String(params.cwd), params: kept(params) });
  }

  /** Notes an event that says whose turn it is. */
  turnsAt(params: { sessionId: string }): void {
    const attached = this.#of.get(params.sessionId);
    if (attached) attached.turnAt = Number(metaOf(params).seq ?? attached.turnAt);
  }

  /** Notes how far the session has come; false for what came before the connection was replaced, and for a state that a newer one has replaced. */
  fresh(params: { sessionId?: string; update?: { sessionUpdate?: unknown; stopReason?: unknown } }): boolean {
    const seq = metaOf(params).seq;
    const attached = this.of(params);
    if (attached === undefined || typeof seq !== "number") return true;
    // A state of no newer event is what the gateway says of a session that is opened. Not so one that ends a turn while a replay is
    // awaited: where a session is loaded while the agent works, that turn may end just before the replay begins.
    const asked = seq <= (attached.opening ?? -1) && !(attached.position.again && params.update?.stopReason);
    const state = params.update?.sessionUpdate === "state_update" && params.sessionId === attached.activity?.sessionId;
    let told = true;
    if (state && (asked || seq < attached.position.after)) {
      if (asked) attached.opening = undefined;
      told = seq >= attached.stateAt || attached.position.again !== undefined;
      attached.position.state(seq);
    } else if (!attached.position.fresh(seq)) return false;
    if (state && told) attached.stateAt = seq;
    this.arrived();
    return told;
  }

  /** Notes the place of a message that is shown again when it comes again, as open requests are. */
  passed(params: unknown, request: boolean): void {
    if (typeof params !== "object" || params === null) return;
    if (!request) return void this.fresh(params);
    const { seq } = metaOf(params);
    if (typeof seq !== "number") return;
    this.of(params)?.position.asked(seq);
    this.arrived();
  }

  /** The session that an event belongs to: a subagent's are its session's, which the message names. */
  of(message: { sessionId?: string }): Attached | undefined {
    return this.#of.get(message.sessionId ?? "") ?? this.#of.get(String(metaOf(message).rootSessionId));
  }
}

/** How a session ended that is over, as far as the gateway still says. */
export function endOf({ ended, metadata, updatedAt: at, state }: SessionInfo): SessionEnded["data"] {
  const went = (metadata as { movedTo?: string } | undefined)?.movedTo;
  return ended ?? { at, reason: state, terminatedBy: "", ...(went && { reason: "moved", message: `it goes on at ${went}` }) };
}

/** States in which nobody follows a session. */
export const over = (state: string | undefined): boolean => state === "closed" || state === "ended";
