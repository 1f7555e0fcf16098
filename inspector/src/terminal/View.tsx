import { useEffect, useMemo, useState } from "react";
import { Button } from "../kit/controls.js";
import { Kbd } from "../kit/show.js";
import { gateway } from "../state/page.js";
import { useStore } from "../state/store.js";
import { Keys, keys } from "./keys.js";
import { Screen } from "./Screen.js";
import { Viewer } from "./viewer.js";
import "./terminal.css";

/** The screen of a terminal of the gateway's machine, and how it is with it. */
export default function View({ id, name }: { id: string; name: string }) {
  const viewer = useMemo(() => new Viewer(gateway.machine, id), [id]);
  const feed = useMemo(() => new Keys(viewer), [viewer]);
  const { phase, words } = useStore(viewer);
  const [again, setAgain] = useState(0);
  useEffect(() => setAgain(0), [id]);
  return (
    <section className="terminal-view" aria-label={name}>
      <Screen key={again} feed={feed} label={`Terminal ${name}`} />
      {phase === "open" && <KeyRow feed={feed} />}
      <div className="row small soft" role="status">
        {phase === "opening" && "Opening…"}
        {phase === "open" && <span>Connected. <Kbd keys="Ctrl Shift Esc" /> leaves the terminal by keyboard.</span>}
        {phase === "reconnecting" && "The connection is broken. Trying again. If the gateway still runs, so does the program, and what you type is sent to it then."}
        {phase === "ended" && <span>The program has {words}.</span>}
        {(phase === "opening" || phase === "open" || phase === "reconnecting") && words !== "" && <span className="bad-text">{words}</span>}
        {phase === "failed" && <><span className="bad-text">{words}</span> <Button small onClick={() => setAgain(again + 1)}>Try again</Button></>}
      </div>
    </section>
  );
}

/** Keys for keyboards that lack them; seen where a finger is what points. */
function KeyRow({ feed }: { feed: Keys }) {
  const { ctrl } = useStore(feed);
  // A button that takes the focus would close the keyboard.
  const keep = (event: React.PointerEvent) => event.preventDefault();
  return (
    <div className="key-row" role="toolbar" aria-label="Keys">
      <button type="button" aria-pressed={ctrl} onPointerDown={keep} onClick={() => feed.toggleCtrl()}>Ctrl</button>
      {keys.map((key) => <button key={key.name} type="button" aria-label={key.name} onPointerDown={keep} onClick={() => feed.press(key.data)}>{key.label}</button>)}
    </div>
  );
}
