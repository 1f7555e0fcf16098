import config from "../vitest.config.js";

/** Run with `npm run pictures`: no test, so that it stays out of those that run always. */
export default { ...config, test: { ...config.test, include: ["bench/pictures.ts"], testTimeout: 600_000 } };
