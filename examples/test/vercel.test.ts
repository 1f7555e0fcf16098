import { expect, test } from "vitest";
import { contract } from "./contract.ts";
import { run } from "./run.ts";
import { Vercel } from "./vercel.ts";

contract("vercel", "Vercel Sandbox", () => new Vercel(), (path) => path.endsWith("/fs/write"));

test("the vercel example takes a sandbox away that has ended by itself", async () => {
  const cloud = await new Vercel().listen();
  try {
    cloud.broken = (call) => call.path.endsWith("/stop");
    const program = await run("vercel", cloud);
    expect(await program.code, program.output()).toBe(0);
    expect(program.output()).toContain("the sandbox is gone");
    expect(cloud.alive, "sandboxes left").toBe(0);
  } finally {
    await cloud.close();
  }
});
