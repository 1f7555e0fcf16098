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

/** At least so long an answer is waited for until it is asked for once more. Its connection may be dead without anybody knowing. */
const patienceMs = 10_000;

/** What an answer takes counts up to this: a machine that was suspended counts, too. */
const slowMs = 60_000;

/**
 * Loads something for a component, again when a key changes, and with `everyMs` while the page is seen: not before the last answer is there,
 * or took twice as long as the one before, and longer each time. It may still come then: of the newest two that are waited for, the first one counts.
 * An error counts if it is that of the newest one.
 */
export function useLoad<T>(load: (signal: AbortSignal) => Promise<T>, keys: readonly unknown[], everyMs?: number): Loaded<T> {
  const [state, setState] = useState<State<T>>({ value: undefined, error: undefined, busy: true });
  const [round, setRound] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  const waiting = useRef<number | undefined>(undefined); // since when
  const took = useRef(0); // the last answer, in milliseconds
  const givenUp = useRef(0);
  const going = useRef<readonly AbortController[]>([]);
  const end = (those: readonly AbortController[]) => {
    for (const one of those) one.abort();
    going.current = going.current.filter((one) => !those.includes(one));
  };
  useEffect(() => () => {
    end(going.current);
    givenUp.current = 0; // what is asked for now is something else
  }, keys);
  useEffect(() => setState({ value: undefined, error: undefined, busy: true }), keys);
  useEffect(() => {
    const control = new AbortController();
    end(givenUp.current > 0 ? going.current.slice(0, -1) : going.current);
    going.current = [...going.current, control];
    setState((before) => ({ ...before, busy: true }));
    const began = Date.now();
    waiting.current = began;
    const show = (next: SetStateAction<State<T>>) => {
      end(going.current);
      waiting.current = undefined;
      givenUp.current = 0;
      setState(next);
    };
    latest.current(control.signal).then(
      (value) => {
        if (control.signal.aborted) return;
        took.current = Math.min(Date.now() - began, slowMs);
        show({ value, error: undefined, busy: false });
      },
      (error: unknown) => {
        if (control.signal.aborted) return;
        if (going.current.at(-1) !== control) return end([control]); // the newer one may still come
        show((before) => ({ value: before.value, error: error instanceof Error ? error : new Error(String(error)), busy: false }));
      },
    );
  }, [round, ...keys]);
  const again = useCallback(() => setRound((n) => n + 1), []);
  const reload = useCallback(() => {
    givenUp.current = 0; // what is asked for now is newer than what is on its way
    again();
  }, [again]);
  useEffect(() => {
    if (everyMs === undefined) return;
    const timer = setInterval(() => {
      if (document.visibilityState !== "visible") return;
      if (waiting.current !== undefined) {
        if (Date.now() - waiting.current < Math.max(patienceMs, 5 * everyMs, 2 * took.current) * 2 ** Math.min(givenUp.current, 4)) return;
        givenUp.current++;
      }
      again();
    }, everyMs);
    return () => clearInterval(timer);
  }, [everyMs, again]);
  return { ...state, reload };
}
