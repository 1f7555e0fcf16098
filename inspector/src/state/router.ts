import { Store } from "./store.js";

/** Where the page is: `#/area/part/part?name=value`. */
export interface Route {
  readonly area: string;
  /** What follows the area, decoded. */
  readonly parts: readonly string[];
  readonly query: Readonly<Record<string, string>>;
}

export function parseRoute(hash: string): Route {
  const [path = "", search = ""] = hash.replace(/^#?\/?/, "").split("?", 2);
  const [area = "", ...parts] = path.split("/").map(decode);
  return { area, parts: parts.filter((part) => part !== ""), query: Object.fromEntries(new URLSearchParams(search)) };
}

export function hrefOf(area: string, parts: readonly string[] = [], query: Record<string, string> = {}): string {
  const search = new URLSearchParams(query).toString();
  return `#/${[area, ...parts].map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

/** A file or folder of the gateway's machine. */
export const hrefOfFile = (path: string, line?: number | null) => hrefOf("files", [], { path, ...(line ? { line: String(line) } : {}) });

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/**
 * Takes a token out of the address, so that it is in no history and in no copied
 * link: `#token=T`, alone or behind a route (`#/sessions/S&token=T`).
 */
export function takeToken(hash: string): { token: string | undefined; hash: string } {
  const match = /(^#?|[?&])token=([^&]*)/.exec(hash);
  if (!match) return { token: undefined, hash };
  const rest = hash.slice(0, match.index) + (match[1] === "#" || match[1] === "" ? "#" : match[1]) + hash.slice(match.index + match[0].length).replace(/^&/, "");
  return { token: decode(match[2] ?? ""), hash: rest.replace(/[?&]$/, "").replace(/^#$/, "") };
}

/** The router follows the address's fragment; the server never sees it. */
export class Router extends Store<Route> {
  /** Where the page was before it came here; undefined at its beginning. */
  before: Route | undefined;
  #shown: string;

  constructor(private readonly win: Window) {
    super(parseRoute(win.location.hash));
    this.#shown = win.location.hash;
    win.addEventListener("hashchange", () => this.#show(win.location.hash));
  }

  #show(hash: string): void {
    if (hash === this.#shown) return;
    this.#shown = hash;
    this.before = this.get();
    this.set(parseRoute(hash));
  }

  /** Where the page is. Browsers tell of a link that was followed a moment later than the address has changed. */
  now(): Route {
    this.#show(this.win.location.hash);
    return this.get();
  }

  /**
   * Goes to another place. With `replace`, going back does not return to this one; that does nothing when a person
   * has just gone elsewhere.
   */
  go(area: string, parts: readonly string[] = [], options: { replace?: boolean; query?: Record<string, string> } = {}): void {
    const href = hrefOf(area, parts, options.query);
    const gone = this.win.location.hash !== this.#shown;
    this.now();
    if (href === this.win.location.hash || (gone && options.replace)) return;
    if (options.replace) this.win.history.replaceState(null, "", href);
    else this.win.location.hash = href;
    this.#show(href); // at once: who calls may take away what was shown
  }
}
