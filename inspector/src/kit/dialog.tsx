import { useEffect, useId, useLayoutEffect, useRef, useState, type ReactNode } from "react";
import { useWork } from "../app/work.js";
import { Button, IconButton } from "./controls.js";

/** A dialog over the page. The browser keeps the focus in it and gives it back. */
export function Dialog({ title, onClose, children, footer, wide }: { title: string; onClose: () => void; children: ReactNode; footer?: ReactNode; wide?: boolean }) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useLayoutEffect(() => {
    const dialog = ref.current;
    dialog?.showModal();
    // Where there is something to write, writing comes first; the browser would choose the button that closes.
    dialog?.querySelector<HTMLElement>(".dialog-body :is(input:not([type=checkbox], [type=radio]), textarea)")?.focus();
    return () => dialog?.close(); // while it is in the document: then the focus goes back
  }, []);
  return (
    <dialog
      ref={ref} className={`dialog ${wide ? "wide" : ""}`} aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onMouseDown={(event) => event.target === ref.current && onClose()}
    >
      <div className="dialog-inside">
        <header className="dialog-head">
          <h2 id={id}>{title}</h2>
          <IconButton label="Close" icon="close" onClick={onClose} />
        </header>
        <div className="dialog-body">{children}</div>
        {footer && <footer className="dialog-foot">{footer}</footer>}
      </div>
    </dialog>
  );
}

/** Asks before something that cannot be undone. */
export function Confirm({ title, children, action, onConfirm, onClose }: { title: string; children: ReactNode; action: string; onConfirm: () => Promise<unknown> | void; onClose: () => void }) {
  const work = useWork();
  return (
    <Dialog
      title={title} onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button
            tone="danger" busy={work.busy}
            onClick={() => void work.run("It did not work", async () => {
              try {
                await onConfirm();
              } finally {
                if (work.shown()) onClose();
              }
            })}
          >
            {action}
          </Button>
        </>
      }
    >
      {children}
    </Dialog>
  );
}

export interface MenuItem {
  readonly label: string;
  readonly hint?: string;
  readonly danger?: boolean;
  readonly disabled?: boolean;
  readonly title?: string; // why it is disabled
  readonly run: () => void;
}

/** A button with a list of things to do. Arrows move, Escape closes. */
export function Menu({ label, trigger, items, className = "" }: { label: string; trigger?: ReactNode; items: readonly MenuItem[]; className?: string }) {
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!open) return;
    root.current?.querySelector<HTMLElement>("[role=menuitem]:not(:disabled)")?.focus();
    const away = (event: Event) => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener("pointerdown", away);
    return () => document.removeEventListener("pointerdown", away);
  }, [open]);
  const close = () => {
    setOpen(false);
    button.current?.focus();
  };
  return (
    <div
      ref={root} className={`menu ${className}`}
      onKeyDown={(event) => {
        if (!open) return;
        const all = [...(root.current?.querySelectorAll<HTMLElement>("[role=menuitem]:not(:disabled)") ?? [])];
        const at = all.indexOf(document.activeElement as HTMLElement);
        if (event.key === "Escape") {
          event.stopPropagation();
          close();
        } else if (event.key === "ArrowDown") all[(at + 1) % all.length]?.focus();
        else if (event.key === "ArrowUp") all[(at - 1 + all.length) % all.length]?.focus();
        else if (event.key === "Home") all[0]?.focus();
        else if (event.key === "End") all.at(-1)?.focus();
        else if (event.key === "Tab") return setOpen(false);
        else return;
        event.preventDefault();
      }}
    >
      {trigger === undefined
        ? <IconButton ref={button} label={label} icon="more" aria-haspopup="menu" aria-expanded={open} onClick={() => setOpen(!open)} />
        : <button ref={button} type="button" className="button quiet small" aria-label={label} aria-haspopup="menu" aria-expanded={open} onClick={() => setOpen(!open)}>{trigger}</button>}
      {open && (
        <div className="menu-list" role="menu" aria-label={label}>
          {items.map((item) => (
            <button
              key={item.label} type="button" role="menuitem" tabIndex={-1} disabled={item.disabled} title={item.title} className={item.danger ? "danger" : ""}
              onClick={() => {
                close();
                item.run();
              }}
            >
              {item.label}
              {item.hint && <span className="soft">{item.hint}</span>}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
