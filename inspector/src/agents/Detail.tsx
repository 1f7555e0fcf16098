import { useState } from "react";
import type { Agent, components } from "sandbox-agent";
import { useDrive } from "../app/drive.js";
import { Button, Field, Input } from "../kit/controls.js";
import { Confirm } from "../kit/dialog.js";
import { useLoad } from "../kit/load.js";
import { Badge, Command, Dot, Notice } from "../kit/show.js";
import { ago, bytes, duration, plural } from "../kit/text.js";
import { LoginHelp } from "../login/LoginHelp.js";
import { messageOf } from "../state/explain.js";
import { gateway, installs, toasts } from "../state/page.js";
import { hrefOf } from "../state/router.js";
import { featuresOf, levels } from "./features.js";
import { fraction, type Install } from "./installs.js";

export function AgentDetail({ agent, place, install }: { agent: Agent; /** Of its installation. */ place: string; install: Install | undefined }) {
  const drive = useDrive();
  const [removing, setRemoving] = useState(false);
  const [version, setVersion] = useState("");
  const running = install?.state === "running";
  const begin = (options: { reinstall?: boolean } = {}) => void installs.begin(gateway.machine.api, place, agent.id, { ...options, ...(version === "" ? {} : { agentVersion: version }) });
  return (
    <article className="agent-detail stack" aria-label={agent.name}>
      <header className="row">
        <h2 className="grow">{agent.name} <Badge title={kinds[agent.kind]}>{agent.kind}</Badge></h2>
        {agent.website && <a href={agent.website} target="_blank" rel="noreferrer">Website</a>}
      </header>
      {agent.description && <p className="soft">{agent.description}</p>}
      <dl className="facts">
        <div><dt>Program</dt><dd>{agent.installed ? <code>{agent.path ?? "part of the gateway"}</code> : "not installed"}</dd></div>
        {agent.version && <div><dt>Version</dt><dd>{agent.version}</dd></div>}
        {agent.source && <div><dt>Comes from</dt><dd>{agent.source}</dd></div>}
        {agent.verified && <div><dt>Verified</dt><dd>{verified[agent.verified] ?? agent.verified}</dd></div>}
        <div><dt>Login</dt><dd>{logins[agent.authState]}{agent.credentialsAvailable ? ", credentials found" : ""}</dd></div>
        {agent.license && <div><dt>License</dt><dd>{agent.license}</dd></div>}
      </dl>
      {agent.authState === "required" && agent.installed && <LoginHelp agent={agent}><p>Log in here, set its key in the gateway’s environment, or give a <a href={hrefOf("sessions", ["new"], { agent: agent.id })}>new session</a> a key of its own. The doctor below says which variables it looks at.</p></LoginHelp>}
      {agent.kind !== "custom" && agent.source !== "builtin" && (
        <section className="stack" aria-label="Installation">
          <h3>Installation</h3>
          <form className="row end" onSubmit={(event) => { event.preventDefault(); begin(); }}>
            <Field label="Version" optional hint="Exact, or latest.">{(p) => <Input {...p} value={version} onChange={(event) => setVersion(event.target.value)} disabled={running} placeholder="latest" />}</Field>
            <Button type="submit" tone={agent.installed ? "plain" : "primary"} icon="download" busy={running} {...drive}>{agent.installed ? "Install this version" : "Install"}</Button>
            {agent.installed && <Button busy={running} {...drive} onClick={() => begin({ reinstall: true })}>Install again</Button>}
            {agent.installed && agent.source !== "path" && <Button tone="danger" icon="trash" disabled={running} {...drive} onClick={() => setRemoving(true)}>Remove</Button>}
          </form>
          {install && <InstallState install={install} onCancel={() => installs.cancel(place)} onDismiss={() => installs.dismiss(place)} />}
        </section>
      )}
      <Processes agent={agent} />
      <section className="stack" aria-label="Doctor"><h3>Doctor</h3><AgentDoctor agent={agent} /></section>
      {agent.capabilities && (
        <section className="stack" aria-label="Features">
          <h3>Features</h3>
          <ul className="agent-features">
            {featuresOf([agent]).map(([id, name]) => {
              const support = agent.capabilities?.[id];
              if (!support) return null;
              return <li key={id}><Badge tone={levels[support.level].tone}>{levels[support.level].word}</Badge> <span>{name}{support.reason && <span className="soft small">: {support.reason}</span>}</span></li>;
            })}
          </ul>
        </section>
      )}
      {removing && (
        <Confirm
          title={`Remove ${agent.name}?`} action="Remove" onClose={() => setRemoving(false)}
          onConfirm={() => gateway.machine.api.removeAgent(agent.id).then(() => gateway.refreshAgents(), (error: unknown) => toasts.show(messageOf(error), "bad"))}
        >
          <p>What the gateway installed of it is deleted. Sessions that run go on to their end; it is installed again when it is next used.</p>
        </Confirm>
      )}
    </article>
  );
}

const kinds = {
  bridge: "The gateway translates the agent's own protocol.", native: "The agent speaks ACP itself.", custom: "A command that this gateway was given.",
};
const verified: Record<string, string> = {
  "digest-pinned": "it is what this gateway was tested with", signature: "signed by its maker or its registry", "checksum-only": "by a checksum of the server that it is from",
  unverified: "not; nobody published a checksum, or it was here already", builtin: "part of the gateway",
};
const logins = { unknown: "nobody has looked yet", authenticated: "logged in", required: "needed" };

function InstallState({ install, onCancel, onDismiss }: { install: Install; onCancel: () => void; onDismiss: () => void }) {
  const drive = useDrive();
  const part = fraction(install.progress);
  if (install.state !== "running") {
    return <Notice tone={install.state === "done" ? "good" : "bad"} title={install.state === "done" ? install.words : "It could not be installed"} actions={<Button small tone="quiet" onClick={onDismiss}>Dismiss</Button>}>{install.state === "failed" && <p className="pre">{install.words}</p>}</Notice>;
  }
  const p = install.progress;
  return (
    <div className="install" role="status" aria-label="Installation">
      <progress aria-label="Progress" {...(part === undefined ? {} : { value: part, max: 1 })} />
      <p className="small soft">{install.words}{p && p.step === "download" ? ` · ${bytes(p.done)}${p.total > 0 ? ` of ${bytes(p.total)}` : ""}` : ""}</p>
      <Button small tone="quiet" {...drive} onClick={onCancel}>Cancel</Button>
    </div>
  );
}

function Processes({ agent }: { agent: Agent }) {
  const ended = useLoad(async (signal) => {
    const { sessions } = await gateway.machine.api.sessions({ agent: agent.id, limit: 50 }, { signal });
    return sessions.filter((s) => s.ended?.stderr && s.ended.stderr.tail !== "").slice(0, 3);
  }, [agent.id]);
  return (
    <section className="stack" aria-label="Processes">
      <h3>Processes</h3>
      {agent.processes.length === 0 && <p className="soft">None runs. One is started with the first session.</p>}
      {agent.processes.length === 0 && agent.lastError && <p className="small bad-text pre">The last failure: {agent.lastError}</p>}
      {agent.processes.map((p) => (
        <div key={p.pid} className="agent-process">
          <p><strong>{p.pid}</strong> <span className="soft">up {duration(p.uptimeMs)} · {bytes(p.rssBytes)} of memory · {plural(p.sessions, "session")}{p.restarts > 0 && ` · started again ${plural(p.restarts, "time")}`}</span></p>
          {p.lastError && <p className="small bad-text">The one before: {p.lastError}</p>}
          {p.stderr && p.stderr.tail !== "" && <Stderr of={`process ${p.pid}`} stderr={p.stderr} />}
        </div>
      ))}
      {ended.value?.map((s) => s.ended && (
        <div key={s.sessionId} className="agent-process">
          <p className="small"><a href={`#/sessions/${encodeURIComponent(s.sessionId)}`}>{s.title ?? s.sessionId}</a> <span className="soft">ended {ago(s.ended.at)}: {s.ended.message ?? s.ended.reason}</span></p>
          {s.ended.stderr && <Stderr of="its process" stderr={s.ended.stderr} />}
        </div>
      ))}
    </section>
  );
}

function Stderr({ of, stderr }: { of: string; stderr: components["schemas"]["Stderr"] }) {
  return (
    <details>
      <summary>The end of what {of} wrote to stderr ({plural(stderr.totalLines, "line")})</summary>
      <pre className="json raw" tabIndex={0} aria-label={`stderr of ${of}`}>{stderr.tail}</pre>
    </details>
  );
}

function AgentDoctor({ agent }: { agent: Agent }) {
  const drive = useDrive();
  const [asked, setAsked] = useState(false);
  const { value, error, busy, reload } = useLoad((signal) => (asked ? gateway.machine.api.doctor(agent.id, { signal }) : Promise.resolve(undefined)), [asked, agent.id]);
  return (
    <>
      <div className="row"><Button icon="refresh" busy={asked && busy} {...drive} onClick={() => (asked ? reload() : setAsked(true))}>{asked ? "Look again" : "See what is missing"}</Button></div>
      {error && <p className="bad-text" role="alert">{error.message}</p>}
      {value && <Checks checks={value.checks.filter((c) => c.agent === agent.id || (c.agent === undefined && c.status !== "ok"))} />}
    </>
  );
}

const tones = { ok: "good", absent: "plain", warning: "warn", failed: "bad" } as const;

export function Checks({ checks }: { checks: components["schemas"]["Report"]["checks"] }) {
  return (
    <ul className="checks">
      {checks.map((c, i) => (
        <li key={i}>
          <Dot tone={tones[c.status]} />
          <div className="grow">
            <p><strong>{c.agent ? `${c.agent}: ${c.name}` : c.name}</strong> <span className="soft small">{c.status}</span></p>
            <p className="small soft pre">{c.found}</p>
            {c.remedy && (/^sandbox-agent /.test(c.remedy) ? <Command text={c.remedy} label="Remedy" /> : <p className="small">{c.remedy}</p>)}
          </div>
        </li>
      ))}
    </ul>
  );
}
