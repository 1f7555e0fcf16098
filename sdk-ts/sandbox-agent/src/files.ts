import type { Api, Query, RequestOptions } from "./api.js";
import type { components, paths } from "./api.gen.js";

type Schemas = components["schemas"];
export type FileEntry = Schemas["FileEntry"];
export type FileChange = Schemas["FileChange"];

/** What a file is written from. */
export type FileContent = string | Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array>;

/** The session whose folder relative paths belong to. */
export interface PathOptions extends RequestOptions {
  sessionId?: string;
}

type QueryOf<P extends keyof paths, M extends keyof paths[P]> = paths[P][M] extends { parameters: { query?: infer Q } } ? Omit<NonNullable<Q>, "path" | "from" | "to"> : never;

/** Files of the gateway's machine. Paths are absolute, or belong to a session's folder, or to the gateway's root. */
export class Files {
  constructor(private readonly api: Api) {}

  /** Opens a file; its body is a stream. `range` reads a part of it. */
  open(path: string, options: PathOptions & { range?: { start: number; end?: number }; ifNoneMatch?: string } = {}): Promise<Response> {
    const { range, ifNoneMatch, signal } = options;
    return this.api.fetch("GET", "v2/fs/file", { path, ...session(options) }, {
      signal,
      headers: {
        ...(range ? { Range: `bytes=${range.start}-${range.end === undefined ? "" : range.end - 1}` } : {}),
        ...(ifNoneMatch ? { "If-None-Match": ifNoneMatch } : {}),
      },
      expect: [304],
    });
  }

  async read(path: string, options?: PathOptions): Promise<Uint8Array> {
    return new Uint8Array(await this.#whole(path, options, (response) => response.arrayBuffer()));
  }

  readText(path: string, options?: PathOptions): Promise<string> {
    return this.#whole(path, options, (response) => response.text());
  }

  readBlob(path: string, options?: PathOptions): Promise<Blob> {
    return this.#whole(path, options, (response) => response.blob());
  }

  #whole<T>(path: string, options: PathOptions = {}, read: (response: Response) => Promise<T>): Promise<T> {
    return this.api.read("GET", "v2/fs/file", { path, ...session(options) }, { signal: options.signal }, read);
  }

  /** The file as a stream of any length. */
  async stream(path: string, options?: PathOptions): Promise<ReadableStream<Uint8Array>> {
    return (await this.open(path, options)).body ?? new Blob([]).stream();
  }

  /** Writes a file as a whole: readers see the old one or the new one. `ifMatch` protects what others wrote. A stream is used up, also when this fails. */
  write(path: string, content: FileContent, options: PathOptions & { ifMatch?: string; onlyNew?: boolean } & QueryOf<"/v2/fs/file", "put"> = {}): Promise<FileEntry> {
    const { ifMatch, onlyNew, signal, ...query } = options;
    return this.api.json("PUT", "v2/fs/file", { path, ...(query as Query) }, {
      signal,
      body: content,
      headers: {
        "Content-Type": "application/octet-stream",
        ...(ifMatch ? { "If-Match": ifMatch } : {}),
        ...(onlyNew ? { "If-None-Match": "*" } : {}),
      },
    });
  }

  /** One page of a folder. */
  list(path: string, options: RequestOptions & QueryOf<"/v2/fs/entries", "get"> = {}): Promise<Schemas["FilePage"]> {
    const { signal, ...query } = options;
    return this.api.json("GET", "v2/fs/entries", { path, ...(query as Query) }, { signal });
  }

  /** All entries of a folder, page by page. */
  async *entries(path: string, options: RequestOptions & QueryOf<"/v2/fs/entries", "get"> = {}): AsyncGenerator<Schemas["FileListed"], void, undefined> {
    for (let cursor = options.cursor; ; ) {
      const page = await this.list(path, { ...options, ...(cursor ? { cursor } : {}) });
      yield* page.entries;
      if (!page.nextCursor) return;
      cursor = page.nextCursor;
    }
  }

  stat(path: string, options: RequestOptions & QueryOf<"/v2/fs/stat", "get"> = {}): Promise<FileEntry> {
    const { signal, ...query } = options;
    return this.api.json("GET", "v2/fs/stat", { path, ...(query as Query) }, { signal });
  }

  mkdir(path: string, options: RequestOptions & QueryOf<"/v2/fs/mkdir", "post"> = {}): Promise<FileEntry> {
    const { signal, ...query } = options;
    return this.api.json("POST", "v2/fs/mkdir", { path, ...(query as Query) }, { signal });
  }

  move(from: string, to: string, options: RequestOptions & QueryOf<"/v2/fs/move", "post"> = {}): Promise<FileEntry> {
    const { signal, ...query } = options;
    return this.api.json("POST", "v2/fs/move", { from, to, ...(query as Query) }, { signal });
  }

  copy(from: string, to: string, options: RequestOptions & QueryOf<"/v2/fs/copy", "post"> = {}): Promise<FileEntry> {
    const { signal, ...query } = options;
    return this.api.json("POST", "v2/fs/copy", { from, to, ...(query as Query) }, { signal });
  }

  async delete(path: string, options: PathOptions & { recursive?: boolean } = {}): Promise<void> {
    const { signal, ...query } = options;
    await this.api.done("DELETE", "v2/fs/entry", { path, ...query }, { signal });
  }

  /** Unpacks a tar archive, plain, gzip or zstd, into a folder. */
  uploadArchive(path: string, archive: FileContent, options: PathOptions = {}): Promise<Schemas["FileUpload"]> {
    return this.api.json("POST", "v2/fs/upload-batch", { path, ...session(options) }, {
      signal: options.signal, body: archive, headers: { "Content-Type": "application/x-tar" },
    });
  }

  /** A tar archive of several paths. */
  async downloadArchive(entries: readonly string[], options: PathOptions = {}): Promise<ReadableStream<Uint8Array>> {
    const response = await this.api.fetch("GET", "v2/fs/download-batch", { path: entries, ...session(options) }, { signal: options.signal });
    return response.body ?? new Blob([]).stream();
  }

  search(path: string, options: RequestOptions & QueryOf<"/v2/fs/search", "get">): Promise<Schemas["FileSearch"]> {
    const { signal, ...query } = options;
    return this.api.json("GET", "v2/fs/search", { path, ...(query as Query) }, { signal });
  }

  /**
   * Changes in a folder from now on. Leaving the loop ends the watch. `onReady` is called when every later change
   * will be told: what is listed then misses none. It ends with the folder, or with the connection: watch again, and list.
   */
  async *watch(path: string, options: RequestOptions & QueryOf<"/v2/fs/watch", "get"> & { readonly onReady?: () => void } = {}): AsyncGenerator<FileChange, void, undefined> {
    const { signal, onReady, ...query } = options;
    for await (const event of this.api.events("GET", "v2/fs/watch", { path, ...(query as Query) }, { signal })) {
      if (event.event === "ready") onReady?.();
      if (event.event === "change") yield JSON.parse(event.data) as FileChange;
    }
  }

  gitStatus(path: string, options: PathOptions = {}): Promise<Schemas["GitStatus"]> {
    return this.api.json("GET", "v2/fs/git/status", { path, ...session(options) }, { signal: options.signal });
  }

  /** What changed, as a unified diff. A gateway gives 16 MiB at most; more is an error, since a part of a patch is none. */
  gitDiff(path: string, options: RequestOptions & QueryOf<"/v2/fs/git/diff", "get"> = {}): Promise<string> {
    const { signal, ...query } = options;
    return this.api.read("GET", "v2/fs/git/diff", { path, ...(query as Query) }, { signal }, async (response) => {
      if (response.headers.get("Sandbox-Agent-Truncated") !== "true") return response.text();
      await response.body?.cancel();
      throw new RangeError(`the patch of ${path} is too long for one answer: ask for folders or files in it`);
    });
  }
}

const session = (options: PathOptions): Query => (options.sessionId === undefined ? {} : { sessionId: options.sessionId });
