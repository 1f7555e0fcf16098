import { FitAddon } from "@xterm/addon-fit";
import { Terminal as Xterm, type ITheme } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { useEffect, useRef } from "react";
import "./screen.css";

/** What a screen shows, and where its keys go. */
export interface Feed {
  /** Begins to write; what it returns ends that. */
  start(screen: Xterm): () => void;
  /** What a person types. Without it nothing can be typed. */
  input?(data: string): void;
  resize?(cols: number, rows: number): void;
}

/** A terminal's screen. It lives as long as the feed is the same. */
export function Screen({ feed, label }: { feed: Feed; label: string }) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = place.current!;
    const screen = new Xterm({
      theme: themeOf(element), fontFamily: getComputedStyle(element).fontFamily, fontSize: 13, lineHeight: 1.2, scrollback: 10_000, cursorBlink: false,
      disableStdin: !feed.input, convertEol: !feed.resize, screenReaderMode: true, macOptionIsMeta: true,
      minimumContrastRatio: 4.5, // programs choose colours for a dark screen
      ...(feed.input ? {} : { cursorInactiveStyle: "none" as const }),
    });
    const fit = new FitAddon();
    screen.loadAddon(fit);
    screen.open(element);
    screen.textarea?.setAttribute("aria-label", label);
    screen.attachCustomKeyEventHandler((event) => {
      // Tab goes to the program. This leaves the terminal by keyboard.
      if (event.type === "keydown" && event.ctrlKey && event.shiftKey && event.key === "Escape") {
        screen.blur();
        element.closest<HTMLElement>("main")?.focus();
        return false;
      }
      if (event.type === "keydown" && event.ctrlKey && event.shiftKey && event.key === "C") {
        void navigator.clipboard.writeText(screen.getSelection()).catch(() => {});
        return false;
      }
      return true;
    });
    // What a phone's keyboard, dictation or a picker of characters puts in comes without a key, and for screen readers xterm leaves it out.
    let keyed = false;
    const note = (event: KeyboardEvent) => void (keyed = event.type === "keydown");
    const insert = (event: Event) => {
      const { data, inputType, composed } = event as InputEvent;
      if (data && inputType === "insertText" && (!composed || !keyed)) feed.input?.(data);
    };
    screen.textarea?.addEventListener("keydown", note, true);
    screen.textarea?.addEventListener("keyup", note, true);
    screen.textarea?.addEventListener("input", insert);
    const parts = [
      screen.onData((data) => feed.input?.(data)),
      screen.onBinary((data) => feed.input?.(data)),
      screen.onResize(({ cols, rows }) => feed.resize?.(cols, rows)),
    ];
    const sized = new ResizeObserver(() => {
      if (element.clientWidth > 0 && element.clientHeight > 0) fit.fit();
    });
    sized.observe(element);
    fit.fit();
    const themed = new MutationObserver(() => (screen.options.theme = themeOf(element)));
    themed.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    const stop = feed.start(screen);
    if (feed.input) screen.focus();
    return () => {
      stop();
      sized.disconnect();
      themed.disconnect();
      for (const part of parts) part.dispose();
      screen.dispose();
    };
  }, [feed, label]);
  return <div ref={place} className="screen" />;
}

/** The page's colours, for the screen. */
function themeOf(element: HTMLElement): ITheme {
  const style = getComputedStyle(element);
  const color = (name: string) => style.getPropertyValue(name).trim();
  const theme: Record<string, string> = { background: color("--card"), foreground: color("--text"), cursor: color("--accent"), selectionBackground: color("--press") };
  const names = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
  names.forEach((name, i) => {
    theme[name] = color(`--ansi-${i}`);
    theme[`bright${name[0]!.toUpperCase()}${name.slice(1)}`] = color(`--ansi-${i}`);
  });
  return theme;
}
