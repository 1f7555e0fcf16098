import { count, money } from "../kit/text.js";
import type { Usage } from "./transcript.js";

/** How full the agent's memory is, and what the session has cost. */
export function Meter({ usage }: { usage: Usage | undefined }) {
  if (!usage) return null;
  const part = usage.size > 0 ? Math.min(1, usage.used / usage.size) : 0;
  const words = `${usage.used.toLocaleString("en")} of ${usage.size.toLocaleString("en")} tokens of context`;
  return (
    <span className="meter" title={words}>
      <span className="meter-bar" role="meter" aria-label="Context" aria-valuemin={0} aria-valuemax={usage.size} aria-valuenow={usage.used} aria-valuetext={words}>
        <span className={part > 0.85 ? "full" : ""} style={{ width: `${part * 100}%` }} />
      </span>
      <span>{count(usage.used)}<span className="soft"> / {count(usage.size)}</span></span>
      {usage.cost && <span className="meter-cost">{money(usage.cost.amount, usage.cost.currency)}</span>}
    </span>
  );
}
