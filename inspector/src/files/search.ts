import type { components } from "sandbox-agent";
import { hrefOf } from "../state/router.js";

export type Match = components["schemas"]["FileMatch"];

/** What is looked for below a folder. It stands in the address. */
export interface Search {
  readonly below: string;
  readonly words: string;
  readonly by: "content" | "name";
  readonly regexp: boolean;
  readonly exactCase: boolean;
  /** Also what is hidden, and what git ignores. */
  readonly everything: boolean;
}

const flags = { regexp: "r", exactCase: "c", everything: "e" } as const;

export function searchOf(query: Readonly<Record<string, string>>): Search | undefined {
  if (query.below === undefined) return undefined;
  const has = (flag: string) => query.how?.includes(flag) === true;
  return { below: query.below, words: query.find ?? "", by: query.by === "name" ? "name" : "content", regexp: has(flags.regexp), exactCase: has(flags.exactCase), everything: has(flags.everything) };
}

export function queryOf(search: Search): Record<string, string> {
  const how = Object.entries(flags).flatMap(([name, flag]) => (search[name as keyof typeof flags] ? [flag] : [])).join("");
  return { below: search.below, find: search.words, ...(search.by === "name" ? { by: "name" } : {}), ...(how === "" ? {} : { how }) };
}

/** Where a match is seen, with the search beside it. */
export const hrefOfMatch = (search: Search, match: Pick<Match, "path" | "line">) => hrefOf("files", [], { ...queryOf(search), path: match.path, ...(match.line ? { line: String(match.line) } : {}) });

/** A line in pieces, those that were looked for marked. Of a regular expression it is not known how far it reaches. */
export function piecesOf(text: string, search: Search): { readonly text: string; readonly found: boolean }[] {
  if (search.regexp && search.by === "content") return [{ text, found: false }];
  const [where, what] = search.exactCase ? [text, search.words] : [text.toLowerCase(), search.words.toLowerCase()];
  const out: { text: string; found: boolean }[] = [];
  let from = 0;
  if (where.length === text.length) { // some letters have more than one capital
    for (let at = where.indexOf(what); at >= 0 && what !== ""; at = where.indexOf(what, from)) {
      if (at > from) out.push({ text: text.slice(from, at), found: false });
      out.push({ text: text.slice(at, at + what.length), found: true });
      from = at + what.length;
    }
  }
  if (from < text.length) out.push({ text: text.slice(from), found: false });
  return out;
}
