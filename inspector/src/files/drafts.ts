import { Store } from "../state/store.js";

/** What a file was when somebody began to edit it. */
export interface Content {
  readonly etag: string | undefined;
  readonly size: number;
  readonly text: string | undefined;
  readonly picture: Blob | undefined;
}

export interface Draft {
  readonly base: Content & { readonly text: string };
  /** Its lines end with a line feed. */
  readonly text: string;
  /** Whether somebody has changed it. */
  readonly dirty: boolean;
}

/**
 * Texts that are being edited, by path. They are the page's, not the editor's: to
 * look at another file, or at another area, loses none.
 */
export class Drafts extends Store<ReadonlyMap<string, Draft>> {
  #machine = "";
  readonly #others = new Map<string, ReadonlyMap<string, Draft>>(); // of machines that are not shown

  constructor() {
    super(new Map());
  }

  /** Shows the texts of another machine: two may have files at the same path. */
  use(machine: string): void {
    if (machine === this.#machine) return;
    this.#others.set(this.#machine, this.get());
    this.#machine = machine;
    this.set(this.#others.get(machine) ?? new Map());
    this.#others.delete(machine);
  }

  /** Whether the page has a text that is saved nowhere. */
  get unsaved(): boolean {
    return [this.get(), ...this.#others.values()].some((texts) => [...texts.values()].some((draft) => draft.dirty));
  }

  put(path: string, draft: Draft): void {
    this.set(new Map(this.get()).set(path, draft));
  }

  /** A text was written into its file, which is this now. What was typed meanwhile is not in it, and stays. */
  saved(path: string, text: string, now: Draft["base"]): void {
    const draft = this.get().get(path);
    if (draft && draft.text !== text) this.put(path, { base: now, text: draft.text, dirty: true });
    else this.drop(path);
  }

  /** Forgets the text of a file, or those of all files in a folder. */
  drop(path: string): void {
    const rest = [...this.get()].filter(([of]) => of !== path && !of.startsWith(`${path}/`));
    if (rest.length < this.get().size) this.set(new Map(rest));
  }

  /** The editor of a file is left: what nobody has changed is not kept. */
  leave(path: string): void {
    if (this.get().get(path)?.dirty === false) this.drop(path);
  }

  /** A file, or a folder with files, has another path now. */
  move(from: string, to: string): void {
    this.set(new Map([...this.get()].map(([path, draft]) => [path === from ? to : path.startsWith(`${from}/`) ? to + path.slice(from.length) : path, draft])));
  }
}
