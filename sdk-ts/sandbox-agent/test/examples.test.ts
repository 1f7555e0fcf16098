// The examples of the documentation are compiled, and run against a gateway.
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Gateway } from "../../test/gateway.js";

const root = resolve(import.meta.dirname, "../../..");
const dir = resolve(import.meta.dirname, "../.examples"); // where the packages are found
const pages = [
  ...readdirSync(join(root, "docs")).filter((name) => /\.mdx?$/.test(name)).map((name) => `docs/${name}`),
  "README.md", "sdk-ts/sandbox-agent/README.md", "sdk-ts/acp-http-client/README.md",
];

const examples = pages.flatMap((page) =>
  [...readFileSync(join(root, page), "utf8").matchAll(/^```ts\b.*\n([\s\S]*?)^```$/gm)].map((match, i) => ({ name: `${page.replaceAll(/\W+/g, "-")}-${i + 1}`, page, code: match[1] ?? "" })));

let gateway: Gateway;
beforeAll(async () => {
  gateway = await Gateway.start(["--no-token"], { PATH: process.env.PATH ?? "" });
  rmSync(dir, { recursive: true, force: true });
  mkdirSync(dir);
});
afterAll(async () => {
  await gateway.stop();
  rmSync(dir, { recursive: true, force: true });
});

test("there are examples, and all of them compile", () => {
  expect(examples.length).toBeGreaterThan(13);
  for (const { name, code } of examples) {
    const local = code
      .replaceAll("http://127.0.0.1:2468", gateway.url)
      .replaceAll('agent: "claude"', 'agent: "mock"')
      .replaceAll('"/workspace"', '"/tmp"')
      .replaceAll("token: process.env.TOKEN", 'token: process.env.TOKEN ?? ""');
    writeFileSync(join(dir, `${name}.mts`), local);
  }
  writeFileSync(join(dir, "tsconfig.json"), JSON.stringify({
    extends: "../../tsconfig.base.json",
    compilerOptions: { types: ["node"], composite: false, declaration: false, declarationMap: false, outDir: "out", rootDir: ".", module: "NodeNext" },
    include: ["*.mts"],
  }));
  execFileSync(process.execPath, [resolve(root, "sdk-ts/node_modules/typescript7/bin/tsc"), "-p", dir], { stdio: ["ignore", "inherit", "inherit"] });
});

test.each(examples)("$name runs", async ({ name }) => {
  const child = spawn(process.execPath, [join(dir, "out", `${name}.mjs`)], { cwd: dir, env: { ...process.env, HOME: dir }, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  child.stdout.on("data", (chunk) => void (output += String(chunk)));
  child.stderr.on("data", (chunk) => void (output += String(chunk)));
  const timer = setTimeout(() => child.kill("SIGKILL"), 30_000);
  const code = await new Promise((done) => child.once("exit", done));
  clearTimeout(timer);
  expect(code, output).toBe(0);
});
