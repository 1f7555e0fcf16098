// Loaded before an example in its own process: names of the provider's cloud lead to
// the double. It stands in for DNS and TLS; the programs and SDKs are as they are.
const double = process.env.DOUBLE ?? "";
const names = (process.env.DOUBLE_NAMES ?? "").split(",").filter(Boolean);
const real = globalThis.fetch;

globalThis.fetch = (input: Parameters<typeof fetch>[0], init?: RequestInit) => {
  const url = new URL(input instanceof Request ? input.url : input);
  if (!names.some((name) => url.hostname === name || url.hostname.endsWith(`.${name}`))) return real(input, init);
  const headers = new Headers(init?.headers ?? (input instanceof Request ? input.headers : undefined));
  headers.set("x-double-host", url.host); // fetch sets Host itself; the double puts this in its place
  const there = `${double}${url.pathname}${url.search}`;
  return real(input instanceof Request ? new Request(there, input) : there, { ...init, headers });
};
