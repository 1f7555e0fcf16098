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
  #begun: string[] = []; // pieces of the line that has not ended
  #length = 0; // of them
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
    const events: ServerEvent[] = [];
    let from = 0;
    // Each is searched once: a line end is not looked for again behind those before it.
    let [lf, cr] = [text.indexOf("\n"), text.indexOf("\r")];
    while (lf >= 0 || cr >= 0) {
      const end = lf < 0 || (cr >= 0 && cr < lf) ? cr : lf;
      this.#line(this.#cut(text.slice(from, end)), events);
      from = end + 1;
      if (end === cr) {
        if (from === text.length) this.#skipLF = true;
        else if (text[from] === "\n") from++;
      }
      if (lf >= 0 && lf < from) lf = text.indexOf("\n", from);
      if (cr >= 0 && cr < from) cr = text.indexOf("\r", from);
    }
    if (from < text.length) {
      this.#begun.push(text.slice(from));
      this.#length += text.length - from;
    }
    if (this.#length + this.#size > this.limit) throw new Error(`an event is larger than ${this.limit} characters`);
    return events;
  }

  /** The line that ends with a text, with what came of it before. */
  #cut(end: string): string {
    if (this.#begun.length === 0) return end;
    const line = this.#begun.join("") + end;
    this.#begun = [];
    this.#length = 0;
    return line;
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
