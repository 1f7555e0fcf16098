/** A field of a form that an agent sent. */
export interface FormField {
  readonly name: string;
  readonly label: string;
  readonly description: string | undefined;
  /** `json` is what has no control of its own: an object, or a list without choices. */
  readonly type: "text" | "number" | "integer" | "boolean" | "one" | "many" | "json";
  /** The type of the value that a `json` field must hold. */
  readonly holds: "object" | "array" | undefined;
  readonly required: boolean;
  readonly input: "text" | "email" | "url" | "date" | "datetime-local" | "number";
  readonly long: boolean;
  readonly choices: readonly { readonly value: string; readonly label: string }[];
  readonly minimum: number | undefined;
  readonly maximum: number | undefined;
  readonly minLength: number | undefined;
  readonly maxLength: number | undefined;
  readonly pattern: string | undefined;
  readonly minItems: number | undefined;
  readonly maxItems: number | undefined;
  readonly standard: unknown;
}

export type FormValues = Readonly<Record<string, string | boolean | readonly string[] | undefined>>;

interface Schema {
  type?: string;
  title?: string | null;
  description?: string | null;
  format?: string | null;
  enum?: unknown[] | null;
  enumNames?: string[];
  oneOf?: { const: unknown; title?: string }[] | null;
  items?: { enum?: unknown[]; anyOf?: { const: unknown; title?: string }[] };
  properties?: object;
  default?: unknown;
  minimum?: number | null;
  maximum?: number | null;
  minLength?: number | null;
  maxLength?: number | null;
  pattern?: string | null;
  minItems?: number | null;
  maxItems?: number | null;
}

const inputs: Record<string, FormField["input"]> = { email: "email", uri: "url", date: "date", "date-time": "datetime-local" };

/** The fields of a form's schema: flat, as the protocol has them. */
export function fieldsOf(schema: unknown): FormField[] {
  const { properties = {}, required = [] } = (schema ?? {}) as { properties?: Record<string, Schema>; required?: string[] | null };
  return Object.entries(properties).map(([name, s]) => {
    const choices = s.oneOf?.map((o) => ({ value: String(o.const), label: o.title ?? String(o.const) }))
      ?? s.enum?.map((v, i) => ({ value: String(v), label: s.enumNames?.[i] ?? String(v) }))
      ?? s.items?.anyOf?.map((o) => ({ value: String(o.const), label: o.title ?? String(o.const) }))
      ?? s.items?.enum?.map((v) => ({ value: String(v), label: String(v) }))
      ?? [];
    const holds = s.type === "object" || s.properties ? "object" : s.type === "array" && choices.length === 0 ? "array" : undefined;
    const type = holds ? "json" : s.type === "array" ? "many" : choices.length > 0 ? "one" : s.type === "boolean" || s.type === "number" || s.type === "integer" ? s.type : "text";
    return {
      name, type, holds, choices, label: s.title ?? name, description: s.description ?? undefined, required: required?.includes(name) ?? false,
      input: type === "number" || type === "integer" ? "number" : (inputs[s.format ?? ""] ?? "text"), long: type === "text" && !s.format && (s.maxLength ?? 0) > 200,
      minimum: s.minimum ?? undefined, maximum: s.maximum ?? undefined, minLength: s.minLength ?? undefined, maxLength: s.maxLength ?? undefined,
      pattern: s.pattern ?? undefined, minItems: s.minItems ?? undefined, maxItems: s.maxItems ?? undefined, standard: s.default,
    };
  });
}

/** The form as it is shown first. */
export function emptyForm(fields: readonly FormField[]): FormValues {
  return Object.fromEntries(fields.map((f) => [f.name, f.type === "boolean" ? f.standard === true : f.type === "many" ? (Array.isArray(f.standard) ? f.standard.map(String) : []) : f.type === "json" && f.standard !== undefined && f.standard !== null ? JSON.stringify(f.standard, null, 2) : f.standard === undefined || f.standard === null ? "" : String(f.standard)]));
}

/** A field that asks for a secret says so by its name. */
const secret = /pass|secret|token|key|\bpin\b/i;

/** What somebody has typed into a form, to be said without it: not what is chosen, nor what may be a secret. */
export function wordsIn(fields: readonly FormField[], values: FormValues): string {
  const empty = emptyForm(fields);
  return fields
    .filter((f) => ["text", "number", "integer", "json"].includes(f.type) && !secret.test(`${f.name} ${f.label}`))
    .flatMap((f) => (String(values[f.name] ?? "").trim() === "" || values[f.name] === empty[f.name] ? [] : [`${f.label}: ${String(values[f.name]).trim()}`]))
    .join("\n");
}

/** What was filled in, with the types the agent asked for, or what is wrong with it. */
export function formContent(fields: readonly FormField[], values: FormValues): { content: Record<string, unknown>; problems: Record<string, string> } {
  const content: Record<string, unknown> = {};
  const problems: Record<string, string> = {};
  for (const f of fields) {
    const value = values[f.name];
    if (f.type === "boolean") {
      content[f.name] = value === true;
    } else if (f.type === "many") {
      const chosen = Array.isArray(value) ? value : [];
      if (chosen.length < (f.minItems ?? (f.required ? 1 : 0))) problems[f.name] = `Choose at least ${f.minItems ?? 1}.`;
      else if (f.maxItems !== undefined && chosen.length > f.maxItems) problems[f.name] = `Choose at most ${f.maxItems}.`;
      else if (chosen.length > 0 || f.required || f.standard !== undefined) content[f.name] = chosen; // nothing chosen is nothing said
    } else if (f.type === "json") {
      const text = String(value ?? "").trim();
      if (text === "") {
        if (f.required) problems[f.name] = "This is needed.";
        continue;
      }
      const read = readJson(text, f.holds);
      if ("problem" in read) problems[f.name] = read.problem;
      else content[f.name] = read.value;
    } else {
      const text = String(value ?? "");
      if (text === "") {
        if (f.required) problems[f.name] = "This is needed.";
        continue;
      }
      const problem = f.type === "number" || f.type === "integer" ? numberProblem(f, text) : textProblem(f, text);
      if (problem) problems[f.name] = problem;
      else content[f.name] = f.type === "number" || f.type === "integer" ? Number(text) : f.input === "datetime-local" ? new Date(text).toISOString() : text;
    }
  }
  return { content, problems };
}

function readJson(text: string, holds: FormField["holds"]): { readonly value: unknown } | { readonly problem: string } {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return { problem: `This is not JSON: ${error instanceof Error ? error.message : String(error)}` };
  }
  const is = Array.isArray(value) ? "array" : typeof value;
  if (value === null || is !== holds) return { problem: holds === "array" ? 'It must be a list, as in ["one", "two"].' : 'It must be an object, as in {"name": "value"}.' };
  return { value };
}

function numberProblem(f: FormField, text: string): string | undefined {
  const n = Number(text);
  if (!Number.isFinite(n)) return "This is not a number.";
  if (f.type === "integer" && !Number.isInteger(n)) return "It must be a whole number.";
  if (f.minimum !== undefined && n < f.minimum) return `It must be at least ${f.minimum}.`;
  if (f.maximum !== undefined && n > f.maximum) return `It must be at most ${f.maximum}.`;
  return undefined;
}

function textProblem(f: FormField, text: string): string | undefined {
  if (f.minLength !== undefined && text.length < f.minLength) return `It must have at least ${f.minLength} characters.`;
  if (f.maxLength !== undefined && text.length > f.maxLength) return `It must have at most ${f.maxLength} characters.`;
  if (f.input === "url" && !isUri(text)) return "This is not an address: it begins with https:// or the like.";
  if (f.input === "email" && !/^[^\s@]+@[^\s@]+$/.test(text)) return "This is not an address of mail.";
  if (f.input === "datetime-local" && Number.isNaN(Date.parse(text))) return "This is not a date with a time.";
  if (f.pattern !== undefined && f.type === "text") {
    try {
      if (!new RegExp(f.pattern, "u").test(text)) return `It does not fit the pattern ${f.pattern}.`;
    } catch {
      // A pattern that is none: the agent looks for itself.
    }
  }
  return undefined;
}

/** Whether it is an absolute URI: with a scheme, and without blanks. */
const isUri = (text: string) => /^[a-z][a-z0-9+.-]*:\S+$/i.test(text) && URL.canParse(text);
