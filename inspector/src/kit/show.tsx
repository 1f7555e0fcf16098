import type { ReactNode } from "react";
import { CopyButton } from "./controls.js";
import { Icon, type IconName } from "./icons.js";

export type Tone = "plain" | "good" | "warn" | "bad" | "busy" | "info";

export function Badge({ tone = "plain", children, title }: { tone?: Tone; children: ReactNode; title?: string }) {
  return (
    <span className={`badge ${tone}`} title={title}>
      {children}
    </span>
  );
}

/** A coloured point; the text beside it says the same. */
export function Dot({ tone }: { tone: Tone }) {
  return <span className={`dot ${tone}`} aria-hidden="true" />;
}

/** Something to know, where it matters. */
export function Notice({ tone = "info", title, children, actions, still }: { tone?: "info" | "good" | "warn" | "bad"; title?: ReactNode; children?: ReactNode; actions?: ReactNode; /** It has controls, and is not read out whenever they change. */ still?: boolean }) {
  return (
    <div className={`notice ${tone}`} role={still ? "group" : tone === "bad" ? "alert" : "status"} aria-label={still && typeof title === "string" ? title : undefined}>
      <Icon name={tone === "good" ? "check" : tone === "info" ? "info" : "warning"} />
      <div className="notice-body">
        {title && <p className="notice-title">{title}</p>}
        {children}
        {actions && <div className="row">{actions}</div>}
      </div>
    </div>
  );
}

/** What stands where there is nothing yet: what this is, and what to do. */
export function Empty({ icon, title, children, action }: { icon?: IconName; title: string; children?: ReactNode; action?: ReactNode }) {
  return (
    <div className="empty">
      {icon && <Icon name={icon} size={28} />}
      <h2>{title}</h2>
      {children && <div className="soft">{children}</div>}
      {action}
    </div>
  );
}

/** A command to run elsewhere, with a button that copies it. */
export function Command({ text, label }: { text: string; label?: string }) {
  return (
    <div className="command">
      <pre tabIndex={0} aria-label={label ?? "Command"}>
        <code>{text}</code>
      </pre>
      <CopyButton text={text} iconOnly label="Copy the command" />
    </div>
  );
}

export function Kbd({ keys, away }: { keys: string; /** It does not work now; its room stays, so that nothing moves under the pointer. */ away?: boolean }) {
  return (
    <span className={`keys ${away ? "away" : ""}`}>
      {keys.split(" ").map((key, i) => (
        <kbd key={i}>{key}</kbd>
      ))}
    </span>
  );
}

/** The head of an area: its name, what it is about, and what can be done. */
export function AreaHead({ title, lead, actions }: { title: ReactNode; lead?: ReactNode; actions?: ReactNode }) {
  return (
    <header className="area-head">
      <div>
        <h1>{title}</h1>
        {lead && <p className="soft">{lead}</p>}
      </div>
      {actions && <div className="row">{actions}</div>}
    </header>
  );
}
