import { useEffect, useRef, useState } from "react";
import { ProblemError } from "sandbox-agent";
import { messageOf } from "../state/explain.js";
import { gateway } from "../state/page.js";
import type { Match, Search } from "./search.js";

export interface Found {
  readonly matches: readonly Match[];
  readonly busy: boolean;
  readonly error: string | undefined;
  /** More can be asked for. */
  readonly more: boolean;
  /** Files that were not looked into: too large, no text, or not readable. */
  readonly skipped: number;
  /** The search has ended because of the time it took, or of how much there is. */
  readonly stopped: string | undefined;
  next(): void;
}

/** Matches that are asked for at once, and that are kept in the page. */
const page = 200;
export const mostMatches = 5000;

const nothing = { matches: [], busy: false, error: undefined, cursor: undefined, skipped: 0, stopped: undefined };

/** Looks for something, anew whenever it is something else. */
export function useSearch(search: Search | undefined): Found {
  const key = search && JSON.stringify(search);
  const [state, setState] = useState<{ readonly matches: readonly Match[]; readonly busy: boolean; readonly error: string | undefined; readonly cursor: string | undefined; readonly skipped: number; readonly stopped: string | undefined }>(nothing);
  const over = useRef<AbortController>(undefined);
  const ask = (wanted: Search, cursor: string | undefined) => {
    const control = new AbortController();
    over.current = control;
    const { signal } = control;
    setState((before) => (cursor === undefined ? { ...nothing, busy: true } : { ...before, busy: true }));
    const { below, words, by, regexp, exactCase, everything } = wanted;
    gateway.machine.fs.search(below, {
      signal, limit: page, ignoreCase: !exactCase, hidden: everything, ignored: everything,
      ...(by === "name" ? { name: words } : { content: words, regexp }), ...(cursor === undefined ? {} : { cursor }),
    }).then(
      (answer) => !signal.aborted && setState((before) => ({ matches: [...before.matches, ...answer.matches], busy: false, error: undefined, cursor: answer.nextCursor, skipped: before.skipped + answer.skipped, stopped: answer.stopped })),
      (error: unknown) => !signal.aborted && setState((before) => ({ ...before, busy: false, error: error instanceof ProblemError ? (error.problem.detail ?? error.message) : messageOf(error) })),
    );
  };
  useEffect(() => {
    if (!search || search.words.trim() === "") return setState(nothing);
    ask(search, undefined);
    return () => over.current?.abort();
  }, [key]);
  const { cursor, ...rest } = state;
  return { ...rest, more: cursor !== undefined && state.matches.length < mostMatches, next: () => search && cursor !== undefined && !state.busy && ask(search, cursor) };
}
