/**
 * The http or https address that somebody gave under a name; for others an error that says what
 * is wrong with it. `localhost:2468` is an URL for JavaScript, with the protocol `localhost:`.
 */
export function addressOf(name: string, given: string | URL): URL {
  const url = parsed(String(given));
  if (url) return url;
  const like = `http://${String(given)}`;
  const meant = typeof given === "string" && !given.includes("//") && parsed(like) ? `: did you mean ${like}?` : "";
  throw new TypeError(`${name}: ${JSON.stringify(given) ?? "undefined"} is not an http or https address${meant}`);
}

function parsed(text: string): URL | undefined {
  try {
    const url = new URL(text);
    return url.protocol === "http:" || url.protocol === "https:" ? url : undefined;
  } catch {
    return undefined;
  }
}
