// The worker of the example with the one thing that this computer does not have: the
// container. Everything else is real: workerd, the SDK's Sandbox, its protocol.
import worker, { Gateway as Real } from "../src/worker.ts";

interface Env {
  Sandbox: DurableObjectNamespace<Gateway>;
  SANDBOX_AGENT_TOKEN: string;
  MACHINES: Fetcher;
}

/** A container whose ports, start and end are requests to the test's machines. */
class Container {
  running = false;
  #ended: () => void = () => {};
  #end: Promise<void> = Promise.resolve();

  constructor(private readonly id: string, private readonly machines: Fetcher) {}

  start(): void {
    this.running = true;
    this.#end = new Promise((resolve) => (this.#ended = resolve));
  }

  monitor(): Promise<void> {
    return this.#end;
  }

  async destroy(): Promise<void> {
    const answer = await this.machines.fetch("http://machines/", { method: "DELETE", headers: { "x-machine": this.id } });
    if (!answer.ok) throw new Error(await answer.text());
    this.running = false;
    this.#ended();
  }

  signal(): void {
    void this.destroy();
  }

  async setInactivityTimeout(): Promise<void> {}

  getTcpPort(port: number): { fetch: Fetcher["fetch"] } {
    return {
      fetch: (input, init) => {
        const request = new Request(input as Request, init as RequestInit);
        const headers = new Headers(request.headers);
        headers.set("x-machine", this.id);
        headers.set("x-machine-port", String(port));
        headers.set("x-machine-host", new URL(request.url).host);
        return this.machines.fetch(new Request(request, { headers }));
      },
    };
  }
}

export class Gateway extends Real {
  constructor(ctx: DurableObjectState, env: Env) {
    Object.defineProperty(ctx, "container", { value: new Container(ctx.id.toString(), env.MACHINES) });
    super(ctx as never, env as never);
  }
}

export default worker;
