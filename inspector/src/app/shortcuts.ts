import { useEffect, useRef } from "react";
import { isTyping as typing } from "./typing.js";
import { settings } from "../state/page.js";

/** A key, or two one after the other (`g s`), and what it does. */
export interface Shortcut {
  readonly keys: string;
  readonly what: string;
  readonly group: string;
  /** Also while a text is typed. */
  readonly always?: boolean;
  readonly run: () => void;
}

/** The second of two keys comes within this time. */
const sequenceMs = 1200;

const active = new Set<{ current: Shortcut }>();
let first: { key: string; at: number } | undefined;

/** All shortcuts that work now, for the list of them. */
export function currentShortcuts(): Shortcut[] {
  return [...active].map((ref) => ref.current);
}

const mac = /Mac|iPhone|iPad/.test(navigator.platform);

/** Keys as they stand on a keyboard. */
export const keysForPeople = (keys: string): string => keys.replaceAll("mod+", mac ? "\u2318 " : "Ctrl ").replaceAll("alt+", "Alt ").replace("Escape", "Esc").replace("Arrow", "");

/** Makes a shortcut work as long as the component is shown. */
export function useShortcut(shortcut: Shortcut): void {
  const ref = useRef(shortcut);
  ref.current = shortcut;
  useEffect(() => {
    active.add(ref);
    return () => void active.delete(ref);
  }, []);
}


/** Listens for all shortcuts; called once. */
export function listenForShortcuts(doc: Document): () => void {
  const onKey = (event: KeyboardEvent) => {
    if (event.defaultPrevented || event.isComposing || (event.key === "Shift")) return;
    const modifier = event.ctrlKey || event.metaKey;
    const key = `${modifier ? "mod+" : ""}${event.altKey ? "alt+" : ""}${event.key.length === 1 ? event.key.toLowerCase() : event.key}`;
    const plain = !modifier && !event.altKey && event.key.length === 1;
    if (plain && (!settings.get().letters || typing(event.target))) return;
    if (doc.querySelector("dialog[open]") || (event.target instanceof Element && event.target.closest(".xterm"))) return;
    // When they were pressed counts: a busy page may get to them later.
    const sequence = first && event.timeStamp - first.at < sequenceMs ? `${first.key} ${key}` : undefined;
    first = undefined;
    const all = currentShortcuts().reverse(); // the newest counts
    const found = all.find((s) => s.keys === sequence) ?? all.find((s) => s.keys === key && (s.always || !typing(event.target)));
    if (found) {
      event.preventDefault();
      found.run();
    } else if (plain && all.some((s) => s.keys.startsWith(`${key} `))) first = { key, at: event.timeStamp };
  };
  doc.addEventListener("keydown", onKey);
  return () => doc.removeEventListener("keydown", onKey);
}
