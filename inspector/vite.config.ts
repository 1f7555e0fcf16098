import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

const sdk = resolve(import.meta.dirname, "../sdk-ts");
/** The gateway that `npm run dev` talks to. */
const gateway = process.env.SANDBOX_AGENT_ENDPOINT ?? "http://127.0.0.1:2468";

/** Smaller files are not worth a second form. */
const compressFrom = 1024;

/** Puts the compressed forms beside the files: the gateway serves them as they are. */
function compressed(): Plugin {
  let out = "";
  return {
    name: "compressed",
    apply: "build",
    configResolved: (config) => void (out = resolve(config.root, config.build.outDir)),
    closeBundle() {
      for (const name of readdirSync(out, { recursive: true, encoding: "utf8" })) {
        if (!/\.(js|css|html|svg|json)$/.test(name)) continue;
        const content = readFileSync(join(out, name));
        if (content.length < compressFrom) continue;
        writeFileSync(join(out, `${name}.br`), brotliCompressSync(content, { params: { [constants.BROTLI_PARAM_QUALITY]: 10, [constants.BROTLI_PARAM_SIZE_HINT]: content.length } }));
        writeFileSync(join(out, `${name}.gz`), gzipSync(content, { level: 9 }));
      }
    },
  };
}

/** The schemas of ACP as modules, without what only people read in them. */
export function schemas(): Plugin {
  const name = /^acp-schema:([12])$/;
  const silent = new Set(["description", "title", "default", "discriminator"]);
  const bare = (value: unknown, ofNames = false): unknown => {
    if (Array.isArray(value)) return value.map((one) => bare(one));
    if (typeof value !== "object" || value === null) return value;
    const kept = Object.entries(value).filter(([key]) => ofNames || !silent.has(key));
    return Object.fromEntries(kept.map(([key, one]) => [key, key === "const" || key === "enum" ? one : bare(one, !ofNames && (key === "properties" || key === "$defs"))]));
  };
  return {
    name: "schemas",
    resolveId: (id) => (name.test(id) ? `\0${id}` : null),
    load(id) {
      const version = name.exec(id.slice(1))?.[1];
      if (id[0] !== "\0" || version === undefined) return null;
      const file = resolve(sdk, `node_modules/@agentclientprotocol/sdk/schema/v${version}/schema.unstable.json`);
      return `export default JSON.parse(${JSON.stringify(JSON.stringify(bare(JSON.parse(readFileSync(file, "utf8")))))});`;
    },
  };
}

/** Kinds of diagrams, and a library for formulas in them, that weigh more than they are used. */
const notDrawn = /^(?:katex|cytoscape|cytoscape-fcose|cytoscape-cose-bilkent)$|\/(?:architectureDiagram|mindmap-definition|c4Diagram|sankeyDiagram|blockDiagram|wardleyDiagram|ishikawaDiagram|vennDiagram|cynefinDiagram|cose-bilkent|swimlanes(?:Diagram)?|infoDiagram|railroadDiagram|ebnfDiagram|abnfDiagram|pegDiagram|usecaseDiagram)-\w+\.mjs$/;

/** Leaves out diagrams of these kinds: who draws one is told so. */
function fewerDiagrams(): Plugin {
  const instead = "\0not-drawn";
  return {
    name: "fewer-diagrams",
    enforce: "pre",
    apply: "build",
    resolveId: (id, from) => (from?.includes("/mermaid/") && notDrawn.test(id) ? instead : null),
    load: (id) => (id === instead ? 'throw new Error("diagrams of this kind are not drawn here");\nexport const diagram = undefined;\nexport default undefined;' : null),
  };
}

/** Where modules are that are needed for diagrams only. */
const ofDiagrams = /\/(?:mermaid|@mermaid-js|d3(?:-[\w-]+)?|dagre-d3-es|khroma|roughjs|stylis|dayjs|dompurify|langium|chevrotain(?:-allstar)?|@chevrotain|vscode-[\w-]+|lodash-es|es-toolkit|internmap|delaunator|robust-predicates|@braintree|@iconify|ts-dedent)\//;

export default defineConfig({
  base: "./", // the gateway may stand behind a proxy, at any path
  plugins: [react(), schemas(), fewerDiagrams(), compressed()],
  resolve: {
    alias: {
      "sandbox-agent": resolve(sdk, "sandbox-agent/src/index.ts"),
      "acp-http-client": resolve(sdk, "acp-http-client/src/index.ts"),
    },
  },
  build: {
    target: "es2022",
    emptyOutDir: true,
    reportCompressedSize: false,
    assetsInlineLimit: 0, // the page's policy allows files only
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 1000,
    rolldownOptions: {
      output: {
        // Diagrams are a part of their own, so that what the page weighs without them can be seen and tested.
        chunkFileNames: (chunk) => (chunk.moduleIds.length > 0 && chunk.moduleIds.every((id) => ofDiagrams.test(id) || id.startsWith("\0")) && chunk.moduleIds.some((id) => ofDiagrams.test(id)) ? "assets/diagrams/[name]-[hash].js" : "assets/[name]-[hash].js"),
      },
    },
  },
  server: {
    // The gateway takes requests of its own page only.
    proxy: { "/v2": { target: gateway, ws: true, changeOrigin: true, headers: { origin: gateway } } },
  },
});
