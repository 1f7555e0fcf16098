import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import type { AreaProps } from "../areas.js";
import { useShortcut } from "../app/shortcuts.js";
import { Button, Checkbox, IconButton, Input, Segmented, Select } from "../kit/controls.js";
import { Icon } from "../kit/icons.js";
import { save } from "../kit/save.js";
import { AreaHead, Badge, Empty, Notice } from "../kit/show.js";
import { count, plural } from "../kit/text.js";
import { gateway, router, traffic } from "../state/page.js";
import { useSelected, useStore } from "../state/store.js";
import { capture } from "./export.js";
import { Comparison } from "./Comparison.js";
import { Detail } from "./Detail.js";
import { WireRows, type Row } from "./rows.js";
import { loadSchema } from "./schemas.js";
import { Send } from "./Send.js";
import { Violations } from "./violations.js";
import "./wire.css";

const violations = new Violations(loadSchema);
const rows = new WireRows(traffic, (row) => violations.wrong(row));
const rowHeight = 28;

export default function Wire({ route }: AreaProps) {
  useEffect(() => rows.follow(), []);
  const state = useStore(rows);
  const { filter } = state;
  const [paused, setPaused] = useState(traffic.paused);
  const [sending, setSending] = useState<{ readonly again?: Row } | undefined>();
  const search = useRef<HTMLInputElement>(null);
  const endpoint = useSelected(gateway, (g) => g.endpoint);
  const chosen = route.parts[0] === undefined ? undefined : rows.row(Number(route.parts[0]));
  const first = route.query.with === undefined ? undefined : rows.row(Number(route.query.with));
  const show = (n: number | undefined, other = route.query.with) => router.go("wire", n === undefined ? [] : [String(n)], { replace: true, ...(n === undefined || other === undefined ? {} : { query: { with: other } }) });
  const looked = useStore(violations);
  useEffect(() => violations.wantAll(rows.all()), [state]);
  useEffect(() => () => violations.wantAll([]), []);
  useEffect(() => rows.again(), [looked]);
  const wrong = useMemo(() => state.rows.filter((row) => violations.wrong(row)), [state.rows, looked]);
  /** To the violation behind the entry that is chosen, or before it, and from the last one to the first. */
  const toWrong = (direction: 1 | -1) => {
    const at = chosen?.n ?? (direction > 0 ? -1 : Number.POSITIVE_INFINITY);
    const next = direction > 0 ? (wrong.find((row) => row.n > at) ?? wrong[0]) : (wrong.findLast((row) => row.n < at) ?? wrong.at(-1));
    if (next) show(next.n, undefined);
  };
  useShortcut({ keys: "/", what: "Search", group: "Wire", run: () => search.current?.focus() });
  useShortcut({ keys: "v", what: "The next violation of the schema", group: "Wire", run: () => toWrong(1) });
  useShortcut({ keys: "n", what: "Send a request", group: "Wire", run: () => setSending({}) });

  const exported = () => {
    const token = gateway.token;
    save(new Blob([capture(traffic.entries(), token === undefined ? [] : [token])], { type: "application/jsonl" }), `sandbox-agent-${new Date().toISOString().replace(/[:.]/g, "-")}.jsonl`);
  };
  const pause = () => {
    traffic.paused = !paused;
    setPaused(!paused);
  };
  /** An entry was chosen, and another one is to be compared with it. */
  const comparing = first !== undefined && chosen === first;
  const alone = () => router.go("wire", [String(chosen!.n)], { replace: true });
  return (
    <div className={`area full wire ${chosen && !comparing ? "reading" : ""}`}>
      <div className="stack">
        <AreaHead
          title="Wire"
          lead={`Every message and every request of this page with ${endpoint}.`}
          actions={
            <>
              <Button icon="send" onClick={() => setSending({})}>Send a request</Button>
              <Button icon={paused ? "play" : "stop"} aria-pressed={paused} onClick={pause}>{paused ? "Record" : "Pause"}</Button>
              <Button icon="download" disabled={state.total === 0} title="As JSON lines, without secrets" onClick={exported}>Export</Button>
              <Button icon="trash" disabled={state.total === 0} onClick={() => { traffic.clear(); show(undefined); }}>Clear</Button>
            </>
          }
        />
        <div className="row wire-filter" role="search" aria-label="Filter the traffic">
          <Input ref={search} type="search" aria-label="Search" placeholder="Search methods and contents" value={filter.text} onChange={(event) => rows.filter({ text: event.target.value })} />
          <Segmented small label="What" value={filter.kinds} onChange={(kinds) => rows.filter({ kinds })} options={[{ value: "all", label: "All" }, { value: "acp", label: "ACP" }, { value: "http", label: "HTTP" }]} />
          <Segmented small label="Direction" value={filter.direction} onChange={(direction) => rows.filter({ direction })} options={[{ value: "both", label: "Both" }, { value: "sent", label: "Sent" }, { value: "received", label: "Received" }]} />
          <Checkbox label="Errors only" checked={filter.errors} onChange={(event) => rows.filter({ errors: event.target.checked })} />
          <Checkbox label="Violations only" checked={filter.wrong} onChange={(event) => rows.filter({ wrong: event.target.checked })} />
          {state.sessions.length > 0 && (
            <Select aria-label="Session" value={filter.session} onChange={(event) => rows.filter({ session: event.target.value })}>
              <option value="">All sessions</option>
              {state.sessions.map((id) => <option key={id} value={id}>{id}</option>)}
            </Select>
          )}
          {(wrong.length > 0 || violations.left > 0) && (
            <span className="row nowrap small" role="group" aria-label="Violations of the schema">
              {wrong.length > 0 && <Badge tone="warn">{plural(wrong.length, "entry violates", "entries violate")} the schema</Badge>}
              {violations.left > 0 && <span className="soft">{count(violations.left)} to be checked</span>}
              <IconButton label="The violation before" icon="up" size={14} disabled={wrong.length === 0} onClick={() => toWrong(-1)} />
              <IconButton label="The next violation" icon="down" size={14} disabled={wrong.length === 0} onClick={() => toWrong(1)} />
            </span>
          )}
          {violations.problem !== undefined && <span className="bad-text small" role="alert">{violations.problem}</span>}
          <span className="soft small" role="status">
            {state.rows.length === state.total ? plural(state.total, "entry", "entries") : `${state.rows.length} of ${plural(state.total, "entry", "entries")}`}
            {state.dropped > 0 && `, ${state.dropped} older ones let go`}
          </span>
        </div>
      </div>
      <div className={`wire-split ${chosen ? "chosen" : ""}`}>
        <div className="wire-all">
          {comparing && <Notice actions={<Button small onClick={alone}>Cancel</Button>}><p>Choose another entry in the list.</p></Notice>}
          <List rows={state.rows} chosen={chosen?.n} first={first?.n} onChoose={(n) => show(n)} paused={paused} />
        </div>
        {chosen && first && !comparing && <Comparison before={first} after={chosen} onSwap={() => show(first.n, String(chosen.n))} onClose={alone} />}
        {chosen && (!first || comparing) && (
          <Detail
            key={chosen.n} row={chosen} findings={violations.of(chosen)} comparing={comparing} onClose={() => show(undefined)} onGo={show}
            onCompare={() => (comparing ? alone() : show(chosen.n, String(chosen.n)))} onReplay={() => setSending({ again: chosen })}
          />
        )}
      </div>
      {sending && <Send again={sending.again} onClose={() => setSending(undefined)} />}
    </div>
  );
}

function List({ rows: all, chosen, first, onChoose, paused }: { rows: readonly Row[]; chosen: number | undefined; /** What is compared with. */ first: number | undefined; onChoose: (n: number) => void; paused: boolean }) {
  const scroller = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  const virtual = useVirtualizer({ count: all.length, getScrollElement: () => scroller.current, estimateSize: () => rowHeight, overscan: 12 });
  useEffect(() => {
    if (atEnd.current && all.length > 0) virtual.scrollToIndex(all.length - 1);
  }, [all.length, virtual]);
  const at = useMemo(() => all.findIndex((row) => row.n === chosen), [all, chosen]);
  useEffect(() => {
    if (at >= 0) virtual.scrollToIndex(at);
  }, [chosen]); // and not whenever an entry comes
  const inSight = virtual.getVirtualItems();
  const [from, to] = [inSight[0]?.index ?? 0, inSight.at(-1)?.index ?? -1];
  useEffect(() => violations.want([...(all[at] ? [all[at]] : []), ...all.slice(from, to + 1)]), [all, at, from, to]);
  if (all.length === 0) {
    return <Empty icon="wire" title={paused ? "Nothing is recorded" : "Nothing fits the filter"}>{paused ? "Press Record to see what follows." : "Change the filter, or use the page: all it sends and gets is listed here."}</Empty>;
  }
  const move = (event: React.KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -all.length, End: all.length }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = Math.min(all.length - 1, Math.max(0, (at < 0 ? all.length : at) + step));
    onChoose(all[next]!.n);
    virtual.scrollToIndex(next);
  };
  return (
    <div
      ref={scroller} className="wire-list" role="listbox" aria-label="Traffic" tabIndex={0} onKeyDown={move}
      aria-activedescendant={chosen === undefined ? undefined : `wire-${chosen}`}
      onScroll={(event) => {
        const el = event.currentTarget;
        atEnd.current = el.scrollHeight - el.scrollTop - el.clientHeight < 2 * rowHeight;
      }}
    >
      <div style={{ height: virtual.getTotalSize() }} role="presentation">
        {inSight.map((item) => {
          const row = all[item.index]!;
          const wrong = violations.of(row)?.filter((f) => f.wrong).length ?? 0;
          return (
            <div
              key={row.n} id={`wire-${row.n}`} role="option" aria-selected={row.n === chosen} aria-setsize={all.length} aria-posinset={item.index + 1}
              className={`wire-row ${row.kind} ${row.failed ? "failed" : ""} ${row.n === first ? "first" : ""}`} style={{ transform: `translateY(${item.start}px)`, height: rowHeight }}
              onClick={() => onChoose(row.n)}
            >
              <span className="wire-time">{clock(row.entry.at)}</span>
              <span className={`wire-way ${row.sent ? "sent" : "received"}`} title={row.sent ? "sent" : "received"}><Icon name="send" size={12} /><span className="unseen">{row.sent ? "sent" : "received"}</span></span>
              <span className="wire-title">
                {wrong > 0 && <span className="wire-wrong" title={`${plural(wrong, "violation")} of the schema`}><Icon name="warning" size={12} /><span className="unseen">{plural(wrong, "violation")} of the schema</span></span>}
                {row.title}
              </span>
              <span className="wire-kind">{row.kind === "http" ? "" : row.kind}</span>
              <span className="wire-note">{row.note}</span>
            </div>
          );
        })}
      </div>
    </div>
  );
}

const clock = (at: number) => new Date(at).toISOString().slice(11, 23);
