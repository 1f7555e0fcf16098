import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import openapiTS, { astToString } from "openapi-typescript";
import { expect, test } from "vitest";
// @ts-expect-error It is a script, without types.
import { reference } from "../../scripts/reference.mjs";

test("the reference is that of the sources; run npm run generate", () => {
  const stored = readFileSync(resolve(import.meta.dirname, "../../../docs/typescript-api.mdx"), "utf8");
  expect(reference()).toBe(stored);
});

test("the types of the HTTP API are those of its document; run npm run generate", async () => {
  const root = resolve(import.meta.dirname, "../../..");
  const fresh = astToString(await openapiTS(new URL(`file://${root}/docs/openapi.json`)));
  const stored = readFileSync(resolve(root, "sdk-ts/sandbox-agent/src/api.gen.ts"), "utf8");
  expect(stored.endsWith(fresh)).toBe(true);
});
