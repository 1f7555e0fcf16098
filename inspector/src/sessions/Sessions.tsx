import { Suspense, lazy, useEffect, type CSSProperties } from "react";
import type { AreaProps } from "../areas.js";
import { useShortcut } from "../app/shortcuts.js";
import { IconButton, LinkButton } from "../kit/controls.js";
import { Splitter, usePane } from "../kit/splitter.js";
import { Empty, Kbd } from "../kit/show.js";
import { gateway, router, sessions, settings } from "../state/page.js";
import { useSelected } from "../state/store.js";
import { SessionList } from "./SessionList.js";
import "./sessions.css";
import "../conversation/conversation.css";

const ConversationView = lazy(() => import("../conversation/ConversationView.js"));
const NewSession = lazy(() => import("./NewSession.js"));
const NodeBar = lazy(() => import("../nodes/NodeBar.js"));
const Elsewhere = lazy(() => import("./Elsewhere.js"));

const listPane = { name: "sessions", standard: 320, min: 220, max: 560 } as const;

/** `#/sessions`, `#/sessions/new`, `#/sessions/elsewhere`, `#/sessions/ID`, `#/sessions/ID/CHILD` for one of its subagents. */
export default function Sessions({ route }: AreaProps) {
  const [place, child] = route.parts;
  const empty = useSelected(sessions, (s) => s.loaded && s.sessions.length === 0);
  const hub = useSelected(gateway, (g) => g.hub !== undefined);
  const node = useSelected(gateway, (g) => g.node);
  const { node: ofNode, label, state } = route.query;
  useEffect(() => {
    if (!hub || place !== undefined || (ofNode ?? label ?? state) === undefined) return;
    sessions.narrow({ ...(ofNode === undefined ? {} : { node: ofNode }), ...(label === undefined ? {} : { label: [label] }), ...(state === undefined ? {} : { state: [state] }) });
    router.go("sessions", [], { replace: true });
  }, [hub, place, ofNode, label, state]);
  useShortcut({ keys: "n", what: "New session", group: "Sessions", run: () => router.go("sessions", ["new"]) });
  const list = useSelected(settings, (s) => s.list);
  const width = usePane(listPane);
  useShortcut({ keys: "b", what: "Hide or show the list", group: "Sessions", run: () => settings.change({ list: !list }) });
  return (
    <div className={`split-view ${place ? "inside" : ""} ${list ? "" : "alone"}`} style={{ "--pane": `${width}px` } as CSSProperties}>
      <SessionList current={place} child={child} />
      {list ? <Splitter pane={listPane} label="Width of the list" /> : <div className="split-rail"><IconButton label="Show the list" icon="side" onClick={() => settings.change({ list: true })} /></div>}
      <div className="split-main">
        <Suspense fallback={<div className="area-wait" role="status">Loading…</div>}>
          {place === "new" ? <NewSession key={JSON.stringify(route.query)} query={route.query} />
            : place === "elsewhere" ? <>{hub && <NodeBar area={{ title: "Sessions made elsewhere" }} />}{(!hub || node !== undefined) && <Elsewhere key={node} />}</>
              : place ? <ConversationView id={place} child={child} />
                : (
                  <Empty icon="sessions" title={empty ? "No sessions yet" : "Choose a session"} action={<LinkButton href="#/sessions/new" tone="primary" icon="plus">New session</LinkButton>}>
                    <p>{empty ? "A session is a conversation with a coding agent. It belongs to the gateway and goes on when this page is closed." : `Sessions of all clients of ${hub ? "all nodes" : "this gateway"} are listed; they go on whether anybody looks or not.`}</p>
                    <p><Kbd keys="n" /> makes a new one, <Kbd keys="?" /> lists all keys.</p>
                  </Empty>
                )}
        </Suspense>
      </div>
    </div>
  );
}
