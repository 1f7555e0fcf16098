import { useMemo, useState } from "react";
import { Button, IconButton, TextArea } from "../kit/controls.js";
import { Dialog } from "../kit/dialog.js";
import { useLoad } from "../kit/load.js";
import { Badge, Empty, Notice } from "../kit/show.js";
import { plural } from "../kit/text.js";
import { gateway } from "../state/page.js";
import { hrefOfFile } from "../state/router.js";
import type { Conversation } from "./conversation.js";
import { useDraft } from "./draft.js";
import { Words } from "./Diff.js";
import type { DiffLine } from "./diffs.js";
import { filesOf, type PatchFile } from "./patch.js";
import { promptOf, sameLine, withRemark, type Remark } from "./remarks.js";

/** Lines of one file that are shown before somebody asks for the rest. */
const first = 200;

interface Changes {
  readonly root: string;
  readonly files: readonly PatchFile[];
  readonly untracked: readonly string[]; // absolute
  /** What the gateway left out. */
  readonly cut: boolean;
}

async function changesIn(cwd: string, signal: AbortSignal): Promise<Changes> {
  const status = await gateway.machine.fs.gitStatus(cwd, { signal });
  // Before the first commit there is nothing to compare with but what is staged.
  const answer = await gateway.machine.api.fetch("GET", "v2/fs/git/diff", { path: cwd, ...(status.commit === undefined ? {} : { base: "HEAD" }) }, { signal });
  const files = filesOf(await answer.text());
  const shown = new Set(files.map((f) => `${status.root}/${f.path}`)); // gateways of before leave out files that are not in the index
  return {
    root: status.root, files, untracked: status.files.filter((f) => f.index === "?" && !shown.has(f.path)).map((f) => f.path),
    cut: status.truncated || answer.headers.get("Sandbox-Agent-Truncated") === "true",
  };
}

/** What has changed in a session's folder, with remarks on lines that go into the prompt. */
export default function Review({ conversation, cwd, onClose, onPrompt }: { conversation: Conversation; cwd: string; onClose: () => void; onPrompt: (text: string) => void }) {
  const { value, error, busy, reload } = useLoad((signal) => changesIn(cwd, signal), [cwd]);
  const { remarks } = useDraft(conversation);
  const keep = (remarks: readonly Remark[]) => void (conversation.draft = { ...conversation.draft, remarks });
  const remark = (one: Remark) => keep(withRemark(conversation.draft.remarks, one));
  const none = value && value.files.length === 0 && value.untracked.length === 0;
  return (
    <Dialog
      title="Changes since the last commit" onClose={onClose} wide
      footer={
        <>
          {remarks.length > 0 && <Button onClick={() => keep([])}>Drop {plural(remarks.length, "remark")}</Button>}
          <Button tone="primary" disabled={remarks.length === 0} onClick={() => {
            onPrompt(promptOf(remarks));
            keep([]);
            onClose();
          }}>{remarks.length === 0 ? "Put remarks into the prompt" : `Put ${plural(remarks.length, "remark")} into the prompt`}</Button>
        </>
      }
    >
      <div className="review stack">
        <div className="row"><p className="soft small mono clip grow" title={value?.root ?? cwd}>{value?.root ?? cwd}</p><IconButton label="Load again" icon="refresh" disabled={busy} onClick={reload} /></div>
        {error && <Notice tone="bad" title="The changes cannot be shown"><p>{error.message}</p></Notice>}
        {!value && !error && <p className="soft" role="status">Loading…</p>}
        {none && <Empty icon="review" title="Nothing has changed"><p>All is as it was at the last commit.</p></Empty>}
        {value?.cut && <Notice tone="warn" title="There is more than is shown"><p>The gateway sends the beginning of very large changes. Look at single files in Files.</p></Notice>}
        {value?.files.map((file) => <Changed key={file.path} file={file} root={value.root} remarks={remarks} onRemark={remark} />)}
        {value && value.untracked.length > 0 && (
          <section aria-label="New files that git does not know" className="stack">
            <h3>New, and not known to git</h3>
            <ul className="plain-list">{value.untracked.map((path) => <li key={path}><a className="mono" href={hrefOfFile(path)}>{path.startsWith(`${value.root}/`) ? path.slice(value.root.length + 1) : path}</a></li>)}</ul>
          </section>
        )}
      </div>
    </Dialog>
  );
}

const words = { changed: undefined, new: "new", deleted: "deleted", moved: "moved" } as const;

function Changed({ file, root, remarks, onRemark }: { file: PatchFile; root: string; remarks: readonly Remark[]; onRemark: (remark: Remark) => void }) {
  const total = file.hunks.reduce((n, h) => n + h.lines.length, 0);
  const [all, setAll] = useState(false);
  const lines = useMemo(() => file.hunks.flatMap((hunk, h) => hunk.lines.map((line, i) => ({ line, gap: h > 0 && i === 0 }))), [file]);
  const own = remarks.filter((r) => r.path === file.path);
  return (
    <figure className="diff">
      <figcaption>
        {file.kind === "deleted" ? <span className="mono clip">{file.path}</span> : <a className="mono clip" href={hrefOfFile(`${root}/${file.path}`)} title={file.path}>{file.path}</a>}
        {words[file.kind] && <Badge {...(file.from === undefined ? {} : { title: `It was ${file.from}` })}>{words[file.kind]}</Badge>}
        {total > 0 && <span className="diff-count"><span className="plus">+{file.added}</span> <span className="minus">−{file.removed}</span></span>}
        <span className="grow" />
        {own.length > 0 && <span className="small">{plural(own.length, "remark")}</span>}
      </figcaption>
      {file.note && <p className={total > 0 ? "diff-note" : "diff-none"}>{file.note}</p>}
      {total > 0 && (
        <table className="unified">
          <tbody>
            {(all ? lines : lines.slice(0, first)).map(({ line, gap }, i) => <Line key={i} path={file.path} line={line} gap={gap} remarks={own} onRemark={onRemark} />)}
          </tbody>
        </table>
      )}
      {!all && total > first && <Button small tone="quiet" onClick={() => setAll(true)}>Show {plural(total - first, "more line")}</Button>}
    </figure>
  );
}

const signs = { same: " ", add: "+", del: "−" } as const;

function Line({ path, line, gap, remarks, onRemark }: { path: string; line: DiffLine; gap: boolean; remarks: readonly Remark[]; onRemark: (remark: Remark) => void }) {
  const place = { path, line: (line.new ?? line.old)!, removed: line.kind === "del" };
  const there = remarks.find((r) => sameLine(r, place));
  const [writing, write] = useState<string>();
  const name = `${path}, ${place.removed ? "removed " : ""}line ${place.line}`;
  const keep = (says: string) => {
    onRemark({ ...place, text: line.text, says });
    write(undefined);
  };
  return (
    <>
      {gap && <tr className="gap"><td colSpan={4}>⋯</td></tr>}
      <tr className={line.kind}>
        <td className="n">{line.old}</td>
        <td className="n">{line.new}</td>
        <td className="sign"><button type="button" className="remark-add" aria-label={`Remark on ${name}`} title="Remark on this line" onClick={() => write(there?.says ?? "")}>{signs[line.kind]}</button></td>
        <td className="t"><Words line={line} /></td>
      </tr>
      {(there || writing !== undefined) && (
        <tr className="remark">
          <td colSpan={4}>
            {writing === undefined ? (
              <div className="row"><p className="grow pre">{there!.says}</p><IconButton label={`Change the remark on ${name}`} icon="edit" size={14} onClick={() => write(there!.says)} /><IconButton label={`Remove the remark on ${name}`} icon="close" size={14} onClick={() => keep("")} /></div>
            ) : (
              <form className="stack" onSubmit={(event) => { event.preventDefault(); keep(writing); }}>
                <TextArea
                  aria-label={`Remark on ${name}`} rows={2} autoFocus value={writing} onChange={(event) => write(event.target.value)}
                  onKeyDown={(event) => {
                    if (event.key === "Escape") { // the dialog stays
                      event.preventDefault();
                      event.stopPropagation();
                      write(undefined);
                    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
                      event.preventDefault();
                      keep(writing);
                    }
                  }}
                />
                <div className="row"><Button small type="submit" tone="primary">Keep</Button><Button small onClick={() => write(undefined)}>Cancel</Button></div>
              </form>
            )}
          </td>
        </tr>
      )}
    </>
  );
}
