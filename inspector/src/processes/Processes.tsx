import { useEffect, useMemo, useState } from "react";
import type { HostProcess } from "sandbox-agent";
import type { AreaProps } from "../areas.js";
import { useShortcut } from "../app/shortcuts.js";
import { useDrive } from "../app/drive.js";
import { useWork } from "../app/work.js";
import { Button, Checkbox, Field, Input, TextArea } from "../kit/controls.js";
import { Confirm, Dialog, Menu } from "../kit/dialog.js";
import { useLoad } from "../kit/load.js";
import { AreaHead, Badge, Dot, Empty, Notice } from "../kit/show.js";
import { bytes, plural } from "../kit/text.js";
import { gone, messageOf } from "../state/explain.js";
import { departing, gateway, leave, toasts } from "../state/page.js";
import { useStore } from "../state/store.js";
import { Screen } from "../terminal/Screen.js";
import { LogFeed } from "./log.js";
import { Inputs } from "./typed.js";
import { commandOf, stateOf, wordsOf } from "./words.js";
import "./processes.css";

/** `#/processes`, `#/processes/ID`. */
export default function Processes({ route }: AreaProps) {
  const [id] = route.parts;
  const { value, error, reload } = useLoad((signal) => gateway.machine.processes.list({ signal }), [], 2000);
  const drive = useDrive();
  const [starting, setStarting] = useState(false);
  useShortcut({ keys: "n", what: "Start a program", group: "Processes", run: () => !drive.disabled && setStarting(true) });
  const all = value ? [...value].reverse() : [];
  const chosen = all.find((p) => p.id === id);
  const running = all.filter((p) => p.state === "running").length;
  return (
    <div className="area full processes">
      <div className="stack">
        <AreaHead
          title="Processes" lead={value ? `${plural(running, "program")} ${running === 1 ? "runs" : "run"} beside the agents, where the gateway is.` : "Programs beside the agents, where the gateway is."}
          actions={<Button tone="primary" icon="plus" {...drive} onClick={() => setStarting(true)}>Start a program</Button>}
        />
        {error && <Notice tone="bad" title="The programs cannot be listed"><p>{error.message}</p></Notice>}
      </div>
      <div className={`processes-split ${id ? "chosen" : ""}`}>
        {all.length === 0 ? value && <Empty icon="processes" title="No program runs" action={<Button icon="plus" {...drive} onClick={() => setStarting(true)}>Start a program</Button>}>Servers, builds and watchers that should go on while agents work. Those that ended stay listed for a while.</Empty>
          : (
            <div className="process-list" role="region" aria-label="Programs" tabIndex={0}>
              <ul>
                {all.map((p) => (
                  <li key={p.id}>
                    <a href={`#/processes/${encodeURIComponent(p.id)}`} aria-current={p.id === id ? "true" : undefined}>
                      <Dot tone={toneOf(p)} />
                      <span className="grow">
                        <code className="clip">{commandOf(p)}</code>
                        <span className="soft small clip">{stateOf(p)} · pid {p.pid} · {p.cwd}</span>
                      </span>
                      {p.tty && <Badge>terminal</Badge>}
                    </a>
                  </li>
                ))}
              </ul>
            </div>
          )}
        {chosen ? <Detail key={chosen.id} process={chosen} onChange={reload} /> : id && value && <Empty icon="processes" title="This program is not there any more" action={<a className="button" href="#/processes">All programs</a>} />}
      </div>
      {starting && <Start onClose={() => setStarting(false)} onStarted={reload} />}
    </div>
  );
}

const inputs = new Inputs();

/** What is typed for a program of the machine that is shown. */
function inputOf(id: string) {
  const { processes } = gateway.machine;
  return inputs.of(`${gateway.machineUrl} ${id}`, (text, close) => processes.write(id, text, { close }), (error) => toasts.show(`It takes no input: ${messageOf(error)}`, "bad"));
}

const toneOf = (p: HostProcess) => (p.state === "running" ? "good" : p.exitCode === 0 ? "plain" : "bad");

const signals = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGSTOP", "SIGCONT", "SIGKILL"];

function Detail({ process: p, onChange }: { process: HostProcess; onChange: () => void }) {
  const drive = useDrive();
  const feed = useMemo(() => new LogFeed(gateway.machine, p.id, onChange), [p.id]);
  const [deleting, setDeleting] = useState(false);
  const forgetting = useWork();
  const typed = inputOf(p.id);
  const line = useStore(typed);
  const running = p.state === "running";
  const act = async (what: string, run: () => Promise<unknown>) => {
    await toasts.attempt(what, run);
    onChange();
  };
  useEffect(() => typed.whenWritten(onChange), [typed]);
  const type = () => {
    if (!typed.send()) toasts.show("Too many lines wait for the program to take them.", "bad");
  };
  return (
    <section className="process-detail" aria-label="Program">
      <header className="row">
        <h2 className="grow clip mono" title={commandOf(p)}>{commandOf(p)}</h2>
        {p.tty && <a className="button small" href={`#/terminal/${encodeURIComponent(p.id)}`}>Open its terminal</a>}
        {running && <Button small icon="stop" {...drive} onClick={() => void act("It does not end", () => gateway.machine.processes.stop(p.id))}>Stop</Button>}
        {running && <Menu label="Send a signal" trigger="Signal" items={signals.map((s) => ({ label: s, danger: s === "SIGKILL", ...(drive.disabled ? { disabled: true } : {}), run: () => void act(s, () => gateway.machine.processes.signal(p.id, s)) }))} />}
        <Button small tone="danger" icon="trash" busy={forgetting.busy} {...drive} onClick={() => (running ? setDeleting(true) : void forgetting.run("It stays", () => gone(gateway.machine.processes.delete(p.id)).finally(onChange)))}>Forget</Button>
      </header>
      <p className="small soft">{stateOf(p)} · pid {p.pid} · in {p.cwd} · {bytes(p.outputBytes)} of output{p.droppedBytes > 0 && `, of which ${bytes(p.droppedBytes)} are not kept`}</p>
      {p.tty ? <Notice>What it writes is shown by its terminal.</Notice> : <Screen feed={feed} label="Output" />}
      {running && !p.tty && p.stdinOpen && (
        <form className="row process-input" onSubmit={(event) => { event.preventDefault(); type(); }}>
          <TextArea
            aria-label="Input" placeholder="A line for its input" spellCheck={false} autoComplete="off" className="mono" rows={Math.min(line.split("\n").length, 8)} {...drive} value={line} onChange={(event) => typed.type(event.target.value)}
            onKeyDown={(event) => {
              if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
              event.preventDefault();
              type();
            }}
          />
          <Button type="submit" icon="send" {...drive}>Send</Button>
          <Button onClick={() => typed.close()} title="As Ctrl-D does" {...drive}>End its input</Button>
        </form>
      )}
      {deleting && (
        <Confirm title="End it and forget its output?" action="End and forget" onClose={() => setDeleting(false)} onConfirm={() => act("It does not end", () => gone(gateway.machine.processes.delete(p.id))).then(() => leave("processes", p.id))}>
          <p>It is killed at once, with everything that it has started.</p>
        </Confirm>
      )}
    </section>
  );
}

function Start({ onClose, onStarted }: { onClose: () => void; onStarted: () => void }) {
  const [line, setLine] = useState("");
  const [cwd, setCwd] = useState("");
  const [env, setEnv] = useState("");
  const [shell, setShell] = useState(true);
  const [tty, setTTY] = useState(false);
  const work = useWork();
  const [error, setError] = useState<string>();
  const parsed = shell ? { words: ["sh", "-c", line] } : wordsOf(line);
  const variables = env.split("\n").map((l) => l.trim()).filter((l) => l !== "");
  const badVariable = variables.find((l) => !/^[^=\s]+=/.test(l));
  const start = () => {
    if (line.trim() === "" || "error" in parsed || badVariable !== undefined) return;
    const [command = "", ...args] = parsed.words;
    void work.run("The program was not started", async () => {
      setError(undefined);
      const lead = departing(work.shown);
      const started = await gateway.machine.processes.start({
        command, args, tty, ...(cwd.trim() === "" ? {} : { cwd: cwd.trim() }),
        ...(variables.length === 0 ? {} : { env: Object.fromEntries(variables.map((l) => [l.slice(0, l.indexOf("=")), l.slice(l.indexOf("=") + 1)])) }),
      });
      onStarted();
      lead(`It has started: ${line.trim()}`, tty ? "terminal" : "processes", [started.id]);
      if (work.shown()) onClose();
    }, setError);
  };
  return (
    <Dialog
      title="Start a program" onClose={onClose}
      footer={<><Button onClick={onClose}>Cancel</Button><Button tone="primary" busy={work.busy} disabled={line.trim() === "" || "error" in parsed || badVariable !== undefined} onClick={start}>Start</Button></>}
    >
      <form className="stack" onSubmit={(event) => { event.preventDefault(); start(); }}>
        <Field label="Command" {...("error" in parsed && line.trim() !== "" ? { error: parsed.error } : {})}>{(p) => <Input {...p} className="mono" value={line} onChange={(event) => setLine(event.target.value)} placeholder="npm run dev" autoFocus />}</Field>
        <Field label="Folder" optional hint="Absolute, or below the gateway's own. Without one it is the home folder.">{(p) => <Input {...p} className="mono" value={cwd} onChange={(event) => setCwd(event.target.value)} />}</Field>
        <Field label="Environment" optional {...(badVariable === undefined ? { hint: "NAME=value, one in each line." } : { error: `“${badVariable}” is not NAME=value.` })}>{(p) => <TextArea {...p} className="mono" rows={2} value={env} onChange={(event) => setEnv(event.target.value)} />}</Field>
        <Checkbox label="Let a shell read the command" hint="For pipes, variables and &&." checked={shell} onChange={(event) => setShell(event.target.checked)} />
        <Checkbox label="Give it a terminal" checked={tty} onChange={(event) => setTTY(event.target.checked)} />
        <button type="submit" hidden />
      </form>
      {error && <Notice tone="bad" title="It was not started"><p>{error}</p></Notice>}
    </Dialog>
  );
}
