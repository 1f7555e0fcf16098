import { useState } from "react";
import type { SessionInfo } from "sandbox-agent";
import { Button, Field, Input } from "../kit/controls.js";
import { Dialog, type MenuItem } from "../kit/dialog.js";
import { leave, sessions, toasts } from "../state/page.js";
import { marksOf, nameOf } from "./marks.js";
import type { Drive } from "../app/drive.js";
import { useWork } from "../app/work.js";

/** Gives a session another title, here and in every other window. */
export function Rename({ info, onClose }: { info: SessionInfo; onClose: () => void }) {
  const [title, setTitle] = useState(nameOf(info));
  const work = useWork();
  const [error, setError] = useState<string>();
  const save = () => void work.run("The session is not renamed", async () => {
    await sessions.rename(info, title.trim());
    if (work.shown()) onClose();
  }, setError);
  return (
    <Dialog title="Rename the session" onClose={onClose} footer={<><Button onClick={onClose}>Cancel</Button><Button tone="primary" busy={work.busy} onClick={save}>Rename</Button></>}>
      <form onSubmit={(event) => { event.preventDefault(); save(); }}>
        <Field label="Title" hint="Empty is the title that its agent finds." {...(error ? { error } : {})}>{(props) => <Input {...props} value={title} onChange={(e) => setTitle(e.target.value)} autoFocus />}</Field>
      </form>
    </Dialog>
  );
}

/** What can be done with a session in a list. */
export function markItems(info: SessionInfo, drive: Drive, rename: () => void): MenuItem[] {
  const { pinned, archived } = marksOf(info);
  const mark = (part: Parameters<typeof sessions.mark>[1]) => void toasts.attempt("It did not work", () => sessions.mark(info, part));
  return [
    { label: "Rename\u2026", ...drive, run: rename },
    { label: pinned ? "Unpin" : "Pin", hint: pinned ? "" : "keep on top", ...drive, run: () => mark({ pinned: !pinned }) },
    { label: archived ? "Take out of the archive" : "Archive", hint: archived ? "" : "hide from the list", ...drive, run: () => {
      mark({ archived: !archived });
      if (!archived) leave("sessions", info.sessionId);
    } },
  ];
}
