import { Suspense, lazy, useEffect, useState } from "react";
import { areasOf } from "../areas.js";
import { Connect } from "../connect/Connect.js";
import { Empty } from "../kit/show.js";
import { gateway, router, settings } from "../state/page.js";
import { shownTheme } from "../state/settings.js";
import { useSelected, useStore } from "../state/store.js";
import { Boundary } from "./Boundary.js";
import { ConnectionBar } from "./ConnectionBar.js";
import { keepFocus } from "./focus.js";
import { Help } from "./Help.js";
import { Nav } from "./Nav.js";
import { currentShortcuts, listenForShortcuts, useShortcut, type Shortcut } from "./shortcuts.js";
import { useTitle } from "./title.js";
import { ToastList } from "./ToastList.js";

const NodeBar = lazy(() => import("../nodes/NodeBar.js"));
const Palette = lazy(() => import("./Palette.js"));

function useTheme(): void {
  const { theme } = useStore(settings);
  useEffect(() => {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const show = () => (document.documentElement.dataset.theme = shownTheme(theme, dark.matches));
    show();
    dark.addEventListener("change", show);
    return () => dark.removeEventListener("change", show);
  }, [theme]);
}

export function App() {
  useTheme();
  useEffect(() => listenForShortcuts(document), []);
  useEffect(() => keepFocus(document), []);
  const route = useStore(router);
  const ready = useSelected(gateway, (g) => g.generation > 0 && g.phase !== "idle" && g.phase !== "connecting");
  const generation = useSelected(gateway, (g) => g.generation);
  const [help, setHelp] = useState(false);
  useShortcut({ keys: "?", what: "This list", group: "Everywhere", run: () => setHelp(true) });

  const [palette, setPalette] = useState<readonly Shortcut[]>();
  useShortcut({ keys: "mod+k", what: "Commands, sessions and places", group: "Everywhere", always: true, run: () => setPalette(currentShortcuts()) });

  const hub = useSelected(gateway, (g) => g.hub !== undefined);
  const node = useSelected(gateway, (g) => g.node);
  const areas = areasOf(hub);
  const area = areas.find((a) => a.id === route.area) ?? areas[0]!;
  const wanted = ready && hub ? route.query.node : undefined;
  useEffect(() => {
    if (wanted !== undefined) gateway.visit(wanted);
  }, [wanted]);
  const asked = route.area === "connect" ? route.query : {};
  const known = route.area === "" || route.area === "connect" || area.id === route.area;
  const title = route.area === "connect" || !ready ? "Connect" : area.title;
  useTitle("area", title);

  if (!ready || route.area === "connect") {
    return (
      <>
        <Connect key={`${asked.endpoint ?? ""} ${asked.agent ?? ""}`} />
        <ToastList />
        {help && <Help onClose={() => setHelp(false)} />}
      </>
    );
  }
  const Component = area.component;
  const unchosen = hub && area.ofMachine === true && (node === undefined || (wanted !== undefined && wanted !== node));
  return (
    <div className="shell">
      <a
        className="skip" href="#main"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById("main")?.focus();
        }}
      >
        Skip to the content
      </a>
      <Nav current={area.id} onHelp={() => setHelp(true)} />
      <div className="stage">
        <ConnectionBar />
        <main id="main" tabIndex={-1}>
          <Boundary key={`${area.id} ${generation} ${area.ofMachine ? node : ""}`}>
            <Suspense fallback={<div className="area-wait" role="status">Loading…</div>}>
              {hub && known && area.ofMachine && <NodeBar area={area} />}
              {unchosen ? null : known ? <Component route={route} key={`${generation} ${area.ofMachine ? node : ""}`} /> : <Empty icon="help" title="There is nothing at this address" action={<a className="button" href="#/sessions">To the sessions</a>} />}
            </Suspense>
          </Boundary>
        </main>
      </div>
      <ToastList />
      {help && <Help onClose={() => setHelp(false)} />}
      {palette && <Suspense fallback={null}><Palette shortcuts={palette} onClose={() => setPalette(undefined)} /></Suspense>}
    </div>
  );
}
