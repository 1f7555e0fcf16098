// Numbers and times as people read them.

const minute = 60_000;

/** How long ago, short: `now`, `4 min`, `3 h`, `2 d`. */
export function age(time: string | number | Date, now: number = Date.now()): string {
  const ms = now - new Date(time).getTime();
  if (!Number.isFinite(ms)) return "";
  if (ms < minute) return "now";
  if (ms < 60 * minute) return `${Math.floor(ms / minute)} min`;
  if (ms < 24 * 60 * minute) return `${Math.floor(ms / (60 * minute))} h`;
  return `${Math.floor(ms / (24 * 60 * minute))} d`;
}

/** The same in a sentence: `just now`, `4 min ago`. */
export function ago(time: string | number | Date, now?: number): string {
  const text = age(time, now);
  return text === "now" ? "just now" : `${text} ago`;
}

export function bytes(n: number): string {
  if (n < 1000) return `${n} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let value = n;
  let unit = "B";
  for (const next of units) {
    if (value < 1000) break;
    value /= 1000;
    unit = next;
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

/** A count, short: `950`, `12.3k`, `1.2M`. */
export function count(n: number): string {
  if (n < 1000) return String(n);
  if (n < 1_000_000) return `${trim(n / 1000)}k`;
  return `${trim(n / 1_000_000)}M`;
}

const trim = (n: number) => (n < 100 ? n.toFixed(1).replace(/\.0$/, "") : String(Math.round(n)));

export function money(amount: number, currency: string): string {
  try {
    return new Intl.NumberFormat("en", { style: "currency", currency, minimumFractionDigits: 2, maximumFractionDigits: amount !== 0 && Math.abs(amount) < 0.1 ? 4 : 2 }).format(amount);
  } catch {
    return `${amount} ${currency}`;
  }
}

export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < minute) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / minute)} min ${Math.round((ms % minute) / 1000)} s`;
}

/** How long something takes that goes on: whole seconds. */
export function elapsed(ms: number): string {
  const seconds = Math.floor(ms / 1000);
  return seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${n} ${n === 1 ? one : many}`;
}

/** A path's last part. */
export function baseName(path: string): string {
  return path.replace(/[\\/]+$/, "").split(/[\\/]/).pop() || path;
}

/** A path below a folder, else as it is. */
export function relativeTo(path: string, folder: string | undefined): string {
  if (!folder) return path;
  const base = folder.endsWith("/") ? folder : `${folder}/`;
  return path.startsWith(base) ? path.slice(base.length) : path;
}
