import { ConnectionLostError, follow, hangUp, keepAlive, ProblemError, whyNotOpen, type Problem, type WebSocketConstructor } from "acp-http-client";
import type { Api } from "./api.js";
import { mustBeCalled } from "./events.js";

/** How the program of a terminal ended. */
export interface TerminalExit {
  readonly exitCode?: number;
  readonly signal?: string;
}

/** The subprotocol that goes beside the token where a WebSocket takes no headers. */
const subprotocol = "terminal.sandboxagent.dev";
/** Output kept for a reader that is slow; then the socket is closed, and its position says where to go on. */
const maxKept = 16 << 20;

/**
 * One viewer of a terminal. Iterate it for the output, from the beginning of the
 * scrollback; the loop ends with the program or with `close()`.
 */
export class Terminal implements AsyncIterable<Uint8Array>, AsyncDisposable {
  /** Resolves with the end of the program; rejects when the connection ended first. */
  readonly exited: Promise<TerminalExit>;
  /** The position behind the last byte that was handed out: `after` of the next viewer. */
  position = 0;
  /** The position behind the last byte that some viewer had been shown when the terminal was opened: a screen that shows it again does not answer it. */
  shown = 0;
  cols = 0;
  rows = 0;
  readonly #socket: WebSocket;
  #chunks: (Uint8Array | number)[] = []; // a number of bytes that are missing here
  #kept = 0;
  #error: Error | undefined;
  #done = false;
  #waiting: (() => void)[] = []; // who iterates
  #exit!: (exit: TerminalExit) => void;
  #fail!: (error: Error) => void;
  #onMissed: (bytes: number) => void = () => {};
  #onProblem: (error: ProblemError) => void = () => {};

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    this.exited = new Promise((resolve, reject) => {
      this.#exit = resolve;
      this.#fail = reject;
    });
    this.exited.catch(() => {}); // who iterates is told by the iterator
    socket.binaryType = "arraybuffer";
  }

  /** @internal */
  static async open(api: Api, id: string, options: { WebSocket?: WebSocketConstructor; silenceMs?: number; after?: number; signal?: AbortSignal }): Promise<Terminal> {
    const make = options.WebSocket ?? (globalThis.WebSocket as WebSocketConstructor | undefined);
    if (make === undefined) throw new TypeError("this runtime has no WebSocket: pass one, such as that of the package ws");
    const { signal } = options;
    const url = api.url(`v2/processes/${encodeURIComponent(id)}/terminal`, { after: options.after });
    url.protocol = url.protocol.replace(/^http/, "ws");
    for (let refused = false; ; refused = true) {
      const bearer = options.WebSocket ? undefined : (await api.protocols({ signal }))?.at(-1);
      const headers = options.WebSocket ? await api.headers(refused) : {};
      signal?.throwIfAborted();
      const socket = options.WebSocket
        ? new make(url.href, [], { headers })
        : new make(url.href, bearer ? [subprotocol, bearer] : []);
      const terminal = new Terminal(socket);
      socket.addEventListener("close", follow(signal, () => void terminal.close()));
      try {
        await terminal.#ready(options.silenceMs);
        return terminal;
      } catch (error) {
        signal?.throwIfAborted();
        if (refused || !(error instanceof ProblemError) || error.status !== 401) throw error; // else a new token is asked for
      }
    }
  }

  #ready(silenceMs: number | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const socket = this.#socket;
      let ready = false;
      let first = true; // no output has come
      socket.addEventListener("message", ({ data }) => {
        if (typeof data !== "string") {
          first = false;
          return this.#output(new Uint8Array(data as ArrayBuffer));
        }
        const frame = frameOf(data);
        switch (frame.type) {
          case "ready":
            ready = true;
            enough();
            keepAlive(socket, silenceMs, (text) => this.#end(lost(`the terminal's WebSocket was given up: ${text}`, "unreachable")));
            this.position = frame.position ?? 0;
            this.shown = frame.shown ?? this.position;
            this.cols = frame.cols ?? 0;
            this.rows = frame.rows ?? 0;
            resolve();
            break;
          case "missed":
            if (!first) this.#chunks.push(frame.bytes ?? 0); // before the first byte, ready's position knows of it
            this.#onMissed(frame.bytes ?? 0);
            break;
          case "exit":
            this.#end(undefined, { ...(frame.exitCode === undefined ? {} : { exitCode: frame.exitCode }), ...(frame.signal ? { signal: frame.signal } : {}) });
            break;
          case "error":
            if (frame.problem) this.#onProblem(new ProblemError(frame.problem));
            break;
        }
      });
      const enough = whyNotOpen(socket, silenceMs, reject);
      socket.addEventListener("error", () => {
        if (!ready) reject(new TypeError("the terminal's WebSocket cannot be opened"));
      });
      socket.addEventListener("close", ({ code, reason }) => {
        const error = lost(`the terminal's WebSocket was closed: ${code} ${reason}`.trim());
        if (!ready) reject(error);
        this.#end(error);
      });
    });
  }

  #send(data: string | Uint8Array<ArrayBuffer>): void {
    // A WebSocket that has ended takes what is sent, and says nothing.
    if (this.#socket.readyState !== 1) throw lost("the terminal has ended or was left: nothing can be sent to it");
    this.#socket.send(data);
  }

  /** Types into the terminal. Throws when its connection has ended. */
  write(data: string | Uint8Array): void {
    this.#send(typeof data === "string" ? new TextEncoder().encode(data) : (data as Uint8Array<ArrayBuffer>));
  }

  /** Sets the size, for all viewers. */
  resize(cols: number, rows: number): void {
    this.#send(JSON.stringify({ type: "resize", cols, rows }));
    this.cols = cols;
    this.rows = rows;
  }

  /** Sends a signal, such as SIGINT, to the program in front. */
  signal(signal: string): void {
    this.#send(JSON.stringify({ type: "signal", signal }));
  }

  /** Tells of output that was let go because this viewer was too slow. */
  onMissed(listener: (bytes: number) => void): void {
    mustBeCalled(listener);
    this.#onMissed = listener;
  }

  /** Tells of input that could not be obeyed. */
  onProblem(listener: (error: ProblemError) => void): void {
    mustBeCalled(listener);
    this.#onProblem = listener;
  }

  /** Leaves the terminal; its program goes on. */
  async close(): Promise<void> {
    const error = lost("the terminal was left");
    this.#fail(error);
    this.#done = true;
    this.#wake();
    await hangUp(this.#socket);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    for (;;) {
      const chunk = this.#chunks.shift();
      if (typeof chunk === "number") {
        this.position += chunk;
        continue;
      }
      if (chunk) {
        this.#kept -= chunk.length;
        this.position += chunk.length;
        yield chunk;
        continue;
      }
      if (this.#error) throw this.#error;
      if (this.#done) return;
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  #wake(): void {
    for (const go of this.#waiting.splice(0)) go();
  }

  #output(chunk: Uint8Array): void {
    this.#chunks.push(chunk);
    this.#kept += chunk.length;
    if (this.#kept > maxKept) {
      this.#end(lost(`more than ${maxKept} bytes of output waited to be read: open the terminal again after its position`));
      this.#socket.close();
    }
    this.#wake();
  }

  #end(error: Error | undefined, exit?: TerminalExit): void {
    if (this.#done) return;
    this.#done = true;
    if (exit) this.#exit(exit);
    else if (error) {
      this.#error = error;
      this.#fail(error);
    }
    this.#wake();
  }
}

/** What the gateway says beside output. */
interface Frame {
  readonly type?: string;
  readonly position?: number;
  readonly shown?: number;
  readonly cols?: number;
  readonly rows?: number;
  readonly bytes?: number;
  readonly exitCode?: number;
  readonly signal?: string;
  readonly problem?: Problem;
}

/** Reads a frame. What is none says nothing. */
function frameOf(text: string): Frame {
  try {
    return (JSON.parse(text) as Frame | null) ?? {};
  } catch {
    return {};
  }
}

const lost = (message: string, reason: "closed" | "unreachable" = "closed") => new ConnectionLostError(reason, message, { sessions: [], unanswered: [] });
