import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import type { SessionInfo } from "sandbox-agent";
import { useShortcut } from "../app/shortcuts.js";
import { Button, Input, LinkButton, Select } from "../kit/controls.js";
import { Dot, Notice } from "../kit/show.js";
import { age, baseName, money } from "../kit/text.js";
import { gateway, router, sessions } from "../state/page.js";
import { hrefOf } from "../state/router.js";
import { useSelected, useStore } from "../state/store.js";
import { matches, type Cost } from "./sessions-store.js";
import { stateTone } from "./states.js";

const rowHeight = 62;

/** The gateway's sessions, of all clients, newest first. */
export function SessionList({ current }: { current: string | undefined }) {
  const { sessions: all, loaded, problem, more, costs } = useStore(sessions);
  const agents = useSelected(gateway, (g) => g.agents);
  const [search, setSearch] = useState("");
  const [agent, setAgent] = useState("");
  const filter = useRef<HTMLInputElement>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const [, tick] = useState(0);
  useEffect(() => {
    void sessions.refresh();
    const timer = setInterval(() => tick((n) => n + 1), 30_000); // ages
    return () => clearInterval(timer);
  }, []);
  const shown = useMemo(() => all.filter((s) => (agent === "" || s.agent === agent) && (search.trim() === "" || matches(s, search.trim()))), [all, search, agent]);
  const names = useMemo(() => new Map(agents.map((a) => [a.id, a.name])), [agents]);
  const used = useMemo(() => [...new Set(all.map((s) => s.agent))].sort(), [all]);
  const virtual = useVirtualizer({ count: shown.length, getScrollElement: () => scroller.current, estimateSize: () => rowHeight, getItemKey: (i) => shown[i]?.sessionId ?? i, overscan: 8 });

  useShortcut({ keys: "/", what: "Search the sessions", group: "Sessions", run: () => filter.current?.focus() });
  const step = (by: number) => {
    const at = shown.findIndex((s) => s.sessionId === current);
    const next = shown[at < 0 ? 0 : Math.min(shown.length - 1, Math.max(0, at + by))];
    if (!next) return;
    router.go("sessions", [next.sessionId]);
    virtual.scrollToIndex(shown.indexOf(next));
  };
  useShortcut({ keys: "j", what: "Next session", group: "Sessions", run: () => step(1) });
  useShortcut({ keys: "k", what: "Previous session", group: "Sessions", run: () => step(-1) });

  return (
    <aside className="split-side" aria-label="Sessions">
      <header className="side-head">
        <div className="row">
          <h2 className="grow">Sessions</h2>
          <LinkButton href="#/sessions/new" tone="primary" small icon="plus">New</LinkButton>
        </div>
        <div className="row nowrap">
          <Input ref={filter} type="search" aria-label="Search the sessions" placeholder="Search" value={search} onChange={(event) => setSearch(event.target.value)} />
          {used.length > 1 && (
            <Select aria-label="Agent" value={agent} onChange={(event) => setAgent(event.target.value)}>
              <option value="">All agents</option>
              {used.map((id) => <option key={id} value={id}>{names.get(id) ?? id}</option>)}
            </Select>
          )}
        </div>
      </header>
      {problem && <Notice tone="warn" title="The list is not up to date">{problem}</Notice>}
      <div ref={scroller} className="session-rows" tabIndex={-1}>
        <ul style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((item) => {
            const info = shown[item.index];
            return info ? (
              <li key={item.key} style={{ transform: `translateY(${item.start}px)`, height: rowHeight }} aria-setsize={shown.length} aria-posinset={item.index + 1}>
                <SessionRow info={info} agent={names.get(info.agent) ?? info.agent} cost={costs.get(info.sessionId)} current={info.sessionId === current} />
              </li>
            ) : null;
          })}
        </ul>
        {loaded && shown.length === 0 && <p className="side-note soft">{all.length === 0 ? "No sessions yet." : "No session fits the search."}</p>}
        {more && <div className="side-note"><Button small onClick={() => void sessions.showMore()}>Older sessions</Button></div>}
      </div>
      <footer className="side-foot"><a href="#/sessions/elsewhere" aria-current={current === "elsewhere" ? "page" : undefined}>Sessions made elsewhere</a></footer>
    </aside>
  );
}

function SessionRow({ info, agent, cost, current }: { info: SessionInfo; agent: string; cost: Cost | undefined; current: boolean }) {
  useEffect(() => sessions.wantCost(info), [info]);
  return (
    <a className="session-row" href={hrefOf("sessions", [info.sessionId])} aria-current={current ? "page" : undefined}>
      <span className="session-line">
        <Dot tone={stateTone(info.state)} />
        <span className="session-title clip">{info.title || baseName(info.cwd)}</span>
        {info.pending > 0 && <span className="badge warn" title="It waits for an answer">{info.pending} open</span>}
        <time className="soft small" dateTime={info.updatedAt} title={new Date(info.updatedAt).toLocaleString()}>{age(info.updatedAt)}</time>
      </span>
      <span className="session-line soft small">
        <span>{agent}</span>
        <span className="mono clip" title={info.cwd}>{info.cwd}</span>
        <span className="grow" />
        {cost && <span>{money(cost.amount, cost.currency)}</span>}
        <span className={info.state === "running" || info.state === "waiting" ? "session-state" : ""}>{info.state}</span>
      </span>
    </a>
  );
}
