import { useRef, useState, type KeyboardEvent, type PointerEvent } from "react";
import { settings } from "../state/page.js";
import { useSelected } from "../state/store.js";

/** How wide a part of the page is and may be, in pixels. */
export interface Pane {
  /** Under which name the width is kept. */
  readonly name: string;
  readonly standard: number;
  readonly min: number;
  readonly max: number;
}

/** What one press of an arrow moves. */
const step = 24;

export const paneWidth = (pane: Pane, kept: number | undefined) => Math.min(pane.max, Math.max(pane.min, kept ?? pane.standard));

/** The width that a person has given to a part of the page. */
export function usePane(pane: Pane): number {
  return useSelected(settings, (s) => paneWidth(pane, s.panes[pane.name]));
}

/** The edge behind a part of the page: it is dragged, or moved by arrows. A double press, and Enter, take the width back. */
export function Splitter({ pane, label }: { pane: Pane; label: string }) {
  const width = usePane(pane);
  const from = useRef<{ readonly x: number; readonly width: number }>(undefined);
  const [held, hold] = useState(false);
  const put = (next: number | undefined) => {
    const { [pane.name]: _, ...rest } = settings.get().panes;
    settings.change({ panes: next === undefined ? rest : { ...rest, [pane.name]: Math.round(paneWidth(pane, next)) } });
  };
  const onKey = (event: KeyboardEvent) => {
    const next = { ArrowLeft: width - step, ArrowRight: width + step, Home: pane.min, End: pane.max }[event.key];
    if (next !== undefined) put(next);
    else if (event.key === "Enter") put(undefined);
    else return;
    event.preventDefault();
  };
  const drag = {
    onPointerDown: (event: PointerEvent<HTMLElement>) => {
      if (event.button !== 0) return;
      event.currentTarget.setPointerCapture(event.pointerId);
      from.current = { x: event.clientX, width };
      hold(true);
    },
    onPointerMove: (event: PointerEvent) => from.current && put(from.current.width + event.clientX - from.current.x),
    onLostPointerCapture: () => {
      from.current = undefined;
      hold(false);
    },
  };
  return (
    <div
      className={`splitter ${held ? "held" : ""}`} role="separator" aria-orientation="vertical" aria-label={label} tabIndex={0}
      aria-valuenow={width} aria-valuemin={pane.min} aria-valuemax={pane.max} aria-valuetext={`${width} pixels`}
      onKeyDown={onKey} onDoubleClick={() => put(undefined)} {...drag}
    />
  );
}
