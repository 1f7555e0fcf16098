import { client, methods, PROTOCOL_VERSION, type ClientCapabilities, type ClientConnection, type CreateElicitationRequest, type CreateElicitationResponse, type InitializeResponse, type RequestPermissionRequest, type RequestPermissionResponse, type SessionNotification, type AnyMessage, type Stream } from "@agentclientprotocol/sdk/unstable";
import { createAcpStream, type AcpStream, type AcpStreamOptions } from "acp-http-client";
import { QUESTION, type QuestionRequest, type QuestionResponse } from "./extensions.js";
import { META, metaOf } from "./meta.js";

/** Who takes what the gateway sends. `update`, `notice` and `answered` are called in the order of the wire. */
export interface Inbound {
  update(params: SessionNotification): void;
  notice(method: string, params: unknown): void;
  /** The prompt was answered: updates that follow belong to the next. */
  answered(promptId: string): void;
  permission(params: RequestPermissionRequest, signal: AbortSignal): Promise<RequestPermissionResponse>;
  question(params: QuestionRequest, signal: AbortSignal): Promise<QuestionResponse>;
  elicitation?: ((params: CreateElicitationRequest, signal: AbortSignal) => Promise<CreateElicitationResponse>) | undefined;
}

/** One ACP connection, initialized. */
export interface Connection {
  readonly stream: AcpStream;
  readonly acp: ClientConnection;
  readonly hello: InitializeResponse;
}

export interface Introduction {
  readonly name: string;
  readonly version: string;
  readonly agent: string | undefined;
  readonly capabilities: ClientCapabilities;
}

/**
 * Takes notifications off the stream as they come. The SDK runs handlers whenever it
 * gets to them; whether an update belongs before or behind a response would be lost.
 */
function tap(stream: AcpStream, inbound: Inbound): Stream {
  const prompts = new Map<unknown, string>(); // by request id
  const incoming = new TransformStream<AnyMessage, AnyMessage>({
    transform(message, controller) {
      if ("method" in message) {
        if (!("id" in message) && message.method === methods.client.session.update) return inbound.update(message.params as SessionNotification);
        if (!("id" in message) && message.method.startsWith(NOTICES)) return inbound.notice(message.method, message.params);
      } else if (prompts.size > 0) {
        const prompt = prompts.get(message.id);
        if (prompt !== undefined) {
          prompts.delete(message.id);
          inbound.answered(prompt);
        }
      }
      controller.enqueue(message);
    },
  });
  const writer = stream.writable.getWriter();
  const writable = new WritableStream<AnyMessage>({
    async write(message) {
      if ("method" in message && "id" in message && message.method === methods.agent.session.prompt) {
        const { promptId } = metaOf(message.params);
        if (typeof promptId === "string") prompts.set(message.id, promptId);
      }
      await writer.write(message);
    },
    close: () => writer.close(),
    abort: (reason) => writer.abort(reason),
  });
  return { readable: stream.readable.pipeThrough(incoming), writable };
}

/** What the methods of the gateway's own notifications begin with. The SDK would take those for mistakes that it does not know. */
const NOTICES = "_sandboxagent/";

/** Connects and initializes. The official SDK does the protocol, over our stream. */
export async function open(url: string, options: AcpStreamOptions, intro: Introduction, inbound: Inbound): Promise<Connection> {
  const stream = createAcpStream(url, options);
  const app = client({ name: intro.name })
    .onRequest(methods.client.session.requestPermission, ({ params, signal }) => inbound.permission(params, signal))
    .onRequest(QUESTION, (params) => params as QuestionRequest, ({ params, signal }) => inbound.question(params, signal));
  if (inbound.elicitation) {
    const answer = inbound.elicitation;
    app.onRequest(methods.client.elicitation.create, ({ params, signal }) => answer(params, signal));
  }
  const acp = app.connect(tap(stream, inbound));
  try {
    const hello = await acp.agent.request(methods.agent.initialize, {
      protocolVersion: PROTOCOL_VERSION,
      clientInfo: { name: intro.name, version: intro.version },
      clientCapabilities: {
        ...intro.capabilities,
        ...(inbound.elicitation ? { elicitation: { form: {}, url: {} } } : {}),
        _meta: { ...intro.capabilities._meta, [META]: { eventIds: true, turns: true, requestQuestion: true } },
      },
      ...(intro.agent === undefined ? {} : { _meta: { [META]: { agent: intro.agent } } }),
    });
    return { stream, acp, hello };
  } catch (error) {
    await stream.close();
    throw stream.error ?? error;
  }
}
