import type { components, SessionInfo } from "sandbox-agent";

type Use = components["schemas"]["Use"];

/** What can be looked at. `cost USD` is the cost in a currency. */
export type Measure = "turns" | "input" | "output" | "cached" | "thought" | `cost ${string}`;
export type By = "agent" | "model";

export interface Sum {
  readonly turns: number;
  readonly input: number;
  readonly output: number;
  readonly cachedRead: number;
  readonly cachedWrite: number;
  readonly thought: number;
  /** By currency. */
  readonly cost: Readonly<Record<string, number>>;
}

const none: Sum = { turns: 0, input: 0, output: 0, cachedRead: 0, cachedWrite: 0, thought: 0, cost: {} };

function plus(sum: Sum, use: Use): Sum {
  const { cost } = use;
  return {
    turns: sum.turns + use.turns, input: sum.input + use.inputTokens, output: sum.output + use.outputTokens,
    cachedRead: sum.cachedRead + (use.cachedReadTokens ?? 0), cachedWrite: sum.cachedWrite + (use.cachedWriteTokens ?? 0), thought: sum.thought + (use.thoughtTokens ?? 0),
    cost: cost ? { ...sum.cost, [cost.currency]: (Object.hasOwn(sum.cost, cost.currency) ? sum.cost[cost.currency]! : 0) + cost.amount } : sum.cost,
  };
}

export function valueOf(sum: Sum | undefined, measure: Measure): number {
  if (!sum) return 0;
  switch (measure) {
    case "turns":
    case "input":
    case "output":
    case "thought":
      return sum[measure];
    case "cached":
      return sum.cachedRead + sum.cachedWrite;
    default:
      return Object.hasOwn(sum.cost, measure.slice(5)) ? sum.cost[measure.slice(5)]! : 0;
  }
}

export interface Usage {
  /** All days of the time, the oldest first, as 2026-03-04. */
  readonly days: readonly string[];
  /** Agents or models; who has the most turns is the first. */
  readonly names: readonly string[];
  readonly total: Sum;
  byName(name: string): Sum;
  byDay(day: string): Sum;
  at(day: string, name: string): Sum | undefined;
  readonly currencies: readonly string[];
}

export const dayOf = (time: number): string => new Date(time).toISOString().slice(0, 10);

/** The last days up to today, in UTC. */
export function lastDays(count: number, now: number): string[] {
  const today = Math.floor(now / 86_400_000) * 86_400_000;
  return Array.from({ length: count }, (_, i) => dayOf(today - (count - 1 - i) * 86_400_000));
}

/** Adds up what sessions have used in some days. */
export function usageOf(sessions: readonly Pick<SessionInfo, "agent" | "usage">[], days: readonly string[], by: By): Usage {
  const known = new Set(days);
  const cells = new Map<string, Sum>();
  const names = new Map<string, Sum>();
  const sums = new Map<string, Sum>();
  let total = none;
  for (const session of sessions) {
    for (const use of session.usage ?? []) {
      if (!known.has(use.day)) continue;
      const name = by === "agent" ? session.agent : (use.model ?? "");
      const add = (to: Map<string, Sum>, key: string) => void to.set(key, plus(to.get(key) ?? none, use));
      add(cells, `${use.day} ${name}`);
      add(names, name);
      add(sums, use.day);
      total = plus(total, use);
    }
  }
  return {
    days, total, names: [...names].sort(([a, x], [b, y]) => y.turns - x.turns || (a < b ? -1 : 1)).map(([name]) => name), currencies: Object.keys(total.cost).sort(),
    byName: (name) => names.get(name) ?? none, byDay: (day) => sums.get(day) ?? none, at: (day, name) => cells.get(`${day} ${name}`),
  };
}

/** The end of a scale that has all of it: 1, 2 or 5 with zeros. */
export function roundUp(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 2, 5]) if (step * power >= value) return step * power;
  return 10 * power;
}
