/** ACP's error of an agent that wants a login first. */
export const authRequired = -32000;
