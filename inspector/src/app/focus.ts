/**
 * Gives the focus to what is left around it when what had it is taken away, such as the menu of a session that was deleted:
 * browsers then forget where it was, and whoever uses keys or a screen reader begins at the top of the page.
 */
export function keepFocus(doc: Document): () => void {
  let around: HTMLElement[] = []; // what has the focus, and what it is in
  const onFocus = (event: FocusEvent) => {
    around = [];
    for (let e = event.target instanceof HTMLElement ? event.target : null; e && e !== doc.body; e = e.parentElement) around.push(e);
  };
  const gone = new MutationObserver(() => {
    if (around[0] === undefined || around[0].isConnected) return;
    const left = around.find((e) => e.isConnected && e.hasAttribute("tabindex"));
    around = [];
    if (doc.activeElement === doc.body) (left ?? doc.getElementById("main"))?.focus({ preventScroll: true });
  });
  doc.addEventListener("focusin", onFocus);
  gone.observe(doc.body, { childList: true, subtree: true });
  return () => {
    doc.removeEventListener("focusin", onFocus);
    gone.disconnect();
  };
}
