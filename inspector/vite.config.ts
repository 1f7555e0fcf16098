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
        writeFileSync(join(out, `${name}.br`), brotliCompressSync(content, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: content.length } }));
        writeFileSync(join(out, `${name}.gz`), gzipSync(content, { level: 9 }));
      }
    },
  };
}

export default defineConfig({
  base: "./", // the gateway may stand behind a proxy, at any path
  plugins: [react(), compressed()],
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
  },
  server: {
    // The gateway takes requests of its own page only.
    proxy: { "/v2": { target: gateway, ws: true, changeOrigin: true, headers: { origin: gateway } } },
  },
});
