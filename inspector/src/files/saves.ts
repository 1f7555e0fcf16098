import { ProblemError, type SandboxAgentClient } from "sandbox-agent";
import type { Content, Drafts } from "./drafts.js";
import { endings, textOf, withCRLF } from "./paths.js";

/** Texts of one file of which nobody knows whether they arrived; behind so many the oldest is taken for somebody else's. */
const maxUnsure = 8;

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
  readonly #unsure = new Map<string, Set<string>>(); // what was sent and nobody has said whether it arrived, the newest last

  constructor(private readonly drafts: Drafts) {}

  /** Saves what is edited; with force also over what somebody else has written since. Joined says that it goes with a save that was begun before. */
  save(files: Files, machine: string, path: string, force = false): { readonly done: Promise<void>; readonly joined: boolean } {
    const key = JSON.stringify([machine, path]);
    const running = this.#running.get(key);
    if (running) {
      running.again = { force: force || running.again?.force === true };
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
        try {
          this.drafts.saved(machine, path, draft.text, await this.#write(files, path, key, text, force ? undefined : base.etag));
        } catch (problem) {
          if (!this.#forced(save)) throw problem; // whatever it was, somebody has said since that it is to be written all the same
        }
      }
    } finally {
      this.#running.delete(key);
    }
  }

  #forced({ again }: Save): boolean {
    return again?.force === true;
  }

  async #write(files: Files, path: string, key: string, text: string, etag: string | undefined): Promise<Text> {
    const unsure = this.#unsure.get(key) ?? new Set();
    this.#unsure.set(key, unsure);
    const put = async (ifMatch: string | undefined) => {
      const before = unsure.delete(text);
      unsure.add(text);
      for (const oldest of unsure) if (unsure.size > maxUnsure) unsure.delete(oldest);
      try {
        const now = await files.write(path, text, ifMatch ? { ifMatch } : {});
        return { size: now.size, etag: now.etag, text, picture: undefined };
      } catch (problem) {
        if (!before && problem instanceof ProblemError && problem.status < 500) unsure.delete(text); // it has not arrived
        throw problem;
      }
    };
    let written: Text;
    try {
      written = await put(etag);
    } catch (problem) {
      if (!(problem instanceof ProblemError) || problem.status !== 412) throw problem;
      const there = await read(files, path, [text, ...unsure]);
      if (there?.text === text) written = there;
      else if (there && unsure.has(there.text)) written = await put(there.etag);
      else {
        this.#unsure.delete(key); // none of them is there, and none can arrive now
        throw problem;
      }
    }
    this.#unsure.delete(key);
    return written;
  }
}

/** Reads a file that may have one of some texts; undefined when it has another one, whose size says so before it is read where it can. */
async function read(files: Files, path: string, texts: readonly string[]): Promise<Text | undefined> {
  const response = await files.open(path);
  const length = response.headers.has("content-encoding") ? null : response.headers.get("content-length");
  if (length !== null && !texts.some((text) => new TextEncoder().encode(text).length === Number(length))) {
    await response.body?.cancel();
    return undefined;
  }
  const bytes = new Uint8Array(await response.arrayBuffer());
  const text = textOf(bytes);
  return text === undefined ? undefined : { size: bytes.length, etag: response.headers.get("etag") ?? undefined, text, picture: undefined };
}
