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
