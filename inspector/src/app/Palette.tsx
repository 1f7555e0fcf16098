import { useId, useMemo, useState } from "react";
import { areasOf } from "../areas.js";
import { Input } from "../kit/controls.js";
import { Dialog } from "../kit/dialog.js";
import { Icon, type IconName } from "../kit/icons.js";
import { Kbd } from "../kit/show.js";
import { gateway, notifier, router, sessions, settings } from "../state/page.js";
import type { Theme } from "../state/settings.js";
import { marksOf, nameOf } from "../sessions/marks.js";
import { keysForPeople, type Shortcut } from "./shortcuts.js";

interface Command {
  readonly id: string;
  readonly icon: IconName;
  readonly label: string;
  readonly about: string;
  readonly keys?: string;
  run(): void;
}

/** Commands that are shown at once. */
const maxShown = 60;

function commandsOf(shortcuts: readonly Shortcut[]): Command[] {
  const { sessions: all } = sessions.get();
  const themes: [Theme, string][] = [["system", "as the system"], ["light", "light"], ["dark", "dark"]];
  const { notify } = settings.get();
  return [
    { id: "new", icon: "plus", label: "New session", about: "", run: () => router.go("sessions", ["new"]) },
    ...areasOf(gateway.get().hub !== undefined).map((a): Command => ({ id: `area ${a.id}`, icon: a.icon, label: a.title, about: "Go to", keys: `g ${a.letter}`, run: () => router.go(a.id) })),
    ...shortcuts.filter((s) => s.group !== "Go to" && s.keys !== "mod+k").map((s): Command => ({ id: `key ${s.group} ${s.keys}`, icon: "play", label: s.what, about: s.group, keys: s.keys, run: s.run })),
    ...themes.map(([theme, words]): Command => ({ id: `theme ${theme}`, icon: theme === "dark" ? "moon" : theme === "light" ? "sun" : "system", label: `Theme: ${words}`, about: "", run: () => settings.change({ theme }) })),
    { id: "notify", icon: "inbox", label: notify ? "Do not notify me" : "Notify me while the page is out of sight", about: "", run: () => void notifier.turn(!notify) },
    ...all.filter((s) => !marksOf(s).archived).map((s): Command => ({ id: s.sessionId, icon: "sessions", label: nameOf(s), about: s.cwd, run: () => router.go("sessions", [s.sessionId]) })),
    ...gateway.get().agents.map((a): Command => ({ id: `agent ${a.id}`, icon: "agents", label: `New session with ${a.name}`, about: a.installed ? "" : "not installed", run: () => router.go("sessions", ["new"], { query: { agent: a.id } }) })),
  ];
}

/** Everything that can be done or gone to, found by its name. */
export default function Palette({ shortcuts, onClose }: { shortcuts: readonly Shortcut[]; onClose: () => void }) {
  const [text, setText] = useState("");
  const [picked, setPicked] = useState(0);
  const listId = useId();
  const all = useMemo(() => commandsOf(shortcuts), [shortcuts]);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = all.filter((c) => words.every((w) => `${c.label} ${c.about}`.toLowerCase().includes(w)));
  const rank = (c: Command) => (words.length > 0 && c.label.toLowerCase().startsWith(words.join(" ")) ? 0 : 1);
  const shown = found.toSorted((a, b) => rank(a) - rank(b)).slice(0, maxShown);
  const at = Math.min(picked, shown.length - 1);
  const run = (command: Command | undefined) => {
    if (!command) return;
    onClose();
    command.run();
  };
  return (
    <Dialog title="What do you want to do?" onClose={onClose}>
      <div className="palette">
        <Input
          autoFocus role="combobox" aria-expanded aria-controls={listId} aria-activedescendant={shown[at] ? `${listId}-${at}` : undefined} aria-label="Command, session or place" placeholder="A command, a session, a place" value={text}
          onChange={(event) => {
            setText(event.target.value);
            setPicked(0);
          }}
          onKeyDown={(event) => {
            const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
            if (step !== undefined) setPicked((at + step + shown.length) % Math.max(1, shown.length));
            else if (event.key === "Enter") run(shown[at]);
            else return;
            event.preventDefault();
          }}
        />
        <ul role="listbox" id={listId} aria-label="Found">
          {shown.map((c, i) => (
            <li key={c.id} id={`${listId}-${i}`} role="option" aria-selected={i === at} ref={(el) => void (i === at && el?.scrollIntoView({ block: "nearest" }))} onClick={() => run(c)}>
              <Icon name={c.icon} size={14} /> <span className="clip">{c.label}</span> <span className="soft small clip grow">{c.about}</span>
              {c.keys && <Kbd keys={keysForPeople(c.keys)} />}
            </li>
          ))}
        </ul>
        {shown.length === 0 && <p className="soft" role="status">Nothing is called so.</p>}
      </div>
    </Dialog>
  );
}
