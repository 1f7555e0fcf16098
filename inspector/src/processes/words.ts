import { age, duration } from "../kit/text.js";

/** Whether a program runs, and how it ended. */
export function stateOf(p: { readonly state: string; readonly startedAt: string; readonly endedAt?: string; readonly exitCode?: number; readonly signal?: string }): string {
  if (p.state === "running") return `runs since ${age(p.startedAt)}`;
  const how = p.signal === undefined ? `ended with code ${p.exitCode}` : `ended by ${p.signal}`;
  const took = p.endedAt === undefined ? -1 : Date.parse(p.endedAt) - Date.parse(p.startedAt);
  return took >= 0 ? `${how} after ${duration(took)}` : how; // the clock was set back meanwhile: nobody knows
}

/** A command line as a shell would take it. */
export function commandOf(p: { readonly command: string; readonly args?: readonly string[] }): string {
  return [p.command, ...(p.args ?? [])].map(quoted).join(" ");
}

const quoted = (word: string) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);

/** Splits a command line into words: quotes and backslashes as in a shell, nothing else of it. */
export function wordsOf(line: string): { words: string[] } | { error: string } {
  const words: string[] = [];
  let word: string | undefined;
  let quote: string | undefined;
  for (let i = 0; i < line.length; i++) {
    const c = line[i]!;
    if (quote === "'") {
      if (c === "'") quote = undefined;
      else word += c;
    } else if (c === "\\") {
      const next = line[++i];
      if (next === undefined) return { error: "A backslash stands at the end." };
      word = (word ?? "") + (quote === '"' && !/["\\$`]/.test(next) ? `\\${next}` : next);
    } else if (quote === '"') {
      if (c === '"') quote = undefined;
      else word += c;
    } else if (c === "'" || c === '"') {
      quote = c;
      word ??= "";
    } else if (/\s/.test(c)) {
      if (word !== undefined) words.push(word);
      word = undefined;
    } else word = (word ?? "") + c;
  }
  if (quote !== undefined) return { error: `A quote ${quote} is not closed.` };
  if (word !== undefined) words.push(word);
  return words.length === 0 ? { error: "A command is needed." } : { words };
}
