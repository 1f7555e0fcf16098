// The stores of this page. Components get them from here; tests make their own.
import { GatewayStore } from "./gateway.js";
import { Inbox } from "./inbox.js";
import { Router, takeToken } from "./router.js";
import { SettingsStore } from "./settings.js";
import { Toasts } from "./toasts.js";
import { Traffic } from "./traffic.js";

const storage = (name: "localStorage" | "sessionStorage"): Storage | undefined => {
  try {
    return window[name];
  } catch {
    return undefined; // forbidden by the browser's settings
  }
};

// Before anything else looks at the address.
const { token, hash } = takeToken(location.hash);
if (token !== undefined) history.replaceState(null, "", `${location.pathname}${location.search}${hash}`);

/** Where the gateway is that serves this page: the page is at ui/ below it. */
const home = new URL("..", location.href.replace(/[?#].*$/, "")).href.replace(/\/$/, "");

export const router = new Router(window);
export const settings = new SettingsStore(storage("localStorage"));
export const traffic = new Traffic();
export const toasts = new Toasts();
export const gateway = new GatewayStore(home, { tab: storage("sessionStorage"), browser: storage("localStorage") }, traffic);

export const inbox = new Inbox();

if (token !== undefined) gateway.setToken(token, gateway.get().remember);

/** Requests of agents that wait for a person. */
export const inboxCount = inbox.count;
