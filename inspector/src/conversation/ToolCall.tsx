import { memo, useState } from "react";
import { Button } from "../kit/controls.js";
import { Icon, type IconName } from "../kit/icons.js";
import { Spinner } from "../kit/controls.js";
import { duration, plural, relativeTo } from "../kit/text.js";
import { hrefOfFile } from "../state/router.js";
import { Block } from "./Blocks.js";
import { Code } from "./Code.js";
import { Change, Diff } from "./Diff.js";
import type { ChildItem, TextItem, ToolContent, ToolItem } from "./items.js";
import { Markdown } from "./Markdown.js";
import { HostTerminal } from "./HostTerminal.js";
import { Output } from "./Output.js";

const icons: Record<string, IconName> = { read: "read", edit: "edit", delete: "trash", move: "files", search: "search", execute: "terminal", think: "think", fetch: "globe", switch_mode: "sessions" };
const states = { pending: "Waiting", in_progress: "Running", completed: "Done", failed: "Failed", cancelled: "Stopped", rejected: "Rejected" } as const;

/** Calls of a subagent that are shown at once; the newest. */
const shownChildren = 30;

export const ToolCall = memo(function ToolCall({ item, cwd, asked, nested, whole }: { item: ToolItem; cwd: string | undefined; asked?: boolean; nested?: boolean; whole?: boolean }) {
  const hasDiff = item.content.some((c) => c.type === "diff" || c.type === "change");
  const answer = item.asked?.answer;
  // What a person has refused is no error.
  const status = item.status === "failed" && answer?.kind.startsWith("reject") ? "rejected" : item.status;
  const standard = hasDiff || status === "failed" || item.children.length > 0;
  const [chosen, choose] = useState<boolean>();
  const open = chosen ?? (whole || standard);
  const hasMore = item.content.length > 0 || item.rawInput !== undefined || item.children.length > 0 || item.rawOutput !== undefined;
  const took = item.endedAt === undefined ? undefined : item.endedAt - item.at - (item.asked?.waitedMs ?? 0);
  return (
    <section role="group" className={`tool ${status} ${nested ? "nested" : ""}`} aria-label={`Tool: ${item.title}`}>
      <button type="button" className="tool-head" aria-expanded={hasMore ? open : undefined} onClick={() => choose(!open)} disabled={!hasMore}>
        <span className="tool-icon"><Icon name={icons[item.tool] ?? "wire"} size={15} /></span>
        <span className="tool-title">{item.title || item.tool}</span>
        {asked && <span className="badge warn">asks</span>}
        {answer && !asked && <span className="soft small tool-answer" title="What a person answered">{answer.name}</span>}
        <span className={`tool-state ${status}`}>
          {item.status === "in_progress" ? <Spinner /> : item.status === "completed" ? <Icon name="check" size={14} /> : item.status === "failed" ? <Icon name={status === "rejected" ? "stop" : "close"} size={14} /> : item.status === "cancelled" ? <Icon name="stop" size={14} /> : null}
          <span className={item.status === "completed" ? "unseen" : ""}>{states[status]}</span>
        </span>
        {took !== undefined && took >= 1000 && <span className="soft small">{duration(took)}</span>}
        {hasMore && <span className={`turner ${open ? "open" : ""}`}><Icon name="chevron" size={14} /></span>}
      </button>
      {item.locations.length > 0 && (
        <p className="tool-places">
          {item.locations.slice(0, 6).map((l, i) => (
            <a key={i} className="mono" href={hrefOfFile(l.path, l.line)} title={l.path}>{relativeTo(l.path, cwd)}{l.line ? `:${l.line}` : ""}</a>
          ))}
          {item.locations.length > 6 && <span className="soft">and {item.locations.length - 6} more</span>}
        </p>
      )}
      {open && hasMore && (
        <div className="tool-body">
          {item.content.map((c, i) => <Content key={i} content={c} tool={item.tool} cwd={cwd} />)}
          {item.children.length > 0 && <Children items={item.children} cwd={cwd} whole={whole} />}
          <Raw label="Input" value={item.rawInput} />
          <Raw label="Result" value={item.rawOutput} />
        </div>
      )}
    </section>
  );
});

/** What a subagent did, in the call that started it. */
function Children({ items, cwd, whole = false }: { items: readonly ChildItem[]; cwd: string | undefined; whole?: boolean | undefined }) {
  const [all, setAll] = useState(whole);
  const hidden = all ? 0 : Math.max(0, items.length - shownChildren);
  return (
    <div className="children" role="group" aria-label="Subagent">
      {hidden > 0 && <Button small tone="quiet" onClick={() => setAll(true)}>Show {plural(hidden, "earlier step")}</Button>}
      {items.slice(hidden).map((child) => (child.kind === "tool" ? <ToolCall key={child.key} item={child} cwd={cwd} nested /> : <ChildText key={child.key} item={child} />))}
    </div>
  );
}

function ChildText({ item }: { item: TextItem }) {
  return (
    <div className={item.kind === "thought" ? "child-thought" : ""}>
      {item.segments.all.slice(-20).map((s, i) => <Markdown key={i} text={s.text} />)}
    </div>
  );
}

const fence = /^(`{3,})([^\n`]*)\n([\s\S]*?)\n?\1\s*$/;

function Content({ content, tool, cwd }: { content: ToolContent; tool: string; cwd: string | undefined }) {
  if (content.type === "diff") return <Diff path={relativeTo(content.path, cwd)} before={content.oldText ?? undefined} after={content.newText} change={content.change} />;
  if (content.type === "change") return <Change change={content.change} short={(path) => relativeTo(path, cwd)} />;
  if (content.type === "terminal") return <HostTerminal id={content.terminalId} />;
  if (content.type === "output") return <Written content={content} />;
  const block = content.content;
  if (block.type !== "text") return <Block block={block} />;
  const fenced = fence.exec(block.text);
  const language = fenced?.[2]?.trim();
  const text = fenced?.[3] ?? block.text;
  if (tool === "execute" || text.includes("\u001b[") || (fenced && (!language || /^(console|text|shell-session)$/.test(language)))) return <Output text={text} />;
  if (fenced) return <Code code={text} language={language} bare />;
  return tool === "read" || tool === "search" || text.length > 4000 ? <Output text={text} /> : <Markdown text={text} />;
}

/** What a command has written so far, and how it ended when that was not well. */
function Written({ content: { text, exitCode } }: { content: Extract<ToolContent, { type: "output" }> }) {
  if (text === "" && !exitCode) return null;
  return (
    <>
      {text !== "" && <Output text={text} />}
      {exitCode !== undefined && exitCode !== 0 && <p className="soft small">It ended with code {exitCode}.</p>}
    </>
  );
}

/** What went over the wire, for those who want to know. */
function Raw({ label, value }: { label: string; value: unknown }) {
  const [open, setOpen] = useState(false);
  if (value === undefined || value === null) return null;
  return (
    <details className="raw" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{label}</summary>
      {open && <Code code={typeof value === "string" ? value : JSON.stringify(value, null, 2)} language={typeof value === "string" ? undefined : "json"} bare />}
    </details>
  );
}
