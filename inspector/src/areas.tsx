import { lazy, type ComponentType, type LazyExoticComponent } from "react";
import type { IconName } from "./kit/icons.js";
import type { Route } from "./state/router.js";

/** What an area is given: where in it the page is. */
export interface AreaProps {
  readonly route: Route;
}

/** A part of the page with a place of its own in the address: `#/id/…`. */
export interface Area {
  readonly id: string;
  readonly title: string;
  readonly icon: IconName;
  /** Pressed after `g`. */
  readonly letter: string;
  /** It shows a machine: at a hub somebody has to choose a node first. */
  readonly ofMachine?: boolean;
  /** It is there at a hub only. */
  readonly ofHub?: boolean;
  /** Loaded when it is first shown. */
  readonly component: LazyExoticComponent<ComponentType<AreaProps>>;
}

/** The areas of a gateway's page, or of a hub's. The first one is where the page begins. */
export const areasOf = (hub: boolean): readonly Area[] => (hub ? areas : areas.filter((a) => !a.ofHub));

/** All areas, in the order in which they are shown. */
const areas: readonly Area[] = [
  { id: "nodes", ofHub: true, title: "Nodes", icon: "nodes", letter: "o", component: lazy(() => import("./nodes/Nodes.js")) },
  { id: "sessions", title: "Sessions", icon: "sessions", letter: "s", component: lazy(() => import("./sessions/Sessions.js")) },
  { id: "inbox", title: "Inbox", icon: "inbox", letter: "i", component: lazy(() => import("./inbox/Inbox.js")) },
  { id: "wire", title: "Wire", icon: "wire", letter: "w", component: lazy(() => import("./wire/Wire.js")) },
  { id: "agents", ofMachine: true, title: "Agents", icon: "agents", letter: "a", component: lazy(() => import("./agents/Agents.js")) },
  { id: "usage", title: "Usage", icon: "usage", letter: "u", component: lazy(() => import("./usage/Usage.js")) },
  { id: "files", ofMachine: true, title: "Files", icon: "files", letter: "f", component: lazy(() => import("./files/Files.js")) },
  { id: "processes", ofMachine: true, title: "Processes", icon: "processes", letter: "p", component: lazy(() => import("./processes/Processes.js")) },
  { id: "terminal", ofMachine: true, title: "Terminal", icon: "terminal", letter: "t", component: lazy(() => import("./terminal/Terminal.js")) },
];
