import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState, useId, type CSSProperties, type DragEvent } from "react";
import { ProblemError, type components } from "sandbox-agent";
import type { AreaProps } from "../areas.js";
import { useDrive } from "../app/drive.js";
import { useShown, useWork } from "../app/work.js";
import { Button, Checkbox, Field, IconButton, Input } from "../kit/controls.js";
import { Confirm, Dialog, Menu } from "../kit/dialog.js";
import { Icon } from "../kit/icons.js";
import { useLoad } from "../kit/load.js";
import { save } from "../kit/save.js";
import { AreaHead, Badge, Empty, Notice } from "../kit/show.js";
import { age, baseName, bytes, plural } from "../kit/text.js";
import { messageOf } from "../state/explain.js";
import { drafts, gateway, router, toasts } from "../state/page.js";
import { hrefOfFile } from "../state/router.js";
import { useStore } from "../state/store.js";
import { useShortcut } from "../app/shortcuts.js";
import { Splitter, usePane } from "../kit/splitter.js";
import { FileView } from "./FileView.js";
import { placeOf } from "./LargeFile.js";
import { useSearch, type Found } from "./found.js";
import { queryOf, searchOf, type Search } from "./search.js";
import { SearchPane } from "./SearchPane.js";
import type { Draft } from "./drafts.js";
import { Folder } from "./folder.js";
import { badName, crumbs, join, parentOf } from "./paths.js";
import "../conversation/conversation.css";
import "./files.css";

type Entry = components["schemas"]["FileListed"];

const rowHeight = 32;
const menuRows = 6; // that the menu of an entry is as high as
const listPane = { name: "files", standard: 340, min: 240, max: 720 } as const;

/** What is dragged from one folder to another. */
const dragged = "application/x-sandbox-path";

/** Where in a file one wants to be. */
interface Spot {
  readonly line: number | undefined;
  readonly place: ReturnType<typeof placeOf>;
}

/**
 * `#/files?path=/a/folder`, `#/files?path=/a/file&line=3`; without a path the gateway's own folder.
 * With `below=/a/folder&find=words` a search stands beside it.
 */
export default function Files({ route }: AreaProps) {
  const wanted = route.query.path ?? ".";
  const { value, error, reload } = useLoad((signal) => gateway.machine.fs.stat(wanted, { follow: true, signal }), [wanted]);
  const last = useRef(value);
  useEffect(() => void (last.current = value ?? last.current), [value]);
  const entry = value ?? (error ? undefined : last.current); // what was seen stays until the next is known
  const unsaved = useStore(drafts);
  const isFolder = entry?.type === "directory";
  // A text that is not saved outlives its file.
  const kept = unsaved.get(wanted)?.dirty === true;
  const file = entry ? (isFolder ? undefined : entry.path) : kept ? wanted : undefined;
  const had = useRef(kept);
  useEffect(() => {
    if (had.current && !kept) reload(); // it was saved, and the file is there again
    had.current = kept;
  }, [kept, reload]);
  const folder = isFolder ? entry.path : file && parentOf(file);
  const search = searchOf(route.query);
  const found = useSearch(search);
  const line = Number(route.query.line);
  const spot: Spot = { line: Number.isInteger(line) && line > 0 ? line : undefined, place: placeOf(route.query.at) };
  useShortcut({ keys: "/", what: "Search below this folder", group: "Files", run: () => folder && startSearch(folder) });
  return (
    <div className="area full files">
      <div className="stack">
        <AreaHead title="Files" lead="Of the machine that the gateway runs on." />
        <Location path={entry?.path ?? wanted} />
        {error && !file && <Notice tone="bad" title="It cannot be shown" actions={<Button small onClick={reload}>Try again</Button>}><p>{error.message}</p></Notice>}
      </div>
      {folder && <Browser key={search ? "search" : folder} path={folder} file={file} search={search} found={found} spot={spot} query={route.query} />}
      {!entry && !error && <p className="soft" role="status">Loading…</p>}
    </div>
  );
}

export const go = (path: string) => router.go("files", [], { query: { path } });

const startSearch = (below: string) => router.go("files", [], { query: { ...router.now().query, ...queryOf({ below, words: "", by: "content", regexp: false, exactCase: false, everything: false }) } });

/** Puts a file or a folder into another folder. */
async function moveTo(from: string, folder: string): Promise<void> {
  const to = join(folder, baseName(from));
  if (to === from) return;
  const { machine } = drafts;
  await gateway.machine.fs.move(from, to);
  drafts.move(machine, from, to);
  toasts.show(`${baseName(from)} is in ${folder} now`, "good");
  if (drafts.machine !== machine) return;
  const { path } = router.now().query;
  if (path === from || path?.startsWith(`${from}/`)) router.go("files", [], { replace: true, query: { ...router.now().query, path: to + path.slice(from.length) } });
}

/** What takes files and folders that are dragged within the page. */
function takes(folder: string) {
  const wanted = (event: DragEvent) => event.dataTransfer.types.includes(dragged);
  const mark = (event: DragEvent, on: boolean) => (event.currentTarget as HTMLElement).classList.toggle("into", on);
  return {
    onDragOver: (event: DragEvent) => {
      if (!wanted(event)) return;
      event.preventDefault();
      event.stopPropagation();
      event.dataTransfer.dropEffect = "move";
      mark(event, true);
    },
    onDragLeave: (event: DragEvent) => mark(event, false),
    onDrop: (event: DragEvent) => {
      mark(event, false);
      if (!wanted(event)) return;
      event.preventDefault();
      event.stopPropagation();
      const from = event.dataTransfer.getData(dragged);
      if (from !== folder) void toasts.attempt(`${baseName(from)} is not moved`, () => moveTo(from, folder));
    },
  };
}

/** Where the page is, and a field to go elsewhere. */
function Location({ path }: { path: string }) {
  const [typed, setTyped] = useState<string>();
  if (typed !== undefined) {
    return (
      <form className="row" onSubmit={(event) => { event.preventDefault(); setTyped(undefined); go(typed); }}>
        <Input aria-label="Path" className="mono grow" value={typed} autoFocus onChange={(event) => setTyped(event.target.value)} onKeyDown={(event) => event.key === "Escape" && setTyped(undefined)} />
        <Button type="submit">Go</Button>
      </form>
    );
  }
  return (
    <nav className="row tight crumbs" aria-label="Path">
      <ol>
        {crumbs(path).map((c, i, all) => (
          <li key={c.path} {...takes(c.path)}>{i > 1 && <span className="soft" aria-hidden="true">/</span>}<a href={hrefOfFile(c.path)} aria-current={i === all.length - 1 ? "page" : undefined}>{c.name}</a></li>
        ))}
      </ol>
      <IconButton label="Type a path" icon="edit" size={14} onClick={() => setTyped(path)} />
    </nav>
  );
}

/** The files that have a text which is not saved: the one at a path, or all below it. */
const unsavedIn = (all: ReadonlyMap<string, Draft>, path: string) => [...all].flatMap(([of, draft]) => (draft.dirty && (of === path || of.startsWith(`${path.replace(/\/+$/, "")}/`)) ? [of] : []));

type Doing = { what: "new-folder" | "new-file" } | { what: "rename" | "move" | "delete"; entry: Entry } | { what: "overwrite"; files: File[] };

function Browser({ path, file, search, found, spot, query }: { path: string; file: string | undefined; search: Search | undefined; found: Found; spot: Spot; query: Readonly<Record<string, string>> }) {
  const drive = useDrive();
  const reading = drive.disabled ? { disabled: true, hint: "not with a token for reading" } : {};
  const width = usePane(listPane);
  const [hidden, setHidden] = useState(false);
  const [machine] = useState(drafts.machine); // another one has another view
  const folder = useMemo(() => new Folder(gateway.machine, path, hidden), [path, hidden]);
  const state = useStore(folder);
  const [doing, setDoing] = useState<Doing>();
  const [changed, setChanged] = useState(0); // grows when the shown file was changed by somebody
  const [filter, setFilter] = useState("");
  const [over, setOver] = useState(false);
  const [uploads, setUploads] = useState<ReadonlyMap<symbol, string>>(new Map()); // what each one says that goes on
  const picker = useRef<HTMLInputElement>(null);
  const unsaved = useStore(drafts);
  const lost = useMemo(() => {
    const there = new Set(state.entries.map((e) => e.path));
    return state.more ? [] : unsavedIn(unsaved, path).filter((of) => parentOf(of) === path && !there.has(of) && (hidden || !baseName(of).startsWith(".")));
  }, [unsaved, state, path, hidden]);
  const shownFile = useRef(file);
  shownFile.current = file;
  const shown = useShown();
  const here = () => shown() && drafts.machine === machine; // what takes its time can end when another folder is shown
  const asked = useRef(doing);
  asked.current = doing;
  useEffect(() => folder.open((paths) => {
    if (shownFile.current && paths?.has(shownFile.current) !== false) setChanged((n) => n + 1);
  }), [folder]);
  const entries = useMemo(() => (filter === "" ? state.entries : state.entries.filter((e) => e.name.toLowerCase().includes(filter.toLowerCase()))), [state.entries, filter]);

  const upload = async (files: readonly File[], overwrite = false) => {
    const { fs } = gateway.machine; // all go there, also when another machine is shown meanwhile
    const there: File[] = [];
    let done = 0;
    const own = Symbol();
    const say = (text: string | undefined) => setUploads((all) => {
      const others = [...all].filter(([of]) => of !== own);
      return new Map(text === undefined ? others : [...others, [own, text]]);
    });
    for (const [i, one] of files.entries()) {
      const readable = await one.slice(0, 1).arrayBuffer().then(() => true, () => false);
      if (!readable) {
        toasts.show(`${one.name}: it cannot be read: a folder, or gone meanwhile`, "bad");
        continue;
      }
      say(`Uploading ${one.name}${files.length > 1 ? ` (${i + 1} of ${files.length})` : ""}, ${bytes(one.size)}`);
      try {
        await fs.write(join(path, one.name), one, { onlyNew: !overwrite });
        done++;
      } catch (error) {
        if (error instanceof ProblemError && (error.status === 409 || error.status === 412) && !overwrite) there.push(one);
        else toasts.show(`${one.name}: ${messageOf(error)}`, "bad");
      }
    }
    say(undefined);
    if (done > 0) toasts.show(`Uploaded ${plural(done, "file")}`, "good");
    if (there.length > 0 && shown() && asked.current === undefined) setDoing({ what: "overwrite", files: there });
    else if (there.length > 0) toasts.show(`Not replaced in ${path}, where there is one already: ${there.map((f) => f.name).join(", ")}`, "bad");
    folder.reload();
  };
  const download = async (entry: Entry) => {
    await toasts.attempt(`${entry.name} is not downloaded`, async () => {
      if (entry.type === "directory") save(await new Response(await gateway.machine.fs.downloadArchive([entry.path])).blob(), `${entry.name}.tar`);
      else save(await gateway.machine.fs.readBlob(entry.path), entry.name);
    });
  };
  const items = (entry: Entry) => [
    { label: "Download", run: () => void download(entry) },
    { label: "Rename", ...reading, run: () => setDoing({ what: "rename", entry }) },
    { label: "Move…", ...reading, run: () => setDoing({ what: "move", entry }) },
    { label: "Copy the path", run: () => void navigator.clipboard.writeText(entry.path).catch(() => toasts.show(entry.path)) },
    { label: "Delete", danger: true, ...reading, run: () => setDoing({ what: "delete", entry }) },
  ];
  return (
    <div className={`files-split ${file ? "chosen" : ""}`} style={{ "--pane": `${width}px` } as CSSProperties}>
      {search ? <SearchPane search={search} found={found} path={file} line={spot.line} /> : <section
        className={`folder ${over ? "over" : ""}`} aria-label="Folder"
        onDragOver={(event) => { if (event.dataTransfer.types.includes("Files") && !drive.disabled) { event.preventDefault(); setOver(true); } }}
        onDragLeave={() => setOver(false)}
        onDrop={(event) => { setOver(false); if (event.dataTransfer.files.length === 0 || drive.disabled) return; event.preventDefault(); void upload([...event.dataTransfer.files]); }}
      >
        <div className="row">
          <Button small icon="upload" {...drive} onClick={() => picker.current?.click()}>Upload</Button>
          <input ref={picker} type="file" multiple hidden aria-label="Files to upload" onChange={(event) => { void upload([...(event.target.files ?? [])]); event.target.value = ""; }} />
          <Menu label="New" trigger={<><Icon name="plus" size={14} /> New</>} items={[{ label: "File", ...reading, run: () => setDoing({ what: "new-file" }) }, { label: "Folder", ...reading, run: () => setDoing({ what: "new-folder" }) }]} />
          <Button small icon="search" onClick={() => startSearch(path)}>Search</Button>
          <IconButton label="Load again" icon="refresh" onClick={() => folder.reload()} />
          <Checkbox label="Hidden" checked={hidden} onChange={(event) => setHidden(event.target.checked)} />
          {state.git && <Badge title={`${state.git.root}\n${plural(state.git.files.length, "change")}`}>{state.git.branch ?? state.git.commit?.slice(0, 8) ?? "git"}</Badge>}
        </div>
        <Input type="search" aria-label="Filter by name" placeholder="Filter by name" value={filter} onChange={(event) => setFilter(event.target.value)} />
        {[...uploads.values()].map((text, i) => <p key={i} className="small soft" role="status">{text}</p>)}
        {state.phase === "failed" && <Notice tone="bad" title="The folder cannot be listed"><p>{state.error}</p></Notice>}
        {state.phase === "loading" && <p className="soft" role="status">Loading…</p>}
        {state.phase === "ready" && entries.length === 0 && <Empty icon="files" title={filter === "" ? "The folder is empty" : "No name fits"}>{filter === "" && "Drop files here to upload them."}</Empty>}
        {entries.length > 0 && <List entries={entries} marks={state.marks} unsaved={unsaved} chosen={file} items={items} />}
        {state.phase !== "loading" && lost.length > 0 && <Notice tone="warn" title="Not saved, and not there any more"><ul className="plain-list">{lost.map((of) => <li key={of}><a href={hrefOfFile(of)}>{baseName(of)}</a></li>)}</ul></Notice>}
        {state.more && <p className="small soft">Only the first {state.entries.length} entries are shown.</p>}
      </section>}
      {file && <Splitter pane={listPane} label="Width of the folder" />}
      {file && <FileView key={file} path={file} changed={changed} line={spot.line} place={spot.place} onPlace={(at) => { const { line: _, ...rest } = query; router.go("files", [], { replace: true, query: { ...rest, path: file, at } }); }} gitMark={state.marks.get(baseName(file))} onClose={() => { if (unsaved.get(file)?.dirty) toasts.show(`${baseName(file)} is not saved. What you wrote is kept here.`); go(path); }} />}
      {doing?.what === "new-folder" && <Naming title="New folder" action="Make" onClose={() => setDoing(undefined)} onName={async (name) => void (await gateway.machine.fs.mkdir(join(path, name)))} onDone={() => folder.reload()} />}
      {doing?.what === "new-file" && <Naming title="New file" action="Make" onClose={() => setDoing(undefined)} onName={async (name) => void (await gateway.machine.fs.write(join(path, name), "", { onlyNew: true }))} onDone={(name, waited) => { folder.reload(); if (waited && here()) go(join(path, name)); }} />}
      {doing?.what === "rename" && <Naming title={`Rename ${doing.entry.name}`} action="Rename" name={doing.entry.name} onClose={() => setDoing(undefined)} onName={async (name) => void (await gateway.machine.fs.move(doing.entry.path, join(path, name)))} onDone={(name) => { drafts.move(machine, doing.entry.path, join(path, name)); folder.reload(); if (here() && shownFile.current === doing.entry.path) go(join(path, name)); }} />}
      {doing?.what === "move" && <Moving entry={doing.entry} folders={[parentOf(path), ...state.entries.filter((e) => e.type === "directory" && e.path !== doing.entry.path).map((e) => e.path)]} onClose={() => setDoing(undefined)} />}
      {doing?.what === "delete" && (
        <Confirm
          title={`Delete ${doing.entry.name}?`} action="Delete" onClose={() => setDoing(undefined)}
          onConfirm={() => toasts.attempt("It is not deleted", async () => {
            await gateway.machine.fs.delete(doing.entry.path, { recursive: doing.entry.type === "directory" });
            drafts.drop(machine, doing.entry.path);
            folder.reload();
            if (here() && shownFile.current === doing.entry.path) go(path);
          })}
        >
          <p>{doing.entry.type === "directory" ? "The folder and all that is in it is gone then." : "It is gone then."}</p>
          {unsavedIn(unsaved, doing.entry.path).length > 0 && <p>What you have written and not saved goes with it: {unsavedIn(unsaved, doing.entry.path).map(baseName).join(", ")}.</p>}
        </Confirm>
      )}
      {doing?.what === "overwrite" && (
        <Confirm title={`Replace ${plural(doing.files.length, "file")}?`} action="Replace" onClose={() => setDoing(undefined)} onConfirm={() => upload(doing.files, true)}>
          <p>There already: {doing.files.map((f) => f.name).join(", ")}</p>
        </Confirm>
      )}
    </div>
  );
}

const icons = { directory: "files", file: "read", symlink: "external", other: "help" } as const;
const markWords: Record<string, string> = { M: "modified", A: "added", D: "deleted", R: "renamed", C: "copied", "?": "untracked", U: "in conflict", T: "of another type", "•": "has changes inside" };

function List({ entries, marks, unsaved, chosen, items }: { entries: readonly Entry[]; marks: ReadonlyMap<string, string>; unsaved: ReadonlyMap<string, Draft>; chosen: string | undefined; items: (entry: Entry) => React.ComponentProps<typeof Menu>["items"] }) {
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({ count: entries.length, getScrollElement: () => scroller.current, estimateSize: () => rowHeight, overscan: 10 });
  return (
    <div ref={scroller} className="entries" tabIndex={0} role="region" aria-label="Entries">
      <ul style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => {
          const e = entries[item.index]!;
          const mark = marks.get(e.name);
          return (
            <li key={e.path} style={{ transform: `translateY(${item.start}px)`, height: rowHeight }} onDragStart={(event) => { event.dataTransfer.setData(dragged, e.path); event.dataTransfer.effectAllowed = "move"; }} {...(e.type === "directory" ? takes(e.path) : {})} aria-setsize={entries.length} aria-posinset={item.index + 1}>
              <a href={hrefOfFile(e.path)} aria-current={e.path === chosen ? "true" : undefined} title={e.error ?? (e.target ? `${e.name} → ${e.target}` : e.name)}>
                <Icon name={icons[e.type]} size={14} />
                <span className="clip grow">{e.name}{e.type === "directory" && "/"}</span>
                {unsaved.get(e.path)?.dirty && <Badge title="Changed here, and not saved">not saved</Badge>}
                {mark && <span className={`git-mark ${mark === "?" || mark === "A" ? "new" : ""}`} title={markWords[mark] ?? mark}>{mark}<span className="unseen"> {markWords[mark]}</span></span>}
                <span className="soft small entry-size">{e.type === "file" ? bytes(e.size) : ""}</span>
                <span className="soft small entry-age" title={e.modifiedAt}>{age(e.modifiedAt)}</span>
              </a>
              <Menu label={`Do something with ${e.name}`} items={items(e)} className={item.index > entries.length - 4 && item.index >= menuRows ? "up" : ""} />
            </li>
          );
        })}
      </ul>
    </div>
  );
}

/** Moves a file or a folder into another folder, without a pointer. */
function Moving({ entry, folders, onClose }: { entry: Entry; folders: readonly string[]; onClose: () => void }) {
  const [folder, setFolder] = useState(parentOf(entry.path));
  const [error, setError] = useState<string>();
  const work = useWork();
  const listId = useId();
  const submit = () => void work.run(`${entry.name} is not moved`, async () => {
    await moveTo(entry.path, folder);
    if (work.shown()) onClose();
  }, setError);
  const same = folder === "" || folder.replace(/\/+$/, "") === parentOf(entry.path);
  return (
    <Dialog title={`Move ${entry.name}`} onClose={onClose} footer={<><Button onClick={onClose}>Cancel</Button><Button tone="primary" busy={work.busy} disabled={same} onClick={submit}>Move</Button></>}>
      <form onSubmit={(event) => { event.preventDefault(); if (!same) submit(); }}>
        <Field label="To the folder" hint="Or drag it onto a folder, or onto a part of the path above." {...(error ? { error } : {})}>{(p) => <Input {...p} className="mono" list={listId} autoFocus value={folder} onChange={(event) => { setFolder(event.target.value); setError(undefined); }} />}</Field>
        <datalist id={listId}>{folders.map((f) => <option key={f} value={f} />)}</datalist>
      </form>
    </Dialog>
  );
}

function Naming({ title, action, name: before = "", onName, onDone, onClose }: { title: string; action: string; name?: string; onName: (name: string) => Promise<void>; /** `waited`: whoever asked for it is still there. */ onDone: (name: string, waited: boolean) => void; onClose: () => void }) {
  const [name, setName] = useState(before);
  const [error, setError] = useState<string>();
  const work = useWork();
  const bad = name === "" ? undefined : badName(name);
  const submit = () => {
    if (badName(name) !== undefined) return;
    void work.run(`${title}: it did not work`, async () => {
      await onName(name);
      const waited = work.shown();
      if (waited) onClose();
      onDone(name, waited);
    }, setError);
  };
  return (
    <Dialog title={title} onClose={onClose} footer={<><Button onClick={onClose}>Cancel</Button><Button tone="primary" busy={work.busy} disabled={badName(name) !== undefined || name === before} onClick={submit}>{action}</Button></>}>
      <form onSubmit={(event) => { event.preventDefault(); submit(); }}>
        <Field label="Name" {...(bad ?? error ? { error: bad ?? error } : {})}>{(p) => <Input {...p} className="mono" autoFocus value={name} onChange={(event) => { setName(event.target.value); setError(undefined); }} />}</Field>
      </form>
    </Dialog>
  );
}
