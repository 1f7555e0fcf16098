import { useVirtualizer } from "@tanstack/react-virtual";
import { lazy, Suspense, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { flushSync } from "react-dom";
import type { Child, SessionInfo } from "sandbox-agent";
import { useShortcut } from "../app/shortcuts.js";
import { Button, IconButton, Input, LinkButton, Select } from "../kit/controls.js";
import { Menu } from "../kit/dialog.js";
import { Icon } from "../kit/icons.js";
import { Dot, Notice } from "../kit/show.js";
import { age, money, plural } from "../kit/text.js";
import { gateway, router, sessions, settings, toasts } from "../state/page.js";
import { hrefOf } from "../state/router.js";
import { useSelected, useStore } from "../state/store.js";
import type { HubSession } from "../nodes/hub.js";
import { marksOf, nameOf, sectionsOf, titleOfChild } from "./marks.js";
import { markItems, Rename } from "./Rename.js";
import { matches } from "./sessions-store.js";
import { away, shownState, stateTone } from "./states.js";
import { useDrive } from "../app/drive.js";

const Where = lazy(() => import("../nodes/Where.js"));
const Several = lazy(() => import("./Several.js"));

const rowHeight = 62;
const headHeight = 30;

/** Subagents of the session that is open which are listed; the newest. Of others those that work. */
const shownChildren = 20;
const childHeight = 30;

type Line =
  | { readonly head: string; readonly info?: undefined; readonly child?: undefined }
  | { readonly head?: undefined; readonly info: SessionInfo; readonly child?: Child };

/** A session, and its subagents below it. */
function linesOf(info: SessionInfo, current: string | undefined): Line[] {
  const children = (info.children ?? []).filter((c) => info.sessionId === current || c.state !== "idle").slice(-shownChildren);
  return [{ info }, ...children.map((child) => ({ info, child }))];
}

const heightOf = (line: Line | undefined) => (line?.head !== undefined ? headHeight : line?.child ? childHeight : rowHeight);
const keyOf = (line: Line) => line.child?.sessionId ?? line.info?.sessionId ?? `head ${line.head}`;

/** The gateway's sessions, of all clients: what is pinned, what works, then the newest. */
export function SessionList({ current, child }: { current: string | undefined; child: string | undefined }) {
  const { sessions: all, loaded, problem, more, filter: narrowed } = useStore(sessions);
  const hub = useSelected(gateway, (g) => g.hub !== undefined);
  const agents = useSelected(gateway, (g) => g.agents);
  const reader = useSelected(gateway, (g) => g.hub?.scope === "read");
  const by = useSelected(settings, (s) => s.group);
  const [search, setSearch] = useState("");
  const [agent, setAgent] = useState("");
  const [archive, setArchive] = useState(false);
  const [renaming, setRenaming] = useState<SessionInfo>();
  const [several, setSeveral] = useState<readonly string[]>();
  const drive = useDrive();
  const filter = useRef<HTMLInputElement>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), 30_000); // ages
    return () => clearInterval(timer);
  }, []);
  const archived = useMemo(() => all.filter((s) => marksOf(s).archived).length, [all]);
  const said = useSaid(search.trim(), all);
  const lines = useMemo((): Line[] => {
    const words = search.trim();
    const shown = (s: SessionInfo) => (marksOf(s).archived === true) === archive && (agent === "" || s.agent === agent);
    const listed = new Set(all.map((s) => s.sessionId));
    // The gateway finds those that are not listed yet by their names, too.
    const fits = words === "" ? all.filter(shown) : [...all, ...said.filter((s) => !listed.has(s.sessionId))].filter((s) => shown(s) && matches(s, words));
    const known = new Set(fits.map((s) => s.sessionId));
    const parts = sectionsOf(fits, by);
    const others = said.filter((s) => shown(s) && !known.has(s.sessionId));
    if (others.length > 0) parts.push({ title: "In what was said", sessions: others });
    return parts.flatMap(({ title, sessions: some }): Line[] => [{ head: title }, ...some.flatMap((info) => linesOf(info, current))]);
  }, [all, search, said, agent, archive, by, current]);
  const names = useMemo(() => new Map(agents.map((a) => [a.id, a.name])), [agents]);
  const used = useMemo(() => [...new Set(all.map((s) => s.agent))].sort(), [all]);
  const virtual = useVirtualizer({
    count: lines.length, getScrollElement: () => scroller.current, overscan: 8,
    estimateSize: (i) => heightOf(lines[i]), getItemKey: (i) => (lines[i] ? keyOf(lines[i]) : i),
  });
  useEffect(() => virtual.measure(), [virtual, lines]);
  useEffect(() => void scroller.current?.scrollTo({ top: 0 }), [search, agent, archive, by]);
  useHold(scroller, lines);

  useShortcut({ keys: "/", what: "Search the sessions", group: "Sessions", run: () => {
    flushSync(() => settings.change({ list: true }));
    filter.current?.focus();
  } });
  const step = (direction: number) => {
    const shown = lines.flatMap((l) => (l.info && !l.child ? [l.info] : []));
    const at = shown.findIndex((s) => s.sessionId === current);
    const next = shown[at < 0 ? 0 : Math.min(shown.length - 1, Math.max(0, at + direction))];
    if (!next) return;
    router.go("sessions", [next.sessionId]);
    virtual.scrollToIndex(lines.findIndex((l) => l.info === next));
  };
  useShortcut({ keys: "j", what: "Next session", group: "Sessions", run: () => step(1) });
  useShortcut({ keys: "k", what: "Previous session", group: "Sessions", run: () => step(-1) });

  return (
    <aside className="split-side" aria-label="Sessions">
      <header className="side-head">
        <div className="row">
          <h1 className="grow">{archive ? "Archive" : "Sessions"}</h1>
          <Menu
            label="How the list is shown"
            items={[
              { label: "Group by time", hint: by === "time" ? "now" : "", run: () => settings.change({ group: "time" }) },
              { label: "Group by folder", hint: by === "folder" ? "now" : "", run: () => settings.change({ group: "folder" }) },
              { label: archive ? "All sessions" : "Archive", hint: archive || archived === 0 ? "" : String(archived), run: () => setArchive(!archive) },
              { label: "Choose several\u2026", hint: "archive or delete", ...drive, ...(all.length === 0 ? { disabled: true, title: "There is no session" } : {}), run: () => setSeveral([...new Set(lines.flatMap((l) => l.info?.sessionId ?? []))]) },
            ]}
          />
          {!reader && <LinkButton href="#/sessions/new" tone="primary" small icon="plus">New</LinkButton>}
          <IconButton className="hide-list" label="Hide the list" icon="side" onClick={() => settings.change({ list: false })} />
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
        {hub && <Suspense fallback={null}><Where filter={narrowed} /></Suspense>}
      </header>
      {problem && <Notice tone="warn" title="The list is not up to date">{problem}</Notice>}
      <div ref={scroller} className="session-rows" tabIndex={-1}>
        <ul style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((item) => {
            const line = lines[item.index];
            if (!line) return null;
            return (
              <li key={item.key} style={{ transform: `translateY(${item.start}px)`, height: item.size }} aria-setsize={lines.length} aria-posinset={item.index + 1}>
                {line.child ? <ChildRow info={line.info} child={line.child} current={line.child.sessionId === child} /> : line.info
                  ? <SessionRow info={line.info} agent={names.get(line.info.agent) ?? line.info.agent} current={line.info.sessionId === current && child === undefined} onRename={() => setRenaming(line.info)} />
                  : <h2 className="session-head clip" title={line.head}>{line.head}</h2>}
              </li>
            );
          })}
        </ul>
        {loaded && lines.length === 0 && <p className="side-note soft">{archive ? "Nothing is archived." : all.length === 0 ? (Object.keys(narrowed).length > 0 ? "There is no such session." : "No sessions yet.") : "No session fits the search."}</p>}
        {more && <div className="side-note"><Button small onClick={() => void toasts.attempt("They cannot be listed", () => sessions.showMore())}>Older sessions</Button></div>}
      </div>
      <footer className="side-foot"><a href="#/sessions/elsewhere" aria-current={current === "elsewhere" ? "page" : undefined}>Sessions made elsewhere</a></footer>
      {several && <Suspense fallback={null}><Several offered={several} onClose={() => setSeveral(undefined)} /></Suspense>}
      {renaming && <Rename info={renaming} onClose={() => setRenaming(undefined)} />}
    </aside>
  );
}

/** Keeps what is in sight where it is while the list changes above it: by how far most of it would move. */
function useHold(scroller: { readonly current: HTMLElement | null }, lines: readonly Line[]): void {
  const before = useRef(lines);
  useLayoutEffect(() => {
    const old = before.current;
    before.current = lines;
    const element = scroller.current;
    if (!element || old === lines || element.scrollTop === 0) return;
    const places = new Map<string, number>();
    let at = 0;
    for (const line of lines) {
      places.set(keyOf(line), at);
      at += heightOf(line);
    }
    const { scrollTop: top, clientHeight } = element;
    const moved: number[] = [];
    at = 0;
    for (const line of old) {
      const now = places.get(keyOf(line));
      if (at >= top && at < top + clientHeight && now !== undefined) moved.push(now - at);
      at += heightOf(line);
    }
    const by = moved.sort((a, b) => a - b)[moved.length >> 1] ?? 0;
    if (by !== 0) element.scrollTop = top + by;
  }, [scroller, lines]);
}

/** How long nothing more may be typed until messages are searched, too. */
const typedMs = 300;

/** The sessions in whose messages the words are: as the list has them, and without those that have left it since. */
function useSaid(words: string, all: readonly SessionInfo[]): readonly SessionInfo[] {
  const [found, setFound] = useState<readonly SessionInfo[]>([]);
  const listed = useRef(new Set<string>());
  for (const { sessionId } of all) listed.current.add(sessionId);
  useEffect(() => {
    setFound((before) => (before.length === 0 ? before : []));
    if (words.length < 3) return;
    const over = new AbortController();
    const timer = setTimeout(() => {
      sessions.search(words, over.signal).then((all) => !over.signal.aborted && setFound(all), () => {}); // the list says when the gateway does not answer
    }, typedMs);
    return () => {
      clearTimeout(timer);
      over.abort();
    };
  }, [words]);
  return useMemo(() => {
    const now = new Map(all.map((s) => [s.sessionId, s]));
    return found.flatMap((s) => {
      const is = now.get(s.sessionId);
      return is ? { ...is, ...(s.match ? { match: s.match } : {}) } : listed.current.has(s.sessionId) ? [] : s;
    });
  }, [found, all]);
}

function ChildRow({ info, child, current }: { info: SessionInfo; child: Child; current: boolean }) {
  return (
    <a className="child-row" href={hrefOf("sessions", [info.sessionId, child.sessionId])} aria-current={current ? "page" : undefined} title={`Subagent of ${nameOf(info)}`}>
      <Dot tone={stateTone(child.state)} />
      <span className="clip grow">{titleOfChild(child)}</span>
      <span className={`soft session-state ${child.state}`}>{child.state}</span>
    </a>
  );
}

function SessionRow({ info, agent, current, onRename }: { info: SessionInfo; agent: string; current: boolean; onRename: () => void }) {
  const drive = useDrive();
  const name = nameOf(info);
  const { cost, match } = info;
  const { node } = info as HubSession;
  const shown = shownState(info);
  return (
    <div className="session-slot">
      <a className="session-row" href={hrefOf("sessions", [info.sessionId])} aria-current={current ? "page" : undefined}>
        <span className="session-line">
          <Dot tone={shown.tone} />
          <span className="session-title clip">{name}</span>
          {marksOf(info).pinned && <Icon name="pin" size={12} />}
          {info.pending > 0 && !away.has(info.state) && <span className="badge warn" title={`${plural(info.pending, "question")} of its agent`}>{info.pending} open</span>}
          <time className="soft small" dateTime={info.updatedAt} title={new Date(info.updatedAt).toLocaleString()}>{age(info.updatedAt)}</time>
        </span>
        <span className="session-line soft small">
          {node !== undefined && <span className="session-node clip" title={`Node ${node}`}>{node}</span>}
          <span className="session-agent clip">{agent}</span>
          {match && match.seq > 0 ? <span className="clip" title={match.text}>… {match.text} …</span> : <span className="mono clip" title={info.cwd}>{info.cwd}</span>}
          <span className="grow" />
          {cost && <span>{money(cost.amount, cost.currency)}</span>}
          <span className={`session-state ${info.state}`}>{shown.words}</span>
        </span>
      </a>
      <Menu className="session-menu" label={`Do something with ${name}`} items={markItems(info, drive, onRename)} />
    </div>
  );
}
