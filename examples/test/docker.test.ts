import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { contract, withRepository } from "./contract.ts";
import { Docker } from "./docker.ts";
import { run } from "./run.ts";

contract("docker", "Docker", () => new Docker(), (path) => path === "/docker/port");

describe("the change of a job, which is the same program for every provider", () => {
  let cloud: Docker;
  beforeEach(async () => {
    cloud = await new Docker().listen() as Docker;
  });
  afterEach(async () => {
    await cloud.close();
  });

  // What an agent may do with a repository: the change is complete in each case.
  const commit = 'git -c user.name=a -c user.email=a@example.com commit --quiet --message done';
  const large = "head -c 3000000 /dev/urandom > large.bin";
  test.each([
    ["committed", `echo one > one.txt; ${large}; git add .; ${commit}`],
    ["staged a part", `echo one > one.txt; git add one.txt; ${large}`],
    ["committed a part and staged a part", `echo one > one.txt; git add .; ${commit}; ${large}; git add large.bin; echo two >> one.txt`],
  ])("a large change of which the agent has %s, in a repository without a commit or with one", async (_, PROMPT) => {
    for (const empty of [true, false]) {
      await withRepository(async (dir, git) => {
        if (!empty) git("commit", "--quiet", "--allow-empty", "--message", "first");
        const OUT = join(dir, "home.patch");
        const program = await run("docker", cloud, { AGENT: "shell", REPO: `file://${dir}`, PROMPT, OUT });
        expect(await program.code, program.output()).toBe(0);
        git("apply", OUT);
        expect(readFileSync(join(dir, "one.txt"), "utf8")).toBe(PROMPT.includes("two") ? "one\ntwo\n" : "one\n");
        expect(statSync(join(dir, "large.bin")).size).toBe(3_000_000);
      });
    }
    expect(cloud.alive, "sandboxes left").toBe(0);
  });

  // Of a repository in the repository a patch has the name alone, and git takes in none that has no commit.
  test.each([
    ["a commit", `git init --quiet within; cd within; echo lost > file; git add .; ${commit}`],
    ["no commit", "git init --quiet within; echo lost > within/file"],
  ])("a change with a repository within that has %s: the rest comes home, and the program says that it is not all", async (_, within) => {
    await withRepository(async (dir, git) => {
      git("commit", "--quiet", "--allow-empty", "--message", "first");
      const OUT = join(dir, "home.patch");
      const program = await run("docker", cloud, { AGENT: "shell", REPO: `file://${dir}`, PROMPT: `echo one > one.txt; ${within}`, OUT });
      expect(await program.code, program.output()).toBe(1);
      expect(program.output()).toMatch(/the patch is not the whole change, .*\n.*within/);
      git("apply", OUT);
      expect(readFileSync(join(dir, "one.txt"), "utf8")).toBe("one\n");
    });
    expect(cloud.alive, "sandboxes left").toBe(0);
  });

  test("a change that cannot be written here: known before a sandbox is made, else the sandbox stays", async () => {
    await withRepository(async (dir, git) => {
      git("commit", "--quiet", "--allow-empty", "--message", "first");
      const wish = { AGENT: "shell", REPO: `file://${dir}`, PROMPT: "echo one > one.txt", KEEP: "1" };
      const nowhere = await run("docker", cloud, { ...wish, OUT: join(dir, "no-such-folder", "home.patch") });
      expect(await nowhere.code, nowhere.output()).toBe(1);
      expect(nowhere.output()).toContain("cannot be written");
      expect(cloud.made.length, "sandboxes made").toBe(0);

      const OUT = join(dir, "home.patch");
      writeFileSync(OUT, "an earlier patch");
      mkdirSync(`${OUT}.part`); // so that it fails when the change is there
      const late = await run("docker", cloud, { ...wish, OUT });
      expect(await late.code, late.output()).toBe(1);
      expect(late.output()).toContain("the job is not complete");
      expect(late.output()).toContain("Take it away: ");
      expect(readFileSync(OUT, "utf8")).toBe("an earlier patch");
      expect(cloud.alive, "sandboxes left").toBe(1);
    });
  });
});
