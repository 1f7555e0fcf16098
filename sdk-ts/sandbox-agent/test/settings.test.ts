import { expect, test } from "vitest";
import { Settings } from "../src/settings.js";

/** Settings of one session whose answers come when the test says so. */
function world() {
  const settings = new Settings();
  const sent: string[] = [];
  const answers = new Map<string, (error?: Error) => void>();
  const set = (name: string, signal?: AbortSignal) => settings.set("s", (handed) => {
    sent.push(name);
    handed(true);
    return new Promise<void>((resolve, reject) => answers.set(name, (error) => (error ? reject(error) : resolve())));
  }, signal);
  /** A prompt, or what leaves the session. */
  const behind = async (name: string) => {
    const set = settings.behind("s");
    for (let held; (held = set()) !== undefined; ) await held;
    sent.push(name);
  };
  const answer = async (name: string, error?: Error) => {
    answers.get(name)!(error);
    await new Promise(setImmediate);
  };
  return { settings, sent, set, behind, answer };
}

test("what is set waits for the answer to what was set before, and a prompt until both are sent", async () => {
  const { settings, sent, set, behind, answer } = world();
  const [a, b] = [set("a"), set("b")];
  const prompt = behind("prompt");
  expect(sent).toEqual(["a"]);
  await answer("a");
  await prompt;
  expect(sent).toEqual(["a", "b", "prompt"]);
  await answer("b");
  await Promise.all([a, b]);
  expect(settings.behind("s")()).toBeUndefined();
});

test("a prompt behind one setting is sent at once", () => {
  const { sent, set, behind } = world();
  void set("a");
  void behind("prompt");
  expect(sent).toEqual(["a", "prompt"]);
});

test("one that fails, and one that is given up, hold nobody up", async () => {
  const { sent, set, behind, answer } = world();
  const give = new AbortController();
  const [a, b, c] = [set("a"), set("b", give.signal), set("c")];
  const ends = Promise.allSettled([a, b, c]);
  const prompt = behind("prompt");
  give.abort();
  await answer("a", new Error("no"));
  await prompt;
  expect(sent).toEqual(["a", "c", "prompt"]);
  await answer("c");
  expect((await ends).map((end) => end.status)).toEqual(["rejected", "rejected", "fulfilled"]);
});
