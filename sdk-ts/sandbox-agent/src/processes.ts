import { Backoff, ofStream, ProblemError, SilentError, type RetryOptions, type WebSocketConstructor } from "acp-http-client";
import type { Api, Query, RequestOptions } from "./api.js";
import type { components } from "./api.gen.js";
import { mayComeBack } from "./passing.js";
import { Terminal } from "./terminal.js";

type Schemas = components["schemas"];
export type HostProcess = Schemas["HostProcess"];
export type ProcessResult = Schemas["ProcessResult"];
export type ProcessOutput = Omit<Schemas["ProcessOutput"], "data"> & { readonly data: Uint8Array };

export interface ProcessesOptions {
  WebSocket?: WebSocketConstructor;
  retry?: RetryOptions;
  silenceMs?: number;
}

/** Programs of the gateway's machine. */
export class Processes {
  constructor(private readonly api: Api, private readonly options: ProcessesOptions) {}

  /** Runs a program to its end. Aborting the signal ends it. */
  async run(request: Schemas["ProcessRun"], options: RequestOptions = {}): Promise<ProcessResult> {
    return this.#post("v2/processes/run", request, options);
  }

  /** Starts a program in the background, with `tty` on a terminal. */
  start(request: Schemas["ProcessStart"], options: RequestOptions = {}): Promise<HostProcess> {
    return this.#post("v2/processes", request, options);
  }

  async list(options?: RequestOptions): Promise<HostProcess[]> {
    return (await this.api.json<Schemas["ProcessList"]>("GET", "v2/processes", {}, options)).processes;
  }

  get(id: string, options?: RequestOptions): Promise<HostProcess> {
    return this.api.json("GET", path(id), {}, options);
  }

  /** One page of a program's output. */
  async logs(id: string, query: { stream?: "stdout" | "stderr" | "pty" | "combined"; after?: number; tail?: number; since?: string } = {}, options: RequestOptions = {}): Promise<Omit<Schemas["ProcessLog"], "chunks"> & { chunks: ProcessOutput[] }> {
    const log = await this.api.json<Schemas["ProcessLog"]>("GET", path(id, "/logs"), query as Query, options);
    return { ...log, chunks: log.chunks.map(decoded) };
  }

  /** A program's output as it comes, to its end. A connection that breaks is opened again behind the last byte. */
  async *follow(id: string, query: { stream?: "stdout" | "stderr" | "pty" | "combined"; after?: number; tail?: number; since?: string } = {}, options: RequestOptions = {}): AsyncGenerator<ProcessOutput | { readonly missed: number }, void, undefined> {
    const ended = new AbortController();
    const backoff = new Backoff(this.options.retry ?? {}, options.signal ?? ended.signal);
    let last = "";
    let begun = false; // a stream was open, or was not reached
    for (;;) {
      let since = Infinity; // when it was opened
      const opened = () => ([begun, since] = [true, performance.now()]);
      try {
        for await (const event of this.api.events("GET", path(id, "/logs"), query as Query, { ...options, opened, headers: last === "" ? {} : { "Last-Event-ID": last } })) {
          backoff.reset();
          if (event.id !== "") last = event.id;
          const data: unknown = JSON.parse(event.data);
          if (event.event === "message") yield decoded(data as Schemas["ProcessOutput"]);
          if (event.event === "missed") yield { missed: (data as { bytes: number }).bytes };
          if (event.event === "exit") return;
        }
      } catch (error) {
        // Behind a break a hub may not have the gateway yet, or a proxy.
        if (options.signal?.aborted || error instanceof ProblemError && !(begun && mayComeBack(error))) throw error;
        begun = true;
        // Of a program that says nothing. A stream of which nothing was heard from the beginning is that of a gateway that says nothing.
        backoff.lasted(since, error instanceof SilentError ? 1.5 * ofStream(this.options.silenceMs) : undefined);
        if (!(await backoff.next())) throw error;
        continue;
      }
      backoff.lasted(since);
      if (!(await backoff.next())) throw new Error("the output's stream ends again and again before the program does");
    }
  }

  /** Writes to a program's input; `close` ends it. */
  async write(id: string, data: string | Uint8Array, options: RequestOptions & { close?: boolean } = {}): Promise<number> {
    const { close, ...rest } = options;
    return (await this.api.json<Schemas["ProcessWritten"]>("POST", path(id, "/stdin"), { close }, { ...rest, body: data, headers: { "Content-Type": "application/octet-stream" } })).written;
  }

  async signal(id: string, signal: string, options: RequestOptions = {}): Promise<void> {
    await this.api.done("POST", path(id, "/signal"), {}, { ...options, ...json({ signal }) });
  }

  /** Ends a program with all it started: it is asked to, and after a while made to. */
  stop(id: string, options: RequestOptions & { patienceMs?: number } = {}): Promise<HostProcess> {
    const { patienceMs, ...rest } = options;
    return this.api.json("POST", path(id, "/stop"), { patienceMs }, rest);
  }

  /** Ends a program at once if it runs, and forgets it and its output. */
  async delete(id: string, options: RequestOptions = {}): Promise<void> {
    await this.api.done("DELETE", path(id), {}, options);
  }

  limits(options?: RequestOptions): Promise<Schemas["ProcessLimits"]> {
    return this.api.json("GET", "v2/processes/config", {}, options);
  }

  setLimits(change: Schemas["ProcessLimitsChange"], options: RequestOptions = {}): Promise<Schemas["ProcessLimits"]> {
    return this.api.json("PUT", "v2/processes/config", {}, { ...options, ...json(change) });
  }

  /** Opens the terminal of a program that was started with `tty`; several may look at one. */
  async terminal(id: string, options: { after?: number; signal?: AbortSignal } = {}): Promise<Terminal> {
    try {
      return await Terminal.open(this.api, id, { ...this.options, ...options });
    } catch (error) {
      options.signal?.throwIfAborted();
      if (!(error instanceof ProblemError)) await this.#isThere(id, options); // WebSockets of browsers do not tell why they are refused
      throw error;
    }
  }

  /** Rejects where the gateway says that it has no such program. */
  async #isThere(id: string, options: RequestOptions): Promise<void> {
    await this.get(id, options).catch((error: unknown) => {
      if (error instanceof ProblemError && error.status === 404) throw error;
    });
  }

  #post<T>(url: string, body: unknown, options: RequestOptions): Promise<T> {
    return this.api.json("POST", url, {}, { ...options, ...json(body) });
  }
}

const path = (id: string, rest = "") => `v2/processes/${encodeURIComponent(id)}${rest}`;
const json = (body: unknown) => ({ body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });

function decoded(output: Schemas["ProcessOutput"]): ProcessOutput {
  return { ...output, data: Uint8Array.from(atob(output.data), (c) => c.charCodeAt(0)) };
}
