import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { contract } from "./contract.ts";
import { E2B } from "./e2b.ts";
import { run } from "./run.ts";

contract("e2b", "E2B", () => new E2B(), (path) => path === "/files");

describe("e2b example, its template and its pause, against a local double of E2B", () => {
  let cloud: E2B;
  beforeEach(async () => {
    cloud = await new E2B().listen();
  });
  afterEach(async () => {
    await cloud.close();
    expect(cloud.unknown, "requests that the double does not know").toEqual([]);
  });

  test("a template has the program and the agents in it, and no gateway that runs", async () => {
    const program = await run("e2b", cloud, { E2B_TEMPLATE: "mine", AGENTS: "claude pi" }, ["src/template.ts"]);
    expect(await program.code, program.output()).toBe(0);
    expect(program.output()).toContain("the template mine is ready");
    const [{ name, steps } = { name: "", steps: [] }] = cloud.templates;
    expect(name).toBe("mine");
    expect(steps[0]).toMatchObject({ type: "FROM", args: ["node:22"] });
    const lines = steps.map(({ args }) => args[0]);
    expect(lines.at(-2)).toMatch(/install\.sh \| sh -s -- --dir \/usr\/local\/bin$/);
    expect(lines.at(-1)).toBe("sandbox-agent agents install claude && sandbox-agent agents install pi");
    expect(lines.join("\n")).not.toContain("sandbox-agent server");
  });

  test("a sandbox of a template needs no upload; one that stays is paused, and brought back", async () => {
    const program = await run("e2b", cloud, { E2B_TEMPLATE: "mine", SANDBOX_AGENT_PROGRAM: "", PROMPT: "echo from the template", KEEP: "1" });
    expect(await program.code, program.output()).toBe(0);
    expect(program.output()).toContain("from the template");
    expect(cloud.wanted).toMatchObject([{ templateID: "mine", autoPause: true, timeout: 3600 }]);
    expect(cloud.paths).not.toContain("POST /files");

    const id = cloud.made[0]?.id ?? "";
    expect(program.output()).toContain(`npm run again -- ${id} brings it back`);
    const again = await run("e2b", cloud, { KEEP: "1" }, ["src/again.ts", id]);
    expect(await again.code, again.output()).toBe(0);
    expect(again.output()).toContain("answers for 60 minutes from now");
    const unknown = await run("e2b", cloud, {}, ["src/again.ts", "0123456789abcdef"]);
    expect(await unknown.code, unknown.output()).toBe(1);
    expect(unknown.output()).toContain("not found");
  });
});
