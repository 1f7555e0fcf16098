import { useCallback, useEffect, useRef, useState } from "react";

export interface Loaded<T> {
  readonly value: T | undefined;
  readonly error: Error | undefined;
  readonly busy: boolean;
  /** Loads again; what is there stays until something else is. */
  reload(): void;
}

/** Loads something for a component, again when a key changes, and with `everyMs` while the page is seen. */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, keys: readonly unknown[], everyMs?: number): Loaded<T> {
  const [state, setState] = useState<{ value: T | undefined; error: Error | undefined; busy: boolean }>({ value: undefined, error: undefined, busy: true });
  const [round, setRound] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => setState({ value: undefined, error: undefined, busy: true }), keys);
  useEffect(() => {
    const control = new AbortController();
    setState((before) => ({ ...before, busy: true }));
    latest.current(control.signal).then(
      (value) => !control.signal.aborted && setState({ value, error: undefined, busy: false }),
      (error: unknown) => !control.signal.aborted && setState((before) => ({ value: before.value, error: error instanceof Error ? error : new Error(String(error)), busy: false })),
    );
    return () => control.abort();
  }, [round, ...keys]);
  const reload = useCallback(() => setRound((n) => n + 1), []);
  useEffect(() => {
    if (everyMs === undefined) return;
    const timer = setInterval(() => document.visibilityState === "visible" && reload(), everyMs);
    return () => clearInterval(timer);
  }, [everyMs, reload]);
  return { ...state, reload };
}
