import { memo, useState } from "react";
import { CopyButton, IconButton } from "../kit/controls.js";
import { Menu } from "../kit/dialog.js";
import { Icon } from "../kit/icons.js";
import { Notice } from "../kit/show.js";
import { baseName, count, duration } from "../kit/text.js";
import { Block } from "./Blocks.js";
import type { NoteItem, PlanDocument, PlanItem, Row, TextItem, TurnItem, UserItem } from "./items.js";
import { Markdown } from "./Markdown.js";
import { promptText } from "./words.js";
import { ToolCall } from "./ToolCall.js";

/** What can be done with a prompt of before. */
export interface PromptActions {
  /** Puts it where prompts are written, to be changed and sent. */
  write(item: UserItem): void;
  /** Sends it as it was. */
  send(item: UserItem): void;
  /** A copy, or a session, is being made of one. */
  readonly making: boolean;
  /** Sends it in a copy of the session; undefined when its agent makes none. */
  readonly sendInCopy: ((item: UserItem) => void) | undefined;
  /** Begins a session that knows only what was said before it. */
  startFrom(item: UserItem): void;
}

/** One row of a conversation. It renders again when the row is another one. */
export const RowView = memo(function RowView({ row, cwd, asked, prompts }: { row: Row; cwd: string | undefined; asked: boolean; prompts?: PromptActions | undefined }) {
  const { item } = row;
  switch (item.kind) {
    case "user":
      return <User item={item} prompts={prompts} />;
    case "text":
      return <Said item={item} segment={row.segment} />;
    case "thought":
      return <Thought item={item} />;
    case "tool":
      return <ToolCall item={item} cwd={cwd} asked={asked} />;
    case "plan":
      return <Plan item={item} />;
    case "turn":
      return <TurnEnd item={item} />;
    case "note":
      return <Note item={item} />;
  }
});

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });

const making = "a session is being made";

function User({ item, prompts }: { item: UserItem; prompts: PromptActions | undefined }) {
  const [all, setAll] = useState(false);
  const texts = item.blocks.filter((b) => b.type === "text");
  const long = texts.reduce((n, b) => n + b.text.length, 0) > 6000;
  return (
    <div className="said user">
      <div className="bubble">
        {item.blocks.map((block, i) => <Block key={i} block={block.type === "text" && long && !all ? { ...block, text: `${block.text.slice(0, 6000)}…` } : block} text="plain" />)}
        {long && <button type="button" className="link" onClick={() => setAll(!all)}>{all ? "Show less" : "Show all"}</button>}
      </div>
      <span className="when">
        {prompts && (
          <Menu
            label="Do something with this prompt"
            items={[
              { label: "Send it again", run: () => prompts.send(item) },
              { label: "Send it in a copy", hint: prompts.making ? making : prompts.sendInCopy ? "the copy knows all of this session" : "this agent makes no copies", disabled: !prompts.sendInCopy || prompts.making, run: () => prompts.sendInCopy?.(item) },
              { label: "New session from here", hint: prompts.making ? making : "knows what was said before", disabled: prompts.making, run: () => prompts.startFrom(item) },
            ]}
          />
        )}
        {prompts && <IconButton className="copy" label="Write it again" icon="edit" size={14} onClick={() => prompts.write(item)} />}
        <CopyButton text={() => promptText(item)} iconOnly label="Copy the prompt" />
        <time dateTime={new Date(item.at).toISOString()}>{clock.format(item.at)}</time>
      </span>
    </div>
  );
}

function Said({ item, segment }: { item: TextItem; segment: number }) {
  const part = item.segments.all[segment];
  const last = segment >= item.segments.all.length - 1;
  return (
    <div className={`said agent ${part?.begun ? "continued" : ""}`}>
      {part && <Markdown text={part.text} begun={part.begun} cut={part.cut} growing={!part.closed && !item.done} />}
      {last && item.blocks.map((block, i) => <Block key={i} block={block} />)}
      {last && item.done && item.segments.length > 0 && <span className="said-copy"><CopyButton text={() => item.segments.whole} iconOnly label="Copy the message" /></span>}
    </div>
  );
}

/** Segments of a thought that are shown at once. */
const shownSegments = 40;

function Thought({ item }: { item: TextItem }) {
  const [open, setOpen] = useState(false);
  const all = item.segments.all;
  const gist = (item.done ? all[0] : all.at(-1))?.text.replace(/[*_`#>]/g, "").trim().split("\n").find((line) => line !== "") ?? "";
  return (
    <section role="group" className={`thought ${item.done ? "" : "live"}`} aria-label="Thought">
      <button type="button" className="thought-head" aria-expanded={open} onClick={() => setOpen(!open)}>
        <span className="tool-icon"><Icon name="think" size={15} /></span>
        <span className="thought-word">{item.done ? "Thought" : "Thinking"}</span>
        {!open && <span className="clip soft">{gist}</span>}
        <span className={`turner ${open ? "open" : ""}`}><Icon name="chevron" size={14} /></span>
      </button>
      {open && (
        <div className="thought-body">
          {all.length > shownSegments && <p className="soft small">The end of a long thought.</p>}
          {all.slice(-shownSegments).map((s, i) => <Markdown key={i} text={s.text} begun={s.begun} cut={s.cut} growing={!s.closed && !item.done} />)}
        </div>
      )}
    </section>
  );
}

const steps: Record<string, string> = { pending: "to do", in_progress: "under way", completed: "done", cancelled: "given up" };

function Plan({ item }: { item: PlanItem }) {
  if (item.document) {
    return (
      <section role="group" className="plan" aria-label="Plan">
        <h2><Icon name="sessions" size={15} /> Plan</h2>
        <Document document={item.document} />
      </section>
    );
  }
  if (item.entries.length === 0) return null; // it was taken back
  const done = item.entries.filter((e) => e.status === "completed").length;
  return (
    <section role="group" className="plan" aria-label="Plan">
      <h2><Icon name="sessions" size={15} /> Plan <span className="soft">{done} of {item.entries.length}</span></h2>
      <PlanSteps entries={item.entries} />
    </section>
  );
}

function Document({ document }: { document: PlanDocument }) {
  switch (document.type) {
    case "markdown":
      return <Markdown text={document.text} />;
    case "file":
      return <Block block={{ type: "resource_link", name: baseName(document.uri), uri: document.uri }} />;
    case "unknown":
      return <p className="soft">It is of a kind that this page does not know: {document.name}. The Wire shows it.</p>;
  }
}

export function PlanSteps({ entries }: Pick<PlanItem, "entries">) {
  return (
    <ol className="plan-steps">
      {entries.map((entry, i) => (
        <li key={i} className={entry.status}>
          <span className="step" aria-hidden="true">{entry.status === "completed" && <Icon name="check" size={12} />}</span>
          <span>{entry.content}<span className="unseen">, {steps[entry.status] ?? entry.status}</span></span>
        </li>
      ))}
    </ol>
  );
}

const stops: Record<string, string> = { cancelled: "Stopped", max_tokens: "The limit of tokens was reached", max_turn_requests: "The limit of requests in one turn was reached", refusal: "The agent refused" };

function TurnEnd({ item }: { item: TurnItem }) {
  if (item.error !== undefined) return <Notice tone="bad" title="The turn failed"><p>{item.error}</p></Notice>;
  const usage = item.usage;
  const facts = [
    item.tookMs === undefined || item.tookMs < 1000 ? undefined : duration(item.tookMs),
    usage ? `${count(usage.inputTokens)} in, ${count(usage.outputTokens)} out` : undefined,
  ].filter(Boolean);
  const word = item.stopReason === undefined || item.stopReason === "end_turn" ? undefined : (stops[item.stopReason] ?? item.stopReason);
  if (!word && facts.length === 0) return <div className="turn-gap" />;
  return (
    <div className={`turn-end ${word ? "odd" : ""}`}>
      {word && <strong>{word}</strong>}
      {facts.join(" · ")}
    </div>
  );
}

function Note({ item }: { item: NoteItem }) {
  if (item.tone === "answer") return <p className="answered"><Icon name="check" size={14} /> {item.title}</p>;
  return (
    <Notice tone={item.tone} title={item.title}>
      {item.detail && <details><summary>Details</summary><pre className="note-detail" tabIndex={0}>{item.detail}</pre></details>}
      {item.detail && <CopyButton text={item.detail} />}
    </Notice>
  );
}
