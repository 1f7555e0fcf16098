import { useEffect } from "react";
import { inboxCount } from "../state/page.js";

/** What is shown: an area, and what of it. */
const names: { area?: string | undefined; part?: string | undefined } = {};

/** The window's title and icon: what is shown, and how many agents wait for a person. */
function show(): void {
  const waiting = inboxCount.get();
  document.title = `${waiting > 0 ? `(${waiting}) ` : ""}${names.part ?? names.area ?? "Connect"} · Sandbox Agent`;
  const icon = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
  const href = waiting > 0 ? "./icon-waiting.svg" : "./icon.svg";
  if (icon && icon.getAttribute("href") !== href) icon.href = href;
}

inboxCount.subscribe(show);

/** Names what is shown as long as the component is. */
export function useTitle(of: "area" | "part", title: string | undefined): void {
  useEffect(() => {
    names[of] = title;
    show();
    return () => {
      names[of] = undefined;
      show();
    };
  }, [of, title]);
}
