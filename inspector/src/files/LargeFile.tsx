import { useEffect, useRef, useState } from "react";
import { Code } from "../conversation/Code.js";
import { Button, Input } from "../kit/controls.js";
import { useLoad } from "../kit/load.js";
import { Empty, Notice } from "../kit/show.js";
import { bytes } from "../kit/text.js";
import { messageOf } from "../state/explain.js";
import { gateway } from "../state/page.js";
import { textOf, wholeLines } from "./paths.js";

/** Of a large file as much is shown at once. */
const partBytes = 256 << 10;

/** Where in a file one is: right from a byte on, from the line on that begins behind one, or at the end. It stands in the address. */
export type Place = `${number}` | `~${number}` | "end";

export const placeOf = (text: string | undefined): Place | undefined => (text === "end" || /^~?\d{1,15}$/.test(text ?? "") ? (text as Place) : undefined);
const at = (byte: number): Place => `${byte}`;
const near = (byte: number): Place => (byte <= 0 ? "0" : `~${byte}`);

interface Part {
  readonly size: number;
  readonly from: number;
  readonly to: number;
  readonly text: string | undefined;
}

/** Reads whole lines around a place. */
async function readPart(path: string, place: Place, signal: AbortSignal): Promise<Part> {
  const { size } = await gateway.machine.fs.stat(path, { follow: true, signal });
  if (size === 0) return { size, from: 0, to: 0, text: "" };
  const exact = /^\d/.test(place);
  const wanted = place === "end" ? Math.max(0, size - partBytes) : Math.min(Number(place.replace("~", "")), size - 1);
  // The byte before tells whether a line begins here.
  const start = exact ? wanted : Math.max(0, wanted - 1);
  const end = Math.min(size, wanted + partBytes);
  // A condition keeps the browser's cache out, which has less to say of a file that has grown.
  const response = await gateway.machine.fs.open(path, { range: { start, end }, ifNoneMatch: '"none"', signal });
  const all = new Uint8Array(await response.arrayBuffer());
  const part = response.status === 206 ? all : all.subarray(start, end);
  const lines = wholeLines(part, exact || start === 0, start + part.length >= size);
  return { size, from: start + lines.from, to: start + lines.to, text: textOf(part.subarray(lines.from, lines.to)) };
}

/** Where a line begins. Reads the file up to there; undefined when it has fewer lines. */
async function startOfLine(path: string, line: number, signal: AbortSignal): Promise<number | undefined> {
  if (line <= 1) return 0;
  const response = await gateway.machine.fs.open(path, { signal });
  let offset = 0;
  let left = line - 1;
  for (const reader = response.body!.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) return undefined;
    for (let newline = value.indexOf(10); newline >= 0; newline = value.indexOf(10, newline + 1)) {
      if (--left > 0) continue;
      void reader.cancel();
      return offset + newline + 1;
    }
    offset += value.length;
  }
}

/** A file that is too large to be shown at once, part by part. At its end what is written to it is followed. */
export function LargeFile({ path, name, place, line, changed, onPlace: go }: { path: string; name: string; place: Place; line: number | undefined; changed: number; onPlace: (place: Place) => void }) {
  const [problem, setProblem] = useState<string>();
  const onPlace = (next: Place) => {
    setProblem(undefined);
    go(next);
  };
  const { value, error, busy, reload } = useLoad((signal) => readPart(path, place, signal), [path, place, place === "end" ? changed : 0]);
  // A line that somebody was sent to.
  const { value: sent, error: notSent } = useLoad(async (signal) => {
    if (line === undefined) return undefined;
    const start = await startOfLine(path, line, signal);
    if (start !== undefined) onPlace(at(start));
    return start ?? "none";
  }, [path, line]);
  const [typed, setTyped] = useState("");
  const [looking, setLooking] = useState(false);
  const [last, setLast] = useState<Part>();
  if (value && value !== last) setLast(value);
  const shown = value ?? last; // while another part is read
  const over = useRef(new AbortController());
  useEffect(() => {
    over.current = new AbortController();
    return () => over.current.abort();
  }, [place, line]); // whoever looks at another place stays there
  const toLine = async () => {
    const { signal } = over.current;
    setProblem(undefined);
    setLooking(true);
    try {
      const start = await startOfLine(path, Number(typed), signal);
      if (signal.aborted) return;
      if (start === undefined) setProblem(`The file has fewer than ${typed} lines.`);
      else onPlace(at(start));
    } catch (failure) {
      if (!signal.aborted) setProblem(messageOf(failure));
    } finally {
      setLooking(false);
    }
  };
  const percent = shown ? Math.round((shown.from / Math.max(1, shown.size)) * 100) : 0;
  return (
    <div className="large">
      <div className="large-tools">
        <div className="row tight" role="group" aria-label="Parts of the file">
          <Button small disabled={shown?.from === 0} onClick={() => onPlace("0")}>Beginning</Button>
          <Button small disabled={!shown || shown.from === 0} onClick={() => shown && onPlace(near(shown.from - partBytes))}>Before</Button>
          <Button small disabled={!shown || shown.to >= shown.size} onClick={() => shown && onPlace(at(shown.to))}>After</Button>
          <Button small disabled={place === "end"} onClick={() => onPlace("end")}>End</Button>
        </div>
        <label className="row tight large-place"><span className="small soft">Place</span><input type="range" min={0} max={100} value={percent} aria-valuetext={`${percent} % of the file`} onChange={(event) => shown && onPlace(near(Math.floor((shown.size * Number(event.target.value)) / 100)))} /></label>
        <form className="row tight" onSubmit={(event) => { event.preventDefault(); if (Number(typed) >= 1) void toLine(); }}>
          <Input className="large-line" inputMode="numeric" aria-label="Go to line" placeholder="Line" value={typed} onChange={(event) => setTyped(event.target.value.replace(/\D/g, ""))} />
          <Button small type="submit" busy={looking} disabled={typed === ""}>Go</Button>
        </form>
      </div>
      <p className="small soft large-where" role="status">
        {shown && `${bytes(shown.to - shown.from)} of ${bytes(shown.size)}, from byte ${shown.from.toLocaleString("en")} on.`}
        {place === "end" && " What is added to the file is shown here."}
        {busy && " Reading…"}
        {sent === "none" && ` The file has fewer than ${line} lines now.`}
      </p>
      {(problem ?? notSent?.message) !== undefined && <Notice tone="bad">{problem ?? notSent?.message}</Notice>}
      {error && <Notice tone="bad" title="It cannot be read" actions={<Button small onClick={reload}>Try again</Button>}><p>{error.message}</p></Notice>}
      {shown && (shown.text === undefined ? <Empty icon="read" title="This part is no text">Download {name} to look into it.</Empty> : <Code code={shown.text} bare />)}
    </div>
  );
}
