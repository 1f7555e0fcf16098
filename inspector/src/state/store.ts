import { useCallback, useRef, useSyncExternalStore } from "react";

/** A value that is replaced, never changed in place, and whose listeners are told. It knows nothing of React. */
export class Store<T> {
  #value: T;
  readonly #listeners = new Set<() => void>();

  constructor(initial: T) {
    this.#value = initial;
  }

  readonly get = (): T => this.#value;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  };

  /** Replaces the value and tells everybody, unless it is the same. */
  protected set(value: T): void {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    for (const listener of [...this.#listeners]) listener();
  }

  /** Replaces some members of the value. */
  protected patch(part: Partial<T>): void {
    this.set({ ...this.#value, ...part });
  }
}

/** What components need of a store. */
export interface Readable<T> {
  get(): T;
  subscribe(listener: () => void): () => void;
}

/** The store's value in a component, which renders again when it is replaced. */
export function useStore<T>(store: Readable<T>): T {
  return useSyncExternalStore(store.subscribe, store.get);
}

/** A part of the store's value; the component renders again when that part changes. */
export function useSelected<T, U>(store: Readable<T>, select: (value: T) => U): U {
  const selector = useRef(select);
  selector.current = select;
  return useSyncExternalStore(store.subscribe, useCallback(() => selector.current(store.get()), [store]));
}
