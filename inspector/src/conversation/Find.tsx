import { useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import { IconButton, Input } from "../kit/controls.js";
import type { Row } from "./items.js";
import { wordsOf } from "./words.js";

/** What is looked for in a conversation, and which row has it. */
export interface Finding {
  readonly words: string;
  readonly row: number | undefined;
}

/** Finds words in all rows of a conversation, also those that are not on the page. */
export function Find({ rows, version, earlier, onFind, onClose }: { rows: readonly Row[]; version: number; /** What reads more of the past, where there is more than these rows. */ earlier: ReactNode; onFind: (finding: Finding) => void; onClose: () => void }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(-1); // of the hits, from the end
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    input.current?.focus();
    input.current?.select();
  }, []);
  const words = text.trim().toLowerCase();
  const hits = useMemo(() => (words === "" ? [] : rows.flatMap((row, i) => (wordsOf(row).toLowerCase().includes(words) ? [i] : []))), [rows, version, words]);
  const now = hits.length === 0 ? -1 : at < 0 || at >= hits.length ? hits.length - 1 : at;
  const go = (to: number) => {
    if (hits.length === 0) return;
    const next = (to + hits.length) % hits.length;
    setAt(next);
    onFind({ words, row: hits[next] });
  };
  useEffect(() => {
    setAt(-1);
    onFind({ words, row: hits.at(-1) });
  }, [words, hits.length === 0]); // more of the past can have the first one
  return (
    <div
      className="find" role="search" aria-label="Find in the conversation"
      onKeyDown={(event) => {
        if (event.key === "Escape") onClose();
        else if (event.key === "Enter") go(now + (event.shiftKey ? 1 : -1));
        else return;
        event.preventDefault();
        event.stopPropagation();
      }}
    >
      <Input ref={input} type="search" aria-label="Find" placeholder="Find in the conversation" value={text} onChange={(event) => setText(event.target.value)} />
      <span className="soft small" role="status">{words === "" ? "" : hits.length === 0 ? "Not found" : `${now + 1} of ${hits.length}`}</span>
      {words !== "" && earlier}
      <IconButton label="Before" icon="up" disabled={hits.length === 0} onClick={() => go(now - 1)} />
      <IconButton label="Behind" icon="down" disabled={hits.length === 0} onClick={() => go(now + 1)} />
      <IconButton label="Close the search" icon="close" onClick={onClose} />
    </div>
  );
}
