import { useEffect, useRef, useState } from "react";
import { messageOf } from "../state/explain.js";
import { toasts } from "../state/page.js";

/** Something that a person begins and that takes its time. */
export interface Work {
  readonly busy: boolean;
  /** Whether what began it is still shown. What it leads to is asked for behind each wait: by then another dialog can be open. */
  shown(): boolean;
  /**
   * Does it, unless it is being done: a second press begins nothing. What goes wrong is told where it was begun, by `failed`, and
   * else in a toast, which begins with `what`.
   */
  run(what: string, work: () => Promise<unknown>, failed?: (words: string) => void): Promise<void>;
}

/** Whether a component is still shown, for what ends later. */
export function useShown(): () => boolean {
  const shown = useRef(true);
  useEffect(() => {
    shown.current = true;
    return () => void (shown.current = false);
  }, []);
  return () => shown.current;
}

export function useWork(): Work {
  const [busy, setBusy] = useState(false);
  const going = useRef(false); // a key that repeats comes before anything is drawn
  const shown = useShown();
  const run: Work["run"] = async (what, work, failed) => {
    if (going.current) return;
    going.current = true;
    setBusy(true);
    try {
      await work();
    } catch (error) {
      if (failed && shown()) failed(messageOf(error));
      else toasts.show(`${what}: ${messageOf(error)}`, "bad");
    } finally {
      going.current = false;
      setBusy(false);
    }
  };
  return { busy, shown, run };
}
