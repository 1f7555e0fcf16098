import { useState } from "react";
import { Store, useSelected } from "./store.js";

/**
 * What a person has begun to write and not sent, by the place it is written for. It is the
 * page's, not a component's: to look elsewhere, or to connect anew, loses none of it.
 */
export class Unsent<T> extends Store<ReadonlyMap<string, T>> {
  /** What is in the storage comes back after a reload. Without one a text lasts as long as the page. */
  constructor(private readonly storage?: Pick<Storage, "getItem" | "setItem" | "removeItem">, private readonly name = "") {
    super(kept<T>(storage, name));
  }

  put(place: string, value: T): void {
    this.set(new Map(this.get()).set(place, value));
  }

  drop(place: string): void {
    if (!this.get().has(place)) return;
    const rest = new Map(this.get());
    rest.delete(place);
    this.set(rest);
  }

  /** Writes all of it into the storage. False says that the page would take something with it. */
  save(): boolean {
    const all = this.get();
    try {
      if (all.size === 0) this.storage?.removeItem(this.name);
      else this.storage?.setItem(this.name, JSON.stringify([...all]));
      return all.size === 0 || this.storage !== undefined;
    } catch {
      return false; // there is more than the browser keeps
    }
  }
}

function kept<T>(storage: Pick<Storage, "getItem"> | undefined, name: string): ReadonlyMap<string, T> {
  try {
    const value: unknown = JSON.parse(storage?.getItem(name) ?? "[]");
    return new Map(Array.isArray(value) ? (value as [string, T][]) : []);
  } catch {
    return new Map();
  }
}

/** A form that is filled in. */
export interface Form {
  readonly value: unknown;
  /** What somebody has written into it in their own words, and could say without the form. */
  readonly words: string;
}

/** The state of a form, which is there again when the form is shown again. */
export function useForm<T>(forms: Unsent<Form>, place: string, initial: () => T, wordsOf: (value: T) => string = () => ""): readonly [T, (next: T) => void] {
  const [first] = useState(initial);
  const kept = useSelected(forms, (all) => all.get(place)?.value) as T | undefined;
  const set = (next: T) => {
    if (JSON.stringify(next) === JSON.stringify(first)) forms.drop(place);
    else forms.put(place, { value: next, words: wordsOf(next) });
  };
  return [kept ?? first, set];
}
