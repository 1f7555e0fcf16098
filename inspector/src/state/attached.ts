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
  /** Those that go on, also of owners that have left it, until they have ended. */
  readonly openings: Set<Promise<void>>;
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
    let over!: () => void;
    const opening = new Promise<void>((resolve) => (over = resolve));
    held.openings.add(opening);
    try {
      await held.leaving;
      const opened = await resume();
      held.attached = share.has = true;
      return opened;
    } finally {
      held.openings.delete(opening);
      share.opening--;
      if (!share.has && share.opening === 0 && held.owners.get(owner) === share) held.owners.delete(owner);
      if (!held.attached && held.openings.size === 0) held.owners.clear(); // who has only joined has nothing
      over();
      void this.#settle(client, id, held);
    }
  }

  /** Another owner for a session that the page is attached to, or is just opening: false where it does not come to that. */
  async join(client: Client, id: string, owner: object): Promise<boolean> {
    const held = this.#held(client, id);
    const share = held.owners.get(owner);
    if (share) share.has = true;
    else held.owners.set(owner, { has: true, opening: 0 });
    while (!held.attached && held.openings.size > 0) await Promise.race(held.openings);
    return held.attached;
  }

  /** The owner has made a session: the page is attached to it. */
  made(client: Client, id: string, owner: object): void {
    this.#held(client, id).attached = true;
    void this.join(client, id, owner);
  }

  /** Whether the page is attached to a session, or is just opening it. */
  has(client: Client, id: string): boolean {
    const held = this.#of(client).get(id);
    return held !== undefined && (held.attached || held.openings.size > 0);
  }

  async leave(client: Client, id: string, owner: object): Promise<void> {
    const held = this.#of(client).get(id);
    if (held?.owners.delete(owner)) await this.#settle(client, id, held);
  }

  /** The client has let go of it: nobody has it, but who opens it just now. */
  lost(client: Client, id: string): void {
    const held = this.#of(client).get(id);
    if (!held?.attached) return;
    held.attached = false;
    for (const [owner, share] of held.owners) {
      share.has = false;
      if (share.opening === 0) held.owners.delete(owner);
    }
    void this.#settle(client, id, held);
  }

  /** Lets go of a session that nobody needs. */
  async #settle(client: Client, id: string, held: Held): Promise<void> {
    if (held.owners.size > 0 || held.openings.size > 0) return;
    if (held.attached) {
      held.attached = false;
      held.leaving = client.detachSession(id).catch(() => {});
      await held.leaving;
    }
    if (held.owners.size === 0 && held.openings.size === 0) this.#of(client).delete(id);
  }

  #held(client: Client, id: string): Held {
    const all = this.#of(client);
    const held = all.get(id) ?? { owners: new Map(), attached: false, openings: new Set(), leaving: undefined };
    all.set(id, held);
    return held;
  }

  #of(client: Client): Map<string, Held> {
    const all = this.#clients.get(client) ?? new Map<string, Held>();
    this.#clients.set(client, all);
    return all;
  }
}
