import { useEffect, useRef, useState, type RefObject } from "react";

/**
 * How long what is asked has to stand still before a press is for it: who types or aims at something else when it comes,
 * or when another one takes its place, has not read it. The terminal's chat waits as long.
 */
const calmMs = 500;

export interface Calm {
  /** Whether nothing beside the element, and nothing in it, has moved it lately; as it is drawn. */
  readonly calm: boolean;
  /** The same at this moment: something may have changed that is not drawn yet. */
  readonly now: () => boolean;
}

export function useCalm(ref: RefObject<HTMLElement | null>): Calm {
  const [calm, setCalm] = useState(false);
  const height = useRef(0);
  const aroundOf = () => ref.current?.parentElement;
  useEffect(() => {
    const around = aroundOf();
    if (!around) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const sizes = new ResizeObserver(() => { // it tells the first size, too
      height.current = around.offsetHeight;
      setCalm(false);
      clearTimeout(timer);
      timer = setTimeout(() => setCalm(true), calmMs);
    });
    sizes.observe(around);
    return () => {
      sizes.disconnect();
      clearTimeout(timer);
    };
  }, [ref]);
  return { calm, now: () => calm && aroundOf()?.offsetHeight === height.current };
}
