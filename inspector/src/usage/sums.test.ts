import { expect, test } from "vitest";
import { lastDays, roundUp, usageOf, valueOf } from "./sums.js";

const use = (day: string, turns: number, more: object = {}) => ({ day, turns, inputTokens: 10 * turns, outputTokens: turns, ...more });

test("what sessions have used is added up by day, agent and model", () => {
  const days = lastDays(3, Date.UTC(2026, 2, 1, 23, 59));
  expect(days).toEqual(["2026-02-27", "2026-02-28", "2026-03-01"]);
  const sessions = [
    { agent: "a", usage: [use("2026-02-20", 9), use("2026-02-28", 1, { model: "m", cachedReadTokens: 4, cachedWriteTokens: 1, thoughtTokens: 2, cost: { amount: 0.5, currency: "USD" } }), use("2026-03-01", 2)] },
    { agent: "b", usage: [use("2026-02-28", 5, { model: "m", cost: { amount: 0.25, currency: "USD" } }), use("2026-02-28", 1, { cost: { amount: 1, currency: "__proto__" } })] },
    { agent: "c" },
  ];
  const byAgent = usageOf(sessions as never, days, "agent");
  expect(byAgent.names).toEqual(["b", "a"]);
  expect([valueOf(byAgent.total, "turns"), valueOf(byAgent.byDay("2026-02-28"), "input"), valueOf(byAgent.at("2026-02-28", "a"), "cached"), valueOf(byAgent.byName("a"), "thought"), valueOf(byAgent.total, "cost USD"), valueOf(byAgent.at("2026-02-27", "a"), "turns"), valueOf(byAgent.total, "cost toString")]).toEqual([9, 70, 5, 2, 0.75, 0, 0]);
  const byModel = usageOf(sessions as never, days, "model");
  expect(byModel.names).toEqual(["m", ""]);
  expect(byModel.byName("m").turns).toBe(6);
  expect(usageOf([], days, "model").names).toEqual([]);
});

test("scales end at round numbers", () => {
  expect([0, 0.03, 1, 1.2, 3, 49, 51, 1_200_000].map(roundUp)).toEqual([1, 0.05, 1, 2, 5, 50, 100, 2_000_000]);
});
