import { AcpRpcError, ProblemError } from "sandbox-agent";
import { describe, expect, test } from "vitest";
import { matches } from "../sessions/sessions-store.js";
import { newServer, noWishes, readMcp, requestOf, serverOf, serversIn, type ServerWish } from "../sessions/wishes.js";
import { emptyForm, fieldsOf, formContent } from "../inbox/form.js";
import { age, ago, bytes, count, money, relativeTo } from "../kit/text.js";
import { explain, explainAddress, explainSilence } from "./explain.js";
import { Router, hrefOf, parseRoute, takeToken } from "./router.js";
import { SettingsStore, shownTheme } from "./settings.js";
import { Traffic } from "./traffic.js";

describe("router", () => {
  test.each([["#/sessions/a%2Fb?x=1", "sessions", ["a/b"], { x: "1" }], ["", "", [], {}], ["#/files/%2Ftmp%2Fx", "files", ["/tmp/x"], {}], ["#/a/%zz", "a", ["%zz"], {}]])("%s", (hash, area, parts, query) => {
    expect(parseRoute(hash)).toEqual({ area, parts, query });
  });

  test("a link that was followed is known before the browser tells of it", () => {
    const location = { hash: "#/terminal/1" };
    const win = Object.assign(new EventTarget(), { location, history: { replaceState: (_: unknown, __: string, href: string) => void (location.hash = href) } });
    const router = new Router(win as unknown as Window);
    location.hash = "#/sessions/new";
    router.go("terminal", [], { replace: true });
    expect(location.hash).toBe("#/sessions/new");
    expect(router.get()).toEqual({ area: "sessions", parts: ["new"], query: {} });
    router.go("sessions", [], { replace: true });
    expect(location.hash).toBe("#/sessions");
    location.hash = "#/wire";
    expect(router.now().area).toBe("wire");
    expect(router.before?.area).toBe("sessions");
    win.dispatchEvent(new Event("hashchange"));
    expect(router.before?.area).toBe("sessions");
  });

  test("what is written is read back", () => {
    expect(parseRoute(hrefOf("files", ["/a b/ü?#"], { q: "x&y=1" }))).toEqual({ area: "files", parts: ["/a b/ü?#"], query: { q: "x&y=1" } });
  });

  test.each([["#token=t%20x", "t x", ""], ["#/sessions/s&token=abc", "abc", "#/sessions/s"], ["#/connect?endpoint=e&token=abc", "abc", "#/connect?endpoint=e"], ["#token=a&x=1", "a", "#x=1"], ["#/sessions/token", undefined, "#/sessions/token"]])("the token of %s", (given, token, hash) => {
    expect(takeToken(given)).toEqual({ token, hash });
  });
});

describe("explanations name the flag", () => {
  const endpoint = "http://127.0.0.1:4000";
  test("nothing there, and not let in", () => {
    expect(explainSilence({ endpoint, pageOrigin: "http://a.example", answers: false })).toMatchObject({ kind: "unreachable", command: "sandbox-agent server --port 4000 --new-token" });
    expect(explainSilence({ endpoint, pageOrigin: "http://a.example", answers: true })).toMatchObject({ kind: "cors", command: "sandbox-agent server --port 4000 --cors-allow-origin http://a.example" });
  });
  test("token, host, another program, an agent", () => {
    const problem = (status: number, detail: string, type = "urn:sandbox-agent:error:x") => new ProblemError({ status, type, title: "t", detail });
    expect(explain(problem(401, "x"), endpoint)).toMatchObject({ kind: "token", title: "The gateway wants a token" });
    expect(explain(problem(401, "x"), endpoint, true)).toMatchObject({ title: "The token is not right" });
    expect(explain(problem(403, "start it with --allowed-host box.example to allow that"), endpoint)).toMatchObject({ kind: "host", command: "sandbox-agent server --port 4000 --allowed-host box.example" });
    expect(explain(problem(404, "nothing", "about:blank"), endpoint)).toMatchObject({ kind: "version" });
    expect(explain(new AcpRpcError(-32603, "the agent has no key"), endpoint)).toMatchObject({ kind: "agent", detail: "The agent has no key." });
  });
  test("addresses", () => {
    expect(explainAddress("not one", "http://x")).toMatchObject({ kind: "address" });
    expect(explainAddress("http://box:2468", "https://page")).toMatchObject({ kind: "mixed" });
    expect(explainAddress("http://127.0.0.1:2468", "https://page")).toBeUndefined();
  });
});

describe("a new session", () => {
  test("the form is the request", () => {
    expect(requestOf({ ...noWishes, agent: "mock", cwd: " /w ", model: "m", env: "A=1\nB=x=y", skills: "/s", own: true, mcp: serversIn('{"mcpServers":{"d":{"command":"run","env":{"K":"v"}},"w":{"url":"https://x"}}}') as ServerWish[] }).params).toEqual({
      agent: "mock", cwd: "/w", model: "m", env: { A: "1", B: "x=y" }, skills: { paths: ["/s"] }, isolation: "session",
      mcpServers: [{ name: "d", command: "run", args: [], env: [{ name: "K", value: "v" }] }, { type: "http", name: "w", url: "https://x", headers: [] }],
    });
  });
  test("what is wrong is said by field", () => {
    expect(Object.keys(requestOf({ ...noWishes, cwd: "here", env: "novalue", skills: "rel", mcp: [newServer()] }).problems).sort()).toEqual(["cwd", "env", "mcp", "skills"]);
    expect(readMcp('{"x":{}}')).toContain("neither");
    // What a file says comes into the form, and out of it again.
    const text = '[{"name":"a","command":"run","args":["x y","--z"],"env":[{"name":"K","value":"v=w"}]},{"type":"sse","name":"b","url":"https://x/y","headers":[{"name":"Authorization","value":"Bearer: t"}]}]';
    expect((serversIn(text) as ServerWish[]).map(serverOf)).toEqual(JSON.parse(text));
    for (const [bad, why] of [["{", "not JSON"], ["{}", "no server"], ["[1]", "an object"], ['{"a":null}', "an object"], ["[]", "no server"]] as const) expect(serversIn(bad), bad).toContain(why);
    expect([newServer({ name: "x" }), newServer({ name: "x", command: "y", env: "no" }), newServer({ name: "x", kind: "http", url: "ftp://x" }), newServer({ name: "x", kind: "http", url: "http://x", headers: "no" })].map(serverOf).every((r) => typeof r === "string")).toBe(true);
    const twice = requestOf({ ...noWishes, cwd: "/w", mcp: [newServer({ name: "x", command: "a" }), newServer({ name: " x", command: "b" })] });
    expect([twice.params, twice.problems.mcp]).toEqual([undefined, "Server “x”: There is another server with the name x."]);
  });
});

test("forms of agents: types, limits, what is needed", () => {
  const fields = fieldsOf({ properties: { n: { type: "integer", minimum: 1 }, s: { type: "string", enum: ["a", "b"], default: "b" }, b: { type: "boolean" }, m: { type: "array", items: { anyOf: [{ const: "x", title: "X" }] }, minItems: 1 } }, required: ["n"] });
  const values = emptyForm(fields);
  expect(values).toEqual({ n: "", s: "b", b: false, m: [] });
  expect(Object.keys(formContent(fields, values).problems)).toEqual(["n", "m"]);
  expect(formContent(fields, { ...values, n: "1.5", m: ["x"] }).problems).toEqual({ n: "It must be a whole number." });
  expect(formContent(fields, { ...values, n: "4", m: ["x"] }).content).toEqual({ n: 4, s: "b", b: false, m: ["x"] });
});

test("traffic is bounded, and has no token in it", async () => {
  const traffic = new Traffic();
  for (let i = 0; i < 25_000; i++) traffic.envelope({ direction: "received", via: "websocket", message: { jsonrpc: "2.0", method: "x", params: { i } } });
  expect(traffic.entries().length).toBe(20_000);
  expect(traffic.dropped).toBe(5000);
  await traffic.fetch("data:application/json,{}", { headers: { Authorization: "Bearer secret" } });
  expect(JSON.stringify(traffic.entries().at(-1))).not.toContain("secret");
});

test("settings without a storage last as long as the page", () => {
  const settings = new SettingsStore({ getItem: () => "{bad", setItem: () => { throw new Error("full"); } });
  settings.change({ theme: "dark" });
  expect(settings.get().theme).toBe("dark");
  expect([shownTheme("system", true), shownTheme("light", true)]).toEqual(["dark", "light"]);
});

test("numbers and times", () => {
  expect([age(0, 59_000), age(0, 61_000), age(0, 7_200_000), age(0, 200_000_000)]).toEqual(["now", "1 min", "2 h", "2 d"]);
  expect([ago(0, 59_000), ago(0, 61_000), ago(0, -61_000)]).toEqual(["just now", "1 min ago", "just now"]);
  expect([bytes(999), bytes(1500), bytes(25_000_000)]).toEqual(["999 B", "1.5 kB", "25 MB"]);
  expect([count(950), count(12_345), count(2_000_000)]).toEqual(["950", "12.3k", "2M"]);
  expect([money(0.4234, "USD"), money(0.0042, "USD"), money(1, "???")]).toEqual(["$0.42", "$0.0042", "1 ???"]);
  expect([relativeTo("/a/b/c", "/a/b"), relativeTo("/x", "/a")]).toEqual(["c", "/x"]);
});

test("searches", () => {
  const info = { sessionId: "s1", agent: "mock", cwd: "/srv/shop", state: "idle", title: "Fix the cart" } as never;
  expect([matches(info, "cart MOCK"), matches(info, "cart codex")]).toEqual([true, false]);
});
