import type { AnyMessage, Stream } from "@agentclientprotocol/sdk/unstable";
import { createAcpStream, type AcpStream, type AcpStreamOptions } from "acp-http-client";
import { ProtocolVersionError } from "./errors.js";
import { QUESTION, type QuestionRequest, type QuestionResponse } from "./extensions.js";
import { META, metaOf } from "./meta.js";
import type { Acp, AcpVersion } from "./versions.js";

/** Who takes what the gateway sends. What returns nothing is called in the order of the wire. */
export interface Inbound<V extends AcpVersion> {
  update(params: Acp<V, "SessionNotification">): void;
  notice(method: string, params: unknown): void;
  /** A message came that the SDK is given: it may have a place in a session. */
  passed(params: unknown, request: boolean): void;
  /** The prompt was answered: in version 1 updates that follow belong to the next. */
  answered(asked: { sessionId: string; promptId: string }, result: unknown): void;
  /** A session was made or opened. */
  opened(params: Record<string, unknown>, result: Record<string, unknown>): void;
  permission(params: Acp<V, "RequestPermissionRequest">, signal: AbortSignal): Promise<Acp<V, "RequestPermissionResponse">>;
  question(params: QuestionRequest, signal: AbortSignal): Promise<QuestionResponse>;
  elicitation?: ((params: Acp<V, "CreateElicitationRequest">, signal: AbortSignal) => Promise<Acp<V, "CreateElicitationResponse">>) | undefined;
}

/** The official SDK's connection of either version, as far as it is used here. */
export interface Agent {
  request<T>(method: string, params: unknown, options?: { cancellationSignal?: AbortSignal; stopWaitingOnCancel?: boolean }): Promise<T>;
  notify(method: string, params: unknown): Promise<void>;
}

/** One ACP connection, initialized. */
export interface Connection<V extends AcpVersion> {
  readonly stream: AcpStream;
  readonly agent: Agent;
  readonly hello: Acp<V, "InitializeResponse">;
  /** When it was made, in ticks. */
  readonly since: number;
  /** Whether anything came that is not of its beginning. */
  used(): boolean;
}

export interface Introduction<V extends AcpVersion> {
  readonly name: string;
  readonly version: string;
  readonly agent: string | undefined;
  readonly capabilities: Acp<V, "ClientCapabilities">;
}

/** Connects the official SDK of a version to the stream, and initializes. */
async function speak<V extends AcpVersion>(version: V, stream: Stream, { name, version: release, agent: id, capabilities: own }: Introduction<V>, { permission, question, elicitation }: Inbound<V>): Promise<{ agent: Agent; hello: Acp<V, "InitializeResponse"> }> {
  // What the versions differ in the program is given as it came.
  const { client, methods } = version === 2 ? ((await import("./second.js")) as unknown as typeof import("./first.js")) : await import("./first.js");
  const app = client({ name })
    .onRequest(methods.client.session.requestPermission, ({ params, signal }) => permission(params as never, signal) as never)
    .onRequest(QUESTION, (params) => params as QuestionRequest, ({ params, signal }) => question(params, signal));
  if (elicitation) app.onRequest(methods.client.elicitation.create, ({ params, signal }) => elicitation(params as never, signal) as never);
  const { agent } = app.connect(stream);
  const capabilities = { ...own, ...(elicitation ? { elicitation: { form: {}, url: {} } } : {}), _meta: { ...own._meta, ...wishes } };
  const info = { name, version: release };
  const hello = await agent.request(methods.agent.initialize, {
    protocolVersion: version,
    ...(version === 2 ? { info, capabilities } : { clientInfo: info, clientCapabilities: capabilities }),
    ...(id === undefined ? {} : { _meta: { [META]: { agent: id } } }),
  } as never);
  return { agent, hello: hello as unknown as Acp<V, "InitializeResponse"> };
}

/** The methods with which a connection begins, also one that takes the place of another. */
const beginning = new Set(["initialize", "session/resume", "_sandboxagent/session/get", "_sandboxagent/session/pending"]);

/** The methods that make or open a session. */
const opening = new Set(["session/new", "session/load", "session/resume", "session/fork"]);

/**
 * Takes notifications off the stream as they come. The SDK runs handlers whenever it
 * gets to them; whether an update belongs before or behind a response would be lost.
 */
function tap<V extends AcpVersion>(stream: AcpStream, version: V, inbound: Inbound<V>, otherVersion: (offered: unknown) => void): Stream & { used(): boolean } {
  const asked = new Map<unknown, (result: unknown) => void>(); // by request id
  const begun = new Set<unknown>(); // by request id
  let used = false;
  const incoming = new TransformStream<AnyMessage, AnyMessage>({
    transform(message, controller) {
      used ||= "method" in message || !begun.delete(message.id);
      if ("method" in message) {
        if (!("id" in message) && message.method === "session/update") return isUpdate(message.params) ? inbound.update(message.params as Acp<V, "SessionNotification">) : inbound.passed(message.params, false);
        if (!("id" in message) && message.method.startsWith(NOTICES)) return inbound.notice(message.method, message.params);
        inbound.passed(message.params, "id" in message);
      } else {
        asked.get(message.id)?.("result" in message ? message.result : undefined);
        asked.delete(message.id);
      }
      controller.enqueue(message);
    },
  });
  const writer = stream.writable.getWriter();
  const writable = new WritableStream<AnyMessage>({
    async write(message) {
      if ("method" in message && "id" in message) {
        if (beginning.has(message.method)) begun.add(message.id);
        if (message.method === "initialize") {
          asked.set(message.id, (result) => {
            const offered = (result as { protocolVersion?: unknown } | undefined)?.protocolVersion;
            if (offered !== undefined && offered !== version) otherVersion(offered);
          });
        }
        const { promptId } = metaOf(message.params);
        if (message.method === "session/prompt" && typeof promptId === "string") {
          const { sessionId } = message.params as { sessionId: string };
          asked.set(message.id, (result) => inbound.answered({ sessionId, promptId }, result));
        }
        if (opening.has(message.method)) {
          const params = message.params as Record<string, unknown>;
          asked.set(message.id, (result) => {
            if (result) inbound.opened(params, result as Record<string, unknown>);
          });
        }
      }
      await writer.write(message);
    },
    close: () => writer.close(),
    abort: (reason) => writer.abort(reason),
  });
  return { readable: stream.readable.pipeThrough(incoming), writable, used: () => used };
}

/** Whether an agent's update is one: what has no kind is of no use to anybody, and only its place is noted. */
function isUpdate(params: unknown): boolean {
  const { update } = (params ?? {}) as { update?: { sessionUpdate?: unknown } | null };
  return typeof update?.sessionUpdate === "string";
}

/** What the methods of the gateway's own notifications begin with. The SDK would take those for mistakes that it does not know. */
const NOTICES = "_sandboxagent/";

/** What a client of this package asks the gateway for beyond ACP. */
const wishes = { [META]: { eventIds: true, turns: true, requestQuestion: true } };

/** Connects and initializes. The official SDK does the protocol, over our stream. */
export async function open<V extends AcpVersion>(version: V, url: string, options: AcpStreamOptions, intro: Introduction<V>, inbound: Inbound<V>): Promise<Connection<V>> {
  const stream = createAcpStream(url, options);
  let mismatch: ProtocolVersionError | undefined; // the SDK takes what another version says for damaged
  try {
    const tapped = tap(stream, version, inbound, (offered) => (mismatch = new ProtocolVersionError(version, offered)));
    const spoken = await speak(version, tapped, intro, inbound);
    if (mismatch) throw mismatch;
    return { stream, ...spoken, since: performance.now(), used: tapped.used };
  } catch (error) {
    await stream.close();
    throw mismatch ?? stream.error ?? error;
  }
}
