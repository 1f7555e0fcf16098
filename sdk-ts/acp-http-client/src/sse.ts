/** One event of a `text/event-stream`. */
export interface ServerEvent {
  /** The last `id:` field so far, "" before the first. */
  readonly id: string;
  readonly event: string;
  readonly data: string;
}

/** Decodes a `text/event-stream`, fed piece by piece. */
export class EventDecoder {
  #decoder = new TextDecoder();
  #rest = "";
  #searched = 0; // of #rest; no line end before it
  #skipLF = false; // the piece before ended in CR
  #id = "";
  #event = "";
  #data: string[] = [];
  #size = 0;
  #start = true;

  /** `limit` bounds one event, in UTF-16 units. */
  constructor(private readonly limit: number) {}

  /** The events that the bytes complete. Throws when one is over the limit. */
  push(bytes: Uint8Array): ServerEvent[] {
    let text = this.#decoder.decode(bytes, { stream: true });
    if (text === "") return [];
    if (this.#start) {
      this.#start = false;
      if (text.startsWith("\uFEFF")) text = text.slice(1);
    }
    if (this.#skipLF) {
      this.#skipLF = false;
      if (text.startsWith("\n")) text = text.slice(1);
    }
    this.#rest = this.#rest === "" ? text : this.#rest + text;
    const events: ServerEvent[] = [];
    let from = 0;
    for (let at = this.#searched; ; ) {
      const end = lineEnd(this.#rest, at);
      if (end < 0) break;
      this.#line(this.#rest.slice(from, end), events);
      from = end + 1;
      if (this.#rest[end] === "\r") {
        if (from === this.#rest.length) this.#skipLF = true;
        else if (this.#rest[from] === "\n") from++;
      }
      at = from;
    }
    if (from > 0) this.#rest = this.#rest.slice(from);
    this.#searched = this.#rest.length;
    if (this.#rest.length + this.#size > this.limit) throw new Error(`an event is larger than ${this.limit} characters`);
    return events;
  }

  #line(line: string, out: ServerEvent[]): void {
    if (line === "") {
      if (this.#data.length > 0) out.push({ id: this.#id, event: this.#event || "message", data: this.#data.join("\n") });
      this.#event = "";
      this.#data = [];
      this.#size = 0;
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return; // a comment
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    switch (field) {
      case "data":
        this.#size += value.length;
        if (this.#size > this.limit) throw new Error(`an event is larger than ${this.limit} characters`);
        this.#data.push(value);
        break;
      case "id":
        if (!value.includes("\0")) this.#id = value;
        break;
      case "event":
        this.#event = value;
        break;
    }
  }
}

function lineEnd(text: string, from: number): number {
  const lf = text.indexOf("\n", from);
  const cr = text.indexOf("\r", from);
  if (lf < 0) return cr;
  return cr < 0 ? lf : Math.min(lf, cr);
}
