// A worker that gives each sandbox of Cloudflare a gateway:
//
//   PUT /sandboxes/NAME      makes the sandbox NAME
//   /sandboxes/NAME/...      goes to its gateway, which is started again if it has ended
//   DELETE /sandboxes/NAME   takes the sandbox away
import { getSandbox, Sandbox } from "@cloudflare/sandbox";

interface Env {
  Sandbox: DurableObjectNamespace<Gateway>;
  /** The token of all gateways: a secret of the worker. */
  SANDBOX_AGENT_TOKEN: string;
}

const PORT = 2468;

/** A sandbox with a gateway in it. There is one of these objects for each sandbox. */
export class Gateway extends Sandbox<Env> {
  #starting: Promise<void> | undefined;

  /**
   * Makes sure that the gateway runs, once for requests that come together. Without
   * `make` it says false of a sandbox that nobody has made, or that was taken away:
   * a late request must not start a container that nobody will end.
   */
  async ensureGateway(make: boolean): Promise<boolean> {
    if (make) await this.ctx.storage.put("wanted", true);
    else if (!(await this.ctx.storage.get("wanted"))) return false;
    this.#starting ??= this.#start().finally(() => (this.#starting = undefined));
    await this.#starting;
    return true;
  }

  override async destroy(): Promise<void> {
    await this.ctx.storage.delete("wanted");
    await super.destroy();
    if (!this.#starting) return;
    // A start that was under way may have begun the container again behind that.
    await this.#starting.catch(() => undefined);
    if (!(await this.ctx.storage.get("wanted"))) await super.destroy();
  }

  async #start(): Promise<void> {
    const processes = await this.listProcesses();
    if (processes.some((p) => p.id.startsWith("gateway") && (p.status === "running" || p.status === "starting"))) return;
    if (!(await this.ctx.storage.get("wanted"))) throw new Error("the sandbox was taken away while it was started");
    const gateway = await this.startProcess(`sandbox-agent server --host 0.0.0.0 --port ${PORT}`, {
      processId: `gateway-${crypto.randomUUID()}`,
      env: { SANDBOX_AGENT_TOKEN: this.env.SANDBOX_AGENT_TOKEN },
    });
    await gateway.waitForPort(PORT, { path: "/v2/health", timeout: 60_000 });
  }
}

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const url = new URL(request.url);
    const [, name, rest] = /^\/sandboxes\/([a-z0-9-]{1,63})(\/.*)?$/.exec(url.pathname) ?? [];
    if (!name) return new Response("not found\n", { status: 404 });
    // The gateway asks for the token too; a stranger must not even start a container.
    if (!(await allowed(request, env.SANDBOX_AGENT_TOKEN))) return new Response("the token is missing or wrong\n", { status: 401 });
    const sandbox = getSandbox<Gateway>(env.Sandbox, name);
    if (request.method === "DELETE" && rest === undefined) {
      await sandbox.destroy();
      return new Response(null, { status: 204 });
    }
    const make = request.method === "PUT" && rest === undefined;
    if (!(await sandbox.ensureGateway(make))) return new Response("there is no such sandbox: make it by PUT\n", { status: 404 });
    if (make) return new Response(null, { status: 204 });
    // The gateway takes requests for localhost, which is what it is in there.
    const inner = new Request(`http://localhost:${PORT}${rest ?? "/"}${url.search}`, request);
    if (request.headers.get("upgrade") === "websocket") return sandbox.wsConnect(inner, PORT);
    return sandbox.containerFetch(inner, PORT);
  },
};

/** The token of a request: of its header or, from pages, of a WebSocket's subprotocol. */
function presented(request: Request): string {
  const header = /^Bearer (.+)$/i.exec(request.headers.get("authorization") ?? "")?.[1];
  if (header !== undefined) return header;
  const encoded = /(?:^|,)\s*bearer\.([\w-]+)/.exec(request.headers.get("sec-websocket-protocol") ?? "")?.[1] ?? "";
  try {
    return atob(encoded.replaceAll("-", "+").replaceAll("_", "/"));
  } catch {
    return "";
  }
}

/** Compares digests, so that the time tells nothing of the token. */
async function allowed(request: Request, token: string): Promise<boolean> {
  const digest = async (text: string): Promise<Uint8Array> => new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
  const [got, want] = await Promise.all([digest(presented(request)), digest(token)]);
  let difference = 0;
  for (const [i, byte] of want.entries()) difference |= byte ^ (got[i] ?? 0);
  return token !== "" && difference === 0;
}
