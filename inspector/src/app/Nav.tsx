import { useEffect, useState } from "react";
import { areasOf } from "../areas.js";
import { IconButton } from "../kit/controls.js";
import { Icon } from "../kit/icons.js";
import { Dot } from "../kit/show.js";
import { gateway, inboxCount, router, settings } from "../state/page.js";
import type { Theme } from "../state/settings.js";
import { useStore } from "../state/store.js";
import { useShortcut, type Shortcut } from "./shortcuts.js";

function Go(shortcut: Shortcut) {
  useShortcut(shortcut);
  return null;
}

const themes: Record<Theme, { next: Theme; icon: "system" | "sun" | "moon"; label: string }> = {
  system: { next: "light", icon: "system", label: "Theme: as the system" },
  light: { next: "dark", icon: "sun", label: "Theme: light" },
  dark: { next: "system", icon: "moon", label: "Theme: dark" },
};

const phases = {
  idle: ["plain", "Not connected"], connecting: ["busy", "Connecting"], open: ["good", "Connected"],
  reconnecting: ["warn", "Reconnecting"], failed: ["bad", "Disconnected"],
} as const;

/** The areas, beside the page or, where there is little room, behind a button. */
export function Nav({ current, onHelp }: { current: string; onHelp: () => void }) {
  const [open, setOpen] = useState(false);
  const { phase, endpoint, version, hub, above } = useStore(gateway);
  const areas = areasOf(hub !== undefined);
  const { theme } = useStore(settings);
  const waiting = useStore(inboxCount);
  const route = useStore(router);
  useEffect(() => setOpen(false), [route]);
  const [tone, word] = phases[phase];
  const area = areas.find((a) => a.id === current);
  return (
    <>
      <header className="topbar">
        <IconButton label={open ? "Close the menu" : "Open the menu"} icon={open ? "close" : "menu"} aria-expanded={open} aria-controls="nav" onClick={() => setOpen(!open)} />
        <strong>{area?.title}</strong>
        <span className="grow" />
        {waiting > 0 && <a className="button small" href="#/inbox"><Icon name="inbox" /> {waiting}<span className="unseen"> waiting</span></a>}
        <Dot tone={tone} />
        <span className="unseen">{word}</span>
      </header>
      {open && <div className="nav-veil" onClick={() => setOpen(false)} />}
      <nav id="nav" className={`nav ${open ? "open" : ""}`} aria-label="Areas" onKeyDown={(event) => event.key === "Escape" && setOpen(false)}>
        <a className="brand" href={`#/${areas[0]!.id}`}>
          <img src="./icon.svg" alt="" width="22" height="22" />
          Sandbox Agent
        </a>
        <ul>
          {areas.map((a) => (
            <li key={a.id}>
              <Go keys={`g ${a.letter}`} what={a.title} group="Go to" run={() => router.go(a.id)} />
              <a href={`#/${a.id}`} title={a.title} aria-current={a.id === current ? "page" : undefined}>
                <Icon name={a.icon} />
                <span>{a.title}</span>
                {a.id === "inbox" && waiting > 0 && <span className="count" aria-label={`${waiting} waiting`}>{waiting}</span>}
              </a>
            </li>
          ))}
        </ul>
        {above && <a href={above} className="nav-above" title="All nodes of the hub"><Icon name="nodes" /> <span>All nodes</span></a>}
        <div className="nav-foot">
          <a href="#/connect" className="nav-connection" title={endpoint}>
            <Dot tone={tone} />
            <span>
              <span className="nav-phase">{word}</span>
              <span className="soft small clip">{hub ? "Hub " : ""}{new URL(endpoint).host}{version ? ` · ${version.version}` : ""}</span>
            </span>
          </a>
          <div className="row tight">
            <IconButton label={themes[theme].label} icon={themes[theme].icon} onClick={() => settings.change({ theme: themes[theme].next })} />
            <IconButton label="Keyboard shortcuts" icon="help" onClick={onHelp} />
          </div>
        </div>
      </nav>
    </>
  );
}
