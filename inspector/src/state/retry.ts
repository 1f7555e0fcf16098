/** The longest time until something is tried again. */
export const longestMs = 15_000;

/** Until something is tried again that has failed, and failed so often before: doubled with each time, up to the longest. */
export const retryMs = (before: number) => Math.min(500 * 2 ** before, longestMs);
