import type { AcpVersion } from "./versions.js";

/**
 * How far a client has come in a session's events. In version 1 an event is one frame. In
 * version 2 it may be several, and after those of the newest the session's state may be told.
 */
export class Position {
  #after: number;
  #part = false; // the newest event may have more frames than came
  #given = 0; // frames of it that came
  #skip = 0; // how many of them come again

  constructor(private readonly version: AcpVersion, after: number) {
    this.#after = after;
  }

  /** The newest event that has come, at least in part. */
  get after(): number {
    return this.#after;
  }

  /** Notes a frame of an event; false when it came before. */
  fresh(seq: number): boolean {
    if (seq > this.#after) {
      this.#after = seq;
      this.#part = true;
      this.#given = 1;
      this.#skip = 0;
      return true;
    }
    if (seq < this.#after || this.version === 1) return false;
    if (this.#skip > 0) {
      this.#skip--;
      return false;
    }
    this.#given++;
    return true;
  }

  /** Notes that all of the newest event has come. */
  whole(): void {
    this.#part = false;
    this.#given = 0;
    this.#skip = 0;
  }

  /**
   * The event behind which a new connection goes on: the newest comes again when it may not be whole.
   * `asked` says that somebody waits for the session's state, which follows.
   */
  goOn(asked: boolean): number {
    if (this.version === 1) return this.#after;
    if (this.#part) {
      this.#skip = this.#given;
      return this.#after - 1;
    }
    this.#skip = asked ? 0 : 1;
    return this.#after;
  }
}
