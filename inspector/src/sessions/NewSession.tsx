import { useEffect, useId, useMemo, useRef, useState, type FormEvent } from "react";
import { AcpRpcError, type Agent } from "sandbox-agent";
import { Button, Checkbox, Field, Input, Select, TextArea } from "../kit/controls.js";
import { AreaHead, Command, Notice } from "../kit/show.js";
import type { HubSession } from "../nodes/hub.js";
import { credentialsOf, KeyFields, noKeys } from "../login/KeyFields.js";
import { LoginHelp } from "../login/LoginHelp.js";
import { authRequired } from "../login/codes.js";
import { explain, type Explanation } from "../state/explain.js";
import { conversations, departing, fleet, forms, gateway, router, sessions } from "../state/page.js";
import { useSelected, useStore } from "../state/store.js";
import { McpServers } from "./McpServers.js";
import { modelsOf, type Choice } from "./models.js";
import { isWritten, noWishes, requestOf, serversFor, type Wishes } from "./wishes.js";
import { useDrive } from "../app/drive.js";
import { useWork } from "../app/work.js";

/** What an agent lets a session choose; undefined while it is being asked, empty when it tells nothing. */
interface Choices {
  readonly models: readonly Choice[] | undefined;
  readonly why?: string; // the models could not be asked for
  readonly modes: readonly Choice[] | undefined;
  readonly levels: readonly Choice[] | undefined;
}

/** The session in which something happened last on the machine that the page shows. */
const lastSession = () => sessions.get().sessions.find((s) => gateway.get().node === undefined || (s as HubSession).node === gateway.get().node);

/** The folders that sessions were made in last, without the same one twice. */
function useFolders(cwd: string): readonly string[] {
  const recent = useSelected(sessions, (s) => s.sessions);
  const node = useSelected(gateway, (g) => g.node);
  const [found, setFound] = useState<readonly string[]>([]);
  const parent = cwd.includes("/") ? cwd.slice(0, cwd.lastIndexOf("/") + 1) : "";
  useEffect(() => {
    if (parent === "" || (gateway.get().hub && node === undefined)) return setFound([]);
    const controller = new AbortController();
    void gateway.machine.fs.list(parent, { limit: 200, signal: controller.signal } as never).then(
      (page) => setFound(page.entries.filter((e) => e.type === "directory" && !e.name.startsWith(".")).map((e) => `${parent}${e.name}`)),
      () => setFound([]),
    );
    return () => controller.abort();
  }, [parent, node]);
  return useMemo(() => [...new Set([...recent.filter((s) => node === undefined || (s as HubSession).node === node).map((s) => s.cwd), ...found])].slice(0, 100), [recent, found, node]);
}

/** What the agent reported, asked for anew where it is not known. */
function useChoices(agent: Agent | undefined, model: string): Choices {
  const [refreshed, setRefreshed] = useState(false);
  const [asked, setAsked] = useState<{ readonly agent: string; readonly models: readonly Choice[]; readonly why?: string }>();

  useEffect(() => {
    const done = () => setRefreshed(true);
    gateway.refreshAgents().then(done, done);
  }, []);

  // What an agent offers is known once it has run; its models can be asked for.
  const askable = refreshed && agent !== undefined && agent.installed && agent.models === undefined ? agent.id : undefined;
  useEffect(() => {
    if (askable === undefined) return;
    const left = new AbortController();
    const told = (models: readonly Choice[], why?: string) => left.signal.aborted || setAsked({ agent: askable, models, ...(why ? { why } : {}) });
    void modelsOf(askable, gateway.client, left.signal).then(told, (error: unknown) => {
      const { title, detail } = explain(error, gateway.get().endpoint);
      told([], `The agent did not tell its models. ${title}: ${detail}`);
    });
    return () => left.abort();
  }, [askable]);

  const unknown = agent && !refreshed ? undefined : [];
  const mine = asked?.agent === agent?.id ? asked : undefined;
  const answer = mine?.models;
  const models = agent?.models ?? answer ?? (askable === undefined ? unknown : undefined);
  return {
    models,
    ...(mine?.why ? { why: mine.why } : {}),
    modes: agent?.modes ?? unknown,
    levels: agent?.thoughtLevels ?? answer?.find((m) => m.id === model)?.variants?.map((id) => ({ id, name: id })) ?? unknown,
  };
}

export default function NewSession({ query }: { query: Readonly<Record<string, string>> }) {
  const drive = useDrive();
  const { agents, agent: standard, hub, node } = useStore(gateway);
  const nodes = useSelected(fleet, (f) => f.nodes);
  const place = `new session ${JSON.stringify(query)}`;
  const [wishes, setWishes] = useState<Wishes>(() => {
    const kept = forms.get().get(place)?.value as Wishes | undefined;
    if (kept) return kept;
    const last = lastSession();
    return { ...noWishes, agent: query.agent ?? last?.agent ?? standard ?? "", cwd: query.cwd ?? last?.cwd ?? "", prompt: query.prompt ?? "" };
  });
  const [problems, setProblems] = useState<Partial<Record<keyof Wishes, string>>>({});
  const [problem, setProblem] = useState<Explanation & { readonly login?: boolean }>();
  const [keys, setKeys] = useState(noKeys);
  const [more, setMore] = useState(() => isWritten({ ...wishes, prompt: "" }));
  const said = useRef<HTMLDivElement>(null);
  const first = useRef<HTMLFormElement>(null);
  useEffect(() => {
    const element = said.current;
    if (!element) return;
    element.focus();
    // It grows when the agent has told how to log in, and the form above it when the
    // gateway has told about the agent.
    const sizes = new ResizeObserver(() => element.contains(document.activeElement) && element.scrollIntoView({ block: "nearest" }));
    sizes.observe(element);
    if (first.current) sizes.observe(first.current);
    return () => sizes.disconnect();
  }, [problem]);
  const work = useWork();
  const { busy } = work;
  const stop = useRef<AbortController>(undefined); // of what is starting
  const listId = useId();
  useEffect(() => {
    if (!matchMedia("(pointer: coarse)").matches) first.current?.querySelector<HTMLElement>("textarea")?.focus();
  }, []);
  const folders = useFolders(wishes.cwd);
  const inFolder = useRef(false); // somebody was in the field of the folder
  const agent = agents.find((a) => a.id === wishes.agent);
  const set = (part: Partial<Wishes>) => setWishes((w) => ({ ...w, ...part }));
  useEffect(() => {
    if (isWritten(wishes, query.prompt)) forms.put(place, { value: wishes, words: "" });
    else forms.drop(place);
  }, [place, wishes, query.prompt]);

  // At a hub a session is made at a node: the one that was looked at last, or the first that is there. One that goes away
  // while the form is shown stays chosen: nothing is to run on another machine unasked.
  const away = nodes.some((n) => n.name === node && n.state === "offline");
  const chosen = useRef(false);
  useEffect(() => {
    const first = nodes.find((n) => n.state === "online");
    if (hub && first && !nodes.some((n) => n.name === node && (n.state === "online" || chosen.current))) gateway.visit(first.name);
    chosen.current ||= nodes.some((n) => n.name === node && n.state === "online");
  }, [hub, node, nodes]);
  useEffect(() => {
    if (!hub || agents.length === 0 || agents.some((a) => a.id === wishes.agent)) return;
    set({ agent: (agents.find((a) => a.default && a.installed) ?? agents.find((a) => a.installed) ?? agents[0])?.id ?? "" });
  }, [hub, agents]);
  useEffect(() => {
    if (hub && node === undefined) return;
    // Nothing is put into the field once somebody is in it: it would stand before what they write.
    let current = true; // another machine has another home
    if (wishes.cwd === "") void gateway.machine.fs.stat(".").then((home) => current && setWishes((w) => (w.cwd === "" && !inFolder.current ? { ...w, cwd: home.path } : w)), () => {});
    return () => void (current = false);
  }, [node]);
  useEffect(() => setProblem(undefined), [node]); // it was one of another machine
  const choices = useChoices(agent, wishes.model);

  const without = (feature: string) => {
    const support = agent?.capabilities?.[feature];
    return support?.level === "unsupported" ? (support.reason ?? "not supported") : undefined;
  };

  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (busy || away || drive.disabled) return; // keys do not ask the button
    const { params, problems: found } = requestOf(wishes);
    setProblems(found);
    if (Object.keys(found).some((p) => p !== "cwd")) setMore(true); // what is wrong is in sight, and stays so while it is mended
    setProblem(undefined);
    if (params) void work.run("The session could not be started", () => start(params));
  };

  const start = async (params: NonNullable<ReturnType<typeof requestOf>["params"]>) => {
    const over = (stop.current = new AbortController());
    const lead = departing();
    // Whoever looks elsewhere and comes back does not begin the same once more.
    const kept = forms.get().get(place);
    forms.drop(place);
    if (kept) forms.put(`${place} starting`, kept);
    try {
      // Better than the folder's name, which many sessions share; the agent may find another one.
      const gist = wishes.prompt.trim().split("\n")[0]?.slice(0, 80) ?? "";
      const credentials = credentialsOf(keys);
      const session = await gateway.client.newSession({ ...(gist === "" ? {} : { title: gist }), ...params, mcpServers: serversFor(gateway.client.acpVersion, params.mcpServers ?? []) as never, ...(credentials ? { credentials } : {}) }, { signal: over.signal });
      const conversation = conversations.made(session);
      if (wishes.prompt.trim() !== "") conversation.send([{ type: "text", text: wishes.prompt.trim() }]);
      lead(`The session has started: ${gist === "" ? wishes.cwd : gist}`, "sessions", [session.id], { replace: true });
    } catch (error) {
      if (kept && !forms.get().has(place)) forms.put(place, kept);
      if (over.signal.aborted) return;
      const here = work.shown() && gateway.get().node === node; // what to do is shown where it can be done
      if (!here) throw error;
      setProblem({ ...explain(error, gateway.get().endpoint), login: error instanceof AcpRpcError && error.code === authRequired });
    } finally {
      forms.drop(`${place} starting`);
    }
  };

  return (
    <div className="area new-session">
      <AreaHead title="New session" lead="A conversation with an agent, in a folder of the gateway’s machine." />
      <form ref={first} className="stack wide-gap" onSubmit={submit}>
        {hub && (
          <Field label="Node" hint="The machine that the agent works on." error={away ? "It is away. Wait for it, or choose another one." : undefined}>
            {(props) => (
              <Select {...props} value={node ?? ""} onChange={(e) => {
                gateway.visit(e.target.value);
                set({ cwd: lastSession()?.cwd ?? "", model: "", mode: "", variant: "" });
              }}>
                {node === undefined && <option value="">Choose…</option>}
                {nodes.map((n) => <option key={n.name} value={n.name} disabled={n.state === "offline"}>{n.name}{n.state === "offline" ? " (away)" : ""}</option>)}
              </Select>
            )}
          </Field>
        )}
        <div className="pair">
          <Field label="Agent" hint={agent && agentHint(agent)}>
            {(props) => (
              <Select {...props} value={wishes.agent} onChange={(e) => set({ agent: e.target.value, model: "", mode: "", variant: "" })}>
                {wishes.agent === "" && <option value="">Choose…</option>}
                {agents.map((a) => <option key={a.id} value={a.id}>{a.name}{a.installed ? "" : " (not installed)"}</option>)}
              </Select>
            )}
          </Field>
          <Field label="Folder" error={problems.cwd} hint="On the gateway’s machine.">
            {(props) => <Input {...props} required list={listId} className="mono" value={wishes.cwd} onFocus={() => { inFolder.current = true; }} onChange={(e) => set({ cwd: e.target.value })} placeholder="/path/to/project" />}
          </Field>
          <datalist id={listId}>{folders.map((f) => <option key={f} value={f} />)}</datalist>
        </div>
        <div className="pair three">
          <Choose label="Model" value={wishes.model} choices={choices.models} why={choices.why} without={without("models")} onChange={(model) => set({ model, variant: "" })} />
          <Choose label="Thought level" value={wishes.variant} choices={choices.levels} without={without("thoughtLevels")} onChange={(variant) => set({ variant })} />
          <Choose label="Mode" value={wishes.mode} choices={choices.modes} without={without("modes")} onChange={(mode) => set({ mode })} />
        </div>
        <Field label="Permissions" hint={permissionHints[wishes.permissionMode]}>
          {(props) => (
            <Select {...props} value={wishes.permissionMode} onChange={(e) => set({ permissionMode: e.target.value })}>
              <option value="">As the agent does by itself</option>
              <option value="default">Ask before changes and commands</option>
              <option value="readonly">Read only</option>
              <option value="write">Change files without asking</option>
              <option value="bypass">Allow everything without asking</option>
            </Select>
          )}
        </Field>
        <Field label="First prompt" optional>{(props) => <TextArea {...props} value={wishes.prompt} onChange={(e) => set({ prompt: e.target.value })} onKeyDown={(e) => e.key === "Enter" && (e.ctrlKey || e.metaKey) && e.currentTarget.form?.requestSubmit()} />}</Field>
        <details className="more" open={problem?.login || (agent && wantsKey(agent)) || undefined}>
          <summary>Key for this session alone</summary>
          <div className="stack">
            <KeyFields keys={keys} onChange={setKeys} />
            <p className="hint">Sent to the agent of this session alone. This page has it in memory as long as it is open; neither the browser nor the gateway keeps it. After the gateway was started again, the session asks for it again.</p>
          </div>
        </details>
        <details className="more" open={more} onToggle={(event) => setMore(event.currentTarget.open)}>
          <summary>More: title, instructions, skills, MCP servers, environment</summary>
          <div className="stack">
            <Field label="Title" optional>{(props) => <Input {...props} value={wishes.title} onChange={(e) => set({ title: e.target.value })} />}</Field>
            <Field label="Instructions" optional hint={without("instructions") ?? "As a project’s instructions to the agent."}>{(props) => <TextArea {...props} value={wishes.instructions} onChange={(e) => set({ instructions: e.target.value })} />}</Field>
            <Field label="Behind the agent’s own system prompt" optional hint={without("appendSystemPrompt")}>{(props) => <TextArea {...props} value={wishes.appendSystemPrompt} onChange={(e) => set({ appendSystemPrompt: e.target.value })} />}</Field>
            <Field label="Folders with skills" optional error={problems.skills} hint={without("skills") ?? "One path on each line."}>{(props) => <TextArea {...props} className="mono" rows={2} value={wishes.skills} onChange={(e) => set({ skills: e.target.value })} />}</Field>
            <Field label="Further folders" optional error={problems.directories} hint={without("additionalDirectories") ?? "That the agent may work in, one path on each line."}>{(props) => <TextArea {...props} className="mono" rows={2} value={wishes.directories} onChange={(e) => set({ directories: e.target.value })} />}</Field>
            <McpServers servers={wishes.mcp} error={problems.mcp} hint={without("mcpServers")} onChange={(mcp) => {
              set({ mcp });
              setProblems(({ mcp: _, ...rest }) => rest); // until it is tried again
            }} />
            <Field label="Environment" optional error={problems.env} hint="NAME=VALUE on each line. It is kept with the session: no place for secrets.">{(props) => <TextArea {...props} className="mono" rows={2} value={wishes.env} onChange={(e) => set({ env: e.target.value })} />}</Field>
            <Checkbox label="A process of its own" hint="Otherwise sessions of an agent share one." checked={wishes.own} onChange={(e) => set({ own: e.target.checked })} />
            <Checkbox label="Record what the agent and the gateway say to each other" hint="For a report about an error: the newest 8 to 16 MiB, without keys. It is in the session’s menu." checked={wishes.record} onChange={(e) => set({ record: e.target.checked })} />
          </div>
        </details>
        {problem && (
          <div ref={said} className="form-said" tabIndex={-1}>
            {problem.login && agent
              ? <LoginHelp agent={agent} reason={problem.detail}><p>Log in, or fill in a key above. Then start again.</p></LoginHelp>
              : <Notice tone="bad" title={problem.kind === "agent" ? "The agent refused" : problem.title}><p>{problem.detail}</p>{problem.command && <Command text={problem.command} />}</Notice>}
          </div>
        )}
        <div className="row form-foot">
          <Button type="submit" tone="primary" busy={busy} disabled={away} {...drive}>{busy ? "Starting the agent" : "Start"}</Button>
          <Button tone="quiet" onClick={() => (busy ? stop.current?.abort() : router.go("sessions"))}>Cancel</Button>
          {busy && agent && !agent.installed && <span className="soft small" role="status">{agent.name} is installed first; this can take minutes.</span>}
        </div>
      </form>
    </div>
  );
}

const permissionHints: Record<string, string> = {
  "": "Nothing is allowed by the gateway itself.",
  default: "You are asked here, and in the inbox.",
  readonly: "It may look and not touch.",
  write: "Commands are still asked for, where the agent can tell the difference.",
  bypass: "For sandboxes: nobody is asked anything.",
};

/** Whether the agent most likely does not work without a key or a login. One that is part of the gateway needs none. */
const wantsKey = (agent: Agent) => agent.authState === "required" || (agent.kind === "bridge" && agent.authState === "unknown" && !agent.credentialsAvailable && !(agent.installed && agent.path === undefined));

function agentHint(agent: Agent): string {
  if (!agent.installed) return "It is installed when the session starts.";
  const parts = [agent.version, agent.authState === "required" ? "needs a login" : agent.authState === "unknown" && !agent.credentialsAvailable ? "no login is known" : undefined].filter(Boolean);
  return parts.join(", ") || agent.description || "";
}

/** A choice from what the agent reported, or a free text when it reports nothing. What was chosen or typed before stays. */
function Choose({ label, value, choices, why, without, onChange }: { label: string; value: string; choices: readonly Choice[] | undefined; why?: string | undefined; without: string | undefined; onChange: (value: string) => void }) {
  const chosen = choices?.find((c) => c.id === value);
  const hint = choices === undefined ? "The agent is asked what there is." : choices.length === 0 ? why ?? "Known when the agent has run once." : chosen?.description;
  return (
    <Field label={label} optional hint={without ?? hint}>
      {(props) =>
        choices?.length === 0 ? (
          <Input {...props} value={value} disabled={without !== undefined} onChange={(e) => onChange(e.target.value)} placeholder="The agent’s own" />
        ) : (
          <Select {...props} value={value} disabled={without !== undefined} aria-busy={choices === undefined} onChange={(e) => onChange(e.target.value)}>
            <option value="">The agent’s own</option>
            {value !== "" && !chosen && <option value={value}>{value}</option>}
            {choices?.map((c) => <option key={c.id} value={c.id}>{c.name}</option>)}
          </Select>
        )}
    </Field>
  );
}
