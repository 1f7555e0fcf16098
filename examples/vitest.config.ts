import { resolve } from "node:path";
import { defineConfig } from "vitest/config";

const sdk = resolve(import.meta.dirname, "../sdk-ts");

export default defineConfig({
  resolve: {
    alias: {
      "sandbox-agent": resolve(sdk, "sandbox-agent/src/index.ts"),
      "acp-http-client": resolve(sdk, "acp-http-client/src/index.ts"),
    },
  },
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/build.ts"],
    testTimeout: 180_000, // a bound against waiting for ever
    hookTimeout: 120_000,
    expect: { poll: { timeout: 45_000 } }, // a busy machine is not what is tested
    maxWorkers: 2,
    isolate: false, // modules are loaded once, not for each file: that is a tenth of all time
  },
});
