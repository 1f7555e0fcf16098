import { ProblemError, type SandboxAgentClient } from "sandbox-agent";
import type { Content, Drafts } from "./drafts.js";
import { endings, textOf, withCRLF } from "./paths.js";

export type Files = Pick<SandboxAgentClient<2>["fs"], "open" | "write">;
type Text = Content & { readonly text: string };

/** One text on its way into its file. */
interface Save {
  /** Asked for again meanwhile: what is typed by then goes behind it. */
  again: { readonly force: boolean } | undefined;
  readonly done: Promise<void>;
}

/**
 * Writes texts that are edited into their files: one save of a file at a time, and at most one
 * more behind it. A file with words that this page has sent was changed by nobody else, also
 * where it was not told that they had arrived.
 */
export class Saves {
  readonly #running = new Map<string, Save>();
  readonly #unsure = new Map<string, string>(); // what was sent last, while nobody has said whether it arrived

  constructor(private readonly drafts: Drafts) {}

  /** Saves what is edited; with force also over what somebody else has written since. Joined says that it goes with a save that was begun before. */
  save(files: Files, machine: string, path: string, force = false): { readonly done: Promise<void>; readonly joined: boolean } {
    const key = JSON.stringify([machine, path]);
    const running = this.#running.get(key);
    if (running) {
      running.again = { force };
      return { done: running.done, joined: true };
    }
    const save: Save = { again: { force }, done: Promise.resolve().then(() => this.#run(save, files, machine, path, key)) };
    this.#running.set(key, save);
    return { done: save.done, joined: false };
  }

  async #run(save: Save, files: Files, machine: string, path: string, key: string): Promise<void> {
    try {
      while (save.again) {
        const { force } = save.again;
        save.again = undefined;
        const draft = this.drafts.of(machine, path);
        if (!draft) return; // it is saved, or was thrown away
        const { base } = draft;
        const text = endings(base.text) === "crlf" ? withCRLF(draft.text) : draft.text;
        this.drafts.saved(machine, path, draft.text, await this.#write(files, path, key, text, force ? undefined : base.etag));
      }
    } finally {
      this.#running.delete(key);
    }
  }

  async #write(files: Files, path: string, key: string, text: string, etag: string | undefined): Promise<Text> {
    const sent = this.#unsure.get(key);
    this.#unsure.set(key, text);
    const put = async (ifMatch: string | undefined) => {
      const now = await files.write(path, text, ifMatch ? { ifMatch } : {});
      return { size: now.size, etag: now.etag, text, picture: undefined };
    };
    let written: Text;
    try {
      written = await put(etag);
    } catch (problem) {
      if (problem instanceof ProblemError && problem.status < 500) this.#unsure.delete(key); // it has not arrived
      if (!(problem instanceof ProblemError) || problem.status !== 412) throw problem;
      const response = await files.open(path);
      const bytes = new Uint8Array(await response.arrayBuffer());
      const there = { size: bytes.length, etag: response.headers.get("etag") ?? undefined, text: textOf(bytes), picture: undefined };
      if (there.text === text) written = { ...there, text };
      else if (there.text === sent) written = await put(there.etag);
      else throw problem;
    }
    this.#unsure.delete(key);
    return written;
  }
}
