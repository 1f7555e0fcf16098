import { memo, useEffect, useLayoutEffect, useRef, useState } from "react";

type Typeset = (tex: string, display: boolean) => DocumentFragment;

let loaded: Typeset | undefined;
let loading: Promise<Typeset> | undefined;

/** A formula. Until it can be set, and where it cannot, it is shown as it was written. */
export const Maths = memo(function Maths({ tex, display, raw }: { tex: string; display: boolean; raw: string }) {
  const [typeset, set] = useState(() => loaded);
  const [problem, setProblem] = useState<string>();
  const place = useRef<HTMLElement>(null);
  useEffect(() => {
    if (typeset) return;
    let alive = true;
    loading ??= import("./typeset.js").then((m) => (loaded = m.typeset));
    loading.then((t) => alive && set(() => t), () => {
      loading = undefined; // the connection broke: the next formula asks again
    });
    return () => {
      alive = false;
    };
  }, [typeset]);
  useLayoutEffect(() => {
    if (!typeset || !place.current) return;
    try {
      place.current.replaceChildren(typeset(tex, display));
      setProblem(undefined);
    } catch (error) {
      setProblem(error instanceof Error ? error.message.split("\n")[0]! : String(error));
    }
  }, [typeset, tex, display]);
  if (!typeset || problem !== undefined) return <code className="inline maths-source" title={problem === undefined ? undefined : `This formula cannot be shown: ${problem}`}>{raw.trim()}</code>;
  return display
    ? <span ref={place} className="maths-block" tabIndex={0} role="group" aria-label="Formula" />
    : <span ref={place} className="maths" />;
});
