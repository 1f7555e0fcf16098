import { applyPatch, parsePatch, reversePatch } from "diff";
import { useEffect, useMemo, useRef, useState } from "react";
import { ProblemError } from "sandbox-agent";
import { Code, languageOf } from "../conversation/Code.js";
import { Diff } from "../conversation/Diff.js";
import { useDrive } from "../app/drive.js";
import { useShown } from "../app/work.js";
import { Button, IconButton, Segmented, Spinner } from "../kit/controls.js";
import { useLoad } from "../kit/load.js";
import { save } from "../kit/save.js";
import { Empty, Notice } from "../kit/show.js";
import { baseName, bytes } from "../kit/text.js";
import { messageOf } from "../state/explain.js";
import { drafts, gateway, toasts } from "../state/page.js";
import { hrefOfFile } from "../state/router.js";
import { useStore } from "../state/store.js";
import type { Content } from "./drafts.js";
import { LargeFile, type Place } from "./LargeFile.js";
import { Lines } from "./Lines.js";
import { endings, pictureType, textOf, withLF } from "./paths.js";
import { Saves } from "./saves.js";

/** Larger files are shown part by part. */
const mostText = 2 << 20;
const mostPicture = 20 << 20;

const saves = new Saves(drafts);

type View = "picture" | "text" | "changes";

const viewNames = { picture: "Picture", changes: "Changes" } as const;

async function read(path: string, signal: AbortSignal): Promise<Content> {
  const { size, etag } = await gateway.machine.fs.stat(path, { follow: true, signal });
  const type = pictureType(path);
  if (type && size <= mostPicture && !(type === "image/svg+xml" && size > mostText)) {
    const response = await gateway.machine.fs.open(path, { signal });
    const content = await response.arrayBuffer();
    // This kind of picture is a text, too.
    const text = type === "image/svg+xml" ? textOf(new Uint8Array(content)) : undefined;
    return { size, etag: response.headers.get("etag") ?? etag, text, picture: new Blob([content], { type }) };
  }
  if (size > mostText) return { size, etag, text: undefined, picture: undefined };
  const response = await gateway.machine.fs.open(path, { signal });
  return { size, etag: response.headers.get("etag") ?? etag, text: textOf(new Uint8Array(await response.arrayBuffer())), picture: undefined };
}

export function FileView({ path, changed, gitMark, line, place, onPlace, onClose }: { path: string; changed: number; gitMark: string | undefined; /** That is to be in sight. */ line: number | undefined; /** Of a large file. */ place: Place | undefined; onPlace: (place: Place) => void; onClose: () => void }) {
  const drive = useDrive();
  const { value, error, busy, reload } = useLoad((signal) => read(path, signal), [path]);
  const kept = useStore(drafts).get(path);
  const draft = kept?.text;
  const base = kept?.base; // what the draft began with
  const [view, setView] = useState<View>();
  const [saving, setSaving] = useState(false);
  const [conflict, setConflict] = useState<string>();
  const dirty = kept?.dirty === true;
  const large = value !== undefined && value.size > mostText && value.picture === undefined;
  const views: View[] = !value || large ? [] : [...(value.picture ? ["picture" as const] : []), ...(value.text !== undefined ? ["text" as const] : []), ...(value.text !== undefined && gitMark && gitMark !== "?" ? ["changes" as const] : [])];
  const shown = view && views.includes(view) ? view : views[0];
  const seen = useRef(changed);
  useEffect(() => {
    if (seen.current === changed) return;
    seen.current = changed;
    if (!dirty && !large) reload();
  }, [changed, dirty, large, reload]);
  const [machine] = useState(drafts.machine); // another one has another view
  useEffect(() => () => drafts.leave(machine, path), [machine, path]);

  const latest = useRef(value);
  latest.current = value;
  const [before, setBefore] = useState<Content>(); // what is still shown when another text was saved: who edited that would be told of a conflict with it
  const edit = () => {
    if (value?.text === undefined) return;
    drafts.put(path, { base: { ...value, text: value.text }, text: withLF(value.text), dirty: false });
    setView("text");
  };
  const change = (text: string) => base && drafts.put(path, { base, text, dirty: text !== withLF(base.text) });
  const here = useShown();
  const write = async (force = false) => {
    if (draft === undefined) return;
    setSaving(true);
    try {
      const { done, joined } = saves.save(gateway.machine.fs, machine, path, force);
      await done;
      setBefore(latest.current); // also what came since it began
      setConflict(undefined);
      if (!joined) toasts.show("Saved", "good");
      reload();
    } catch (problem) {
      const why = problem instanceof ProblemError && problem.status === 412 ? "Somebody has changed the file since you began. Look at it again, or replace what they wrote." : messageOf(problem);
      if (here()) setConflict(why);
      else toasts.show(`${name} is not saved: ${why}`, "bad", drafts.machine === machine ? hrefOfFile(path) : undefined);
    } finally {
      setSaving(false);
    }
  };
  const name = baseName(path);
  return (
    <section className="file" aria-label={name}>
      <header className="row">
        <h2 className="clip grow" title={path}>{name}{dirty && <span title="not saved"> •</span>}</h2>
        {views.length > 1 && shown && draft === undefined && <Segmented small label="View" value={shown} onChange={setView} options={views.map((v) => ({ value: v, label: v === "text" ? (views.includes("picture") ? "Source" : "File") : viewNames[v] }))} />}
        {draft === undefined
          ? value?.text !== undefined && <Button small icon="edit" {...drive} {...(value === before ? { disabled: true } : {})} onClick={edit}>Edit</Button>
          : <><Button small onClick={() => { drafts.drop(machine, path); setConflict(undefined); reload(); }}>{dirty ? "Discard" : "Close the editor"}</Button><Button small tone="primary" busy={saving} disabled={!dirty} {...drive} onClick={() => void write()}>Save</Button></>}
        <Button small icon="download" onClick={() => void toasts.attempt("It is not downloaded", async () => save(await gateway.machine.fs.readBlob(path), name))}>Download</Button>
        <IconButton label="Close the file" icon="close" onClick={onClose} />
      </header>
      {conflict && <Notice tone="bad" title="It is not saved" actions={<><Button small onClick={() => void write(true)}>Replace it</Button><Button small tone="quiet" onClick={() => setConflict(undefined)}>Go on editing</Button></>}><p>{conflict}</p></Notice>}
      {base !== undefined && endings(base.text) === "mixed" && <Notice tone="warn">The lines of this file end in two ways. Saved here, all end with a line feed.</Notice>}
      {error && <Notice tone="bad" title="It cannot be read" actions={<Button small onClick={reload}>Try again</Button>}><p>{error.message}</p></Notice>}
      {!value && busy && <p className="soft" role="status"><Spinner /> Loading…</p>}
      {draft !== undefined && <div className="file-content"><Editor name={name} text={draft} onChange={change} onSave={() => void write()} /></div>}
      {value && draft === undefined && (
        <div className="file-content">
          {shown === "changes" ? <Changes path={path} text={value.text ?? ""} />
            : shown === "picture" ? <Picture blob={value.picture!} name={name} />
            : large ? <LargeFile path={path} name={name} place={place ?? "0"} line={place === undefined ? line : undefined} changed={changed} onPlace={onPlace} />
            : value.text === undefined ? <Empty icon="read" title="This file is no text">{bytes(value.size)}. Download it to look into it.</Empty>
            : value.text === "" ? <Empty icon="read" title="The file is empty" />
            : <Lines text={value.text} language={languageOf(path)} line={line} />}
        </div>
      )}
    </section>
  );
}

function Picture({ blob, name }: { blob: Blob; name: string }) {
  const [url, setUrl] = useState<string>();
  useEffect(() => {
    const made = URL.createObjectURL(blob);
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [blob]);
  return url ? <div className="picture"><img src={url} alt={name} /></div> : null;
}

function Editor({ name, text, onChange, onSave }: { name: string; text: string; onChange: (text: string) => void; onSave: () => void }) {
  return (
    <textarea
      className="editor" aria-label={`Text of ${name}`} value={text} spellCheck={false} autoFocus wrap="off"
      onChange={(event) => onChange(event.target.value)}
      onKeyDown={(event) => {
        if (event.key === "s" && (event.ctrlKey || event.metaKey)) {
          event.preventDefault();
          onSave();
        }
      }}
    />
  );
}

/** What git says has changed, from what the file was at the last commit. */
function Changes({ path, text }: { path: string; text: string }) {
  const { value: patch, error, busy } = useLoad((signal) => gateway.machine.fs.gitDiff(path, { base: "HEAD", signal }), [path, text]);
  const before = useMemo(() => {
    if (!patch) return undefined;
    const [first] = parsePatch(patch);
    if (!first) return text;
    const old = applyPatch(text, reversePatch(first));
    return old === false ? undefined : old;
  }, [patch, text]);
  if (error) return <Notice tone="bad" title="The changes cannot be shown"><p>{error.message}</p></Notice>;
  if (patch === undefined) return busy ? <p className="soft" role="status">Loading…</p> : null;
  if (patch === "") return <Empty title="Nothing has changed" />;
  if (before === undefined) return <Code code={patch} language="diff" bare />;
  return <Diff path={path} before={before} after={text} />;
}
