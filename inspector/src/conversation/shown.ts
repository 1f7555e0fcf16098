import { META, ProblemError, type SessionInfo } from "sandbox-agent";
import type { Client } from "../state/gateway.js";
import { firstPrompt, History, isPrompt } from "./history.js";
import { Raise } from "./raise.js";
import { Transcript } from "./transcript.js";

const pageSize = 1000;

/** What is shown of a session: a part of its log that ends with the newest event. What was read anew takes its place as a whole. */
export class Shown {
  /** Of the newest event. */
  seq = 0;
  /** Events up to here are not shown. */
  from = 0;
  /** How many of those there are to read. */
  earlier = 0;
  #frames: readonly unknown[] = []; // what has come of the newest event; nothing where it was read whole

  constructor(readonly transcript: Transcript, /** Where what comes is of version 1. */ public raise: Raise | undefined, /** Whether it was read from a hub's copy: those are of version 1, and may not be all. */ readonly copied = false) {}

  /** How many events are shown. */
  get length(): number {
    return this.seq - this.from;
  }

  /** Lets go of the oldest events, but for so many and for what goes on. They are there with what was before. */
  shorten(length: number): void {
    const place = this.transcript.letGo(this.seq - length);
    if (place !== undefined) this.from = this.earlier = place - 1;
  }

  /**
   * Whether something that has come is not shown already. An event can have
   * several frames; those of before may come again when somebody attaches anew. A lasting one
   * says how things are at its event, and may come once more behind the frames of that event: of a session that is
   * taken up at event 10 while its turn has ended with event 15, the gateway says "running", of 10, first.
   */
  takes(params: unknown, lasting: boolean): boolean {
    const seq = seqOf(params);
    if (seq !== undefined && seq > this.seq) {
      this.seq = seq;
      this.#frames = [params];
    } else if (seq !== undefined && seq < this.seq) {
      return false;
    } else if (seq !== undefined && !lasting) {
      if (this.#frames.length === 0) return false;
      const text = JSON.stringify(params);
      if (this.#frames.some((frame) => JSON.stringify(frame) === text)) return false;
      this.#frames = [...this.#frames, params];
    }
    this.transcript.place = seq;
    return true;
  }
}

/** Reads the events behind one, and all that come until there are no more: from the next prompt on, but no later than from `since`, where something goes on since then. What was shown of them before says what the session did then, where it was followed up to now. */
export async function readLog(client: Client, id: string, info: SessionInfo | undefined, begin: number, followed?: Shown, since = Infinity): Promise<Shown> {
  const copied = isCopy(info);
  const transcript = new Transcript(id);
  for (const child of info?.children ?? []) transcript.knows(child.sessionId, child.parentSessionId, child.toolCallId);
  const shown = new Shown(transcript, copied ? new Raise(id) : raiseFor(client, id), copied);
  const history = new History(transcript, shown.raise);
  const acp = copied ? 1 : client.acpVersion;
  const goesOn = () => {
    if (!followed) return;
    transcript.goesOnAs(followed.transcript);
    if (followed.raise) shown.raise?.goesOnAs(followed.raise);
    followed = undefined;
  };
  let after = Math.max(0, Math.min(begin, since - 1));
  let gone = 0; // events up to here the gateway does not keep
  shown.from = after;
  for (let first = true; ; first = false) {
    const page = await client.api.sessionEvents(id, { after, limit: pageSize, acp }).catch((error: unknown) => {
      const oldest = oldestKept(error);
      if (oldest === undefined || oldest <= after + 1) throw error;
      gone = oldest - 1;
      return client.api.sessionEvents(id, { after: gone, limit: pageSize, acp });
    });
    let events = page.events;
    if (first && after > 0) {
      const asked = events.findIndex((event) => event.seq >= since);
      const skip = Math.min(firstPrompt(events), asked < 0 ? Infinity : asked);
      shown.from = (events[skip]?.seq ?? after + 1) - 1;
      events = events.slice(skip);
      if (events.length > 0 && !isPrompt(events[0]!)) transcript.beginsLate();
    }
    for (const event of events) {
      if (event.seq > (followed?.seq ?? Infinity)) goesOn();
      history.add(event);
    }
    after = page.events.at(-1)?.seq ?? after;
    if (!page.hasMore || page.events.length === 0) break;
  }
  goesOn();
  shown.seq = after;
  shown.earlier = shown.from > gone ? shown.from : 0;
  return shown;
}

/** Whether there is only what a hub has of the session: its node is away, or has it no more. */
export const isCopy = (info: SessionInfo | undefined) => ["offline", "gone", "moved"].includes(info?.state ?? "");

/** Whether nobody can say anything in the session now. */
export const shut = (info: SessionInfo): boolean => info.state === "closed" || info.state === "ended" || isCopy(info);

export const raiseFor = (client: Client, session: string) => ((client.acpVersion as number) === 1 ? new Raise(session) : undefined);

export function seqOf(params: unknown): number | undefined {
  const meta = (params as { _meta?: Record<string, { seq?: unknown }> | null } | undefined)?._meta?.[META];
  return typeof meta?.seq === "number" ? meta.seq : undefined;
}

/** The oldest event that the gateway keeps, where an error says that those that were asked for are gone. */
function oldestKept(error: unknown): number | undefined {
  if (!(error instanceof ProblemError) || error.status !== 410) return undefined;
  const oldest = (error.problem as { oldestSeq?: unknown }).oldestSeq;
  return typeof oldest === "number" ? oldest : undefined;
}
