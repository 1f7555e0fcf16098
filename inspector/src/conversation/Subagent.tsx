import { useMemo } from "react";
import type { SessionInfo } from "sandbox-agent";
import { Button } from "../kit/controls.js";
import { Badge, Empty } from "../kit/show.js";
import { titleOfChild } from "../sessions/marks.js";
import { stateTone } from "../sessions/states.js";
import { toasts } from "../state/page.js";
import { hrefOf } from "../state/router.js";
import type { Conversation } from "./conversation.js";
import type { Row, ToolItem } from "./items.js";
import { ToolCall } from "./ToolCall.js";
import { nameIn } from "./updates.js";

/** One subagent of a session: what it was asked, said and did. */
export function Subagent({ conversation, info, id, rows, version, earlier }: {
  conversation: Conversation; info: SessionInfo | undefined; id: string; rows: readonly Row[]; version: number; earlier: number;
}) {
  const child = info?.children?.find((c) => c.sessionId === id);
  const item = useMemo(() => info && child && (toolWith(nameIn(info.sessionId, child.parentSessionId, child.toolCallId), rows) ?? toolWith(child.sessionId, rows)), [info, child, rows, version]);
  if (!info) return <p className="area-wait" role="status">Reading the conversation…</p>;
  if (!child) return <Empty icon="sessions" title="No such subagent"><p>The session has none with this id, or had more than are kept. <a href={hrefOf("sessions", [info.sessionId])}>The whole session</a></p></Empty>;
  return (
    <div className="subagent" role="region" aria-label={`Subagent: ${titleOfChild(child)}`}>
      <p className="subagent-head">
        <a href={hrefOf("sessions", [info.sessionId])}>The whole session</a>
        <strong className="clip grow">{titleOfChild(child)}</strong>
        <Badge tone={stateTone(child.state)}>{child.state}</Badge>
      </p>
      {item
        ? <ToolCall item={item} cwd={info.cwd} whole />
        : earlier > 0
          ? <Button small onClick={() => void toasts.attempt("Earlier events could not be read", () => conversation.readEarlier())}>Show what was before</Button>
          : <p className="soft">What it did is no longer kept.</p>}
    </div>
  );
}

/** The call with the id, also one that a subagent has made. The newest is looked for first. */
function toolWith(id: string, rows: readonly Row[]): ToolItem | undefined {
  const within = (item: { readonly kind: string }): ToolItem | undefined => {
    if (item.kind !== "tool") return undefined;
    const tool = item as ToolItem;
    if (tool.id === id) return tool;
    for (const child of tool.children) {
      const found = within(child);
      if (found) return found;
    }
    return undefined;
  };
  for (const row of [...rows].reverse()) {
    const found = within(row.item);
    if (found) return found;
  }
  return undefined;
}
