import type { AnyMessage } from "@agentclientprotocol/sdk";
import { abortable, Backoff, follow, SilentError, usualSilenceMs, Watchdog } from "./clock.js";
import { ProblemError, reasonOf } from "./errors.js";
import { farewellMs, Link, mustBegin, NoHeaders, parseMessage, resolveHeaders, resolveProtocols } from "./link.js";
import type { AcpStreamOptions, WebSocketConstructor } from "./options.js";

/** Bytes that may wait in the socket before the writer does. */
const highWater = 4 << 20;
const pingMs = 15_000;
/** Unread messages at which a socket that cannot be paused is given up; sessions are resumed on another. */
const maxBacklog = 100_000;

/** What `ws` has beyond the browsers' WebSocket. */
interface NodeSocket {
  ping?: () => void;
  pause?: () => void;
  resume?: () => void;
  on?: (event: "ping" | "pong" | "unexpected-response", listener: (...args: never[]) => void) => void;
  terminate?: () => void;
}

/** An answer that is no upgrade, as `ws` gives it. */
interface Answer {
  readonly statusCode?: number;
  readonly statusMessage?: string;
  on(event: "data" | "end" | "close" | "error", listener: (chunk?: unknown) => void): void;
}

/**
 * Rejects when a WebSocket is refused, with the reason as far as it comes, where the runtime tells it, and when nothing comes of it
 * for so long. What is returned is called when it is open.
 */
export function whyNotOpen(socket: WebSocket, silenceMs = usualSilenceMs, reject: (error: Error) => void): () => void {
  const giveUp = (error: Error) => {
    watchdog.stop();
    reject(error);
    socket.close(); // else its connection stays open
  };
  const watchdog = new Watchdog(silenceMs, () => giveUp(new TypeError(`the WebSocket cannot be opened: ${new SilentError(silenceMs).message}`)));
  socket.addEventListener("close", () => watchdog.stop());
  (socket as NodeSocket).on?.("unexpected-response", ((_request: unknown, response: Answer) => {
    let text = "";
    const refused = () => giveUp(ProblemError.of(response.statusCode ?? 500, response.statusMessage ?? "", text));
    response.on("data", (chunk) => void (text = (text + String(chunk)).slice(0, maxReason)));
    for (const end of ["end", "close", "error"] as const) response.on(end, refused);
  }) as (...args: never[]) => void);
  return () => watchdog.stop();
}

/** So much of the reason of a refusal is kept. */
const maxReason = 64 << 10;

/**
 * A socket whose other end is gone stays open for ever; where pings can be sent, that is noticed, and the socket is ended behind `onSilence`.
 * While `paused` says so nothing is read, and nothing can be heard. What is returned ends it, as the end of the socket does.
 */
export function keepAlive(socket: WebSocket, silenceMs = usualSilenceMs, onSilence: (text: string) => void, paused = () => false): () => void {
  const node = socket as NodeSocket;
  if (node.ping === undefined || node.on === undefined || !(silenceMs > 0)) return () => {};
  const every = Math.min(pingMs, silenceMs / 3);
  let quiet = 0; // looks since something was heard, and not the time: this machine may have been suspended
  const note = () => void (quiet = 0);
  node.on("pong", note);
  node.on("ping", note);
  socket.addEventListener("message", note);
  const timer = setInterval(() => {
    if (paused()) note();
    if (++quiet * every > silenceMs) {
      stop();
      onSilence(new SilentError(silenceMs).message);
      node.terminate?.();
    } else if (socket.readyState === 1) node.ping?.();
  }, every);
  const stop = () => clearInterval(timer);
  socket.addEventListener("close", stop);
  return stop;
}

/** Closes a WebSocket, for whose server to hear of it is waited a moment. */
export async function hangUp(socket: WebSocket): Promise<void> {
  if (socket.readyState === 3) return;
  const closed = new Promise((resolve) => socket.addEventListener("close", resolve));
  socket.close();
  await abortable(closed, AbortSignal.timeout(farewellMs)).catch(() => {});
  (socket as NodeSocket).terminate?.();
}

/** ACP over one WebSocket. */
export class WebSocketLink extends Link {
  #socket: WebSocket | undefined;
  #stopPings = () => {};
  #paused = false; // the reader is far behind, and nothing is read

  protected async send(message: AnyMessage, text: string): Promise<void> {
    if (this.#socket === undefined) {
      mustBegin(message);
      await this.opens(async (refused) => {
        this.#socket = await this.#dial(refused);
        this.setState("open");
        this.#stopPings = keepAlive(this.#socket, this.options.silenceMs, (text) => this.lose("unreachable", text), () => this.#paused);
      });
    }
    const socket = this.#socket;
    if (socket === undefined || this.ended.signal.aborted) return;
    this.observe({ direction: "sent", message, via: "websocket" });
    socket.send(text);
    // The API tells nobody when the buffer drains.
    while (socket.bufferedAmount > highWater && !this.ended.signal.aborted) await new Promise((resolve) => setTimeout(resolve, 5));
  }

  protected async release(lost: boolean): Promise<void> {
    this.#stopPings();
    const socket = this.#socket;
    if (lost) return socket?.close();
    if (socket) await hangUp(socket);
  }

  async #dial(refused: boolean): Promise<WebSocket> {
    const constructor = this.options.WebSocket ?? (globalThis.WebSocket as WebSocketConstructor | undefined);
    if (constructor === undefined) {
      throw new ProblemError({ type: "about:blank", title: "No WebSocket", status: 400, detail: "this runtime has no WebSocket: pass one, such as that of the package ws" });
    }
    const headers = await resolveHeaders(this.options.headers, refused, this.ended.signal);
    const protocols = await resolveProtocols(this.options.protocols, this.ended.signal);
    this.ended.signal.throwIfAborted();
    const named = Object.keys(headers).length > 0;
    // Browsers take two arguments and refuse a third that is no array of them.
    const socket = this.options.WebSocket !== undefined && named
      ? new constructor(this.url, protocols, { headers })
      : new constructor(this.url, protocols);
    let opened = false;
    const leave = follow(this.ended.signal, () => {
      if (!opened) socket.close();
    });
    return new Promise<WebSocket>((resolve, reject) => {
      const enough = whyNotOpen(socket, this.options.silenceMs, reject);
      socket.addEventListener("open", () => {
        opened = true;
        enough();
        resolve(socket);
      });
      socket.addEventListener("message", (event) => this.#message(event.data));
      socket.addEventListener("error", (event) => {
        if (!opened) reject(new TypeError("the WebSocket cannot be opened", { cause: (event as { error?: unknown }).error }));
      });
      socket.addEventListener("close", (event) => {
        if (!opened) return reject(new TypeError(`the WebSocket was closed before it was open: ${event.code} ${event.reason}`));
        if (event.code === 1002 || event.code === 1009) return this.lose("protocol", `the server closed the WebSocket: ${event.code} ${event.reason}`);
        this.lose(event.reason === "events expired" ? "events_expired" : "closed", `the WebSocket was closed: ${event.code} ${event.reason}`.trim());
      });
    }).finally(leave);
  }

  #message(data: unknown): void {
    if (typeof data !== "string") return; // the protocol has text frames only
    const message = parseMessage(data);
    if (message === undefined) return;
    this.receive(message, "websocket");
    if (this.backlog === 0) return;
    const node = this.#socket as NodeSocket | undefined;
    if (node?.pause && node.resume) {
      node.pause();
      this.#paused = true;
      void this.room().then(() => {
        this.#paused = false;
        node.resume?.();
      });
    } else if (this.backlog > maxBacklog) {
      this.lose("closed", `more than ${maxBacklog} messages waited to be read`);
    }
  }
}

