import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import { Button, Checkbox, IconButton, Input, Segmented } from "../kit/controls.js";
import { Icon } from "../kit/icons.js";
import { Notice } from "../kit/show.js";
import { plural, relativeTo } from "../kit/text.js";
import { router } from "../state/page.js";
import { mostMatches, type Found } from "./found.js";
import { hrefOfMatch, piecesOf, queryOf, type Match, type Search } from "./search.js";

/** How long nothing more may be typed until it is searched. */
const typedMs = 300;

const rowHeight = 26;

type Line = { readonly file: string; readonly match?: undefined } | { readonly file?: undefined; readonly match: Match };

/** Searches the files below a folder, and lists where something was found. */
export function SearchPane({ search, found, path, line }: { search: Search; found: Found; /** What is shown beside it. */ path: string | undefined; line: number | undefined }) {
  const [words, setWords] = useState(search.words);
  const sent = useRef(search.words); // others are those of another entry of the history
  useEffect(() => {
    if (search.words === sent.current) return;
    sent.current = search.words;
    setWords(search.words);
  }, [search.words]);
  const to = (part: Partial<Search>) => {
    const next = { ...search, words, ...part };
    sent.current = next.words;
    router.go("files", [], { replace: true, query: { ...queryOf(next), ...(path === undefined ? { path: search.below } : { path }) } });
  };
  const latest = useRef(to);
  latest.current = to;
  useEffect(() => {
    if (words === search.words) return;
    const timer = setTimeout(() => latest.current({ words }), typedMs);
    return () => clearTimeout(timer);
  }, [words, search.words]);
  const lines = useMemo(() => {
    const out: Line[] = [];
    let last: string | undefined;
    for (const match of found.matches) {
      if (match.line !== undefined && match.path !== last) out.push({ file: match.path });
      last = match.path;
      out.push({ match });
    }
    return out;
  }, [found.matches]);
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({ count: lines.length, getScrollElement: () => scroller.current, estimateSize: () => rowHeight, overscan: 12 });
  const files = useMemo(() => new Set(found.matches.map((m) => m.path)).size, [found.matches]);
  const asked = search.words.trim() !== "";
  const count = search.by === "name" ? plural(found.matches.length, "name") : `${plural(found.matches.length, "line")} in ${plural(files, "file")}`;
  return (
    <section className="folder" aria-label="Search">
      <form role="search" className="stack tight-gap" onSubmit={(event) => { event.preventDefault(); to({ words }); }}>
        <div className="row tight">
          <Input type="search" autoFocus className="grow" aria-label={search.by === "name" ? "Part of a name" : "Words to find"} placeholder={search.by === "name" ? "Part of a name, or a pattern such as *.test.ts" : "What a line contains"} value={words} onChange={(event) => setWords(event.target.value)} onKeyDown={(event) => event.key === "Escape" && words === "" && router.go("files", [], { query: { path: path ?? search.below } })} />
          <IconButton label="Close the search" icon="close" onClick={() => router.go("files", [], { query: { path: path ?? search.below } })} />
        </div>
        <div className="row">
          <Segmented small label="Search by" value={search.by} onChange={(by) => to({ by })} options={[{ value: "content", label: "Contents" }, { value: "name", label: "Names" }]} />
          <Checkbox label="Match case" checked={search.exactCase} onChange={(event) => to({ exactCase: event.target.checked })} />
          {search.by === "content" && <Checkbox label="Regular expression" checked={search.regexp} onChange={(event) => to({ regexp: event.target.checked })} />}
          <Checkbox label="Hidden and ignored" checked={search.everything} onChange={(event) => to({ everything: event.target.checked })} />
        </div>
      </form>
      <p className="small soft" role="status">
        {!asked ? <>Searches below <span className="mono">{search.below}</span>.</>
          : found.busy && found.matches.length === 0 ? "Searching…"
            : found.error !== undefined ? "" : found.matches.length === 0 ? (found.stopped ? "Nothing yet." : "Nothing was found.")
              : `${count}${found.more ? ", so far" : ""}${found.matches.length >= mostMatches ? `. Only the first ${mostMatches} are listed: look for something more special` : ""}.`}
        {asked && found.skipped > 0 && ` ${plural(found.skipped, "file was", "files were")} not looked into: too large, no text, or not readable.`}
      </p>
      {found.error !== undefined && <Notice tone="bad" title="The search failed"><p>{found.error}</p></Notice>}
      {lines.length > 0 && (
        <div ref={scroller} className="entries matches" tabIndex={0} role="region" aria-label="Found">
          <ul style={{ height: virtual.getTotalSize() }}>
            {virtual.getVirtualItems().map((item) => {
              const one = lines[item.index]!;
              const place = { transform: `translateY(${item.start}px)`, height: rowHeight };
              if (one.file !== undefined) {
                return <li key={item.key} className="match-file" style={place}><Icon name="read" size={14} /><span className="clip grow mono" title={one.file}>{relativeTo(one.file, search.below)}</span></li>;
              }
              const { match } = one;
              const text = match.line === undefined ? relativeTo(match.path, search.below) : (match.text ?? "");
              return (
                <li key={item.key} style={place}>
                  <a href={hrefOfMatch(search, match)} aria-current={match.path === path && (match.line === undefined || match.line === line) ? "true" : undefined} title={match.line === undefined ? match.path : `${match.path}:${match.line}`}>
                    {match.line === undefined ? <Icon name={match.type === "directory" ? "files" : "read"} size={14} /> : <span className="match-line soft">{match.line}</span>}
                    <span className="clip grow mono">{piecesOf(match.line === undefined ? text : text.trimStart(), search).map((p, i) => (p.found ? <mark key={i}>{p.text}</mark> : p.text))}</span>
                  </a>
                </li>
              );
            })}
          </ul>
        </div>
      )}
      {asked && (found.more || found.stopped === "time" || found.stopped === "files") && found.error === undefined && (
        <div className="row">
          {found.more && <Button small busy={found.busy} onClick={found.next}>Search on</Button>}
          {found.stopped === "time" && <span className="small soft">It was taking long.</span>}
          {found.stopped === "files" && <span className="small soft">There are very many files.</span>}
        </div>
      )}
    </section>
  );
}
