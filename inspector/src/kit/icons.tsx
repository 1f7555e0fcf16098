const paths = {
  sessions: "M2.5 4.5h11M2.5 8h11M2.5 11.5h7",
  inbox: "M2.5 9.5v3h11v-3M2.5 9.5l2-6h7l2 6M2.5 9.5h3l1 1.5h3l1-1.5h3",
  wire: "M2 5.5h9M8.5 3l2.5 2.5L8.5 8M14 10.5H5M7.5 8L5 10.5 7.5 13",
  agents: "M3.5 6.5h9v6h-9zM8 3.5v3M8 3.5h.01M6 9v1.5M10 9v1.5M1.5 9v1.5M14.5 9v1.5",
  nodes: "M3 2.5h10v4H3zM3 9.500h10v4H3zM5.500 4.500h.01M5.500 11.500h.01",
  files: "M2 4h4.5l1.5 1.5h6v7H2z",
  processes: "M2.5 3h11v10h-11zM2.5 6h11M5 9h3M5 11h5",
  terminal: "M3 4.5l3.5 3.5L3 11.5M8 12h5",
  plus: "M8 3v10M3 8h10",
  close: "M4 4l8 8M12 4l-8 8",
  check: "M3 8.5l3.5 3.5L13 4.5",
  chevron: "M6 4l4 4-4 4",
  down: "M4 6l4 4 4-4",
  copy: "M5.5 5.5h7v7h-7zM3.5 10.5v-7h7",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  sun: "M8 5.2a2.8 2.8 0 100 5.6 2.8 2.8 0 000-5.6zM8 1.5v1.5M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1.1 1.1M11.5 11.5l1.1 1.1M3.4 12.6l1.1-1.1M11.5 4.5l1.1-1.1",
  moon: "M12.8 9.8A5.5 5.5 0 016.2 3.2a5.5 5.5 0 106.6 6.6z",
  system: "M2 3.5h12v7.5H2zM5.5 13.5h5",
  help: "M6 6a2 2 0 113 1.7c-.7.400-1 .8-1 1.6M8 11.8h.01",
  search: "M7 3a4 4 0 100 8 4 4 0 000-8zM10 10l3.5 3.5",
  stop: "M4.5 4.5h7v7h-7z",
  send: "M8 13V3M4 7l4-4 4 4",
  clip: "M12 7.5l-4.3 4.3a2.5 2.5 0 01-3.5-3.5L8.7 3.8a1.7 1.7 0 012.4 2.4L6.7 10.6",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  trash: "M3 4.5h10M6.5 4.5V3h3v1.5M4.5 4.5l.5 8.5h6l.5-8.5",
  fork: "M5 2.5v4.5a2 2 0 002 2h2a2 2 0 012 2v2.5M5 7v6.5",
  refresh: "M13 8a5 5 0 11-1.5-3.5L13 6M13 3v3h-3",
  warning: "M8 2.5l6 10.5H2zM8 6.5v3M8 11.3h.01",
  info: "M8 2.5a5.5 5.5 0 100 11 5.5 5.5 0 000-11zM8 7.5v3.5M8 5.3h.01",
  edit: "M3 13l.5-2.5 7-7 2 2-7 7z",
  review: "M3.5 2.5h9v11h-9zM8 4.8v3.4M6.3 6.5h3.4M6.3 10.7h3.4",
  read: "M3.5 2.5h6l3 3v8h-9zM5.5 8h5M5.5 10.5h5",
  globe: "M8 2.5a5.5 5.5 0 100 11 5.5 5.5 0 000-11zM2.5 8h11M8 2.5c3.5 3 3.5 8 0 11M8 2.5c-3.5 3-3.5 8 0 11",
  think: "M5.5 11a4 4 0 115 0v1.5h-5zM6.5 14.5h3",
  unplug: "M3 13l2-2M9 4.5l2.5 2.5M7.5 6L5 8.5a2 2 0 002.5 2.5L10 8.5M11 5l2-2",
  user: "M8 2.8a2.6 2.6 0 100 5.2 2.6 2.6 0 000-5.2zM3 13.5c.5-5 9.5-5 10 0",
  external: "M6.5 3.5h-3v9h9v-3M9 3h4v4M13 3L7.5 8.5",
  download: "M8 3v7M5 7.5L8 10.5l3-3M3 13h10",
  upload: "M8 10.5v-7M5 6l3-3 3 3M3 13h10",
  pin: "M5.5 2.5h5M6.5 2.5v4l-2 2.500h7l-2-2.500v-4M8 9v4.500",
  history: "M3 8a5 5 0 101.500-3.500L3 6M3 3v3h3M8 5.500V8l2 1.500",
  panel: "M2.5 3.5h11v9h-11zM9.5 3.5v9",
  usage: "M3.5 13V8.500M8 13V3.500M12.500 13V6.500M2 13.500h12",
  side: "M2.5 3.5h11v9h-11zM6.500 3.5v9",
  up: "M4 10l4-4 4 4",
  play: "M5 3.5l7.5 4.5L5 12.5z",
} as const;

export type IconName = keyof typeof paths;

/** A small line drawing; it says nothing to screen readers, so a text or a label stands beside it. */
export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg className="icon" width={size} height={size} viewBox="0 0 16 16" fill="none" stroke="currentColor" strokeWidth={name === "more" ? 2.4 : 1.5} strokeLinecap="round" strokeLinejoin="round" aria-hidden="true">
      <path d={paths[name]} />
    </svg>
  );
}
