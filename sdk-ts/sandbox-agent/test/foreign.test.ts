// Servers at the address of a gateway that say nothing, half of something, or what no gateway says.
import { createServer as createHttpServer, type IncomingMessage } from "node:http";
import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { SandboxAgentClient, type SandboxAgentClientOptions } from "sandbox-agent";
import { afterEach, describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";

const ends: (() => void)[] = [];
afterEach(() => {
  for (const end of ends.splice(0)) end();
});

async function serves(server: Server): Promise<string> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
  });
  ends.push(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const answer = (status: string, type: string, body: string, length = body.length) => `HTTP/1.1 ${status}\r\nContent-Type: ${type}\r\nContent-Length: ${length}\r\nLocation: http://127.0.0.1:9/there\r\n\r\n${body}`;
const page = "<html>Welcome</html>";

const waysToSay: Record<string, { says: string; ends?: boolean; silent?: boolean; error: RegExp }> = {
  "nothing": { says: "", silent: true, error: /nothing was heard for 0\.3 s/ },
  "half of the headers": { says: "HTTP/1.1 200 OK\r\nContent-Ty", silent: true, error: /nothing was heard for 0\.3 s/ },
  "half of an answer": { says: answer("200 OK", "application/json", "{", 9), silent: true, error: /nothing was heard for 0\.3 s|^\{$/ },
  "half of an answer, and ends": { says: answer("200 OK", "application/json", "{", 9), ends: true, error: /other side closed|^\{$/ },
  "a page": { says: answer("200 OK", "text/html", page), error: /is this a Sandbox Agent gateway|no JSON object|<html>/ },
  "that there is no content": { says: "HTTP/1.1 204 No Content\r\n\r\n", error: /is this a Sandbox Agent gateway|no JSON object|No Content/ },
  "null": { says: answer("200 OK", "application/json", "null"), error: /is this a Sandbox Agent gateway|no JSON object|null/ },
  "that it is elsewhere": { says: answer("301 Moved Permanently", "text/html", ""), error: /redirects to http:\/\/127\.0\.0\.1:9\/there|Moved Permanently/ },
};

const askFor: Record<string, (client: SandboxAgentClient) => Promise<unknown>> = {
  connect: (client) => client.connect(),
  health: (client) => client.health(),
  metrics: (client) => client.metrics(),
  "fs.read": (client) => client.fs.read("/file"),
  "fs.write": (client) => client.fs.write("/file", "text"),
  "fs.delete": (client) => client.fs.delete("/file"),
  "processes.run": (client) => client.processes.run({ command: "ls" }),
  "processes.follow": (client) => client.processes.follow("p").next(),
  "api.followSessions": (client) => client.api.followSessions().next(),
  installAgent: (client) => client.installAgent("mock"),
  terminal: (client) => client.terminal("p"),
};
/** What a text is for: any text may be one. */
const anyText = new Set(["metrics", "fs.read"]);
const nothing = new Set(["fs.delete"]);

const connections = [{ transport: "http" }, { transport: "inline" }, { transport: "websocket" }] as const;
const options = { autoConnect: false, WebSocket: WebSocket as never, retry: { firstDelayMs: 1, giveUpAfterMs: 20 } } as const satisfies Partial<SandboxAgentClientOptions>;

describe.each(Object.entries(waysToSay))("a server that says %s", (way, { says, ends, silent, error }) => {
  const asked = Object.entries(askFor).flatMap(([name, ask]) => (name === "connect" ? connections : connections.slice(0, 1)).map((connection) => ({ name, ask, ...connection })));

  test.each(asked)("$name, $transport", async ({ name, ask, transport }) => {
    const baseUrl = await serves(createServer((socket) => void socket.on("data", () => ends ? socket.end(says) : socket.write(says))));
    await using client = new SandboxAgentClient({ baseUrl, ...options, transport, ...(silent && { silenceMs: 300 }) });
    const began = performance.now();
    const given = await ask(client).then(() => undefined, (reason: Error) => reason);
    if ((anyText.has(name) && (way === "a page" || way === "null" || way === "that there is no content")) || (nothing.has(name) && way === "that there is no content")) expect(given).toBeUndefined();
    else expect(given?.message).toMatch(error);
    if (silent) expect(performance.now() - began).toBeLessThan(30_000); // not the five minutes of the runtime
  });
});

test("what takes long is waited for while the gateway answers others", async () => {
  let asked = 0;
  const baseUrl = await serves(createHttpServer((request, response) => {
    response.setHeader("Content-Type", "application/json");
    if (request.url !== "/v2/health") return void held.push(() => response.end(JSON.stringify({ exitCode: 0, stdout: { data: "" }, stderr: { data: "" } })));
    response.end("{}");
    if (++asked === 2) for (const go of held) go();
  }));
  const held: (() => void)[] = [];
  await using client = new SandboxAgentClient({ baseUrl, ...options, silenceMs: 3000 }); // half of that for an answer
  expect(await client.processes.run({ command: "long" })).toMatchObject({ exitCode: 0 });
  expect(asked).toBe(2);
});

test.each([Infinity, 2 ** 31, 1e12])("a silence of %d ms is none, and not over at once", async (silenceMs) => {
  const baseUrl = await serves(createHttpServer((request, response) => {
    const streams = request.url?.includes("changes");
    response.writeHead(200, { "Content-Type": streams ? "text/event-stream" : "application/json" }).flushHeaders();
    setTimeout(() => response.end(streams ? 'data: {"seq":1}\n\n' : "{}"), 50);
  }));
  await using client = new SandboxAgentClient({ baseUrl, ...options, silenceMs });
  expect(await client.health()).toEqual({});
  expect((await client.api.followSessions().next()).value).toEqual({ seq: 1 });
});

test("a request is given up whose server takes no connections any more", async () => {
  const held: IncomingMessage[] = [];
  const server = createHttpServer((request) => {
    held.push(request);
    server.close(); // what was begun stays open
  });
  await using client = new SandboxAgentClient({ baseUrl: await serves(server), ...options, silenceMs: 300 });
  await expect(client.processes.run({ command: "long" })).rejects.toThrow("nothing was heard");
  expect(held).toHaveLength(1);
});

test("a watch that cannot go on says why", async () => {
  const problem = { type: "urn:sandbox-agent:error:too_many_requests", title: "Too many requests", status: 429, detail: "the system permits no further watched folders" };
  const baseUrl = await serves(createHttpServer((_, response) => void response.writeHead(200, { "Content-Type": "text/event-stream" }).end(
    `event: ready\ndata: {}\n\nevent: change\ndata: {"type":"created","path":"a"}\n\nevent: error\ndata: ${JSON.stringify(problem)}\n\n`)));
  await using client = new SandboxAgentClient({ baseUrl, ...options });
  const told: unknown[] = [];
  await expect((async () => {
    for await (const change of client.fs.watch("/", { onReady: () => void told.push("ready") })) told.push(change);
  })()).rejects.toMatchObject({ name: "ProblemError", problem });
  expect(told).toEqual(["ready", { type: "created", path: "a" }]);
});

test("what a reader of output was too slow for is told", async () => {
  const baseUrl = await serves(createHttpServer((_, response) => void response.writeHead(200, { "Content-Type": "text/event-stream" }).end(
    'event: missed\ndata: {"bytes":7}\n\nid: 9\ndata: {"stream":"stdout","position":7,"data":"aGk="}\n\nevent: exit\ndata: {}\n\n')));
  await using client = new SandboxAgentClient({ baseUrl, ...options });
  const told = [];
  for await (const part of client.processes.follow("p")) told.push("missed" in part ? part.missed : new TextDecoder().decode(part.data));
  expect(told).toEqual([7, "hi"]);
});

test("a terminal whose server says what is no JSON goes on", async () => {
  const server = createHttpServer();
  new WebSocketServer({ server }).on("connection", (socket) => {
    for (const said of ["{", "null", '{"type":"ready"}', "}", '{"type":"exit","exitCode":3}']) socket.send(said);
  });
  await using client = new SandboxAgentClient({ baseUrl: await serves(server), ...options });
  const terminal = await client.terminal("p");
  expect(await terminal.exited).toEqual({ exitCode: 3 });
});

const hello = ({ id }: { id: number }) => JSON.stringify({ jsonrpc: "2.0", id, result: { protocolVersion: 1, agentCapabilities: {} } });
const bodyOf = async (request: IncomingMessage) => JSON.parse((await request.toArray()).join("")) as { id: number; method: string };

test.each(connections)("a page, as of a proxy that wants a login, is no end for a client that connects anew: $transport", async ({ transport }) => {
  let asked = 0;
  const isPage = () => ++asked === 2 || asked === 3;
  const server = createHttpServer(async (request, response) => {
    if (request.method === "POST") isPage() ? response.writeHead(200, { "Content-Type": "text/html" }).end(page) : response.writeHead(200, { "Acp-Connection-Id": `c${asked}` }).end(hello(await bodyOf(request)));
    else if (asked === 1) response.writeHead(404).end(); // it does not know the connection any more
    else response.writeHead(200, { "Content-Type": "text/event-stream" }).flushHeaders();
  });
  const sockets = new WebSocketServer({ noServer: true });
  server.on("upgrade", (request, socket, head) => {
    if (isPage()) return void socket.end(answer("200 OK", "text/html", page));
    sockets.handleUpgrade(request, socket, head, (ws) => ws.on("message", (text) => {
      ws.send(hello(JSON.parse(String(text)) as { id: number }));
      if (asked === 1) ws.close(1013);
    }));
  });
  await using client = new SandboxAgentClient({ baseUrl: await serves(server), WebSocket: WebSocket as never, transport, retry: { firstDelayMs: 1 }, autoConnect: false });
  const lost = new Promise<void>((resolve) => void client.onState((state) => state === "reconnecting" && resolve()));
  await client.connect();
  await lost;
  expect(await client.initialized()).toMatchObject({ protocolVersion: 1 });
  expect(asked).toBe(4);
});

test.each(connections)("a server that takes connections only to end them is not asked without a pause: $transport", async ({ transport }) => {
  const at: number[] = [];
  let enough = () => {};
  const begun = () => {
    at.push(performance.now());
    if (at.length === 5) enough();
  };
  const server = createHttpServer(async (request, response) => {
    if (request.method !== "POST") return void response.writeHead(404).end(); // as of another gateway, behind the same address
    begun();
    response.writeHead(200, { "Content-Type": "application/json", "Acp-Connection-Id": `c${at.length}` }).end(hello(await bodyOf(request)));
  });
  new WebSocketServer({ server }).on("connection", (socket) => socket.on("message", (text) => {
    begun();
    socket.send(hello(JSON.parse(String(text)) as { id: number }));
    socket.close(1013, "no room");
  }));
  const five = new Promise<void>((resolve) => (enough = resolve));
  await using client = new SandboxAgentClient({ baseUrl: await serves(server), WebSocket: WebSocket as never, transport, retry: { firstDelayMs: 60 } });
  await five;
  expect((at[4] ?? 0) - (at[0] ?? 0)).toBeGreaterThan((60 + 120 + 240 + 480) / 2 - 5);
  await client.disconnect();
  expect(client.state).toBe("idle");
});
