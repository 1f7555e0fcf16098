// A TCP proxy whose connections can be cut, on both sides at once.
import { connect, createServer, type Server, type Socket } from "node:net";

export class Proxy {
  readonly #server: Server;
  readonly #pairs = new Set<[Socket, Socket]>();
  cuts = 0;
  refusing = false;
  refuses = 0; // of the next connections
  says: string[] = []; // statuses of text that is not the gateway's, with which the next requests are answered, each on a connection of its own
  #held = false;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async to(port: number): Promise<Proxy> {
    const server = createServer();
    const proxy = new Proxy(server);
    server.on("connection", (near) => {
      if (proxy.refusing || proxy.refuses > 0) {
        proxy.refuses = Math.max(proxy.refuses - 1, 0);
        near.destroy();
        return;
      }
      near.on("error", () => {});
      const status = proxy.says.shift();
      if (status !== undefined) {
        near.once("data", () => near.end(`HTTP/1.1 ${status} of a proxy\r\nContent-Type: text/plain\r\nContent-Length: 8\r\nConnection: close\r\n\r\nno route`));
        return;
      }
      const far = connect(port, "127.0.0.1");
      const pair: [Socket, Socket] = [near, far];
      proxy.#pairs.add(pair);
      near.pipe(far);
      far.pipe(near);
      if (proxy.#held) far.unpipe(near);
      for (const socket of pair) {
        socket.on("error", () => {});
        socket.on("close", () => {
          proxy.#pairs.delete(pair);
          near.destroy();
          far.destroy();
        });
      }
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return proxy;
  }

  get url(): string {
    const address = this.#server.address();
    return `http://127.0.0.1:${typeof address === "object" && address ? address.port : 0}`;
  }

  get open(): number {
    return this.#pairs.size;
  }

  /** Cuts every connection, bytes in flight included. */
  cut(): void {
    if (this.#pairs.size > 0) this.cuts++;
    for (const [near, far] of this.#pairs) {
      near.resetAndDestroy();
      far.resetAndDestroy();
    }
    this.#pairs.clear();
  }

  /** Hands on nothing that comes from the other end, until it is called with false. */
  hold(held: boolean): void {
    this.#held = held;
    for (const [near, far] of this.#pairs) held ? far.unpipe(near) : far.pipe(near);
  }

  /** As hold, of what the connections of now send to the other end. */
  holdSent(held: boolean): void {
    for (const [near, far] of this.#pairs) held ? near.unpipe(far) : near.pipe(far);
  }

  async stop(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
