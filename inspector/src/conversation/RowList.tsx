import { useVirtualizer } from "@tanstack/react-virtual";
import { useCallback, useEffect, useLayoutEffect, useRef, useState, type ReactNode } from "react";
import { Button } from "../kit/controls.js";
import type { Row } from "./items.js";
import { RowView } from "./RowView.js";

/** How near to its end a list is at its end. */
const near = 48;

function estimate(row: Row | undefined): number {
  if (!row) return 40;
  switch (row.item.kind) {
    case "text":
      return Math.min(1200, 30 + (row.item.segments.all[row.segment]?.text.length ?? 0) * 0.28);
    case "user":
      return 64;
    case "plan":
      return 44 + row.item.entries.length * 26;
    default:
      return 42;
  }
}

/**
 * The rows that are in sight, and a few around them. It stays at its end as long as
 * nobody scrolls away; what is read keeps its place when rows come before or behind it.
 */
export function RowList({ rows, version, cwd, askedCalls, head, label }: { rows: readonly Row[]; version: number; cwd: string | undefined; askedCalls: ReadonlySet<string>; head?: ReactNode; label: string }) {
  const scroller = useRef<HTMLDivElement>(null);
  const stuck = useRef(true);
  const lastTop = useRef(0);
  const [away, setAway] = useState(false);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: (i) => estimate(rows[i]),
    getItemKey: (i) => rows[i]?.key ?? i,
    overscan: 6,
    anchorTo: "end",
    paddingStart: 8,
    paddingEnd: 16,
  });
  const total = virtual.getTotalSize();

  const toEnd = useCallback(() => {
    const element = scroller.current;
    if (!element) return;
    stuck.current = true;
    setAway(false);
    element.scrollTop = element.scrollHeight;
    lastTop.current = element.scrollTop;
  }, []);

  useLayoutEffect(() => {
    if (stuck.current) toEnd();
  }, [version, total, toEnd]);

  useEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const onScroll = () => {
      const rest = element.scrollHeight - element.scrollTop - element.clientHeight;
      if (rest <= near) stuck.current = true;
      else if (element.scrollTop < lastTop.current - 2) stuck.current = false;
      lastTop.current = element.scrollTop;
      setAway(!stuck.current && rest > near);
    };
    element.addEventListener("scroll", onScroll, { passive: true });
    // The window got smaller or larger, the keyboard of a phone came up.
    const sizes = new ResizeObserver(() => stuck.current && toEnd());
    sizes.observe(element);
    return () => {
      element.removeEventListener("scroll", onScroll);
      sizes.disconnect();
    };
  }, [toEnd]);

  const items = virtual.getVirtualItems();
  return (
    <div className="rows-frame">
      <div ref={scroller} className="rows" tabIndex={0} role="log" aria-label={label} aria-live="off">
        {head}
        <div className="rows-inside" style={{ height: total }}>
          <div className="rows-shown" style={{ transform: `translateY(${items[0]?.start ?? 0}px)` }}>
            {items.map((item) => {
              const row = rows[item.index];
              return row ? (
                <div key={item.key} data-index={item.index} ref={virtual.measureElement} className={`row-slot ${row.item.kind} ${row.segment > 0 ? "follows" : ""}`}>
                  <RowView row={row} cwd={cwd} asked={row.item.kind === "tool" && askedCalls.has(row.item.id)} />
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
