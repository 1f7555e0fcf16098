import { useVirtualizer } from "@tanstack/react-virtual";
import { useCallback, useEffect, useImperativeHandle, useLayoutEffect, useRef, useState, type ReactNode, type Ref } from "react";
import { Button } from "../kit/controls.js";
import type { Row } from "./items.js";
import { RowView, type PromptActions } from "./RowView.js";

/** How near to its end a list is at its end for somebody who moves there. */
const near = 48;
/** How far ArrowUp moves a list, as in browsers. */
const line = 40;

/** How often it is looked whether the end is reached, behind the last change. */
const maxTries = 8;

/** Moves a list of rows. */
export interface RowControl {
  /** Shows a row at the top, or where it is in sight. */
  show(index: number, align?: "start" | "center"): void;
  focus(): void;
  /** The first row that is in sight, or the one that was asked for and comes into sight. */
  first(): number;
  /** Whether it follows what is said, at its end. */
  atEnd(): boolean;
}

const placeOf = ({ scrollTop: top, clientHeight: height, scrollHeight: whole }: HTMLElement) => ({ top, height, whole });

function estimate(row: Row | undefined): number {
  if (!row) return 40;
  switch (row.item.kind) {
    case "text":
      return Math.min(1200, 30 + (row.item.segments.all[row.segment]?.text.length ?? 0) * 0.28);
    case "user":
      return 64;
    case "plan":
      return 44 + (row.item.document?.type === "markdown" ? Math.min(1200, 30 + row.item.document.text.length * 0.28) : row.item.entries.length * 26);
    default:
      return 42;
  }
}

/**
 * The rows that are in sight, and a few around them. It stays at its end as long as
 * nobody scrolls away; what is read keeps its place when rows come before or behind it.
 */
export function RowList({ rows, version, cwd, askedCalls, head, label, sent, control, found, marked, prompts }: { prompts?: PromptActions | undefined; rows: readonly Row[]; version: number; cwd: string | undefined; askedCalls: ReadonlySet<string>; head?: ReactNode; label: string; /** Grows when a person sends something: then the end is shown. */ sent: number; control: Ref<RowControl>; /** The row that a search has found, and its words. */ found: number | undefined; marked: string }) {
  const scroller = useRef<HTMLDivElement>(null);
  const stuck = useRef(true);
  const known = useRef({ top: 0, height: 0, whole: 0 }); // where the list was when it was looked at or moved itself, and how high it and all of it were
  const aim = useRef<string>(undefined); // the key of the row that was asked for, until a person moves the list
  const [away, setAway] = useState(false);
  const virtual = useVirtualizer({
    count: rows.length + 1, // the first one is the head
    getScrollElement: () => scroller.current,
    estimateSize: (i) => (i === 0 ? 8 : estimate(rows[i - 1])),
    getItemKey: (i) => (i === 0 ? "head" : (rows[i - 1]?.key ?? i)),
    overscan: 4,
    anchorTo: "end",
    paddingEnd: 16,
    scrollToFn: (offset, { adjustments = 0 }) => place(offset + adjustments),
  });
  const total = virtual.getTotalSize();

  // A wish to look elsewhere is a move upwards that the list has not made itself: by a wheel,
  // a finger or a key, but also by a screen reader or by the browser when it finds words. The
  // browser makes it in steps. The first ones are near the end: what is written there then would undo them.
  // Where the list gets shorter, or its frame higher, the browser moves it to its end.
  const look = useCallback((element: HTMLElement) => {
    const { top, height, whole } = placeOf(element);
    const before = known.current;
    const small = stuck.current && top < before.top && top >= before.top - 2 && height === before.height && whole === before.whole;
    known.current = { top: small ? before.top : top, height, whole }; // small steps of a slow finger add up
    const rest = whole - top - height;
    const shorter = rest > near ? 0 : Math.max(0, before.whole - whole);
    if (stuck.current && rest > 1 && top < before.top - shorter - 2 && height === before.height) {
      stuck.current = false;
      virtual.cancelScroll();
    } else if (!stuck.current && aim.current === undefined && (rest <= 1 || (rest <= near && top > before.top))) stuck.current = true; // not on the way from there to a row
    setAway(!stuck.current && rest > 1);
  }, [virtual]);
  // The browser tells of a scroll later than the list may want to follow its end.
  const place = useCallback((top: number) => {
    const element = scroller.current;
    if (!element) return;
    if (stuck.current) {
      look(element);
      if (!stuck.current) return;
    }
    element.scrollTo({ top });
    known.current = placeOf(element);
  }, [look]);

  // The list's own way to its end looks again until the rows there are measured.
  const toEnd = useCallback(() => {
    const element = scroller.current;
    stuck.current = true;
    if (element) known.current = placeOf(element); // wherever it was; it may be at its end already
    aim.current = undefined;
    setAway(false);
    virtual.scrollToEnd();
  }, [virtual]);

  useImperativeHandle(control, () => ({
    show: (index, align = "start") => {
      stuck.current = false;
      aim.current = rows[index]?.key;
      virtual.scrollToIndex(index + 1, { align });
      setAway(true);
    },
    focus: () => scroller.current?.focus(),
    atEnd: () => stuck.current,
    first: () => {
      const aimed = aim.current === undefined ? -1 : rows.findIndex((row) => row.key === aim.current);
      if (aimed >= 0) return aimed;
      const top = (scroller.current?.scrollTop ?? 0) + 1;
      return Math.max(0, (virtual.getVirtualItems().find((item) => item.end > top)?.index ?? 1) - 1);
    },
  }), [virtual, rows]);
  // What is read keeps its place when rows come before it. The list holds on to what is at the top: where that is the head, to the row behind it.
  const began = useRef<readonly string[]>([]);
  useLayoutEffect(() => {
    const before = began.current;
    began.current = rows.slice(0, 10).map((row) => row.key);
    if (before[0] === began.current[0] || stuck.current || (scroller.current?.scrollTop ?? 0) >= (virtual.measurementsCache[0]?.end ?? 0)) return;
    // The first one can be a part of a longer one now.
    const kept = rows.findIndex((row) => before.includes(row.key));
    const at = kept < 0 ? 0 : kept - before.indexOf(rows[kept]!.key);
    if (at <= 0) return;
    aim.current = rows[at]?.key;
    virtual.scrollToIndex(at + 1, { align: "start" });
  }, [virtual, rows, version]);
  useMarks(scroller, marked, version, virtual.range?.startIndex, virtual.range?.endIndex);
  useEffect(() => {
    if (sent > 0) toEnd();
  }, [sent, toEnd]);

  const checking = useRef<ReturnType<typeof setTimeout>>(undefined);
  useLayoutEffect(() => {
    if (!stuck.current || rows.length === 0) return;
    virtual.scrollToEnd();
    // When the last rows come many at a time, the list can stop short of them.
    clearTimeout(checking.current);
    let tries = maxTries;
    const check = () => {
      const element = scroller.current;
      if (!element || !stuck.current || tries-- === 0) return;
      if (element.scrollHeight - element.scrollTop - element.clientHeight > 1) place(element.scrollHeight);
      checking.current = setTimeout(check, 100);
    };
    checking.current = setTimeout(check, 50);
  }, [virtual, rows, version, total, place]);
  useEffect(() => () => clearTimeout(checking.current), []);

  useEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const onScroll = () => look(element);
    // From the end the list goes up by itself, and at once: nothing that is written comes between the key and the move.
    const onUp = (event: KeyboardEvent) => {
      if (event.target !== element || event.altKey || event.ctrlKey || event.metaKey || !(event.key === "PageUp" || event.key === "ArrowUp" || event.key === " " && event.shiftKey)) return;
      if (!stuck.current || element.scrollTop <= 0) return;
      event.preventDefault();
      stuck.current = false;
      virtual.scrollBy(event.key === "ArrowUp" ? -line : -Math.round(element.clientHeight * 0.875));
      look(element);
    };
    // The browser goes there in steps, to where the ends were when it began: rows that come into sight on the way move them.
    const onKey = (event: KeyboardEvent) => {
      if (event.target !== element || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey || (event.key !== "Home" && event.key !== "End")) return;
      event.preventDefault();
      if (event.key === "End") return toEnd();
      stuck.current = false;
      virtual.scrollToIndex(0);
    };
    const onMove = (event: Event) => {
      if (!(event instanceof KeyboardEvent && event.altKey)) aim.current = undefined; // not what goes from prompt to prompt
    };
    const moves = ["wheel", "touchmove", "keydown", "pointerdown"] as const;
    element.addEventListener("scroll", onScroll, { passive: true });
    element.addEventListener("keydown", onKey);
    element.addEventListener("keydown", onUp);
    for (const type of moves) element.addEventListener(type, onMove, { passive: true });
    // The window got smaller or larger, the keyboard of a phone came up.
    const sizes = new ResizeObserver(() => stuck.current && toEnd());
    sizes.observe(element);
    return () => {
      element.removeEventListener("scroll", onScroll);
      element.removeEventListener("keydown", onKey);
      element.removeEventListener("keydown", onUp);
      for (const type of moves) element.removeEventListener(type, onMove);
      sizes.disconnect();
    };
  }, [toEnd, look, virtual]);

  const items = virtual.getVirtualItems();
  return (
    <div className="rows-frame">
      <div ref={scroller} className="rows" tabIndex={0} role="log" aria-label={label} aria-live="off">
        <div className="rows-inside" style={{ height: total }}>
          <div className="rows-shown" style={{ transform: `translateY(${items[0]?.start ?? 0}px)` }}>
            {items.map((item) => {
              if (item.index === 0) return <div key="head" data-index={0} ref={virtual.measureElement} className="rows-head">{head}</div>;
              const row = rows[item.index - 1];
              return row ? (
                <div key={item.key} data-index={item.index} ref={virtual.measureElement} className={`row-slot slot-${row.item.kind} ${row.segment > 0 ? "follows" : ""} ${item.index - 1 === found ? "found" : ""}`}>
                  <RowView row={row} cwd={cwd} asked={row.item.kind === "tool" && askedCalls.has(row.item.id)} prompts={prompts} />
                </div>
              ) : null;
            })}
          </div>
        </div>
      </div>
      {away && <Button className="to-end" small icon="down" onClick={toEnd}>To the end</Button>}
    </div>
  );
}

/** Marks words in what is in sight, without another element: the browser paints them. */
function useMarks(root: { readonly current: HTMLElement | null }, words: string, ...when: unknown[]): void {
  useEffect(() => {
    if (!("highlights" in CSS) || words === "") return;
    const ranges: Range[] = [];
    if (root.current) {
      const walk = document.createTreeWalker(root.current, NodeFilter.SHOW_TEXT);
      for (let node = walk.nextNode(); node; node = walk.nextNode()) {
        const text = node.nodeValue?.toLowerCase() ?? "";
        for (let at = text.indexOf(words); at >= 0; at = text.indexOf(words, at + words.length)) {
          const range = new Range();
          range.setStart(node, at);
          range.setEnd(node, at + words.length);
          ranges.push(range);
        }
      }
    }
    CSS.highlights.set("found", new Highlight(...ranges));
    return () => void CSS.highlights.delete("found");
  }, [root, words, ...when]);
}
