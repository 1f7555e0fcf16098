import { useState } from "react";
import type { SessionInfo } from "sandbox-agent";
import { useWork } from "../app/work.js";
import { Button, Checkbox } from "../kit/controls.js";
import { Dialog } from "../kit/dialog.js";
import { Dot } from "../kit/show.js";
import { age, plural } from "../kit/text.js";
import { messageOf } from "../state/explain.js";
import { conversations, gateway, leave, sessions, toasts } from "../state/page.js";
import { useSelected } from "../state/store.js";
import { marksOf, nameOf, working } from "./marks.js";
import { shownState } from "./states.js";

/** How many sessions are archived or deleted at one time. */
const atOnce = 4;

type Work = "delete" | "archive" | "restore";

/** Puts many sessions into the archive, takes them out of it, or deletes them. What is offered is what the list showed. */
export default function Several({ offered, onClose }: { offered: readonly string[]; onClose: () => void }) {
  const all = useSelected(sessions, (s) => s.sessions);
  const shown = offered.flatMap((id) => all.find((s) => s.sessionId === id) ?? []); // as they are now, and without those that are gone
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [sure, setSure] = useState(false);
  const [going, setGoing] = useState<{ readonly done: number; readonly of: number }>(); // while it is being done; the list loses them meanwhile
  const picked = shown.filter((s) => chosen.has(s.sessionId));
  const archived = shown.some((s) => marksOf(s).archived);
  const busy = picked.filter(working).length;

  const doing = useWork();
  const run = (work: Work) => doing.run("It did not work", async () => {
    const { client } = gateway;
    setGoing({ done: 0, of: picked.length });
    const todo = [...picked];
    const failed: string[] = [];
    const one = async () => {
      for (let info = todo.shift(); info; info = todo.shift()) {
        try {
          await act(client, work, info);
        } catch (error) {
          failed.push(`${nameOf(info)}: ${messageOf(error)}`);
        }
        setGoing((w) => w && { ...w, done: w.done + 1 });
      }
    };
    await Promise.all(Array.from({ length: atOnce }, one));
    if (failed.length > 0) toasts.show(failed.length === 1 ? `It did not work. ${failed[0]}` : `${failed.length} of ${picked.length} did not work. The first is ${failed[0]}`, "bad");
    else toasts.show(`${plural(picked.length, "session")} ${{ delete: "deleted", archive: "archived", restore: "taken out of the archive" }[work]}`, "good");
    if (doing.shown()) onClose();
  });
  const button = (work: Work, words: (n: string) => string) => (
    <Button tone={work === "delete" ? "danger" : "plain"} busy={going !== undefined} disabled={going === undefined && picked.length === 0} onClick={() => (work === "delete" && !sure ? setSure(true) : void run(work))}>
      {going === undefined ? words(picked.length === 0 ? "" : ` ${picked.length}`) : `${going.done} of ${going.of}`}
    </Button>
  );

  if (sure) {
    return (
      <Dialog title={`Delete ${plural(going?.of ?? picked.length, "session")}?`} onClose={onClose} footer={<><Button disabled={going !== undefined} onClick={() => setSure(false)}>Back</Button>{button("delete", (n) => `Delete${n}`)}</>}>
        <p>Their conversations and all their events are removed from the gateway. Files that their agents changed stay as they are.{busy > 0 && ` In ${busy} of them something goes on, which ends.`}</p>
      </Dialog>
    );
  }
  return (
    <Dialog
      wide title={archived ? "Sessions of the archive" : "Archive or delete sessions"} onClose={onClose}
      footer={<><Button onClick={onClose}>Cancel</Button>{archived ? button("restore", (n) => `Take${n} out of the archive`) : button("archive", (n) => `Archive${n}`)}{button("delete", (n) => `Delete${n}…`)}</>}
    >
      <Checkbox
        label={`All that the list shows (${shown.length})`} checked={shown.length > 0 && picked.length === shown.length}
        onChange={(event) => setChosen(new Set(event.target.checked ? shown.map((s) => s.sessionId) : []))}
      />
      <ul className="found several">
        {shown.map((info) => <Offer key={info.sessionId} info={info} chosen={chosen.has(info.sessionId)} onChange={(on) => setChosen((before) => {
          const next = new Set(before);
          if (on) next.add(info.sessionId);
          else next.delete(info.sessionId);
          return next;
        })} />)}
      </ul>
    </Dialog>
  );
}

async function act(client: typeof gateway.client, work: Work, info: SessionInfo): Promise<void> {
  const id = info.sessionId;
  if (work !== "delete") await sessions.mark(info, { archived: work === "archive" }, client);
  else {
    await client.deleteSession(id);
    conversations.drafts.drop(id);
  }
  if (work === "restore") return;
  leave("sessions", id);
  if (work === "delete") await conversations.forget(id);
}

function Offer({ info, chosen, onChange }: { info: SessionInfo; chosen: boolean; onChange: (on: boolean) => void }) {
  const state = shownState(info);
  return (
    <li>
      <label className="several-row">
        <input type="checkbox" checked={chosen} onChange={(event) => onChange(event.target.checked)} />
        <Dot tone={state.tone} />
        <span className="clip grow">{nameOf(info)}</span>
        <span className="soft small mono clip several-cwd">{info.cwd}</span>
        <span className={`soft small session-state ${info.state}`}>{state.words}</span>
        <time className="soft small" dateTime={info.updatedAt}>{age(info.updatedAt)}</time>
      </label>
    </li>
  );
}
