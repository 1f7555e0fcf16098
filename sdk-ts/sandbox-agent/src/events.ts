/** Refuses what cannot be called, where it is given: else it fails when there is something to tell. */
export function mustBeCalled(listener: unknown): void {
  if (typeof listener !== "function") throw new TypeError(`a listener must be a function, not ${listener === null ? "null" : typeof listener}`);
}

/** Listeners of one kind of event. */
export class Listeners<T> {
  #all = new Set<(value: T) => void>();

  /** Adds a listener; the result removes it. */
  add(listener: (value: T) => void): () => void {
    mustBeCalled(listener);
    this.#all.add(listener);
    return () => void this.#all.delete(listener);
  }

  /** Calls all of them; what one throws is reported and harms no other. */
  emit(value: T): void {
    for (const listener of [...this.#all]) {
      try {
        listener(value);
      } catch (error) {
        // As if it had been thrown by an event listener of the platform.
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }
}
