import { mergeConfig } from "vitest/config";
import base from "../vitest.config.js";

export default mergeConfig({ ...base, test: { ...base.test, include: [] } }, { test: { include: ["bench/**/*.bench.ts"], testTimeout: 300_000 } });
