/** Listeners of one kind of event. */
export class Listeners<T> {
  #all = new Set<(value: T) => void>();

  /** Adds a listener; the result removes it. */
  add(listener: (value: T) => void): () => void {
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
