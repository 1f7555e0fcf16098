import { textOf } from "./clock.js";

/** An RFC 9457 problem document. Unknown members are kept. */
export interface Problem {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail?: string;
  readonly [member: string]: unknown;
}

/** The server answered an HTTP request with an error. */
export class ProblemError extends Error {
  override readonly name = "ProblemError";
  /** The HTTP status. */
  readonly status: number;
  /** Tells kinds of errors apart, such as `urn:…:token_invalid`; `about:blank` when the server gave none. */
  readonly type: string;

  constructor(readonly problem: Problem) {
    super(problem.detail ?? problem.title);
    this.status = problem.status;
    this.type = problem.type;
  }

  /** Whether others, such as a new token, may be taken. */
  get refusesHeaders(): boolean {
    return this.status === 401 || this.status === 403;
  }

  /** Reads the error out of a response whose status is no success, as far as it comes. */
  static async from(response: Response): Promise<ProblemError> {
    const { status, type, headers } = response;
    const text = await textOf(response, bodyMs).catch(() => "");
    // Browsers do not say more of it than that it is one.
    const redirect = type === "opaqueredirect" || (status > 300 && status < 400);
    return ProblemError.of(status, response.statusText, redirect ? `the server redirects to ${headers.get("Location") ?? "another address"}, to which a token is not sent: give the address itself` : text);
  }

  /** The error that an answer is. */
  static of(status: number, statusText: string, text: string): ProblemError {
    return new ProblemError(problemOf(status, statusText, text));
  }
}

/** How long the reason of a refusal is waited for. */
const bodyMs = 10_000;

/** Whether it says that it is a web page, with which something before the server has answered, such as a proxy that wants a login. Some servers say so of all that they answer. */
export const isPage = (response: Response) => /^text\/html\b/i.test(response.headers.get("Content-Type") ?? "");

function problemOf(status: number, statusText: string, text: string): Problem {
  const title = statusText || `HTTP ${status}`;
  try {
    const doc: unknown = JSON.parse(text);
    if (typeof doc === "object" && doc !== null) {
      if ("title" in doc && typeof doc.title === "string") {
        return { type: "about:blank", ...doc, title: doc.title, status };
      }
      // Some servers answer with a JSON-RPC error.
      if ("error" in doc && typeof doc.error === "object" && doc.error !== null && "message" in doc.error) {
        return { type: "about:blank", title, status, detail: String(doc.error.message) };
      }
    }
  } catch {
    // It is not JSON; its text says what there is to say.
  }
  return { type: "about:blank", title, status, detail: text.trim().slice(0, 2000) || title };
}

/** The agent, or whoever stands before it, answered a request with a JSON-RPC error. */
export class AcpRpcError extends Error {
  override readonly name = "AcpRpcError";

  constructor(readonly code: number, message: string, readonly data?: unknown) {
    super(message);
  }
}

/** Why a connection ended for good. */
export type LossReason =
  /** The server does not know the connection: it was restarted, or the connection was released. */
  | "unknown_connection"
  /** Events were dropped before they could be read again. */
  | "events_expired"
  /** The network did not come back in the time given. */
  | "unreachable"
  /** The function that is asked for the headers failed, or they are none that can be sent. */
  | "headers"
  /** The server ended a connection that cannot be taken up again, such as a WebSocket, or something before it answered, as with a web page. */
  | "closed"
  /** The server broke the protocol. */
  | "protocol";

/**
 * The connection is lost and this client cannot take it up again.
 *
 * Sessions belong to the agent's side and outlive connections: open a new one, and
 * load or resume them. What was sent and not answered is listed in `unanswered`;
 * whether the server received it is not known.
 */
export class ConnectionLostError extends Error {
  override readonly name = "ConnectionLostError";

  constructor(
    readonly reason: LossReason,
    message: string,
    readonly detail: {
      /** Sessions to load or resume on a new connection. */
      readonly sessions: readonly string[];
      /** Requests that have no answer yet. */
      readonly unanswered: readonly { readonly id: string | number; readonly method: string }[];
    },
    options?: ErrorOptions,
  ) {
    super(message, options);
  }

  /** Whether a new connection can carry on with the sessions. */
  get recoverable(): boolean {
    return this.reason !== "protocol";
  }
}

/** Why it failed, in the words of the first cause: `fetch` itself says no more than that it failed. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const inner = error.cause === undefined ? "" : reasonOf(error.cause);
  return inner || error.message || ("code" in error ? String(error.code) : error.name);
}
