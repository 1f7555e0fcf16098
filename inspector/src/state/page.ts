// The stores of this page. Components get them from here; tests make their own.
import type { SessionInfo } from "sandbox-agent";
import { Conversations } from "../conversation/conversations.js";
import type { HubClient } from "../nodes/hub.js";
import { Installs } from "../agents/installs.js";
import { Drafts } from "../files/drafts.js";
import { SessionsStore } from "../sessions/sessions-store.js";
import { stateNow } from "../sessions/states.js";
import { Attached } from "./attached.js";
import { FleetStore } from "./fleet.js";
import { GatewayStore } from "./gateway.js";
import { Inbox, placeOf, titleOf } from "./inbox.js";
import { Notifier } from "./notify.js";
import { hrefOf, Router, takeToken, type Route } from "./router.js";
import { SettingsStore } from "./settings.js";
import { Unsent, type Form } from "./unsent.js";
import { Toasts } from "./toasts.js";
import { Traffic } from "./traffic.js";

const storage = (name: "localStorage" | "sessionStorage"): Storage | undefined => {
  try {
    return window[name];
  } catch {
    return undefined; // forbidden by the browser's settings
  }
};

/** The token in the address, which is taken out of it. */
function tokenOfAddress(): string | undefined {
  const { token, hash } = takeToken(location.hash);
  if (token !== undefined) history.replaceState(null, "", `${location.pathname}${location.search}${hash}`);
  return token;
}

// Before anything else looks at the address, now and when a link with a token is opened in this window.
const token = tokenOfAddress();
addEventListener("hashchange", () => {
  const given = tokenOfAddress();
  if (given === undefined) return;
  gateway.use(given);
  void gateway.connect();
});

/** Where the gateway is that serves this page: the page is at ui/ below it. */
const origin = new URL("..", location.href.replace(/[?#].*$/, "")).href.replace(/\/$/, "");

export const router = new Router(window);
export const settings = new SettingsStore(storage("localStorage"));
export const traffic = new Traffic();
export const toasts = new Toasts();
export const gateway = new GatewayStore(origin, { tab: storage("sessionStorage"), browser: storage("localStorage") }, traffic);
/** To which sessions the page is attached. */
const attached = new Attached();
export const conversations = new Conversations(attached, new Unsent(storage("sessionStorage"), "sandbox-agent:drafts"), new Unsent(storage("sessionStorage"), "sandbox-agent:waiting"));
/** Forms that are filled in. They are in no storage: there can be secrets in them. */
export const forms = new Unsent<Form>();
export const sessions = new SessionsStore();
/** The nodes, where the page is connected to a hub. */
export const fleet = new FleetStore();
export const drafts = new Drafts();
export const installs = new Installs();
/** The session that a subagent is in. */
export const home = (id: string): string => conversations.homeOf(id) ?? sessions.get().sessions.find((s) => s.sessionId === id || s.children?.some((c) => c.sessionId === id) || id.startsWith(`${s.sessionId}.`))?.sessionId ?? id;
export const inbox = new Inbox(attached, home);
const stateOf = (info: SessionInfo) => stateNow(info, conversations.peek(info.sessionId)?.turn);
export const notifier = new Notifier(settings, stateOf, (id) => router.go(id === undefined ? "inbox" : "sessions", id === undefined ? [] : [id]));
/**
 * Where a person is, for something that takes its time: what is returned leads to what came of it. Whoever has gone
 * elsewhere meanwhile stays there, and is told; also who has closed what it was begun in, as `waits` says.
 */
export function departing(waits = () => true): (done: string, area: string, parts?: readonly string[], options?: { replace?: boolean }) => void {
  const placeOf = ({ area, parts }: Route) => hrefOf(area, parts);
  const from = placeOf(router.now());
  let there = true; // also who has come back since writes something else
  const off = router.subscribe(() => {
    if (placeOf(router.get()) === from) return;
    there = false;
    off();
  });
  return (done, area, parts, options) => {
    router.now();
    off();
    if (there && waits()) router.go(area, parts, options);
    else toasts.show(done, "good", hrefOf(area, parts));
  };
}

/** Goes to the list of an area, as long as one thing of it that is gone is what is shown. */
export function leave(area: string, id: string): void {
  const { area: shown, parts } = router.now();
  if (shown === area && parts[0] === id) router.go(area, [], { replace: true });
}

/** Requests of agents that wait for a person. */
export const inboxCount = inbox.count;

if (token !== undefined) gateway.use(token);

gateway.onElicitation = inbox.elicit;
gateway.onFrame = inbox.frame;
inbox.onAsk = (ask, again) => {
  conversations.peek(ask.sessionId ?? "")?.asked(ask);
  if (!again) notifier.asked(ask, sessions.get().sessions.find((s) => s.sessionId === ask.sessionId));
};
inbox.onAnswer = (ask, response) => {
  conversations.peek(ask.sessionId ?? "")?.answered(ask, response);
  const form = forms.get().get(placeOf(ask));
  forms.drop(placeOf(ask));
  if (response !== undefined || form === undefined) return;
  const kept = form.words !== "" && ask.sessionId !== undefined;
  if (kept) conversations.write(ask.sessionId!, [{ type: "text", text: form.words }]);
  toasts.show(`What you were answering is not asked any more.${kept ? " Your words are in the prompt of its session." : ""}`, "info", kept ? hrefOf("sessions", [ask.sessionId!]) : undefined);
};
inbox.onLate = (ask) => {
  void conversations.peek(ask.sessionId ?? "")?.again(); // the log has the answer that counts
  toasts.show(`Somebody else had answered already, and that counts: ${titleOf(ask)}`, "info", ask.sessionId === undefined ? undefined : hrefOf("sessions", [ask.sessionId]));
};
let generation = 0;
gateway.subscribe(() => {
  const state = gateway.get();
  drafts.use(`${state.endpoint} ${state.node ?? ""}`);
  if (state.generation === generation) return;
  generation = state.generation;
  inbox.use(gateway.client);
  conversations.use(gateway.client);
  sessions.use(gateway.client);
  const client: HubClient | undefined = gateway.fleet;
  const hub = client?.hub;
  fleet.use(hub);
  if (client && hub) client.onNode = (node, online) => {
    const there = (id: string) => hub.nodeOf(id) === node;
    inbox.nodeChanged(there, online);
    conversations.nodeChanged(there, online);
  };
  if (hub) hub.onTold = (all) => {
    inbox.watch(all);
    for (const info of all) conversations.peek(info.sessionId)?.seen(info, false); // a list that is narrowed tells nothing of them
  };
});

sessions.onChange((all, anew) => {
  inbox.watch(all);
  notifier.seen(all);
  for (const info of all) conversations.peek(info.sessionId)?.seen(info, gateway.get().hub === undefined);
  if (anew) conversations.refreshOthers(new Set(all.map((info) => info.sessionId)));
});

// Prompts that wait for their turn, forms, files that are not saved, and installations, are the page's own: the browser asks before it forgets them.
addEventListener("beforeunload", (event) => {
  const kept = [conversations.save(), forms.save()].every(Boolean);
  if (!kept || conversations.unsent || drafts.unsaved || installs.running) event.preventDefault();
});
// A browser that needs the memory ends a page in silence, once it is out of sight.
document.addEventListener("visibilitychange", () => document.hidden && conversations.save());
document.addEventListener("visibilitychange", () => document.hidden && notifier.know(sessions.get().sessions));

// A file that is dropped beside the places that take files would replace the page.
for (const type of ["dragover", "drop"] as const) {
  addEventListener(type, (event) => {
    if (event.defaultPrevented || !event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = "none";
  });
}

const look = () => {
  sessions.look(document.hidden);
  fleet.look(document.hidden);
};
look();
document.addEventListener("visibilitychange", look);
