import { useId, useState, type ButtonHTMLAttributes, type ComponentProps, type InputHTMLAttributes, type ReactNode, type SelectHTMLAttributes, type TextareaHTMLAttributes } from "react";
import { Icon, type IconName } from "./icons.js";

type ButtonProps = ButtonHTMLAttributes<HTMLButtonElement> & { tone?: "plain" | "primary" | "danger" | "quiet"; icon?: IconName; small?: boolean; busy?: boolean };

export function Button({ tone = "plain", icon, small, busy, className = "", children, disabled, ...rest }: ButtonProps) {
  return (
    <button type="button" className={`button ${tone} ${small ? "small" : ""} ${className}`} disabled={disabled || busy} aria-busy={busy || undefined} {...rest}>
      {busy ? <Spinner /> : icon && <Icon name={icon} size={small ? 14 : 16} />}
      {children}
    </button>
  );
}

/** A button that shows an icon only; its label is its tooltip too. */
export function IconButton({ label, icon, className = "", size = 16, ...rest }: ComponentProps<"button"> & { label: string; icon: IconName; size?: number }) {
  return (
    <button type="button" className={`icon-button ${className}`} aria-label={label} title={label} {...rest}>
      <Icon name={icon} size={size} />
    </button>
  );
}

/** A link that looks as a button does. */
export function LinkButton({ href, tone = "plain", icon, small, children, ...rest }: { href: string; tone?: "plain" | "primary" | "quiet"; icon?: IconName; small?: boolean; children: ReactNode; title?: string; onClick?: () => void }) {
  return (
    <a className={`button ${tone} ${small ? "small" : ""}`} href={href} {...rest}>
      {icon && <Icon name={icon} size={small ? 14 : 16} />}
      {children}
    </a>
  );
}

/** A label with its control, a hint below, and what is wrong with it. */
export function Field({ label, hint, error, optional, children }: { label: string; hint?: ReactNode; error?: ReactNode; optional?: boolean | undefined; children: (props: { id: string; "aria-describedby"?: string; "aria-invalid"?: true }) => ReactNode }) {
  const id = useId();
  const described = hint || error ? `${id}-hint` : undefined;
  return (
    <div className="field">
      <label htmlFor={id}>
        {label}
        {optional && <span className="soft"> optional</span>}
      </label>
      {children({ id, ...(described ? { "aria-describedby": described } : {}), ...(error ? { "aria-invalid": true as const } : {}) })}
      {(hint || error) && (
        <p id={described} className={error ? "hint bad" : "hint"}>
          {error || hint}
        </p>
      )}
    </div>
  );
}

export function Input({ className = "", ...rest }: ComponentProps<"input">) {
  return <input className={`input ${className}`} spellCheck={false} autoComplete="off" {...rest} />;
}

export function TextArea({ className = "", ...rest }: TextareaHTMLAttributes<HTMLTextAreaElement>) {
  return <textarea className={`input ${className}`} rows={3} {...rest} />;
}

export function Select({ className = "", children, ...rest }: SelectHTMLAttributes<HTMLSelectElement>) {
  return (
    <span className={`select ${className}`}>
      <select {...rest}>{children}</select>
      <Icon name="down" size={14} />
    </span>
  );
}

export function Checkbox({ label, hint, ...rest }: InputHTMLAttributes<HTMLInputElement> & { label: ReactNode; hint?: ReactNode }) {
  return (
    <label className="check">
      <input type="checkbox" {...rest} />
      <span>
        {label}
        {hint && <span className="hint">{hint}</span>}
      </span>
    </label>
  );
}

/** One of a few choices, all in sight. */
export function Segmented<T extends string>({ label, value, options, onChange, small }: { label: string; value: T; options: readonly { value: T; label: ReactNode; title?: string }[]; onChange: (value: T) => void; small?: boolean }) {
  const name = useId();
  return (
    <fieldset className={`segmented ${small ? "small" : ""}`}>
      <legend className="unseen">{label}</legend>
      {options.map((option) => (
        <label key={option.value} title={option.title}>
          <input type="radio" name={name} value={option.value} checked={option.value === value} onChange={() => onChange(option.value)} />
          <span>{option.label}</span>
        </label>
      ))}
    </fieldset>
  );
}

export function Spinner() {
  return <span className="spinner" aria-hidden="true" />;
}

/** Copies a text, and says that it did. */
export function CopyButton({ text, label = "Copy", small = true, iconOnly }: { text: string | (() => string); label?: string; small?: boolean; iconOnly?: boolean }) {
  const [said, say] = useState<string>();
  const copy = async () => {
    let done = "Copied";
    try {
      await navigator.clipboard.writeText(typeof text === "string" ? text : text());
    } catch {
      done = "Not allowed";
    }
    say(done);
    setTimeout(() => say(undefined), 1500);
  };
  if (iconOnly) return <IconButton className="copy" label={said ?? label} icon={said === "Copied" ? "check" : "copy"} size={14} onClick={() => void copy()} />;
  return (
    <Button small={small} tone="quiet" icon={said === "Copied" ? "check" : "copy"} onClick={() => void copy()}>
      <span aria-live="polite">{said ?? label}</span>
    </Button>
  );
}
