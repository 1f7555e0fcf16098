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

type Texts = ReadonlyMap<string, Draft>;

/**
 * Texts that are being edited, by path. They are the page's, not the editor's: to
 * look at another file, at another area, or at another machine, loses none. Two machines may have files at
 * the same path: what takes its time says of which machine it is, in case another one is shown when it ends.
 */
export class Drafts extends Store<Texts> {
  #machine = "";
  readonly #others = new Map<string, Texts>(); // of machines that are not shown

  constructor() {
    super(new Map());
  }

  /** The machine whose texts are shown. */
  get machine(): string {
    return this.#machine;
  }

  /** Shows the texts of another machine. */
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

  /** The text of a file, whichever machine is shown. */
  of(machine: string, path: string): Draft | undefined {
    return (machine === this.#machine ? this.get() : this.#others.get(machine))?.get(path);
  }

  put(path: string, draft: Draft): void {
    this.#change(this.#machine, (texts) => new Map(texts).set(path, draft));
  }

  /** A text was written into its file, which is this now. What was typed meanwhile is not in it, and stays. */
  saved(machine: string, path: string, text: string, now: Draft["base"]): void {
    this.#change(machine, (texts) => {
      const draft = texts.get(path);
      return draft && draft.text !== text ? new Map(texts).set(path, { base: now, text: draft.text, dirty: true }) : without(texts, path);
    });
  }

  /** Forgets the text of a file, or those of all files in a folder. */
  drop(machine: string, path: string): void {
    this.#change(machine, (texts) => without(texts, path));
  }

  /** The editor of a file is left: what nobody has changed is not kept. */
  leave(machine: string, path: string): void {
    this.#change(machine, (texts) => (texts.get(path)?.dirty === false ? without(texts, path) : texts));
  }

  /** A file, or a folder with files, has another path now. */
  move(machine: string, from: string, to: string): void {
    this.#change(machine, (texts) => new Map([...texts].map(([path, draft]) => [path === from ? to : path.startsWith(`${from}/`) ? to + path.slice(from.length) : path, draft])));
  }

  #change(machine: string, change: (texts: Texts) => Texts): void {
    const before = machine === this.#machine ? this.get() : this.#others.get(machine);
    const after = before && change(before);
    if (!after || after === before) return;
    if (machine === this.#machine) this.set(after);
    else this.#others.set(machine, after);
  }
}

function without(texts: Texts, path: string): Texts {
  const rest = [...texts].filter(([of]) => of !== path && !of.startsWith(`${path}/`));
  return rest.length < texts.size ? new Map(rest) : texts;
}
