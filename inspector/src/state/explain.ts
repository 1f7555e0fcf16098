import { AcpRpcError, ConnectionLostError, ProblemError } from "sandbox-agent";

/** What went wrong, for a person: what it is, what to do, and the command that does it. */
export interface Explanation {
  readonly kind: "unreachable" | "cors" | "token" | "host" | "version" | "agent" | "mixed" | "address" | "other";
  readonly title: string;
  readonly detail: string;
  /** The command to run where the gateway is. */
  readonly command?: string;
  /** Whether trying again without a change may help. */
  readonly retry: boolean;
}

/** What the page could find out about a gateway that did not let it read an answer. */
export interface Probe {
  readonly endpoint: string;
  readonly pageOrigin: string;
  /** Whether something answers at the address, though this page may not read it. */
  readonly answers: boolean;
}

/** The port that an endpoint is at, as a flag. */
function portFlag(endpoint: string): string {
  const port = new URL(endpoint).port || (endpoint.startsWith("https:") ? "443" : "80");
  return port === "2468" ? "" : ` --port ${port}`;
}

const isLoopback = (endpoint: string) => /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(new URL(endpoint).hostname);

/** Says what an address lacks, undefined when it is one. */
export function explainAddress(text: string, pageOrigin: string): Explanation | undefined {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    return { kind: "address", title: "This is not an address", detail: `“${text}” should look like http://127.0.0.1:2468.`, retry: false };
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    return { kind: "address", title: "This is not an address of a gateway", detail: "It begins with http:// or https://.", retry: false };
  }
  if (pageOrigin.startsWith("https:") && url.protocol === "http:" && !isLoopback(url.href)) {
    return {
      kind: "mixed", title: "A page over https cannot use a gateway over http", retry: false,
      detail: "Browsers forbid it. Give the gateway a certificate, or open the page that the gateway itself serves.",
      command: `sandbox-agent server --host 0.0.0.0${portFlag(url.href)} --tls-cert cert.pem --tls-key key.pem --token-file token.txt`,
    };
  }
  return undefined;
}

/** Explains why no answer could be read. */
export function explainSilence({ endpoint, pageOrigin, answers }: Probe): Explanation {
  if (answers && new URL(endpoint).origin !== pageOrigin) {
    return {
      kind: "cors", title: "The gateway does not let this page in", retry: true,
      detail: `It runs, but pages of ${pageOrigin} may not use it. Start it with the flag below, or open ${new URL("ui/", withSlash(endpoint)).href}.`,
      command: `sandbox-agent server${portFlag(endpoint)} --cors-allow-origin ${pageOrigin}`,
    };
  }
  return {
    kind: "unreachable", title: "Nothing answers at this address", retry: true,
    detail: `No gateway runs at ${endpoint}, or the network is in the way. Start one where the agents should work:`,
    command: `sandbox-agent server${portFlag(endpoint)} --new-token`,
  };
}

/** Explains an answer, or a connection that ended. */
export function explain(error: unknown, endpoint: string, tokenGiven = false, hub = false): Explanation {
  if (error instanceof ProblemError) {
    if (error.status === 401 && hub) {
      return {
        kind: "token", title: tokenGiven ? "The token is not right" : "The hub wants a token", retry: false,
        detail: "It takes tokens of its own, of the kind client. Whoever runs the hub makes one, and it can be for some of the nodes:",
        command: `sandbox-hub token create --endpoint ${endpoint} --kind client --scope drive`,
      };
    }
    if (error.status === 401) {
      return {
        kind: "token", title: tokenGiven ? "The token is not right" : "The gateway wants a token", retry: false,
        detail: "The gateway printed its token when it was started, or was given one by --token-file or SANDBOX_AGENT_TOKEN. Start it with a new one to see it:",
        command: `sandbox-agent server${portFlag(endpoint)} --new-token`,
      };
    }
    if (error.status === 403) {
      const host = /--allowed-host (\S+)/.exec(error.message)?.[1];
      const origin = /--cors-allow-origin (\S+)/.exec(error.message)?.[1];
      const flag = host ? `--allowed-host ${host}` : origin ? `--cors-allow-origin ${origin}` : undefined;
      return { kind: origin ? "cors" : "host", title: "The gateway does not answer to this address", detail: sentence(error.message), retry: false, ...(flag ? { command: `sandbox-agent server${portFlag(endpoint)} ${flag}` } : {}) };
    }
    if (error.status === 404 || error.status === 405 || error.type === "about:blank") {
      return { kind: "version", title: "This is not a gateway that this page knows", detail: `${endpoint} answers ${error.status} where a gateway tells its version. It is another program, or a gateway of another version; the page that a gateway serves at /ui/ fits it.`, retry: false };
    }
    return { kind: "other", title: error.problem.title, detail: sentence(error.message), retry: error.status >= 500 };
  }
  if (error instanceof AcpRpcError) return { kind: "agent", title: "The agent could not be started", detail: sentence(error.message), retry: true };
  if (error instanceof ConnectionLostError) {
    return { kind: "unreachable", title: "The connection is lost", detail: `${sentence(error.message)} Sessions go on at the gateway; what was missed is shown when it is there again.`, retry: true };
  }
  if (error instanceof WrongVersion) return { kind: "version", title: "The gateway speaks another version", detail: error.message, retry: false };
  return { kind: "other", title: "It did not work", detail: sentence(messageOf(error)), retry: true };
}

/** The gateway's answer is not what this page was made for. */
export class WrongVersion extends Error {
  override readonly name = "WrongVersion";
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function sentence(text: string): string {
  const trimmed = text.trim();
  if (trimmed === "") return "No reason was given.";
  const first = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}

export const withSlash = (url: string) => (url.endsWith("/") ? url : `${url}/`);

/** Waits until something is ended. That it is not there any more is as good: it was ended twice, or by somebody else. */
export async function gone(ending: Promise<unknown>): Promise<void> {
  try {
    await ending;
  } catch (error) {
    if (!(error instanceof ProblemError && error.status === 404)) throw error;
  }
}
