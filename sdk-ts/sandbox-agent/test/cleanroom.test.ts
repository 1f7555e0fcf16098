// What a user gets: the packages as npm packs them, in an empty project.
import { execFile } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { build } from "esbuild";
import { afterAll, beforeAll, expect, test } from "vitest";

const run = promisify(execFile);
const root = resolve(import.meta.dirname, "../..");
const dir = mkdtempSync(join(tmpdir(), "sandbox-agent-sdk-clean-"));
const project = join(dir, "project");
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const tarballs = () => readdirSync(dir).filter((file) => file.endsWith(".tgz"));
/** The archive of a package. */
const packed = (name: string) => join(dir, tarballs().find((file) => file.startsWith(`${name}-`)) ?? "");

/** Runs a command in the project; what it prints is in the error. */
async function inProject(command: string, ...args: string[]): Promise<string> {
  try {
    return (await run(command, args, { cwd: project, env: { ...process.env, HOME: dir } })).stdout;
  } catch (error) {
    const { stdout, stderr } = error as { stdout: string; stderr: string };
    throw new Error(`${args.join(" ")}\n${stdout}${stderr}`, { cause: error });
  }
}

beforeAll(async () => {
  // The sources without what was built of them: packing builds.
  const sources = join(dir, "sdk-ts");
  cpSync(root, sources, { recursive: true, filter: (file) => !/\/(node_modules|dist|release|\.runtimes)$/.test(file) });
  symlinkSync(join(root, "node_modules"), join(sources, "node_modules"));
  await run("npm", ["pack", "--silent", "--workspaces", "--pack-destination", dir], { cwd: sources });
  expect(tarballs()).toHaveLength(2);
  const { devDependencies } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { devDependencies: Record<string, string> };
  cpSync(join(import.meta.dirname, "cleanroom"), project, { recursive: true });
  writeFileSync(join(project, "package.json"), JSON.stringify({
    name: "project", private: true, type: "module",
    dependencies: { "sandbox-agent": `file:${packed("sandbox-agent")}`, "acp-http-client": `file:${packed("acp-http-client")}`, "@types/node": devDependencies["@types/node"] },
    overrides: { "acp-http-client": "$acp-http-client" },
  }));
  await run("npm", ["install", "--no-audit", "--no-fund", "--prefer-offline"], { cwd: project });
}, 120_000);

test.each(["acp-http-client", "sandbox-agent"])("%s is packed so that every resolver finds code and types", async (name) => {
  const tool = (tool: string, ...args: string[]) => inProject(join(root, "node_modules/.bin", tool), ...args);
  await tool("publint", "--strict", packed(name));
  await tool("attw", packed(name), "--profile", "esm-only", "--no-emoji");
});

const strict = {
  strict: true, noEmit: true, skipLibCheck: false, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, verbatimModuleSyntax: true, target: "ES2022",
};

test.each([
  { name: "Node's types alone", compiler: "typescript", files: ["server.ts"], options: { lib: ["ES2022"], types: ["node"], module: "NodeNext", moduleResolution: "NodeNext" } },
  { name: "a page", compiler: "typescript7", files: ["page.ts"], options: { lib: ["ES2022", "ESNext.Disposable", "DOM", "DOM.Iterable", "DOM.AsyncIterable"], types: [], module: "ESNext", moduleResolution: "Bundler" } },
])("the types are right with $name and $compiler", async ({ name, compiler, files, options }) => {
  const config = `tsconfig.${name.replace(/\W+/g, "-")}.json`;
  writeFileSync(join(project, config), JSON.stringify({ compilerOptions: { ...strict, ...options }, files }));
  await inProject(process.execPath, join(root, "node_modules", compiler, "bin/tsc"), "-p", config);
});

test.each([
  { name: "node", command: process.execPath, args: [] },
  // The versions that the packages say they run on.
  ...[20, 22, 24].map((version) => ({ name: `node ${version}`, command: join(root, `../cmd/sandbox-agent/testdata/node/node_modules/node-${version}/bin/node`), args: [] })),
  { name: "bun", command: join(root, "node_modules/.bin/bun"), args: ["run"] },
  { name: "deno", command: join(root, "node_modules/@deno/linux-x64-glibc/deno"), args: ["run", "-A", "--node-modules-dir=manual"] },
])("$name runs it", async ({ name, command, args }) => {
  if (!existsSync(command)) {
    expect(process.env.CI && process.platform === "linux" && process.arch === "x64", `${command} is missing`).toBeFalsy();
    console.log(`${name} is not run: its program for this platform is not among the dependencies`);
    return;
  }
  const version = /^node (\d+)$/.exec(name)?.[1];
  if (version) expect(await inProject(command, "--version")).toMatch(new RegExp(`^v${version}\\.`));
  expect((await inProject(command, ...args, "run.mjs")).trim()).toBe("it works");
});

test("a bundler for browsers takes it, without anything of Node", async () => {
  const bundle = await build({ entryPoints: [join(project, "page.ts")], bundle: true, format: "esm", platform: "browser", write: false, metafile: true });
  expect(Object.keys(bundle.metafile.inputs).some((file) => file.includes("node_modules/sandbox-agent/dist/client.js"))).toBe(true);
  expect(Object.values(bundle.metafile.outputs).flatMap((output) => output.imports.filter((i) => i.external))).toEqual([]);
});
