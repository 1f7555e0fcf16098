/** An option of a session: mode, model, thought level, or one of the agent's own. */
export interface ConfigOption {
  readonly id: string;
  readonly name: string;
  readonly category: string | undefined;
  readonly description: string | undefined;
  readonly current: string | boolean;
  readonly choices: readonly { readonly value: string; readonly name: string; readonly description: string | undefined }[];
}

/** The options that a session tells of. */
export function optionsOf(raw: readonly unknown[] | undefined): ConfigOption[] {
  return (raw ?? []).flatMap((value): ConfigOption[] => {
    const o = value as { configId?: string; name?: string; category?: string | null; description?: string | null; currentValue?: string | boolean; options?: readonly (Choice | { options: readonly Choice[] })[] };
    if (typeof o.configId !== "string" || o.currentValue === undefined) return [];
    const choices = (o.options ?? []).flatMap((c) => ("options" in c ? c.options : [c]));
    return [{
      id: o.configId, name: o.name ?? o.configId, category: o.category ?? undefined, description: o.description ?? undefined, current: o.currentValue,
      choices: choices.map((c) => ({ value: c.value, name: c.name, description: c.description ?? undefined })),
    }];
  });
}

interface Choice {
  readonly value: string;
  readonly name: string;
  readonly description?: string | null;
}
