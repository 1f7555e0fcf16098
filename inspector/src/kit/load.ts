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

/** Loads something for a component, again when a key changes, and with `everyMs` while the page is seen: not before the last answer is there. */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, keys: readonly unknown[], everyMs?: number): Loaded<T> {
  const [state, setState] = useState<State<T>>({ value: undefined, error: undefined, busy: true });
  const [round, setRound] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  const waiting = useRef(false);
  useEffect(() => setState({ value: undefined, error: undefined, busy: true }), keys);
  useEffect(() => {
    const control = new AbortController();
    setState((before) => ({ ...before, busy: true }));
    waiting.current = true;
    const show = (next: SetStateAction<State<T>>) => {
      if (control.signal.aborted) return;
      waiting.current = false;
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
    const timer = setInterval(() => document.visibilityState === "visible" && !waiting.current && reload(), everyMs);
    return () => clearInterval(timer);
  }, [everyMs, reload]);
  return { ...state, reload };
}
