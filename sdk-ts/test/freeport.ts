import { createServer } from "node:net";

// Below those that systems give to who asks for any and to connections, so that nobody takes one while its server is away. Tests in
// Go have those below these, tests in Python those above.
const first = 20_000;
const ports = 6_000;

/** A port on loopback that nobody listens on, for a server that is started again there. */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < 100; tries++) {
    const port = first + Math.floor(Math.random() * ports);
    const server = createServer();
    const free = await new Promise<boolean>((resolve) => {
      server.once("error", () => resolve(false));
      server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
    });
    if (free) return port;
  }
  throw new Error(`no port is free from ${first} on`);
}
