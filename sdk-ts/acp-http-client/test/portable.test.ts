import { gzipSync } from "node:zlib";
import { resolve } from "node:path";
import { build } from "esbuild";
import { describe, expect, test } from "vitest";

const root = resolve(import.meta.dirname, "../..");

/** The packages' root entries, with what they may weigh in a web page, compressed, without the official SDK and with it. */
const entries = [
  { name: "acp-http-client", own: 10_000, whole: 10_000 },
  { name: "sandbox-agent", own: 24_600, whole: 110_000 },
];

describe.each(entries)("$name", ({ name, own, whole }) => {
  const bundle = async (external: string[]) => {
    const result = await build({
      entryPoints: [resolve(root, name, "dist/index.js")],
      bundle: true, format: "esm", platform: "browser", minify: true, write: false, external, metafile: true,
    });
    return { code: result.outputFiles[0]?.text ?? "", inputs: Object.keys(result.metafile.inputs) };
  };

  test("is bundled for a browser without anything of Node", async () => {
    const { code, inputs } = await bundle([]); // an import of Node's modules would fail here
    expect(inputs.filter((i) => i.includes("node:"))).toEqual([]);
    expect(code).not.toMatch(/\bprocess\.(env|versions|platform)|\brequire\(|\bBuffer\./);
    expect(gzipSync(code).length).toBeLessThan(whole);
  });

  test("is small", async () => {
    const { code } = await bundle(["@agentclientprotocol/*", "zod"]);
    expect(gzipSync(code).length).toBeLessThan(own);
  });
});
