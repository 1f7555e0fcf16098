import type { SessionInfo } from "sandbox-agent";
import { useMemo } from "react";
import type { AreaProps } from "../areas.js";
import { Button, IconButton, Segmented, Select } from "../kit/controls.js";
import { useLoad } from "../kit/load.js";
import { AreaHead, Empty, Notice } from "../kit/show.js";
import { count, money, plural } from "../kit/text.js";
import { gateway, router } from "../state/page.js";
import { useSelected } from "../state/store.js";
import { lastDays, roundUp, usageOf, valueOf, type By, type Measure, type Sum, type Usage as Used } from "./sums.js";
import "./usage.css";

/** Sessions that are added up; the newest. */
const mostSessions = 5000;
const pageSize = 1000;
/** Series that have a colour of their own; the others are one. */
const mostSeries = 5;

interface Read {
  readonly sessions: readonly SessionInfo[];
  readonly more: boolean;
}

async function readAll(signal: AbortSignal): Promise<Read> {
  const sessions: SessionInfo[] = [];
  for (let cursor: string | undefined; ; ) {
    const page = await gateway.client.api.sessions({ limit: pageSize, ...(cursor === undefined ? {} : { cursor }) }, { signal });
    sessions.push(...page.sessions);
    cursor = page.nextCursor;
    if (cursor === undefined || sessions.length >= mostSessions) return { sessions, more: cursor !== undefined };
  }
}

const spans = ["7", "30", "90"] as const;
type Span = (typeof spans)[number];
const names: Record<string, string> = { turns: "Turns", input: "Input tokens", output: "Output tokens", cached: "Cached tokens", thought: "Thought tokens" };
const nameOfMeasure = (measure: Measure) => names[measure] ?? `Cost in ${measure.slice(5)}`;
const show = (value: number, measure: Measure) => (measure.startsWith("cost ") ? money(value, measure.slice(5)) : count(value));

/** `#/usage?by=model&show=output&days=7`: what turns have used, by day and by agent or model. */
export default function Usage({ route }: AreaProps) {
  const { value, error, busy, reload } = useLoad(readAll, []);
  const agents = useSelected(gateway, (g) => g.agents);
  const by: By = route.query.by === "model" ? "model" : "agent";
  const span: Span = spans.find((s) => s === route.query.days) ?? "30";
  const used = useMemo(() => value && usageOf(value.sessions, lastDays(Number(span), Date.now()), by), [value, span, by]);
  const measures: Measure[] = ["input", "output", "cached", "thought", "turns", ...(used?.currencies ?? []).map((c): Measure => `cost ${c}`)];
  const measure = measures.find((m) => m === route.query.show) ?? (used && used.total.input + used.total.output === 0 ? "turns" : "input");
  const set = (part: Record<string, string>) => router.go("usage", [], { replace: true, query: { ...route.query, ...part } });
  const label = (name: string) => (by === "agent" ? (agents.find((a) => a.id === name)?.name ?? name) : name === "" ? "Model not known" : name);
  return (
    <div className="area usage">
      <AreaHead title="Usage" lead="What turns have used, as agents tell it." actions={<IconButton label="Load again" icon="refresh" disabled={busy} onClick={reload} />} />
      <div className="row">
        <Segmented label="Time" value={span} onChange={(days) => set({ days })} options={spans.map((s) => ({ value: s, label: `${s} days` }))} />
        <Segmented label="By" value={by} onChange={(next) => set({ by: next })} options={[{ value: "agent", label: "Agents" }, { value: "model", label: "Models" }]} />
        <Select className="usage-measure" aria-label="What is shown" value={measure} onChange={(event) => set({ show: event.target.value })}>{measures.map((m) => <option key={m} value={m}>{nameOfMeasure(m)}</option>)}</Select>
      </div>
      {error && <Notice tone="bad" title="It cannot be read" actions={<Button small onClick={reload}>Try again</Button>}><p>{error.message}</p></Notice>}
      {!value && busy && <p className="soft" role="status">Reading the sessions…</p>}
      {used && used.total.turns === 0 && used.currencies.length === 0 && <Empty icon="usage" title="No turn was counted in this time"><p>Turns are counted when an agent has ended them.</p></Empty>}
      {used && used.names.length > 0 && <><Plot used={used} measure={measure} label={label} /><Sums used={used} label={label} by={by} /><Days used={used} measure={measure} label={label} /></>}
      {value && <p className="small soft">Days are those of UTC. A session that is deleted takes its numbers with it.{value.more && ` Only the newest ${mostSessions} sessions are added up.`}</p>}
    </div>
  );
}

/** The names that have a colour, and all others together. */
function seriesOf(used: Used, measure: Measure): { readonly name: string; readonly all: readonly string[] }[] {
  const sorted = used.names.filter((n) => valueOf(used.byName(n), measure) > 0).sort((a, b) => valueOf(used.byName(b), measure) - valueOf(used.byName(a), measure));
  const own = sorted.length > mostSeries + 1 ? sorted.slice(0, mostSeries) : sorted;
  const rest = sorted.slice(own.length);
  return [...own.map((name) => ({ name, all: [name] })), ...(rest.length > 0 ? [{ name: "\u0000others", all: rest }] : [])];
}

interface Parts {
  readonly used: Used;
  readonly measure: Measure;
  readonly label: (name: string) => string;
}

/** A bar for each day. What it shows stands in the tables, too. */
function Plot({ used, measure, label }: Parts) {
  const series = useMemo(() => seriesOf(used, measure), [used, measure]);
  const top = roundUp(Math.max(...used.days.map((d) => valueOf(used.byDay(d), measure))));
  const total = valueOf(used.total, measure);
  const called = (s: { name: string; all: readonly string[] }) => (s.name === "\u0000others" ? plural(s.all.length, "other") : label(s.name));
  return (
    <figure className="plot">
      <figcaption className="row">
        <h2 className="grow">{nameOfMeasure(measure)} <span className="soft">{show(total, measure)}</span></h2>
        <ul className="row legend" aria-label="Colours">{series.map((s, i) => <li key={s.name}><span className={`swatch series-${i}`} aria-hidden="true" /> {called(s)}</li>)}</ul>
      </figcaption>
      <div className="plot-inside" role="img" aria-label={`${nameOfMeasure(measure)} by day: ${show(total, measure)} in ${used.days.length} days. The tables below have all numbers.`}>
        <div className="plot-scale small soft"><span>{show(top, measure)}</span><span>{show(top / 2, measure)}</span><span>0</span></div>
        <div className="plot-days">
          {used.days.map((day) => (
            <div key={day} className="plot-day" title={[day, ...series.flatMap((s) => { const v = s.all.reduce((n, name) => n + valueOf(used.at(day, name), measure), 0); return v > 0 ? [`${called(s)}: ${show(v, measure)}`] : []; })].join("\n")}>
              {series.map((s, i) => {
                const value = s.all.reduce((n, name) => n + valueOf(used.at(day, name), measure), 0);
                return value > 0 ? <span key={s.name} className={`bar series-${i}`} style={{ height: `${(value / top) * 100}%` }} /> : null;
              })}
            </div>
          ))}
        </div>
        <div className="plot-dates small soft"><span>{used.days[0]}</span><span>{used.days.at(-1)}</span></div>
      </div>
    </figure>
  );
}

const costs = (sum: Sum) => Object.entries(sum.cost).map(([currency, amount]) => money(amount, currency)).join(", ");

/** All numbers, by agent or model. */
function Sums({ used, label, by }: { used: Used; label: (name: string) => string; by: By }) {
  const row = (name: string, sum: Sum) => (
    <tr key={name}><th scope="row">{name}</th><td>{count(sum.turns)}</td><td>{count(sum.input)}</td><td>{count(sum.output)}</td><td>{count(sum.cachedRead)}</td><td>{count(sum.cachedWrite)}</td><td>{count(sum.thought)}</td><td>{costs(sum)}</td></tr>
  );
  return (
    <div className="table-scroll" tabIndex={0} role="region" aria-label={by === "agent" ? "By agent" : "By model"}>
      <table className="numbers">
        <thead><tr><th scope="col">{by === "agent" ? "Agent" : "Model"}</th><th scope="col">Turns</th><th scope="col">Input</th><th scope="col">Output</th><th scope="col">Read from cache</th><th scope="col">Written to cache</th><th scope="col">Thought</th><th scope="col">Cost</th></tr></thead>
        <tbody>{used.names.map((name) => row(label(name), used.byName(name)))}</tbody>
        <tfoot>{row("All", used.total)}</tfoot>
      </table>
    </div>
  );
}

/** The numbers of the bars. */
function Days({ used, measure, label }: Parts) {
  const days = used.days.filter((d) => used.byDay(d) && used.names.some((n) => used.at(d, n))).reverse();
  return (
    <details className="more">
      <summary>{nameOfMeasure(measure)}, day by day</summary>
      <div className="table-scroll" tabIndex={0} role="region" aria-label="By day">
        <table className="numbers">
          <thead><tr><th scope="col">Day</th>{used.names.map((n) => <th key={n} scope="col">{label(n)}</th>)}<th scope="col">All</th></tr></thead>
          <tbody>{days.map((d) => <tr key={d}><th scope="row">{d}</th>{used.names.map((n) => <td key={n}>{show(valueOf(used.at(d, n), measure), measure)}</td>)}<td>{show(valueOf(used.byDay(d), measure), measure)}</td></tr>)}</tbody>
        </table>
      </div>
    </details>
  );
}
