import { memo, useEffect, useState } from "react";
import { CopyButton, Segmented } from "../kit/controls.js";
import { Dialog } from "../kit/dialog.js";
import { settings } from "../state/page.js";
import { shownTheme } from "../state/settings.js";
import { useSelected } from "../state/store.js";
import { Code } from "./Code.js";
import type { Drawn } from "./draw.js";

interface Picture extends Drawn {
  readonly url: string;
}

/** Diagrams that are kept: those that come into sight again are shown at once. */
const maxKept = 24;
const kept = new Map<string, Promise<Picture>>(); // the newest last

function drawn(source: string, dark: boolean): Promise<Picture> {
  const key = `${dark ? "dark" : "light"} ${source}`;
  const known = kept.get(key);
  kept.delete(key);
  const picture = known ?? import("./draw.js").then(({ draw }) => draw(source, dark)).then((d) => ({ ...d, url: URL.createObjectURL(d.picture) }));
  kept.set(key, picture);
  picture.catch(() => kept.get(key) === picture && kept.delete(key));
  for (const [old, other] of kept) {
    if (kept.size <= maxKept) break;
    kept.delete(old);
    void other.then(({ url }) => setTimeout(() => URL.revokeObjectURL(url), 60_000), () => {}); // it may still be in sight
  }
  return picture;
}

function useDark(): boolean {
  const theme = useSelected(settings, (s) => s.theme);
  const [system, set] = useState(() => matchMedia("(prefers-color-scheme: dark)").matches);
  useEffect(() => {
    const query = matchMedia("(prefers-color-scheme: dark)");
    const on = () => set(query.matches);
    query.addEventListener("change", on);
    return () => query.removeEventListener("change", on);
  }, []);
  return shownTheme(theme, system) === "dark";
}

/** A diagram in Mermaid's language, as a picture. Where it cannot be drawn it is shown as it was written, with the reason. */
export const Diagram = memo(function Diagram({ source }: { source: string }) {
  const dark = useDark();
  const [state, setState] = useState<{ readonly picture?: Picture; readonly problem?: string }>({});
  const [view, setView] = useState<"picture" | "source">("picture");
  const [large, setLarge] = useState(false);
  useEffect(() => {
    let alive = true;
    drawn(source, dark).then(
      (picture) => alive && setState({ picture }),
      (error: unknown) => alive && setState({ problem: (error instanceof Error ? error.message : String(error)).split("\n")[0]!.slice(0, 300) }),
    );
    return () => {
      alive = false;
    };
  }, [source, dark]);
  const { picture, problem } = state;
  const label = `Diagram: ${/\S.*/.exec(source.replace(/^\s*(---[\s\S]*?\n---|%%.*)\s*/, ""))?.[0].slice(0, 60) ?? ""}`;
  if (!picture || view === "source") {
    return (
      <div className="diagram-source">
        {picture && <div className="diagram-head"><Views view={view} onChange={setView} /></div>}
        {problem !== undefined && <p className="small soft" role="status">This diagram cannot be drawn: {problem}</p>}
        <Code code={source} language="mermaid" />
      </div>
    );
  }
  return (
    <figure className="code-block diagram">
      <figcaption className="diagram-head"><Views view={view} onChange={setView} /><CopyButton text={source} iconOnly label="Copy the source" /></figcaption>
      <button type="button" className="picture" aria-label={`${label}, show large`} onClick={() => setLarge(true)}><img src={picture.url} width={picture.width} height={picture.height} alt={label} /></button>
      {large && <Dialog title="Diagram" wide onClose={() => setLarge(false)}><div className="diagram-large" tabIndex={0} role="group" aria-label={label}><img src={picture.url} width={picture.width} height={picture.height} alt={label} /></div></Dialog>}
    </figure>
  );
});

function Views({ view, onChange }: { view: "picture" | "source"; onChange: (view: "picture" | "source") => void }) {
  return <Segmented small label="How the diagram is shown" value={view} onChange={onChange} options={[{ value: "picture", label: "Diagram" }, { value: "source", label: "Source" }]} />;
}
