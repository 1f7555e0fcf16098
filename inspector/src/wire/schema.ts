// Frames held against the protocol's own JSON schema.

/** Something about a frame that its schema does not say so. */
export interface Finding {
  /** Where in the frame, as a JSON pointer. */
  readonly path: string;
  readonly says: string;
  /** Whether it breaks the protocol. What the schema only does not know, such as a new kind of update, is legal. */
  readonly wrong: boolean;
}

/** A frame with what its own bytes do not say. */
export interface Said {
  readonly message: unknown;
  readonly sent: boolean;
  /** Of a response: the method of its request; undefined when nobody knows. */
  readonly answers: string | undefined;
}

/** A JSON schema, with the keywords that those of ACP use. */
export interface Shape {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly required?: readonly string[];
  readonly properties?: Readonly<Record<string, Shape>>;
  readonly additionalProperties?: boolean | Shape;
  readonly items?: Shape;
  readonly allOf?: readonly Shape[];
  readonly anyOf?: readonly Shape[];
  readonly oneOf?: readonly Shape[];
  readonly not?: Shape;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly minItems?: number;
  readonly "x-side"?: string;
  readonly "x-method"?: string;
}

export interface SchemaDocument {
  readonly $defs: Readonly<Record<string, Shape>>;
}

/** Keywords that say what a value must be; others describe it. A test holds the schemas against both lists. */
export const checked = ["$ref", "type", "const", "enum", "required", "properties", "additionalProperties", "items", "allOf", "anyOf", "oneOf", "not", "minimum", "maximum", "minLength", "minItems"];
export const described = [
  "$schema", "$defs", "title", "description", "default", "discriminator", "format", "contentEncoding", "unevaluatedProperties",
  "x-side", "x-method", "x-docs-ignore", "x-deserialize-default-on-error", "x-deserialize-skip-invalid-items", "x-deserialize-default-on-null",
];

/** Findings of one frame that are told. */
const most = 20;

type Roles = "request" | "notification" | "result";

/** The schema of one version of ACP. */
export class Schema {
  readonly #defs: SchemaDocument["$defs"];
  readonly #methods = new Map<string, string>(); // names of definitions, by side, role and method

  constructor(document: SchemaDocument) {
    this.#defs = document.$defs;
    for (const [name, { "x-side": side, "x-method": method }] of Object.entries(document.$defs)) {
      if (side === undefined || method === undefined) continue;
      const role: Roles = name.endsWith("Response") ? "result" : name.endsWith("Notification") ? "notification" : "request";
      for (const one of side === "protocol" ? ["agent", "client"] : [side]) this.#methods.set(keyOf(one, role, method), name);
    }
  }

  /** What a frame has that its schema has not, or the other way round. Extensions, whose names begin with _, are free. */
  check({ message, sent, answers }: Said): readonly Finding[] {
    const out: Finding[] = [];
    if (!isObject(message)) return [{ path: "", says: `is ${kindOf(message)}, and a frame is an object`, wrong: true }];
    if (message.jsonrpc !== "2.0") out.push({ path: "/jsonrpc", says: `is ${show(message.jsonrpc)}, and has to be "2.0"`, wrong: true });
    const callee = sent ? "agent" : "client";
    if (typeof message.method === "string") this.#call(message, message.method, callee, out);
    else this.#answer(message, answers, callee === "agent" ? "client" : "agent", out);
    return out.slice(0, most);
  }

  #call(message: Record<string, unknown>, method: string, callee: string, out: Finding[]): void {
    if (method.startsWith("_")) return;
    const role: Roles = message.id === undefined ? "notification" : "request";
    const name = this.#methods.get(keyOf(callee, role, method));
    if (name !== undefined) return this.#visit({ $ref: `#/$defs/${name}` }, message.params ?? {}, "/params", out);
    const known = (["agent", "client"] as const).flatMap((side) => (["request", "notification"] as const).filter((r) => this.#methods.has(keyOf(side, r, method))).map((r) => ({ side, r })));
    if (known.length === 0) out.push({ path: "/method", says: `is ${show(method)}, which the schema does not know`, wrong: false });
    else if (known.some(({ side }) => side === callee)) out.push({ path: "/id", says: role === "request" ? "is there, and this method is a notification" : "is missing, and this method is a request", wrong: true });
    else out.push({ path: "/method", says: `is ${show(method)}, which the other side sends`, wrong: true });
  }

  #answer(message: Record<string, unknown>, method: string | undefined, answerer: string, out: Finding[]): void {
    const failed = message.error !== undefined;
    if (failed === (message.result !== undefined)) out.push({ path: "", says: failed ? "has a result and an error" : "has neither a method nor a result nor an error", wrong: true });
    if (failed) return this.#visit({ $ref: "#/$defs/Error" }, message.error, "/error", out);
    if (method === undefined || method.startsWith("_")) return; // whose answer it is nobody knows, or it is free
    const name = this.#methods.get(keyOf(answerer, "result", method));
    if (name !== undefined) this.#visit({ $ref: `#/$defs/${name}` }, message.result, "/result", out);
  }

  #visit(shape: Shape, value: unknown, path: string, out: Finding[]): void {
    if (out.length >= most) return;
    const wrong = (says: string, at = path) => void out.push({ path: at, says, wrong: true });
    if (shape.$ref !== undefined) this.#visit(this.#named(shape.$ref), value, path, out);
    if (shape.type !== undefined) {
      const types = typeof shape.type === "string" ? [shape.type] : shape.type;
      if (!types.some((type) => isOf(type, value))) return wrong(`is ${kindOf(value)}, and has to be ${types.map(withArticle).join(" or ")}`);
    }
    if ("const" in shape && shape.const !== value) wrong(`is ${show(value)}, and has to be ${show(shape.const)}`);
    if (shape.enum && !shape.enum.includes(value)) out.push({ path, says: `is ${show(value)}, which the schema does not know`, wrong: false });
    for (const one of shape.allOf ?? []) this.#visit(one, value, path, out);
    for (const union of [shape.anyOf, shape.oneOf]) if (union) this.#union(union, value, path, out);
    if (shape.not && this.#fits(shape.not, value)) wrong("is of a kind that has a form of its own in the schema");
    if (typeof value === "number") {
      if (shape.minimum !== undefined && value < shape.minimum) wrong(`is ${value}, and has to be ${shape.minimum} at least`);
      if (shape.maximum !== undefined && value > shape.maximum) wrong(`is ${value}, and has to be ${shape.maximum} at most`);
    } else if (typeof value === "string") {
      if (shape.minLength !== undefined && value.length < shape.minLength) wrong("is too short");
    } else if (Array.isArray(value)) {
      if (shape.minItems !== undefined && value.length < shape.minItems) wrong(`has ${value.length} items, and has to have ${shape.minItems} at least`);
      if (shape.items) for (let i = 0; i < value.length && out.length < most; i++) this.#visit(shape.items, value[i], `${path}/${i}`, out);
    } else if (isObject(value)) {
      for (const name of shape.required ?? []) if (value[name] === undefined) wrong("is missing", `${path}/${name}`);
      for (const [name, one] of Object.entries(value)) {
        const at = `${path}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`;
        const own = shape.properties?.[name];
        if (own) this.#visit(own, one, at, out);
        else if (typeof shape.additionalProperties === "object") this.#visit(shape.additionalProperties, one, at, out);
        else if (shape.additionalProperties === false) wrong("is not allowed here", at);
      }
    }
  }

  #union(variants: readonly Shape[], value: unknown, path: string, out: Finding[]): void {
    let closest: readonly Finding[] | undefined;
    for (const variant of variants) {
      const found: Finding[] = [];
      this.#visit(variant, value, path, found);
      if (!found.some((f) => f.wrong)) return void out.push(...found);
      const tag = this.#tagOf(variant);
      // The variant that the value says it is tells what is wrong, and no other.
      if (tag && isObject(value) && value[tag.name] === tag.value) return void out.push(...found);
      if (variant.not === undefined && (closest === undefined || found.length < closest.length)) closest = found;
    }
    const known = this.#known(variants, value);
    if (known !== undefined) out.push({ path: `${path}${known}`, says: `is ${show(known === "" ? value : (value as Record<string, unknown>)[known.slice(1)])}, which the schema does not know`, wrong: false });
    else out.push(...(closest ?? []));
  }

  /** Where the union's tag stands, when the value has one of its own: the name of a member, or nothing for the value itself. */
  #known(variants: readonly Shape[], value: unknown): string | undefined {
    const tags = variants.flatMap((variant) => this.#tagOf(variant) ?? []);
    if (isObject(value)) {
      const name = tags[0]?.name;
      return name !== undefined && typeof value[name] === "string" && !tags.some((tag) => tag.value === value[name]) ? `/${name}` : undefined;
    }
    return typeof value === "string" && variants.some((variant) => typeof this.#deref(variant).const === "string") ? "" : undefined;
  }

  /** The member that tells a variant from the others. */
  #tagOf(shape: Shape): { readonly name: string; readonly value: unknown } | undefined {
    const { properties, required } = this.#deref(shape);
    for (const name of required ?? []) {
      const value = properties?.[name]?.const;
      if (value !== undefined) return { name, value };
    }
    return undefined;
  }

  #fits(shape: Shape, value: unknown): boolean {
    const found: Finding[] = [];
    this.#visit(shape, value, "", found);
    return !found.some((f) => f.wrong);
  }

  #deref(shape: Shape): Shape {
    return shape.$ref === undefined ? shape : this.#deref(this.#named(shape.$ref));
  }

  #named(ref: string): Shape {
    const found = this.#defs[ref.replace("#/$defs/", "")];
    if (!found) throw new Error(`the schema has no ${ref}`);
    return found;
  }
}

const keyOf = (side: string, role: Roles, method: string) => `${side} ${role} ${method}`;
const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);

function isOf(type: string, value: unknown): boolean {
  switch (type) {
    case "object":
      return isObject(value);
    case "array":
      return Array.isArray(value);
    case "integer":
      return Number.isInteger(value);
    case "null":
      return value === null;
    default:
      return typeof value === type;
  }
}

const withArticle = (type: string) => (type === "null" ? "null" : `${/^[aio]/.test(type) ? "an" : "a"} ${type}`);
const kindOf = (value: unknown) => (value === undefined ? "missing" : withArticle(value === null ? "null" : Array.isArray(value) ? "array" : typeof value));

function show(value: unknown): string {
  const text = JSON.stringify(value) ?? "missing";
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}
