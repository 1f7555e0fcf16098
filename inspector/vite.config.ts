import { resolve } from "node:path";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const sdk = resolve(import.meta.dirname, "../sdk-ts");
/** The gateway that `npm run dev` talks to. */
const gateway = process.env.SANDBOX_AGENT_ENDPOINT ?? "http://127.0.0.1:2468";

export default defineConfig({
  base: "./", // the gateway may stand behind a proxy, at any path
  plugins: [react()],
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
