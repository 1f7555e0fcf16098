import { META } from "sandbox-agent";
import { withSlash } from "../state/explain.js";
import type { Passed } from "../state/traffic.js";

/** Members whose value is a secret, whatever it is. */
const secretNames = /^(authorization|proxy-authorization|cookie|set-cookie|x-api-key|x-sandbox-token|api[-_]?key|oauth[-_]?token|access[-_]?token|refresh[-_]?token|id[-_]?token|auth[-_]?token|token|password|passwd|secret|client[-_]?secret|private[-_]?key|credentials)$/i;
/** Names of variables and headers whose value is one. */
const secretVariables = /key|token|secret|password|passwd|credential|authorization|cookie/i;
/** What looks like a key wherever it stands. */
const secretShapes = /\b(sk-[A-Za-z0-9_-]{12,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|AIza[\w-]{30,}|xox[abpr]-[\w-]{10,}|AKIA[A-Z0-9]{16}|ey[JI][\w-]{8,}\.[\w-]{8,}\.[\w-]{4,})/g;

const gone = "(removed)";

/** A copy of a value without secrets: `known` are those that must be nowhere. */
export function withoutSecrets(value: unknown, known: readonly string[] = []): unknown {
  if (typeof value === "string") {
    let text = value;
    for (const secret of known) if (secret.length > 3) text = text.replaceAll(secret, gone);
    return text.replace(secretShapes, gone);
  }
  if (Array.isArray(value)) return value.map((one) => withoutSecrets(one, known));
  if (typeof value !== "object" || value === null) return value;
  const object = value as Record<string, unknown>;
  const named = typeof object.name === "string" && "value" in object && secretVariables.test(object.name);
  const out: Record<string, unknown> = {};
  for (const [name, one] of Object.entries(object)) {
    if (secretNames.test(name) && one !== null && typeof one !== "boolean" && typeof one !== "number") out[name] = gone;
    else if (named && name === "value") out[name] = gone;
    else if (name === "env" && typeof one === "object" && one !== null && !Array.isArray(one)) {
      out[name] = Object.fromEntries(Object.entries(one).map(([key, v]) => [key, secretVariables.test(key) ? gone : withoutSecrets(v, known)]));
    } else out[withoutSecrets(name, known) as string] = withoutSecrets(one, known);
  }
  return out;
}

/** What is kept of the traffic, one JSON object in each line, without secrets. */
export function capture(entries: readonly Passed[], known: readonly string[]): string {
  return entries.map((entry) => {
    const at = new Date(entry.at).toISOString();
    if (entry.kind === "frame") {
      const { direction, via, eventId, message } = entry.envelope;
      return `${JSON.stringify({ at, kind: "acp", direction, via, ...(eventId === undefined ? {} : { eventId }), message: withoutSecrets(message, known) })}\n`;
    }
    const { body, responseBody, ...rest } = entry.request;
    return `${JSON.stringify({ at, kind: "http", ...(withoutSecrets(rest, known) as object), ...texts({ body, responseBody }, known) })}\n`;
  }).join("");
}

function texts(bodies: Record<string, string | undefined>, known: readonly string[]): Record<string, unknown> {
  const out: Record<string, unknown> = {};
  for (const [name, text] of Object.entries(bodies)) {
    if (text === undefined) continue;
    try {
      out[name] = withoutSecrets(JSON.parse(text), known);
    } catch {
      out[name] = withoutSecrets(text, known);
    }
  }
  return out;
}

const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;
const bearer = `-H "Authorization: Bearer $SANDBOX_AGENT_TOKEN"`;

/** The command that sends a request of version 2 once more; it takes the token from a variable. Plain HTTP has no short way to wait for its answer. */
export function asCall(message: object, endpoint: string, agent?: string): string | undefined {
  const { id, method, params } = message as { id?: unknown; method?: string; params?: unknown };
  if (method === undefined || method === "initialize") return undefined;
  return `sandbox-agent rpc ${id === undefined ? "notify" : "call"} --acp 2 --endpoint ${quoted(endpoint)}${agent === undefined ? "" : ` --agent ${quoted(agent)}`} ${quoted(method)} ${quoted(JSON.stringify(params ?? {}))}`;
}

/** Commands that send the same again. They take the token from a variable; undefined for what a client cannot send. */
export function asCurl(entry: Passed, endpoint: string, hasToken: boolean, agent?: string): string | undefined {
  const token = hasToken ? ` ${bearer}` : "";
  if (entry.kind === "request") {
    const { method, url, headers, body } = entry.request;
    const kept = Object.entries(headers).filter(([name]) => name.toLowerCase() !== "authorization");
    return [
      `curl -sS -X ${method} ${quoted(url)}${token}`, ...kept.map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`),
      ...(body === undefined ? [] : [`--data-binary ${quoted(body)}`]),
    ].join(" ");
  }
  const { direction, message } = entry.envelope;
  if (direction !== "sent") return undefined;
  const url = quoted(new URL("v2/rpc", withSlash(endpoint)).href);
  const post = `curl -sS ${url}${token} -H 'Content-Type: application/json'`;
  if ("method" in message && message.method === "initialize") return `${post} --data-binary ${quoted(JSON.stringify(message))}`;
  // With the agent of the page's own connection: the gateway's default may not be installed.
  const hello = { jsonrpc: "2.0", id: 0, method: "initialize", params: { protocolVersion: 1, clientCapabilities: {}, ...(agent === undefined ? {} : { _meta: { [META]: { agent } } }) } };
  return [
    "# A connection of its own, then the message.",
    `CONNECTION=$(${post} -o /dev/null -D - --data-binary ${quoted(JSON.stringify(hello))} | tr -d '\\r' | sed -n 's/^x-acp-connection-id: //Ip')`,
    `${post} -H "X-ACP-Connection-Id: $CONNECTION" --data-binary ${quoted(JSON.stringify(message))}`,
  ].join("\n");
}
