import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ProblemError, SandboxAgentClient } from "sandbox-agent";
import { Gateway } from "../../test/gateway.js";

let gateway: Gateway;
let client: SandboxAgentClient;
const dir = mkdtempSync(join(tmpdir(), "sandbox-agent-sdk-files-"));
beforeAll(async () => {
  gateway = await Gateway.start();
  client = new SandboxAgentClient({ baseUrl: gateway.url, agent: "mock", autoConnect: false });
});
afterAll(async () => {
  await gateway.stop();
  rmSync(dir, { recursive: true, force: true });
});

test("50 MB both ways, as bytes, as a blob and as a stream", async () => {
  const data = randomBytes(50_000_000);
  const digest = createHash("sha256").update(data).digest("hex");
  const hash = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
  const path = join(dir, "large");
  const entry = await client.fs.write(path, data);
  expect(entry).toMatchObject({ path, size: data.length, type: "file" });
  expect(hash(await client.fs.read(path))).toBe(digest);
  const blob = await client.fs.readBlob(path);
  await client.fs.write(join(dir, "blob"), blob);
  await client.fs.write(join(dir, "stream"), await client.fs.stream(join(dir, "blob")));
  const sum = createHash("sha256");
  for await (const chunk of await client.fs.stream(join(dir, "stream"))) sum.update(chunk);
  expect(sum.digest("hex")).toBe(digest);
  const part = await client.fs.open(path, { range: { start: 1000, end: 1010 } });
  expect(part.status).toBe(206);
  expect(new Uint8Array(await part.arrayBuffer())).toEqual(new Uint8Array(data.subarray(1000, 1010)));
  expect((await client.fs.open(path, { ifNoneMatch: entry.etag ?? "" })).status).toBe(304);
});

test("patches: of text, of other files, and none that was cut", async () => {
  const repository = join(dir, "repository");
  await client.fs.mkdir(repository);
  execFileSync("git", ["init", "-q", repository]);
  await client.fs.write(join(repository, "words"), "one\n");
  await client.fs.write(join(repository, "picture"), new Uint8Array([0, 255]));
  expect(await client.fs.gitDiff(repository)).toMatch(/Binary files \/dev\/null and b\/picture differ[^]*\+one\n/);
  expect(await client.fs.gitDiff(repository, { binary: true })).toContain("GIT binary patch\n");
  await client.fs.write(join(repository, "large"), "line\n".repeat(4 << 20));
  await expect(client.fs.gitDiff(repository)).rejects.toThrow(`the patch of ${repository} is too long`);
  expect(await client.fs.gitDiff(join(repository, "words"))).toContain("+one\n");
});

test("folders, moves, searches, archives and conditions", async () => {
  const { fs } = client;
  const work = join(dir, "work");
  await fs.mkdir(join(work, "a/b"), { parents: true });
  await fs.write(join(work, "a/b/one.txt"), "one needle\n", { parents: true });
  await fs.write(join(work, "a/two ünï 😀.txt"), "two\n");
  expect(await fs.readText(join(work, "a/two ünï 😀.txt"))).toBe("two\n");
  await fs.copy(join(work, "a"), join(work, "c"));
  await fs.move(join(work, "c/b/one.txt"), join(work, "c/uno.txt"));
  const names: string[] = [];
  for await (const e of fs.entries(work, { recursive: true, limit: 2 })) names.push(e.path.slice(work.length + 1));
  expect(names.sort()).toEqual(["a", "a/b", "a/b/one.txt", "a/two ünï 😀.txt", "c", "c/b", "c/two ünï 😀.txt", "c/uno.txt"].sort());
  expect((await fs.stat(join(work, "c/uno.txt"))).size).toBe(11);
  const found = await fs.search(work, { content: "needle" });
  expect(found.matches.length).toBe(2);
  const archive = await fs.downloadArchive([join(work, "a")]);
  expect(await fs.uploadArchive(join(dir, "unpacked"), archive)).toMatchObject({ files: 2 });
  expect(await fs.readText(join(dir, "unpacked/a/b/one.txt"))).toBe("one needle\n");
  await expect(fs.write(join(work, "a/b/one.txt"), "x", { onlyNew: true })).rejects.toMatchObject({ name: "ProblemError", status: 412 });
  await expect(fs.read(join(work, "missing"))).rejects.toBeInstanceOf(ProblemError);
  await fs.delete(work, { recursive: true });
  await expect(fs.stat(work)).rejects.toMatchObject({ status: 404 });
});

test("an upload that is aborted or refused leaves the old file, and its stream is read no more", async () => {
  const path = join(dir, "kept");
  await client.fs.write(path, "old");
  const endless = (told: (reason: unknown) => void, onPull = (_sent: number) => {}) => {
    let sent = 0;
    return new ReadableStream<Uint8Array>({
      async pull(c) {
        await new Promise((later) => setImmediate(later));
        c.enqueue(new Uint8Array(64 << 10));
        onPull(++sent);
      },
      cancel: told,
    });
  };
  for (const at of [0, 1, 20]) {
    const controller = new AbortController();
    if (at === 0) controller.abort();
    let told!: (reason: unknown) => void;
    const cancelled = new Promise((resolve) => (told = resolve));
    await expect(client.fs.write(path, endless(told, (sent) => sent === at && controller.abort()), { signal: controller.signal })).rejects.toThrow("aborted");
    expect(await cancelled).toMatchObject({ name: "AbortError" });
  }
  let told!: (reason: unknown) => void;
  const cancelled = new Promise((resolve) => (told = resolve));
  await expect(client.fs.write(path, endless(told), { onlyNew: true })).rejects.toThrow();
  await cancelled;
  expect(await client.fs.readText(path)).toBe("old");
  // Of one that was read already the rest is not the whole, or nothing.
  for (const whole of [true, false]) {
    const used = new Blob(["one", "two"]).stream();
    const reader = used.getReader();
    await reader.read();
    while (whole && !(await reader.read()).done);
    reader.releaseLock();
    await expect(client.fs.write(path, used)).rejects.toThrow(TypeError);
    expect(await client.fs.readText(path)).toBe("old");
  }
  // One that fails itself fails the upload.
  const broken = new ReadableStream<Uint8Array>({ pull: (c) => c.error(new Error("the disk is gone")) });
  await expect(client.fs.write(path, broken)).rejects.toThrow("the disk is gone");
  expect(await client.fs.readText(path)).toBe("old");
});

test.each([undefined, null, 5, { a: 1 }])("content that is none leaves the old file: %j", async (content) => {
  const path = join(dir, "kept, too");
  await client.fs.write(path, "old");
  await expect(client.fs.write(path, content as never)).rejects.toThrow(/^the content is (null|of type \w+): give a string, bytes, a Blob or a ReadableStream$/);
  expect(await client.fs.readText(path)).toBe("old");
});

test("changes are watched until the loop is left", async () => {
  const watched = join(dir, "watched");
  await client.fs.mkdir(watched);
  const seen: string[] = [];
  const writing = (async () => {
    for (let i = 0; seen.length === 0; i++) {
      await client.fs.write(join(watched, `f${i}`), "x");
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  })();
  for await (const change of client.fs.watch(watched)) {
    seen.push(change.path ?? "");
    break;
  }
  await writing;
  expect(seen[0] ?? "").toContain(watched);
});

test("paths belong to a session's folder", async () => {
  await using c = new SandboxAgentClient({ baseUrl: gateway.url, agent: "mock" });
  const session = await c.newSession({ cwd: dir });
  await c.fs.write("relative.txt", "here", { sessionId: session.id });
  expect(await c.fs.readText(join(dir, "relative.txt"))).toBe("here");
});
