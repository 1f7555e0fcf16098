import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["*/test/**/*.test.ts"],
    globalSetup: ["test/build.ts"],
    testTimeout: 180_000, // a bound against waiting for ever
    hookTimeout: 120_000,
    expect: { poll: { timeout: 45_000 } }, // a busy machine is not what is tested
    // Each file has gateways of its own; two cores are enough for two of them.
    maxWorkers: 2,
    isolate: false, // modules are loaded once, not for each file: that is a tenth of all time
  },
});
