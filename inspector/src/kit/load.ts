import { useCallback, useEffect, useRef, useState, type SetStateAction } from "react";

interface State<T> {
  readonly value: T | undefined;
  readonly error: Error | undefined;
  readonly busy: boolean;
}

export interface Loaded<T> extends State<T> {
  /** Loads again; what is there stays until something else is. */
  reload(): void;
}

/** At least so long an answer is waited for that is asked for again and again. Its connection may be dead without anybody knowing. */
const patienceMs = 10_000;

/** Loads something for a component, again when a key changes, and with `everyMs` while the page is seen: not before the last answer is there, or is given up, after twice as long each time. */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, keys: readonly unknown[], everyMs?: number): Loaded<T> {
  const [state, setState] = useState<State<T>>({ value: undefined, error: undefined, busy: true });
  const [round, setRound] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  const waiting = useRef<number | undefined>(undefined); // since when
  const givenUp = useRef(0);
  useEffect(() => setState({ value: undefined, error: undefined, busy: true }), keys);
  useEffect(() => {
    const control = new AbortController();
    setState((before) => ({ ...before, busy: true }));
    waiting.current = Date.now();
    const show = (next: SetStateAction<State<T>>) => {
      if (control.signal.aborted) return;
      waiting.current = undefined;
      givenUp.current = 0;
      setState(next);
    };
    latest.current(control.signal).then(
      (value) => show({ value, error: undefined, busy: false }),
      (error: unknown) => show((before) => ({ value: before.value, error: error instanceof Error ? error : new Error(String(error)), busy: false })),
    );
    return () => control.abort();
  }, [round, ...keys]);
  const reload = useCallback(() => setRound((n) => n + 1), []);
  useEffect(() => {
    if (everyMs === undefined) return;
    const timer = setInterval(() => {
      if (document.visibilityState !== "visible") return;
      if (waiting.current !== undefined) {
        if (Date.now() - waiting.current < Math.max(patienceMs, 5 * everyMs) * 2 ** Math.min(givenUp.current, 4)) return;
        givenUp.current++;
      }
      reload();
    }, everyMs);
    return () => clearInterval(timer);
  }, [everyMs, reload]);
  return { ...state, reload };
}
