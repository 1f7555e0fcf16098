import type { Client } from "./gateway.js";

interface Held {
  readonly owners: Set<object>;
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

  /** Attaches to a session for an owner. Who has left it before resume has its answer is not attached behind that. */
  async open<T>(client: Client, id: string, owner: object, resume: () => Promise<T>): Promise<T> {
    const held = this.join(client, id, owner);
    held.opening++;
    try {
      await held.leaving;
      const opened = await resume();
      held.opening--;
      void this.#settle(client, id, held);
      return opened;
    } catch (error) {
      held.opening--;
      held.owners.clear(); // nobody has it
      throw error;
    }
  }

  /** Another owner for a session that the page is attached to already. */
  join(client: Client, id: string, owner: object): Held {
    const all = this.#of(client);
    const held = all.get(id) ?? { owners: new Set(), opening: 0, leaving: undefined };
    all.set(id, held);
    held.owners.add(owner);
    return held;
  }

  has(client: Client, id: string): boolean {
    return (this.#of(client).get(id)?.owners.size ?? 0) > 0;
  }

  async leave(client: Client, id: string, owner: object): Promise<void> {
    const held = this.#of(client).get(id);
    if (held?.owners.delete(owner)) await this.#settle(client, id, held);
  }

  /** Lets go of a session that nobody needs. */
  async #settle(client: Client, id: string, held: Held): Promise<void> {
    if (held.owners.size > 0 || held.opening > 0) return;
    held.leaving = client.detachSession(id).catch(() => {});
    await held.leaving;
    if (held.owners.size === 0 && held.opening === 0) this.#of(client).delete(id);
  }

  #of(client: Client): Map<string, Held> {
    const all = this.#clients.get(client) ?? new Map<string, Held>();
    this.#clients.set(client, all);
    return all;
  }
}
