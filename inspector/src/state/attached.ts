import type { Client } from "./gateway.js";

interface Held {
  readonly owners: Set<object>;
  /** Whether the gateway has attached the page to it. */
  attached: boolean;
  /** How many open it now. */
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
    const had = held.owners.has(owner);
    held.owners.add(owner);
    held.opening++;
    try {
      await held.leaving;
      const opened = await resume();
      held.attached = true;
      return opened;
    } catch (error) {
      if (!had) held.owners.delete(owner);
      throw error;
    } finally {
      held.opening--;
      void this.#settle(client, id, held);
    }
  }

  /** Another owner for a session that the page is attached to, or is just opening. */
  join(client: Client, id: string, owner: object): void {
    this.#held(client, id).owners.add(owner);
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
    const held = all.get(id) ?? { owners: new Set(), attached: false, opening: 0, leaving: undefined };
    all.set(id, held);
    return held;
  }

  #of(client: Client): Map<string, Held> {
    const all = this.#clients.get(client) ?? new Map<string, Held>();
    this.#clients.set(client, all);
    return all;
  }
}
