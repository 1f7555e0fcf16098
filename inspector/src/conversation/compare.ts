import { useEffect, useMemo, useState } from "react";
import { diffTexts, wholeTexts, type FileDiff } from "./diffs.js";

/** Comparisons that are kept: rows that come into sight again are shown at once. */
const maxKept = 24;
const kept: { readonly before: string | undefined; readonly after: string; readonly diff: FileDiff | undefined }[] = []; // the newest last

function keep(before: string | undefined, after: string, diff: FileDiff | undefined): void {
  kept.push({ before, after, diff });
  if (kept.length > maxKept) kept.shift();
}

/** One comparison at a time has a thread; the others wait, as many as there are diffs in sight. */
let queue: Promise<unknown> = Promise.resolve();

/** Undefined when too much differs, or when nobody waits for it any more. */
function inWorker(before: string, after: string, signal: AbortSignal): Promise<FileDiff | undefined> {
  const result = queue.then(() => new Promise<FileDiff | undefined>((resolve) => {
    if (signal.aborted) return resolve(undefined);
    const worker = new Worker(new URL("./diff-worker.ts", import.meta.url), { type: "module" });
    const done = (diff: FileDiff | undefined) => {
      worker.terminate();
      resolve(diff);
    };
    worker.onmessage = (event: MessageEvent<FileDiff | undefined>) => done(event.data);
    worker.onerror = () => done(undefined);
    signal.addEventListener("abort", () => done(undefined), { once: true });
    worker.postMessage({ before, after });
  }));
  queue = result;
  return result;
}

/** What differs between two texts. Until that is known, and when it is too much, both texts whole. */
export function useDiff(before: string | undefined, after: string): { readonly diff: FileDiff; readonly comparing: boolean } {
  const known = useMemo(() => {
    const found = kept.find((k) => k.before === before && k.after === after);
    if (found) return found;
    const diff = diffTexts(before, after);
    if (diff) keep(before, after, diff);
    return diff && { diff };
  }, [before, after]);
  const [later, setLater] = useState<{ readonly before: string; readonly after: string; readonly diff: FileDiff | undefined }>();
  useEffect(() => {
    if (known || before === undefined) return;
    const controller = new AbortController();
    void inWorker(before, after, controller.signal).then((diff) => {
      if (controller.signal.aborted) return;
      keep(before, after, diff);
      setLater({ before, after, diff });
    });
    return () => controller.abort();
  }, [known, before, after]);
  const answer = known ?? (later?.after === after && later.before === before ? later : undefined);
  const whole = useMemo(() => (answer?.diff ? undefined : wholeTexts(before ?? "", after)), [answer, before, after]);
  return { diff: answer?.diff ?? whole!, comparing: answer === undefined };
}
