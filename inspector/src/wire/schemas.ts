import { Schema, type SchemaDocument } from "./schema.js";

/** The official schemas, drafts included: each is a file of its own, without its descriptions. */
const files: Readonly<Record<number, () => Promise<{ default: unknown }>>> = {
  1: () => import("acp-schema:1"),
  2: () => import("acp-schema:2"),
};

export async function loadSchema(version: number): Promise<Schema> {
  const load = files[version];
  if (!load) throw new Error(`this page has none of version ${version}`);
  return new Schema((await load()).default as SchemaDocument);
}
