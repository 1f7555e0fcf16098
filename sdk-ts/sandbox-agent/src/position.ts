import type { AcpVersion } from "./versions.js";

/**
 * How far a client has come in a session's events. An event is one frame. With `parts` it may
 * be several, and in version 2 the session's state may be told after those of the newest.
 */
export class Position {
  #after: number;
  #part = false; // the newest event may have more frames than came
  #given = 0; // frames of it that came
  #skip = 0; // how many of them come again
  /** Set when somebody has asked for what came: it is new once more from where it begins, which is told then. What comes before that was on its way. */
  again: ((upTo: number) => void) | undefined;

  constructor(private readonly version: AcpVersion, private readonly parts: boolean, after: number) {
    this.#after = after;
  }

  /** The newest event that has come, at least in part. */
  get after(): number {
    return this.#after;
  }

  /** Notes a frame of an event; false when it came before. */
  fresh(seq: number): boolean {
    if (this.again && (seq < this.#after || (seq === this.#after && !this.parts))) {
      this.again(this.#after);
      this.again = undefined;
      this.#after = seq - 1;
    }
    if (seq > this.#after) {
      this.#after = seq;
      this.#part = true;
      this.#given = 1;
      this.#skip = 0;
      return true;
    }
    if (seq < this.#after || !this.parts) return false;
    if (this.#skip > 0) {
      this.#skip--;
      return false;
    }
    this.#given++;
    return true;
  }

  /** Notes a request of an event, which comes again by itself: with parts also before the event's other frames. */
  asked(seq: number): void {
    if (seq <= this.#after) return;
    this.#after = seq;
    this.#part = true;
    this.#given = 0;
    this.#skip = 0;
  }

  /** Notes the session's state, which is told with the event behind which it was opened. What was on its way and is newer comes once more. */
  state(seq: number): void {
    this.#part = seq < this.#after;
    this.#skip = this.#part ? this.#given : 0;
    this.#given = this.#skip;
    this.#after = Math.max(seq, this.#after);
  }

  /**
   * The event behind which a new connection goes on: the newest comes again when it may not be whole.
   * `asked` says that somebody waits for the session's state, which follows.
   */
  goOn(asked: boolean): number {
    this.again = undefined;
    if (!this.parts) return this.#after;
    if (this.#part) {
      this.#skip = this.#given;
      return this.#after - 1;
    }
    this.#skip = this.version === 1 || asked ? 0 : 1;
    return this.#after;
  }
}
