import type { Client } from "./gateway.js";

/** What an owner has of a session. */
interface Share {
  /** Whether it is attached to the session, or goes with one who is. */
  has: boolean;
  /** How often it opens the session now. */
  opening: number;
}

interface Held {
  readonly owners: Map<object, Share>;
  /** Whether the gateway has attached the page to it. */
  attached: boolean;
  /** How many open it now, also of those that have left it. */
  opening: number;
  /** Until the gateway has let go of it. */
  leaving: Promise<void> | undefined;
}

/**
 * The sessions that the page is attached to, and for whom: the inbox and a conversation may
 * need the same one. Whoever is the last to leave it lets go of it.
 */
export class Attached {
  readonly #clients = new WeakMap<Client, Map<string, Held>>();

  /** Attaches to a session for an owner, which may have left it before resume has its answer. */
  async open<T>(client: Client, id: string, owner: object, resume: () => Promise<T>): Promise<T> {
    const held = this.#held(client, id);
    const share = held.owners.get(owner) ?? { has: false, opening: 0 };
    held.owners.set(owner, share);
    share.opening++;
    held.opening++;
    try {
      await held.leaving;
      const opened = await resume();
      held.attached = share.has = true;
      return opened;
    } finally {
      held.opening--;
      share.opening--;
      if (!share.has && share.opening === 0 && held.owners.get(owner) === share) held.owners.delete(owner);
      void this.#settle(client, id, held);
    }
  }

  /** Another owner for a session that the page is attached to, or is just opening. */
  join(client: Client, id: string, owner: object): void {
    const { owners } = this.#held(client, id);
    const share = owners.get(owner);
    if (share) share.has = true;
    else owners.set(owner, { has: true, opening: 0 });
  }

  /** The owner has made a session: the page is attached to it. */
  made(client: Client, id: string, owner: object): void {
    this.join(client, id, owner);
    this.#held(client, id).attached = true;
  }

  /** Whether the page is attached to a session, or is just opening it. */
  has(client: Client, id: string): boolean {
    const held = this.#of(client).get(id);
    return held !== undefined && (held.attached || held.opening > 0);
  }

  async leave(client: Client, id: string, owner: object): Promise<void> {
    const held = this.#of(client).get(id);
    if (held?.owners.delete(owner)) await this.#settle(client, id, held);
  }

  /** Lets go of a session that nobody needs. */
  async #settle(client: Client, id: string, held: Held): Promise<void> {
    if (held.owners.size > 0 || held.opening > 0) return;
    if (held.attached) {
      held.attached = false;
      held.leaving = client.detachSession(id).catch(() => {});
      await held.leaving;
    }
    if (held.owners.size === 0 && held.opening === 0) this.#of(client).delete(id);
  }

  #held(client: Client, id: string): Held {
    const all = this.#of(client);
    const held = all.get(id) ?? { owners: new Map(), attached: false, opening: 0, leaving: undefined };
    all.set(id, held);
    return held;
  }

  #of(client: Client): Map<string, Held> {
    const all = this.#clients.get(client) ?? new Map<string, Held>();
    this.#clients.set(client, all);
    return all;
  }
}
