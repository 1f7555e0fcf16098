import { useState } from "react";
import type { AreaProps } from "../areas.js";
import { useDrive } from "../app/drive.js";
import { useWork } from "../app/work.js";
import { Button, IconButton, Input } from "../kit/controls.js";
import { useLoad } from "../kit/load.js";
import { AreaHead, Badge, Dot, Empty, Notice } from "../kit/show.js";
import { baseName } from "../kit/text.js";
import { gone } from "../state/explain.js";
import { departing, gateway, leave } from "../state/page.js";
import { commandOf } from "../processes/words.js";
import View from "./View.js";
import "./terminal.css";

/** A shell that is there on every machine, the person's own where it is known. */
const shell = { command: "sh", args: ["-c", 'for s in "$SHELL" bash; do if command -v "$s" >/dev/null 2>&1; then exec "$s" -i; fi; done; exec sh -i'] };

/** `#/terminal`, `#/terminal/PROCESS`. */
export default function TerminalArea({ route }: AreaProps) {
  const [id] = route.parts;
  const { value, error, reload } = useLoad((signal) => gateway.machine.processes.list({ signal }), [], 3000);
  const terminals = value?.filter((p) => p.tty) ?? [];
  const chosen = terminals.find((p) => p.id === id);
  const drive = useDrive();
  const [folder, setFolder] = useState("");
  const work = useWork();
  const begin = () => void work.run("No terminal", async () => {
    const lead = departing();
    const started = await gateway.machine.processes.start({ ...shell, tty: true, env: { TERM: "xterm-256color" }, ...(folder.trim() === "" ? {} : { cwd: folder.trim() }) });
    lead("The terminal is open.", "terminal", [started.id]);
    reload();
  });
  const end = async (which: string) => {
    await gone(gateway.machine.processes.delete(which)).finally(reload);
    leave("terminal", which);
  };
  return (
    <div className="area full terminal">
      <div className="stack">
        <AreaHead
          title="Terminal" lead="Shells and other programs with a terminal, where the gateway runs. They go on when nobody looks."
          actions={
            <form className="row" onSubmit={(event) => { event.preventDefault(); begin(); }}>
              <Input aria-label="Folder" placeholder="Folder, else home" value={folder} {...drive} onChange={(event) => setFolder(event.target.value)} />
              <Button type="submit" tone="primary" icon="plus" busy={work.busy} {...drive}>New terminal</Button>
            </form>
          }
        />
        {error && <Notice tone="bad" title="The programs cannot be listed"><p>{error.message}</p></Notice>}
        {terminals.length > 0 && (
          <ul className="tabs" aria-label="Terminals">
            {terminals.map((p) => (
              <li key={p.id} className={p.id === id ? "current" : ""}>
                <a href={`#/terminal/${encodeURIComponent(p.id)}`} aria-current={p.id === id ? "true" : undefined} title={`${commandOf(p)}\nin ${p.cwd}`}>
                  <Dot tone={p.state === "running" ? "good" : "plain"} /> <span className="clip">{nameOf(p)}</span>
                  {p.viewers > 1 && <Badge title="viewers">{p.viewers}</Badge>}
                </a>
                <End label={p.state === "running" ? `End ${nameOf(p)}` : `Close ${nameOf(p)}`} onEnd={() => end(p.id)} />
              </li>
            ))}
          </ul>
        )}
      </div>
      {chosen ? <View key={chosen.id} id={chosen.id} name={nameOf(chosen)} />
        : id !== undefined && value ? <Empty icon="terminal" title="This terminal is not there any more" action={<a className="button" href="#/terminal">All terminals</a>}>It has ended and was let go, or it was another gateway's.</Empty>
        : value ? <Empty icon="terminal" title="No terminal is open" action={<Button tone="primary" icon="plus" busy={work.busy} {...drive} onClick={begin}>New terminal</Button>}>A terminal here is a program of the gateway: it has its rights, and everybody with the token can look at it.</Empty>
        : <p className="soft" role="status">{error ? "" : "Loading…"}</p>}
    </div>
  );
}

function End({ label, onEnd }: { label: string; onEnd: () => Promise<unknown> }) {
  const drive = useDrive();
  const work = useWork();
  return <IconButton label={label} icon="close" size={13} disabled={work.busy} onClick={() => void work.run("It does not end", onEnd)} {...drive} />;
}

const nameOf = (p: { command: string; args: readonly string[]; cwd: string; id: string }) => (p.args.join(" ") === shell.args.join(" ") ? `shell in ${baseName(p.cwd) || "/"}` : baseName(p.command));
