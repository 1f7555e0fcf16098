import { Suspense, lazy, useCallback, useEffect, useMemo, useRef, useState, type DragEvent } from "react";
import type { ContentBlock } from "sandbox-agent";
import { Button, CopyButton, IconButton, LinkButton } from "../kit/controls.js";
import { Confirm, Menu } from "../kit/dialog.js";
import { Icon } from "../kit/icons.js";
import { save } from "../kit/save.js";
import { Badge, Empty, Notice } from "../kit/show.js";
import { count, elapsed, plural } from "../kit/text.js";
import { marksOf, nameOf } from "../sessions/marks.js";
import { markItems, Rename } from "../sessions/Rename.js";
import type { HubSession } from "../nodes/hub.js";
import { AskCard } from "../inbox/AskCard.js";
import { titleOf, type Ask } from "../state/inbox.js";
import type { BackgroundItem, PlanItem, Row, UserItem } from "./items.js";
import { authRequired } from "../login/codes.js";
import { shownState } from "../sessions/states.js";
import { conversations, departing, gateway, inbox, leave, router, sessions, toasts } from "../state/page.js";
import { hrefOf, hrefOfFile } from "../state/router.js";
import { useSelected, useStore } from "../state/store.js";
import { attach, nameOf as nameOfBlock } from "./attachments.js";
import { Composer } from "./Composer.js";
import { maxQueue, noDraft, type Conversation } from "./conversation.js";
import type { Waiting } from "./facts.js";
import { isCopy } from "./shown.js";
import { useDraft } from "./draft.js";
import { Find, type Finding } from "./Find.js";
import { RowList, type RowControl } from "./RowList.js";
import type { PromptActions } from "./RowView.js";
import { Subagent } from "./Subagent.js";
import { PlanSteps } from "./RowView.js";
import { forkOf, startFrom } from "./begin.js";
import { serverTrouble } from "./servers.js";
import { markdownOf } from "./words.js";
import { useTitle } from "../app/title.js";
import { useShortcut } from "../app/shortcuts.js";
import { useDrive } from "../app/drive.js";
import { useWork } from "../app/work.js";

const Copy = lazy(() => import("../nodes/Copy.js"));
const About = lazy(() => import("./About.js"));
const Review = lazy(() => import("./Review.js"));
const LoginCard = lazy(() => import("./LoginCard.js"));

/** One session: what was said, what is asked, and where to answer. */
export default function ConversationView({ id, child }: { id: string; child: string | undefined }) {
  const generation = useSelected(gateway, (g) => g.generation);
  const forgotten = useStore(conversations.forgotten);
  const conversation = useMemo(() => conversations.open(id), [id, generation, forgotten]);
  return <Inside key={id} conversation={conversation} child={child} />;
}

/** Reads files in the background, one batch after another, for the next prompt; what is sent or removed meanwhile stays so. */
function useAttach(conversation: Conversation): (files: Iterable<File>) => void {
  const over = useRef<AbortController>(null);
  useEffect(() => {
    const shown = (over.current = new AbortController()); // what is said of a file is about this session
    return () => shown.abort();
  }, []);
  const reading = useRef(Promise.resolve());
  return (files) => {
    const batch = [...files]; // the browser takes its list back
    reading.current = reading.current.then(async () => {
      const { blocks, problems } = await attach(batch, conversation.draft.attachments);
      if (blocks.length > 0) conversation.draft = { ...conversation.draft, attachments: [...conversation.draft.attachments, ...blocks] };
      const shown = over.current?.signal;
      if (shown?.aborted === false) for (const problem of problems) shown.addEventListener("abort", toasts.show(problem, "bad"), { once: true });
    });
  };
}

function Inside({ conversation, child }: { conversation: Conversation; child: string | undefined }) {
  const state = useStore(conversation);
  const { rows, version } = useStore(conversation.rows);
  const reader = useSelected(gateway, (g) => g.hub?.scope === "read");
  const all = useStore(inbox);
  const asks = useMemo(() => all.filter((a) => a.sessionId === conversation.id), [all, conversation]);
  const askedCalls = useMemo(() => new Set(asks.flatMap((a) => (a.toolCallId ? [a.toolCallId] : []))), [asks]);
  const attach = useAttach(conversation);
  const [over, setOver] = useState(false);
  const [taken, setTaken] = useState(0); // prompts that come from elsewhere, such as the queue: the composer begins anew with each
  const [reviewing, setReviewing] = useState(false);
  const again = useCallback(({ blocks }: Pick<UserItem, "blocks">) => {
    conversation.write(blocks);
    conversation.begun = true;
    setTaken((n) => n + 1);
  }, [conversation]);
  const { info } = state;
  const node = isCopy(info) ? undefined : (info as HubSession | undefined)?.node;
  useEffect(() => {
    if (node !== undefined) gateway.visit(node); // its files and its agents are those of this session
  }, [node]);
  const title = (info && marksOf(info).title) || state.title || (info ? nameOf(info) : "Session");
  useTitle("part", info && title);
  const prompts = usePrompts(conversation, title, again);

  const last = rows.at(-1)?.item;
  const control = useRef<RowControl>(null);
  const [finding, setFinding] = useState<Finding>();
  useEffect(() => {
    conversation.looksBack = () => finding !== undefined || !(control.current?.atEnd() ?? child === undefined);
    return () => void (conversation.looksBack = () => false);
  }, [conversation, finding, child]);
  const toPrompt = (direction: 1 | -1) => {
    const from = control.current?.first() ?? 0;
    const at = direction < 0 ? rows.findLastIndex((r, i) => i < from && r.item.kind === "user") : rows.findIndex((r, i) => i > from && r.item.kind === "user");
    if (at >= 0) control.current?.show(at);
  };
  useShortcut({ keys: "mod+f", what: "Find in the conversation", group: "Conversation", always: true, run: () => setFinding((f) => f ?? { words: "", row: undefined }) });
  useShortcut({ keys: "c", what: "Review the changes", group: "Conversation", run: () => state.phase !== "failed" && setReviewing(true) });
  useShortcut({ keys: "alt+ArrowUp", what: "The prompt before", group: "Conversation", always: true, run: () => toPrompt(-1) });
  useShortcut({ keys: "alt+ArrowDown", what: "The next prompt", group: "Conversation", always: true, run: () => toPrompt(1) });
  const tryAgain = <Button onClick={() => void conversation.open(gateway.client)}>Try again</Button>;
  if (state.phase === "failed" && rows.length === 0) {
    return (
      <div className="conversation">
        <Empty icon="unplug" title="This session cannot be shown" action={<div className="row">{tryAgain}<LinkButton href="#/sessions" tone="quiet">All sessions</LinkButton></div>}>
          <p>{state.problem}</p>
        </Empty>
        <NotSent conversation={conversation} />
      </div>
    );
  }

  const earlier = (label: string) => state.earlier > 0 && <Button small busy={state.loadingEarlier} onClick={() => void toasts.attempt("Earlier events could not be read", () => conversation.readEarlier())}>{label}</Button>;
  const silent = state.phase === "reading" || state.phase === "failed"; // nothing can be said
  const drop = {
    onDragOver: (event: DragEvent) => {
      if (!event.dataTransfer.types.includes("Files") || silent) return;
      event.preventDefault();
      setOver(true);
    },
    onDragLeave: (event: DragEvent) => {
      if (!event.currentTarget.contains(event.relatedTarget as Node | null)) setOver(false);
    },
    onDrop: (event: DragEvent) => {
      setOver(false);
      if (event.dataTransfer.files.length === 0 || silent) return; // a text goes where it is dropped
      event.preventDefault();
      attach(event.dataTransfer.files);
    },
  };

  return (
    <div className="conversation" {...drop}>
      <Head conversation={conversation} title={title} onReview={() => setReviewing(true)} />
      {reviewing && info && (
        <Suspense fallback={null}>
          <Review conversation={conversation} cwd={info.cwd} onClose={() => setReviewing(false)} onPrompt={(text) => {
            const { draft } = conversation;
            conversation.draft = { ...draft, text: draft.text.trim() === "" ? text : `${draft.text.trimEnd()}\n\n${text}` };
            conversation.begun = true; // writing goes on
            setTaken((n) => n + 1);
          }} />
        </Suspense>
      )}
      {state.continuity === "fresh" && (
        <p className="conversation-bar" role="status">
          <Icon name="warning" /> <span><strong>The agent does not remember the whole conversation.</strong> Its process was started anew and had kept nothing: tell it again what it needs.</span>
        </p>
      )}
      {state.unwritable !== undefined && (
        <p className="conversation-bar" role="status">
          <Icon name="warning" /> <span><strong>The gateway cannot write this conversation.</strong> Nothing of it is shown until it can; the agent waits. {state.unwritable}</span>
        </p>
      )}
      {state.phase === "live" && state.problem !== undefined && (
        <p className="conversation-bar" role="status">
          <Icon name="warning" /> <span><strong>This session cannot be followed now.</strong> It is tried again. {state.problem}</span>
        </p>
      )}
      {finding && <Find rows={rows} version={version} earlier={earlier("Look further back")} onFind={(next) => {
        setFinding(next);
        if (next.row !== undefined) control.current?.show(next.row, "center");
      }} onClose={() => {
        setFinding(undefined);
        control.current?.focus();
      }} />}
      {child !== undefined ? <Subagent conversation={conversation} info={info} id={child} rows={rows} version={version} earlier={state.earlier} /> : <RowList
        control={control} found={finding?.row} marked={finding?.words ?? ""}
        prompts={state.phase === "live" && !reader ? prompts : undefined}
        rows={rows} version={version} sent={state.sent} cwd={info?.cwd} askedCalls={askedCalls} label={`Conversation: ${title}`}
        head={
          <>
            {state.earlier > 0 && <div className="earlier">{earlier(`Show what was before (${plural(state.earlier, "event")})`)}</div>}
            {state.unsupported.length > 0 && (
              <div className="earlier"><Notice tone="warn" title="Not everything that was asked for had an effect"><ul className="plain-list">{state.unsupported.map((u) => <li key={u.field}><strong>{u.field}</strong>: {u.reason}</li>)}</ul></Notice></div>
            )}
            {rows.length === 0 && state.phase !== "loading" && state.earlier === 0 && <Empty icon="sessions" title="Nothing was said yet"><p>Write what {agentName(info?.agent)} should do{info ? <> in <span className="mono">{info.cwd}</span></> : null}.</p></Empty>}
            {state.phase === "loading" && rows.length === 0 && <p className="area-wait" role="status">Reading the conversation…</p>}
          </>
        }
      />}
      <div className="dock">
        {state.phase === "live" && state.background.length > 0 && <Background conversation={conversation} items={state.background} />}
        {!silent && (state.running || state.doing === "running") && asks.length === 0 && <Working conversation={conversation} />}
        {last?.kind === "turn" && last.code === authRequired && state.phase === "live" && !state.running && <Suspense fallback={null}><LoginCard conversation={conversation} reason={last.error} /></Suspense>}
        {asks.map((ask, i) => <AskCard key={ask.id} ask={ask} cwd={info?.cwd} keys={i === 0} />)}
        <Queue conversation={conversation} onEdit={(w) => {
          conversation.unqueue(w.id);
          again(w);
        }} />
        {silent ? <><NotSent conversation={conversation} />{state.phase === "failed" ? <Notice tone="bad" title="This session cannot be followed now" actions={tryAgain}><p>{state.problem}</p></Notice> : <Readonly conversation={conversation} />}</> : reader ? <Notice title="Your token is for reading">What is said here is shown as it comes. To say something, use a token with the scope drive.</Notice> : <Composer key={taken} conversation={conversation} attach={attach} />}
      </div>
      <Announcer rows={rows} running={state.running} asks={asks} />
      {over && <div className="drop-veil" aria-hidden="true"><Icon name="clip" size={24} /> Drop pictures and text files here</div>}
    </div>
  );
}

/** Whether the agent can make a copy of a session. */
const useForks = (agent: string | undefined) => useSelected(gateway, (g) => g.agents.find((a) => a.id === agent)?.capabilities?.fork?.level !== "unsupported");

/** What can be done with prompts of before; the same object as long as the same can be done. */
function usePrompts(conversation: Conversation, title: string, write: PromptActions["write"]): PromptActions {
  const agent = useSelected(conversation, (s) => s.info?.agent);
  const forks = useForks(agent);
  const { busy: making, run } = useWork();
  return useMemo(() => ({
    write, making,
    send: (item) => {
      if (!conversation.send(item.blocks)) toasts.show(`At most ${maxQueue} prompts wait for a turn`, "bad");
    },
    sendInCopy: forks ? (item) => void run("A copy could not be made", async () => {
      const lead = departing();
      const copy = await forkOf(conversation);
      copy.send(item.blocks);
      lead(`Sent in a copy of ${title}`, "sessions", [copy.id]);
    }) : undefined,
    startFrom: (item) => void run("The session could not be made", async () => {
      const lead = departing();
      lead(`The new session is ready: ${title}`, "sessions", [(await startFrom(conversation, item, title)).id]);
    }),
  }), [conversation, title, write, forks, making]);
}

/** What the agent is called; a hub's page knows that of the node that is shown. */
const agentName = (id: string | undefined) => gateway.get().agents.find((a) => a.id === id)?.name ?? id ?? "the agent";

const fileNameOf = (title: string) => title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "session";

/** Gives a person what was said and done, without what looks like a key. */
async function saveTranscript(id: string, title: string, format: "html" | "markdown"): Promise<void> {
  const text = await gateway.client.api.sessionTranscript(id, { format });
  save(new Blob([text], { type: format === "html" ? "text/html" : "text/markdown" }), `${fileNameOf(title)}.${format === "html" ? "html" : "md"}`);
}

/** Gives a person all of a session, for `sandbox-agent sessions import`. */
async function saveSession(id: string, title: string): Promise<void> {
  const file = await new Response(await gateway.client.api.exportSession(id)).blob();
  save(file, `${fileNameOf(title)}.tar.zst`);
}

/** Gives a person what the agent and the gateway have said to each other, if the session records it. */
async function saveRecording(id: string, title: string): Promise<void> {
  const lines = await gateway.client.api.sessionRaw(id);
  save(new Blob([lines], { type: "application/x-ndjson" }), `${fileNameOf(title)}.ndjson`);
}

function Head({ conversation, title, onReview }: { conversation: Conversation; title: string; onReview: () => void }) {
  const state = useStore(conversation);
  const [asking, ask] = useState<"delete" | "terminate" | "rename" | "about">();
  const { info } = state;
  const node = (info as HubSession | undefined)?.node;
  const drive = useDrive();
  const forks = useForks(info?.agent);
  const copying = useWork();
  const id = conversation.id;
  const trouble = serverTrouble(state.given?.servers ?? []);
  const shown = info && shownState(info, conversation.turn);
  const attempt = (what: string, run: () => Promise<unknown>) => void toasts.attempt(what, run);
  return (
    <header className="conversation-head">
      <a className="icon-button back" href="#/sessions" aria-label="All sessions" title="All sessions"><span className="turned"><Icon name="chevron" /></span></a>
      <div className="grow">
        <h1 className="clip">{title}</h1>
        {info && (
          <p className="facts soft small">
            {node !== undefined && <a href={hrefOf("nodes", [node])} title="The node that has the session">{node}</a>}
            <span>{agentName(info.agent)}</span>
            <a className="mono clip" href={hrefOfFile(info.cwd)} title={info.cwd}>{info.cwd}</a>
            {trouble && <button type="button" className="link bad-text clip" onClick={() => ask("about")}>{trouble}</button>}
            {info.clients > 1 && <span className="others" title="Clients that follow this session">{plural(info.clients, "client")}</span>}
          </p>
        )}
      </div>
      {shown && <Badge tone={shown.tone}>{shown.words}</Badge>}
      <IconButton label="Stop the turn" icon="stop" disabled={(!state.running && state.doing === "idle") || state.stopping} {...drive} onClick={() => void toasts.attempt("It could not be stopped", () => conversation.stop())} />
      {info && <IconButton label="Review the changes" icon="review" {...drive} onClick={onReview} />}
      {info && <IconButton label="About this session" icon="panel" onClick={() => ask("about")} />}
      {asking === "about" && info && <Suspense fallback={null}><About conversation={conversation} info={info} onClose={() => ask(undefined)} /></Suspense>}
      <Menu
        label="What can be done with this session"
        items={[
          ...(info ? markItems(info, drive, () => ask("rename")) : []),
          { label: "Fork", hint: copying.busy ? "the copy is being made" : forks ? "a copy to try something" : "this agent makes no copies", disabled: state.phase !== "live" || !forks || copying.busy, ...drive, run: () => void copying.run("It could not be forked", async () => {
            const lead = departing();
            lead(`The copy is made: ${title}`, "sessions", [(await forkOf(conversation)).id]);
          }) },
          { label: "Copy the conversation", hint: "as Markdown", run: () => attempt("It could not be copied", () => navigator.clipboard.writeText(markdownOf(conversation.rows.get().rows, title))) },
          { label: "Save as a page", hint: "to share", run: () => attempt("It could not be saved", () => saveTranscript(id, title, "html")) },
          { label: "Save as Markdown", run: () => attempt("It could not be saved", () => saveTranscript(id, title, "markdown")) },
          { label: "Save for another gateway", hint: "to go on there", ...drive, run: () => attempt("It could not be saved", () => saveSession(id, title)) },
          { label: "Save the recording", hint: "what the agent itself has said", run: () => attempt("There is no recording", () => saveRecording(id, title)) },
          { label: "Copy the link", run: () => attempt("It could not be copied", () => navigator.clipboard.writeText(location.href)) },
          { label: "Copy the id", run: () => attempt("It could not be copied", () => navigator.clipboard.writeText(id)) },
          { label: "Detach", hint: "it goes on", run: () => {
            router.go("sessions");
            attempt("It could not be detached", () => conversations.forget(id));
          } },
          { label: "Close", hint: "can be opened again", disabled: state.phase === "reading", ...drive, run: () => attempt("It could not be closed", async () => {
            await gateway.client.closeSession(id);
            leave("sessions", id);
            await conversations.forget(id);
            toasts.show("The session is closed", "good");
          }) },
          { label: "End for good…", danger: true, disabled: info?.state === "ended", ...drive, run: () => ask("terminate") },
          { label: "Delete…", danger: true, ...drive, run: () => ask("delete") },
        ]}
      />
      {asking === "rename" && info && <Rename info={info} onClose={() => ask(undefined)} />}
      {(asking === "delete" || asking === "terminate") && (
        <Confirm
          title={asking === "delete" ? "Delete this session?" : "End this session for good?"} action={asking === "delete" ? "Delete" : "End"} onClose={() => ask(undefined)}
          onConfirm={() => toasts.attempt("It did not work", async () => {
            if (asking === "delete") await gateway.client.deleteSession(id);
            else await gateway.client.terminateSession(id);
            leave("sessions", id);
            await conversations.forget(id);
            if (asking === "delete") conversation.draft = noDraft;
          })}
        >
          <p>{asking === "delete" ? "Its conversation and all its events are removed from the gateway. Files that the agent changed stay as they are." : "Its agent is stopped and it takes no more prompts. What was said can still be read."}</p>
        </Confirm>
      )}
    </header>
  );
}

/** How long an agent may take to stop before its process can be ended instead. */
const patienceMs = 4000;

/** That the agent works, or stops, and what to do when it does not. */
function Working({ conversation }: { conversation: Conversation }) {
  const drive = useDrive();
  const { stopping, usage } = useStore(conversation);
  const { rows } = useStore(conversation.rows);
  const begin = rows.findLastIndex((r) => r.item.kind === "user");
  const began = rows[begin]?.item.at;
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const [deaf, setDeaf] = useState(false);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    setDeaf(false);
    if (!stopping) return;
    const timer = setTimeout(() => setDeaf(true), patienceMs);
    return () => clearTimeout(timer);
  }, [stopping]);
  const plan = rows.findLast((r, i) => i > begin && r.item.kind === "plan")?.item;
  return (
    <>
      {plan?.kind === "plan" && plan.entries.length > 0 && <PlanNow plan={plan} />}
      <div className="working">
        <span className="dot busy" /> <span role="status">{stopping ? (deaf ? "The agent does not stop." : "Stopping") : "Working"}</span>
        {began !== undefined && now - began >= 1000 && <span className="soft small elapsed">{elapsed(now - began)}{usage ? ` \u00b7 ${count(usage.used)} tokens` : ""}</span>}
        {deaf && <Button small tone="danger" busy={busy} {...drive} onClick={() => {
          setBusy(true);
          void toasts.attempt("Its process could not be ended", () => conversation.endProcess()).finally(() => setBusy(false));
        }}>End its process</Button>}
        {deaf && <span className="soft small">The session stays, and can go on.</span>}
      </div>
    </>
  );
}

/** What goes on in the background that is listed; of more it is said how many. */
const shownBackground = 5;

/** What the agent does though its turn is over. */
function Background({ conversation, items }: { conversation: Conversation; items: readonly BackgroundItem[] }) {
  const drive = useDrive();
  return (
    <section className="background" aria-label="In the background">
      <span className="soft small">In the background</span>
      <ul>
        {items.slice(0, shownBackground).map((item) => (
          <li key={item.key}>
            <span className="dot busy" /> <span className="clip">{item.title}</span>
            {item.stop && <IconButton label={`Stop ${item.title}`} icon="stop" size={14} {...drive} onClick={() => void toasts.attempt("It could not be stopped", () => conversation.stopOne(item.stop!))} />}
          </li>
        ))}
      </ul>
      {items.length > shownBackground && <span className="soft small">and {items.length - shownBackground} more</span>}
    </section>
  );
}

/** The plan of the turn that runs: which step it is at, and all of them when one asks. */
function PlanNow({ plan }: { plan: PlanItem }) {
  const done = plan.entries.filter((e) => e.status === "completed").length;
  const now = plan.entries.find((e) => e.status === "in_progress") ?? plan.entries.find((e) => e.status !== "completed" && e.status !== "cancelled");
  return (
    <details className="plan-now">
      <summary><span className="clip"><strong>{done} of {plan.entries.length}</strong> {now ? now.content : "all done"}</span></summary>
      <PlanSteps entries={plan.entries} />
    </details>
  );
}

/** The most that is read out of an answer. */
const readOut = 600;

/** Reads out what an agent asks at once, and what it said when it has ended. */
function Announcer({ rows, running, asks }: { rows: readonly Row[]; running: boolean; asks: readonly Ask[] }) {
  const [said, say] = useState("");
  const was = useRef(running);
  useEffect(() => {
    if (was.current && !running) {
      const last = rows.findLast((r) => r.item.kind === "text")?.item;
      const end = rows.at(-1)?.item;
      say(end?.kind === "turn" && end.error !== undefined ? `The turn failed: ${end.error}` : last?.kind === "text" ? last.segments.all.map((s) => s.text).join("\n").slice(-readOut) : "The agent has ended its turn");
    }
    was.current = running;
  }, [running, rows]);
  const ask = asks[0];
  return (
    <>
      <div className="unseen" aria-live="polite" data-announced>{said}</div>
      <div className="unseen" aria-live="assertive" data-asked>{ask ? `The agent asks: ${titleOf(ask)}` : ""}</div>
    </>
  );
}

function Queue({ conversation, onEdit }: { conversation: Conversation; onEdit: (waiting: Waiting) => void }) {
  const { queue, held, phase, problem } = useStore(conversation);
  const until = problem === undefined ? "for the turn to end" : "until the session can be followed";
  if (queue.length === 0) return null;
  return (
    <section className="queue" aria-label="Prompts that wait">
      <header className="row">
        <span className="soft small">{plural(queue.length, "prompt")} {held ? "held back" : `${queue.length === 1 ? "waits" : "wait"} ${until}`}</span>
        {held && phase === "live" && <Button small onClick={() => conversation.release()}>Send {queue.length === 1 ? "it" : "them"} now</Button>}
      </header>
      <ol>
        {queue.map((waiting) => {
          const text = waiting.blocks.flatMap((b) => (b.type === "text" ? [b.text] : [`(${b.type})`])).join(" ");
          return (
            <li key={waiting.id}>
              <span className="clip">{text}</span>
              <IconButton label="Edit" icon="edit" size={14} onClick={() => onEdit(waiting)} />
              <IconButton label="Remove" icon="close" size={14} onClick={() => conversation.unqueue(waiting.id)} />
            </li>
          );
        })}
      </ol>
    </section>
  );
}

/** What was written for a session that takes nothing now, to be taken elsewhere. */
function NotSent({ conversation }: { conversation: Conversation }) {
  const { text, attachments } = useDraft(conversation);
  if (text.trim() === "" && attachments.length === 0) return null;
  return (
    <Notice title="What you have written is not sent" actions={<><CopyButton text={text} /><Button small tone="quiet" onClick={() => void (conversation.draft = noDraft)}>Discard it</Button></>}>
      <pre className="note-detail" tabIndex={0}>{text}</pre>
      {attachments.length > 0 && <p>With it: {attachments.map(nameOfBlock).join(", ")}</p>}
    </Notice>
  );
}

function Readonly({ conversation }: { conversation: Conversation }) {
  const { info } = useStore(conversation);
  if (isCopy(info)) return <Suspense fallback={null}><Copy conversation={conversation} info={info as HubSession} /></Suspense>;
  if (info?.state === "ended") {
    return (
      <Notice title="This session has ended">
        <p>{info.ended?.message ?? info.ended?.reason ?? "It takes no more prompts."}</p>
        {info.ended?.stderr && <details><summary>What its agent wrote last</summary><pre className="note-detail" tabIndex={0}>{info.ended.stderr.tail ?? info.ended.stderr.head}</pre><CopyButton text={String(info.ended.stderr.tail ?? info.ended.stderr.head ?? "")} /></details>}
      </Notice>
    );
  }
  return <Notice title="This session is closed" actions={<Button small tone="primary" onClick={() => void toasts.attempt("It could not be opened", () => conversation.reopen())}>Open it again</Button>}>Its agent has let go of it; it can be opened again.</Notice>;
}
