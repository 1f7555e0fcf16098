// What the doubles of the providers have in common: an HTTP server on the loopback
// address that is a provider's API and, for the names of its machines, its front door.
import { createServer, request, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { connect, type AddressInfo, type Socket } from "node:net";
import type { Machine } from "./machine.ts";

export interface Call {
  readonly method: string;
  readonly path: string;
  readonly url: URL;
  readonly headers: IncomingMessage["headers"];
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  body(): Promise<Buffer>;
  json(): Promise<Record<string, unknown>>;
  form(): Promise<FormData>;
  answer(status: number, value?: unknown): void;
}

export abstract class Cloud {
  /** Every machine that was made, and whether it was taken away. */
  readonly made: Machine[] = [];
  protected readonly machines = new Map<string, Machine>();
  /** Requests that were not understood: a test with one fails. */
  readonly unknown: string[] = [];
  readonly paths: string[] = [];
  /** The server fails what this says, once. */
  failing: ((call: Call) => boolean) | undefined;
  /** The server fails what this says, each time. */
  broken: (call: Call) => boolean = () => false;
  #server: Server | undefined;

  /** Answers an API request; false when there is no such route. */
  protected abstract api(call: Call): Promise<boolean>;
  /** The machine and port that a request's Host names. */
  protected abstract door(call: Call): { machine: Machine; port: number } | undefined;
  /** What the example is told in its environment. */
  abstract env(): Record<string, string>;

  get url(): string {
    return `http://127.0.0.1:${(this.#server?.address() as AddressInfo).port}`;
  }

  /** Ports of gateways, where the machines choose them. */
  gatewayPorts(): number[] {
    return [];
  }

  get alive(): number {
    return this.machines.size;
  }

  async listen(): Promise<this> {
    this.#server = createServer((request, response) => {
      this.#serve(request, response).catch((error: unknown) => {
        this.unknown.push(`${request.method} ${request.url}: ${String(error)}`);
        response.writeHead(500).end();
      });
    });
    this.#server.on("upgrade", (request: IncomingMessage, socket: Socket, head: Buffer) => this.#upgrade(request, socket, head));
    await new Promise<void>((resolve) => this.#server?.listen(0, "127.0.0.1", resolve));
    return this;
  }

  async close(): Promise<void> {
    for (const machine of this.machines.values()) await machine.destroy();
    this.machines.clear();
    this.#server?.closeAllConnections();
    await new Promise((resolve) => this.#server?.close(resolve));
  }

  protected add(machine: Machine): Machine {
    this.made.push(machine);
    this.machines.set(machine.id, machine);
    return machine;
  }

  protected async remove(id: string): Promise<boolean> {
    const machine = this.machines.get(id);
    await machine?.destroy();
    this.machines.delete(id);
    return machine !== undefined;
  }

  #call(request: IncomingMessage, response: ServerResponse): Call {
    const named = request.headers["x-double-host"]; // see network.ts
    delete request.headers["x-double-host"];
    const { headers } = request;
    if (typeof named === "string") headers.host = named;
    const url = new URL(request.url ?? "/", `http://${headers.host}`);
    let read: Promise<Buffer> | undefined;
    const body = (): Promise<Buffer> => (read ??= request.toArray().then((parts: Buffer[]) => Buffer.concat(parts)));
    return {
      method: request.method ?? "GET", path: url.pathname, url, headers, request, response, body,
      json: async () => JSON.parse((await body()).toString() || "{}") as Record<string, unknown>,
      form: async () => new Response(new Uint8Array(await body()), { headers: { "content-type": headers["content-type"] ?? "" } }).formData(),
      answer: (status, value) => {
        response.writeHead(status, { "content-type": "application/json" }).end(value === undefined ? undefined : JSON.stringify(value));
      },
    };
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const call = this.#call(request, response);
    const { body } = call;
    const to = this.door(call);
    if (to) return this.#pass(call, to.port);
    this.paths.push(`${call.method} ${call.path}`);
    const once = this.failing?.(call);
    if (once) this.failing = undefined;
    if (once || this.broken(call)) {
      await body();
      return call.answer(400, { code: 400, message: "the double was told to fail", error: { code: "failed", message: "the double was told to fail" } });
    }
    if (!(await this.api(call))) {
      this.unknown.push(`${call.method} ${request.url}`);
      call.answer(404, { message: "the double has no such route" });
    }
  }

  /** Passes a WebSocket on, byte by byte. */
  #upgrade(request: IncomingMessage, socket: Socket, head: Buffer): void {
    const to = this.door(this.#call(request, undefined as never));
    if (!to) {
      socket.destroy();
      return;
    }
    const upstream = connect(to.port, "127.0.0.1", () => {
      const lines = Object.entries(request.headers).map(([name, value]) => `${name}: ${String(value)}`);
      upstream.write(`GET ${request.url} HTTP/1.1\r\n${lines.join("\r\n")}\r\n\r\n`);
      upstream.write(head);
      upstream.pipe(socket).pipe(upstream);
    });
    for (const [one, other] of [[upstream, socket], [socket, upstream]] as const) one.on("error", () => other.destroy()).on("close", () => other.destroy());
  }

  /** Passes a request on to a port of a machine, as the provider's front door does: the Host stays. */
  #pass(call: Call, port: number): void {
    const upstream = request({ host: "127.0.0.1", port, method: call.method, path: `${call.url.pathname}${call.url.search}`, headers: call.headers, agent: false }, (answer) => {
      call.response.writeHead(answer.statusCode ?? 502, answer.headers);
      call.response.flushHeaders();
      answer.pipe(call.response);
    });
    upstream.on("error", () => {
      if (call.response.headersSent) call.response.destroy();
      else call.answer(502, { message: "nobody listens on this port yet" });
    });
    call.response.on("close", () => upstream.destroy());
    call.request.pipe(upstream);
  }
}
