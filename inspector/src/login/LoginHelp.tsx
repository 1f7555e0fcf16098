import { Suspense, lazy, useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import type { Agent } from "sandbox-agent";
import { Button, LinkButton } from "../kit/controls.js";
import { Command, Notice } from "../kit/show.js";
import { messageOf } from "../state/explain.js";
import { gateway, router, toasts } from "../state/page.js";
import { hrefOf, type Route } from "../state/router.js";
import { LoginConnection, loginTerminal, putAside, takeAside, type LoginMethod, type LoginTerminal } from "./methods.js";
import "./login.css";
import { useDrive } from "../app/drive.js";
import { useWork } from "../app/work.js";

const TerminalView = lazy(() => import("../terminal/View.js"));

interface Props {
  readonly agent: Agent;
  readonly reason?: string | undefined;
  readonly children?: ReactNode;
}

/** What an agent that wants a login says, and the ways to give it one, where one stands. */
export const LoginHelp = (props: Props) => <Help key={props.agent.id} {...props} />;

const placeOf = (route: Route) => [route.area, ...route.parts].join("/");

function Help({ agent, reason, children }: Props) {
  const connection = useMemo(() => new LoginConnection(agent.id), [agent.id]);
  const [methods, setMethods] = useState<readonly LoginMethod[]>();
  const [terminal, setTerminal] = useState<LoginTerminal>();
  const own = useRef<LoginTerminal>(undefined); // ends when it has served
  const opening = useWork();
  const [busy, setBusy] = useState<string>();
  const [answer, setAnswer] = useState<{ readonly address: string | undefined; readonly code: string | undefined }>();
  const [problem, setProblem] = useState<string>();
  useEffect(() => {
    let shown = true;
    const place = placeOf(router.get());
    own.current = takeAside(agent.id);
    setTerminal(own.current);
    connection.methods().then((all) => shown && setMethods(all), () => shown && setMethods([]));
    return () => {
      shown = false;
      connection.close();
      if (!own.current) return;
      if (placeOf(router.get()) === place) return own.current.end();
      // Whoever goes elsewhere, as to read how to log in, comes back to it.
      putAside(own.current);
      toasts.show(`The login of ${agent.name} goes on, and is among the terminals.`);
    };
  }, [connection]);

  const drive = useDrive();
  const run = async (what: string, begin: () => Promise<void>) => {
    setBusy(what);
    setProblem(undefined);
    try {
      await begin();
    } catch (error) {
      if (opening.shown()) setProblem(messageOf(error));
      else toasts.show(`${agent.name} is not logged in: ${messageOf(error)}`, "bad");
    }
    setBusy(undefined);
  };
  const open = (method: LoginMethod | undefined) => void opening.run("No terminal", async () => {
    setProblem(undefined);
    const made = await loginTerminal(agent, method?.command);
    if (!opening.shown()) return made.end();
    own.current = made;
    setTerminal(made);
  }, setProblem);
  const authenticate = (method: LoginMethod) => void run(method.id, async () => {
    const told = await connection.authenticate(method.id);
    setAnswer(told);
    if (!told.address) toasts.show(`${agent.name} is logged in`, "good");
    await gateway.refreshAgents();
  });
  const close = () => {
    terminal?.end();
    own.current = undefined;
    setTerminal(undefined);
    void gateway.refreshAgents().catch(() => {});
  };

  const byCommand = methods?.filter((m) => m.command) ?? [];
  const others = methods?.filter((m) => !m.command) ?? [];
  return (
    <Notice still tone="warn" title={`${agent.name} needs a login`}>
      {reason && <p>{reason}</p>}
      {children}
      {!methods && <p className="soft small" role="status">Asking the agent how to log in…</p>}
      {methods && terminal === undefined && (
        <ul className="login-ways">
          {byCommand.map((m) => <li key={m.id}><Button small icon="terminal" busy={opening.busy} {...drive} onClick={() => open(m)}>{m.name}</Button> <span className="soft small">{m.description ?? "The agent\u2019s own login, in a terminal."}</span></li>)}
          {byCommand.length === 0 && agent.path?.startsWith("/") && <li><Button small icon="terminal" busy={opening.busy} {...drive} onClick={() => open(undefined)}>Open a terminal</Button> <span className="soft small">Its program is in the PATH there: run its own login.</span></li>}
          {others.map((m) => <li key={m.id}><Button small busy={busy === m.id} {...drive} onClick={() => authenticate(m)}>{m.name}</Button> <span className="soft small">{m.description}</span></li>)}
        </ul>
      )}
      {problem && <p className="bad-text" role="alert">{problem}</p>}
      {answer?.address && <p>Open <a href={answer.address} target="_blank" rel="noreferrer noopener">{answer.address}</a>{answer.code ? " and enter the code there:" : "."}</p>}
      {answer?.code && <Command text={answer.code} label="Code" />}
      {terminal !== undefined && (
        <div className="login-terminal">
          <Suspense fallback={<p className="soft">Opening…</p>}><TerminalView id={terminal.id} name={`Login of ${agent.name}`} /></Suspense>
          <div className="row">
            <Button small onClick={close}>Close the terminal</Button>
            <LinkButton small tone="quiet" href={hrefOf("terminal", [terminal.id])} onClick={() => void (own.current = undefined)}>Show it large</LinkButton>
          </div>
        </div>
      )}
    </Notice>
  );
}
