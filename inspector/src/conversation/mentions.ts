import { useEffect, useState } from "react";
import type { ContentBlock } from "sandbox-agent";
import { baseName } from "../kit/text.js";
import { gateway } from "../state/page.js";

/** The word with an @ that is being written at the caret. */
export interface Mention {
  readonly from: number;
  readonly to: number;
  /** What follows the @. */
  readonly path: string;
}

export function mentionAt(text: string, caret: number): Mention | undefined {
  const match = /(?:^|\s)@([^\s@]*)$/.exec(text.slice(0, caret));
  if (!match) return undefined;
  const path = match[1]!;
  return { from: caret - path.length - 1, to: caret, path };
}

/** Entries of a folder that are looked at, and proposals that are shown. */
const maxEntries = 1000;
const maxShown = 30;

/** Files and folders of the session's folder that fit what was written: one level at a time. */
export function useFiles(cwd: string | undefined, mention: Mention | undefined): readonly string[] {
  const path = mention?.path;
  const folder = path === undefined ? undefined : path.slice(0, path.lastIndexOf("/") + 1);
  const [found, setFound] = useState<{ readonly folder: string; readonly names: readonly string[] }>();
  useEffect(() => {
    if (cwd === undefined || folder === undefined) return;
    const controller = new AbortController();
    gateway.machine.fs.list(`${cwd.replace(/\/$/, "")}/${folder}`, { limit: maxEntries, signal: controller.signal }).then(
      ({ entries }) => setFound({ folder, names: entries.map((e) => `${e.name}${e.type === "directory" ? "/" : ""}`) }),
      () => !controller.signal.aborted && setFound({ folder, names: [] }),
    );
    return () => controller.abort();
  }, [cwd, folder]);
  if (path === undefined || folder === undefined || !found || found.folder !== folder) return [];
  const rest = path.slice(folder.length).toLowerCase();
  const begins = found.names.filter((n) => n.toLowerCase().startsWith(rest));
  const has = found.names.filter((n) => !n.toLowerCase().startsWith(rest) && n.toLowerCase().includes(rest));
  return [...begins, ...has].slice(0, maxShown).map((n) => `${folder}${n}`);
}

/** Links to the files that a prompt names and that were chosen from the list. */
export function linksIn(text: string, chosen: ReadonlySet<string>, cwd: string): ContentBlock[] {
  const named = new Set([...text.matchAll(/(?:^|\s)@(\S+)/g)].map((m) => m[1]!));
  return [...named].filter((path) => chosen.has(path)).map((path) => ({
    type: "resource_link", name: baseName(path), uri: `file://${`${cwd.replace(/\/$/, "")}/${path}`.split("/").map(encodeURIComponent).join("/")}`,
  }));
}
