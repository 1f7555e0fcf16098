import { expect, test } from "vitest";
import { Drafts, type Draft } from "./drafts.js";

test("what ends when another machine is shown changes the texts of its own", () => {
  const base = { etag: "1", size: 3, text: "old", picture: undefined };
  const draft = (text: string): Draft => ({ base, text, dirty: text !== base.text });
  const texts = (drafts: Drafts) => [...drafts.get()].map(([path, d]) => `${path} ${d.text}`);
  const ends: Record<string, (drafts: Drafts) => void> = {
    "it was saved": (d) => d.saved("one", "/a/f", "mine", { ...base, text: "mine" }),
    "it was removed": (d) => d.drop("one", "/a"),
    "it was moved": (d) => d.move("one", "/a", "/b"),
    "its editor was left": (d) => d.leave("one", "/a/f"),
  };
  const left: Record<string, string[]> = { "it was moved": ["/b/f mine"], "its editor was left": ["/a/f mine"] };
  for (const [name, end] of Object.entries(ends)) {
    const drafts = new Drafts();
    drafts.use("one");
    drafts.put("/a/f", draft("mine"));
    drafts.use("two");
    drafts.put("/a/f", draft("theirs"));
    end(drafts);
    expect(texts(drafts), name).toEqual(["/a/f theirs"]);
    drafts.use("one");
    expect(texts(drafts), name).toEqual(left[name] ?? []);
  }
});
