import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["*/test/**/*.test.ts"],
    globalSetup: ["test/build.ts"],
    testTimeout: 120_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 15_000 } }, // a busy machine is not what is tested
    // Each file has gateways of its own; two cores are enough for two of them.
    maxWorkers: 2,
  },
});
