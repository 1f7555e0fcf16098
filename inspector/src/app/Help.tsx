import { useMemo } from "react";
import { Checkbox } from "../kit/controls.js";
import { Dialog } from "../kit/dialog.js";
import { Kbd } from "../kit/show.js";
import { settings } from "../state/page.js";
import { useStore } from "../state/store.js";
import { currentShortcuts, keysForPeople } from "./shortcuts.js";

export function Help({ onClose }: { onClose: () => void }) {
  const { letters } = useStore(settings);
  const groups = useMemo(() => Map.groupBy(currentShortcuts(), (s) => s.group), []);
  return (
    <Dialog title="Keyboard" onClose={onClose} wide>
      <div className="shortcuts">
        {[...groups].map(([group, all]) => (
          <section key={group}>
            <h3>{group}</h3>
            <dl>
              {all.map((s) => (
                <div key={s.keys}>
                  <dt><Kbd keys={keysForPeople(s.keys)} /></dt>
                  <dd>{s.what}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
      <Checkbox label="Single letters are shortcuts" hint="Turn this off if they get in the way of speech input." checked={letters} onChange={(event) => settings.change({ letters: event.target.checked })} />
    </Dialog>
  );
}
