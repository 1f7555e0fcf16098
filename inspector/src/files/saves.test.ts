import { ProblemError } from "sandbox-agent";
import { expect, test } from "vitest";
import { Drafts } from "./drafts.js";
import { Saves, type Files } from "./saves.js";

type Fate = "arrives" | "the answer is lost" | "is lost";

/** A file at a gateway that is being edited, and what becomes of the next writes. */
function world() {
  let [bytes, version] = [new TextEncoder().encode("one"), 1];
  const set = (content: string | Uint8Array<ArrayBuffer>) => {
    bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
    version++;
  };
  const fates: Fate[] = [];
  const read: string[] = [];
  let until = Promise.resolve();
  const files = {
    write: async (_: string, text: string, { ifMatch }: { ifMatch?: string }) => {
      const fate = fates.shift() ?? "arrives";
      await until;
      if (fate === "is lost") throw new TypeError("fetch failed");
      if (ifMatch !== undefined && ifMatch !== String(version)) throw new ProblemError({ type: "about:blank", title: "Precondition Failed", status: 412 });
      set(text);
      if (fate === "the answer is lost") throw new TypeError("fetch failed");
      return { size: bytes.length, etag: String(version) };
    },
    open: async () => {
      const response = new Response(bytes, { headers: { etag: String(version), "content-length": String(bytes.length) } });
      const all = response.arrayBuffer.bind(response);
      response.arrayBuffer = () => (read.push(new TextDecoder().decode(bytes)), all());
      return response;
    },
  } as unknown as Files;
  const drafts = new Drafts();
  const base = { etag: "1", size: 3, text: "one", picture: undefined };
  const saves = new Saves(drafts);
  const type = (text: string) => drafts.put("/f", { base: drafts.of("", "/f")?.base ?? base, text, dirty: true });
  const save = (force?: boolean) => saves.save(files, "", "/f", force).done;
  /** Keeps writes until what it returns is called. */
  const hold = () => {
    let go!: () => void;
    until = new Promise((resolve) => (go = resolve));
    return () => go();
  };
  return { set, fates, read, type, save, hold, there: () => new TextDecoder().decode(bytes) };
}

test("what somebody else has put in the place of a text is not written over, be it text or not, and one of another size is not read", async () => {
  for (const [other, reads] of [[new Uint8Array([0, 1, 2]), 1], ["abc", 1], ["no", 0]] as const) {
    const { set, read, type, save, there } = world();
    type("two");
    set(other);
    const before = there();
    await expect(save()).rejects.toThrow("Precondition Failed");
    expect([there(), read.length]).toEqual([before, reads]);
  }
});

test("each of the texts that were sent is this page's own, until one has arrived for certain", async () => {
  const { set, fates, type, save, there } = world();
  fates.push("the answer is lost", "is lost");
  for (const text of ["four", "four, five"]) {
    type(text);
    await expect(save()).rejects.toThrow("fetch failed");
  }
  expect(there()).toBe("four");
  type("four, five, six");
  await save();
  expect(there()).toBe("four, five, six");
  type("seven");
  set("four"); // by somebody else
  await expect(save()).rejects.toThrow("Precondition Failed");
});

test("to write over what somebody else has written counts, also behind a save that fails and before one that is not said to", async () => {
  const { set, type, save, hold, there } = world();
  type("two");
  set("other");
  const go = hold();
  const first = save();
  await Promise.resolve();
  const all = [first, save(true), save()];
  go();
  await Promise.all(all);
  expect(there()).toBe("two");
});
