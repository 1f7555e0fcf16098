import { useState } from "react";
import { Button } from "../kit/controls.js";
import { Notice } from "../kit/show.js";
import { plural } from "../kit/text.js";
import type { Conversation } from "../conversation/conversation.js";
import { gateway, toasts } from "../state/page.js";
import { useSelected } from "../state/store.js";
import type { HubSession } from "./hub.js";

const titles: Record<string, (node: string) => string> = {
  offline: (node) => `${node} is away`,
  gone: (node) => `${node} has this session no more`,
  moved: (node) => `This session went from ${node} to another node`,
};

/** Says that what is shown is the hub's copy, how whole it is, and how the session goes on. */
export default function Copy({ conversation, info }: { conversation: Conversation; info: HubSession }) {
  const scope = useSelected(gateway, (g) => g.hub?.scope);
  const [busy, setBusy] = useState(false);
  const { replica, node = "Its node" } = info;
  const state: string = info.state; // a hub has further ones
  const movable = scope !== "read" && (state === "offline" || state === "gone") && replica?.bundle !== undefined;
  const move = async () => {
    setBusy(true);
    await toasts.attempt("It could not be moved", async () => {
      const answer = await gateway.api.fetch("POST", `v2/sessions/${encodeURIComponent(info.sessionId)}/move`, { node: info.node }, { body: "{}", headers: { "Content-Type": "application/json" } });
      const moved = (await answer.json()) as { node: string };
      gateway.fleet?.hub.moved(info.sessionId, moved.node);
      toasts.show(`It goes on at ${moved.node}`, "good");
      await conversation.reopen();
    });
    setBusy(false);
  };
  return (
    <Notice
      tone="warn" still title={titles[state]?.(node) ?? node}
      actions={<>
        {movable && <Button small tone="primary" busy={busy} onClick={() => void move()}>Go on at another node</Button>}
        {state === "offline" && <Button small onClick={() => void toasts.attempt("It cannot be opened", () => conversation.reopen())}>Look again</Button>}
      </>}
    >
      <p>
        This is what the hub has copied. {replica && replica.missing > 0 ? `At most ${plural(replica.missing, "event")} of its end ${replica.missing === 1 ? "is" : "are"} missing.` : "Nothing that the node has told of is missing."}
        {replica?.mayMiss ? " The node was lost at work: what it did in the last moments may be missing." : ""}
        {state === "offline" ? " Prompts are taken when the node has joined again." : ""}
        {movable ? " At another node it goes on from the last turn that ended." : ""}
      </p>
      {replica?.trouble && <p className="soft small">{replica.trouble}</p>}
    </Notice>
  );
}
