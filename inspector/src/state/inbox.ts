import { AcpRpcError, META, type Acp, type Envelope, type QuestionRequest, type QuestionResponse, type SandboxAgentClientOptions, type SessionInfo } from "sandbox-agent";
import { raisePermission } from "../conversation/raise.js";
import { askedCall, type PermissionParams } from "../conversation/updates.js";
import type { Attached } from "./attached.js";
import type { Client } from "./gateway.js";
import { mayPass, retryMs } from "./retry.js";
import { Store } from "./store.js";

type Elicit = NonNullable<SandboxAgentClientOptions<2>["onElicitation"]>;
type PermissionResponse = Acp<2, "RequestPermissionResponse">;
export type ElicitationRequest = Parameters<Elicit>[0];
export type ElicitationResponse = Awaited<ReturnType<Elicit>>;

interface Base {
  readonly id: number;
  readonly at: number;
  /** The session in which it is asked, also when a subagent of it asks. Absent for what an agent asks outside of sessions, such as a login. */
  readonly sessionId: string | undefined;
  /** The tool call that waits for the answer. */
  readonly toolCallId: string | undefined;
}

/** How many answers are remembered, of which it may be told that another one came first, and which may not have arrived. */
const maxAnswered = 64;
/** How many asks of connections that are no more are remembered; the oldest is told of as over then. */
const maxParted = 64;

/** Something an agent wants of a person. It is gone when anybody has answered it. */
export type Ask =
  | (Base & { readonly kind: "permission"; readonly request: PermissionParams; answer(response: PermissionResponse): void })
  | (Base & { readonly kind: "question"; readonly request: QuestionRequest; answer(response: QuestionResponse): void })
  | (Base & { readonly kind: "elicitation"; readonly request: ElicitationRequest; answer(response: ElicitationResponse): void });

/** What was answered here, and on which client. */
interface Answered {
  readonly ask: Ask;
  readonly response: unknown;
  readonly client: Client | undefined;
}

class Count extends Store<number> {
  change(n: number): void {
    this.set(n);
  }
}

/**
 * What agents ask, in all sessions. The gateway asks clients that are attached, so
 * this page attaches to sessions that wait for somebody. An ask that nobody answers
 * here stays open for others.
 */
export class Inbox extends Store<readonly Ask[]> {
  readonly count = new Count(0);
  #next = 1;
  #client: Client | undefined;
  #all: readonly Ask[] = []; // also those that nobody can answer now
  readonly #away = new Set<string>(); // sessions whose node is away: what they ask is not shown
  #off: (() => void)[] = [];
  readonly #wanted = new Map<string, SessionInfo>(); // sessions that wait, and that the page is not attached to yet
  #later: ReturnType<typeof setTimeout> | undefined; // until that is tried again
  #failed = 0;
  readonly #open = new Map<number, () => void>(); // ends an ask that nobody has answered
  readonly #asked = new Map<unknown, string>(); // by the ids of requests: which ask it is
  readonly #answered = new Map<string, Answered>(); // here
  readonly #parted = new Map<string, Ask>(); // asked on a connection that is no more: it may be asked again on the next one
  readonly #unsure = new Set<string>(); // sessions of which the gateway could not say what is open
  readonly #lost = new Set<string>(); // sessions that the client has let go of, of which the gateway has not said how they are

  /** Is told of what is asked, `again` where it is answered already, and of what was answered here; undefined when it was answered elsewhere, or never. */
  onAsk: ((ask: Ask, again: boolean) => void) | undefined;
  onAnswer: ((ask: Ask, response: unknown) => void) | undefined;
  /** Is told of what was answered here, when somebody else had answered it before. */
  onLate: ((ask: Ask) => void) | undefined;

  /** home returns the session that a subagent is in, and other ids as they are. */
  constructor(private readonly held: Attached, private readonly home: (id: string) => string = (id) => id) {
    super([]);
  }

  /** Takes the asks of a client. */
  use(client: Client): void {
    if (client === this.#client) return;
    for (const off of this.#off) off();
    this.#client = client;
    this.#open.clear();
    this.#away.clear();
    this.#wanted.clear();
    this.#unsure.clear();
    this.#lost.clear();
    this.#notLater();
    this.#change([]);
    this.#off = [
      client.onPermission((params, { signal }) => {
        const request = (client.acpVersion as number) === 1 ? raisePermission(params) : (params as unknown as PermissionParams);
        return this.#ask<PermissionResponse>(signal, (base, answer) => ({ ...base, kind: "permission", request, sessionId: this.home(request.sessionId), toolCallId: askedCall(request, this.home(request.sessionId)), answer }));
      }),
      client.onQuestion((request, { signal }) => this.#ask<QuestionResponse>(signal, (base, answer) => ({ ...base, kind: "question", request, sessionId: this.home(request.sessionId), toolCallId: request.toolCallId, answer }))),
      client.onSessionLost(({ sessionId }) => {
        this.held.lost(client, sessionId);
        this.#lost.add(sessionId);
        void this.#lookAt(client, sessionId);
      }),
      client.onState((state) => {
        if (state !== "open") return;
        void this.#review(client);
        this.#again(client);
      }),
    ];
    void this.#review(client);
  }

  /** Takes forms; the client wants them from its beginning. */
  readonly elicit: Elicit = async (request, { signal }) => {
    const scope = request as { sessionId?: string; toolCallId?: string | null };
    const response = await this.#ask<ElicitationResponse>(signal, (base, answer) => ({ ...base, kind: "elicitation", request, sessionId: scope.sessionId === undefined ? undefined : this.home(scope.sessionId), toolCallId: scope.toolCallId ?? undefined, answer }));
    return response ?? { action: "cancel" };
  };

  /** Sees what comes over the wire: a request that is withdrawn behind an answer was answered by somebody else. */
  readonly frame = ({ direction, message }: Pick<Envelope, "direction" | "message">): void => {
    const { id, method, params } = message as { id?: unknown; method?: string; params?: { sessionId?: string; requestId?: unknown } };
    if (direction !== "received" || method === undefined) return;
    if (id !== undefined) return remember(this.#asked, id, sameAs(params));
    const ask = method === "$/cancel_request" ? this.#answered.get(this.#asked.get(params?.requestId) ?? "")?.ask : undefined;
    if (!ask) return;
    this.#answered.delete(sameAs(ask.request));
    this.onLate?.(ask);
  };

  /** A gateway that was killed cannot withdraw what was asked: after a break it is asked which of it is still open. */
  async #review(client: Client, of: (id: string) => boolean = () => true): Promise<void> {
    const before = [...this.#all, ...this.#parted.values()].filter((ask) => ask.sessionId !== undefined && of(ask.sessionId));
    for (const id of new Set(before.flatMap((ask) => ask.sessionId ?? []))) {
      this.#unsure.delete(id);
      const open = await client.pendingRequests(id).then(({ pending }) => new Set(pending.map((one) => (one as { seq?: unknown }).seq)), (error: unknown) => (isGone(error) ? new Set<unknown>() : mayPass(error)));
      if (client !== this.#client) return;
      if (open === true) {
        this.#unsure.add(id);
        this.#tryLater(client);
      }
      if (typeof open === "boolean") continue;
      for (const ask of before) {
        const seq = seqOf(ask.request);
        if (ask.sessionId !== id || (seq === undefined ? open.size > 0 : open.has(seq))) continue;
        this.#open.get(ask.id)?.();
        if (this.#parted.get(sameAs(ask.request)) === ask) this.#over(ask);
      }
    }
  }

  /** Sees how a session is that the client has let go of, now or later: it may wait for somebody. */
  async #lookAt(client: Client, id: string): Promise<void> {
    const info = await client.api.session(id).catch(mayPass);
    if (client !== this.#client) return;
    if (info === true) return this.#tryLater(client);
    this.#lost.delete(id);
    if (info !== false) this.watch([info]);
    void this.#review(client, (one) => one === id);
  }

  /** What was asked on a connection that is no more is not asked any more. */
  #over(parted: Ask): void {
    this.#parted.delete(sameAs(parted.request));
    this.onAnswer?.(parted, undefined);
  }

  /** At a hub, the node of some sessions has gone away or is back. What is asked there can be answered only while it is here. */
  nodeChanged(there: (id: string) => boolean, online: boolean): void {
    const client = this.#client;
    if (!client) return;
    for (const { sessionId } of this.#all) if (sessionId !== undefined && there(sessionId)) this.#away.add(sessionId);
    this.#change(this.#all);
    if (!online) return;
    const back = [...this.#away].filter(there);
    void this.#review(client, there).then(() => {
      for (const id of back) this.#away.delete(id);
      this.#change(this.#all);
    });
  }

  /** Attaches to sessions in which something is open that this page was not asked. */
  watch(sessions: readonly SessionInfo[]): void {
    const client = this.#client;
    if (!client) return;
    for (const info of sessions) {
      this.#wanted.delete(info.sessionId);
      if (info.pending > 0) void this.#attach(client, info);
      else {
        void this.held.leave(client, info.sessionId, this);
        if ([...this.#parted.values()].some((ask) => ask.sessionId === info.sessionId)) void this.#review(client, (id) => id === info.sessionId);
      }
    }
  }

  /** Attaches to a session, now or later: nobody says once more that it waits. */
  async #attach(client: Client, info: SessionInfo): Promise<void> {
    const { sessionId: id, cwd } = info;
    if (!this.held.has(client, id) && asleep.has(info.state)) return;
    this.#wanted.set(id, info);
    const attached = await (this.held.has(client, id) ? this.held.join(client, id, this) : this.held.open(client, id, this, () => client.resumeSession({ sessionId: id, cwd })).then(() => true)).catch((error: unknown) => (mayPass(error) ? false : undefined));
    if (this.#wanted.get(id) !== info) return; // it was told of anew, or is another gateway's
    if (attached !== false) this.#wanted.delete(id);
    if (attached) this.#failed = 0;
    if (attached === false) this.#tryLater(client);
  }

  #tryLater(client: Client): void {
    this.#later ??= setTimeout(() => this.#again(client), retryMs(this.#failed++));
  }

  /** Tries again what has failed for a reason that passes. */
  #again(client: Client): void {
    this.#notLater();
    if (this.#unsure.size > 0) void this.#review(client, (id) => this.#unsure.has(id));
    for (const id of this.#lost) void this.#lookAt(client, id);
    for (const info of this.#wanted.values()) if (!this.held.has(client, info.sessionId)) void this.#attach(client, info);
  }

  #notLater(): void {
    clearTimeout(this.#later);
    this.#later = undefined;
  }

  /** The asks of one session. */
  of(sessionId: string): readonly Ask[] {
    return this.get().filter((ask) => ask.sessionId === sessionId);
  }

  #ask<R>(signal: AbortSignal, make: (base: Pick<Ask, "id" | "at">, answer: (response: R) => void) => Ask): Promise<R | undefined> {
    const client = this.#client;
    return new Promise((resolve) => {
      const id = this.#next++;
      let asked: Ask | undefined;
      const over = (response: R | undefined) => {
        if (!asked) return;
        const ask = asked;
        const key = sameAs(ask.request);
        asked = undefined;
        this.#open.delete(id);
        this.#change(this.#all.filter((a) => a.id !== id));
        resolve(response);
        if (response !== undefined) remember(this.#answered, key, { ask, response, client });
        // With its connection it has ended here, and not at the gateway: that says what became of it.
        else if (seqOf(ask.request) !== undefined && (client !== this.#client || client?.state === "idle" || (ask.sessionId !== undefined && this.#lost.has(ask.sessionId)))) {
          const [oldest] = this.#parted.size < maxParted ? [] : this.#parted.values();
          if (oldest) this.#over(oldest);
          return void this.#parted.set(key, ask);
        }
        this.onAnswer?.(ask, response);
      };
      if (signal.aborted) return resolve(undefined);
      this.#open.set(id, () => over(undefined));
      signal.addEventListener("abort", () => over(undefined), { once: true });
      asked = make({ id, at: Date.now() }, over);
      const key = sameAs(asked.request);
      const given = seqOf(asked.request) === undefined ? undefined : this.#answered.get(key);
      const again = given !== undefined && given.client !== client; // that answer went with its connection
      this.#parted.delete(key);
      this.#change([...this.#all, asked]);
      this.onAsk?.(asked, again);
      if (again) over(given.response as R);
    });
  }

  #change(all: readonly Ask[]): void {
    this.#all = all;
    const asks = all.filter((ask) => ask.sessionId === undefined || !this.#away.has(ask.sessionId));
    this.set(asks);
    this.count.change(asks.length);
  }
}

/** States in which a session has nobody who asks. */
const asleep = new Set<string>(["closed", "ended", "offline", "gone", "moved"]);

/** The event of its session that a request is. */
function seqOf(request: unknown): number | undefined {
  const seq = (request as undefined | { _meta?: Record<string, { seq?: unknown } | undefined> | null })?._meta?.[META]?.seq;
  return typeof seq === "number" ? seq : undefined;
}

/** What tells a request from others, on whichever connection it comes. */
const sameAs = (request: unknown): string => `${(request as { sessionId?: string } | undefined)?.sessionId ?? ""} ${seqOf(request) ?? ""}`;

/** Puts something into a map, which keeps the newest. */
function remember<K, V>(map: Map<K, V>, key: K, value: V): void {
  map.set(key, value);
  for (const oldest of map.keys()) {
    if (map.size <= maxAnswered) break;
    map.delete(oldest);
  }
}

/** Where the answer to it is written. The same thing that is asked once more, on another connection, has the same place. */
export const placeOf = (ask: Ask): string => `${ask.sessionId ?? ""} ${seqOf(ask.request) ?? `#${ask.id}`}`;

/** Whether the session is not there any more. */
const isGone = (error: unknown) => error instanceof AcpRpcError && error.code === -32002;

/** What is asked, in one line. */
export function titleOf(ask: Ask): string {
  switch (ask.kind) {
    case "permission":
      return ask.request.title;
    case "question":
      return ask.request.questions.map((q) => q.question).join(" ");
    case "elicitation":
      return (ask.request as { message: string }).message;
  }
}
