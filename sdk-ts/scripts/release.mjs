// Makes the npm packages of a release: one per platform with the gateway's program,
// then acp-http-client and sandbox-agent, which names the platforms' as optional.
//
//   node scripts/release.mjs --version 1.2.3 --programs DIR [--out DIR] [--platform linux-x64 ...]
//
// ./task release builds the programs, calls this, and publishes.
import { execFileSync } from "node:child_process";
import { chmodSync, cpSync, existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";

const root = resolve(import.meta.dirname, "..");
const goNames = { linux: "linux", darwin: "darwin", win32: "windows", x64: "amd64", arm64: "arm64" };
const all = ["linux-x64", "linux-arm64", "darwin-x64", "darwin-arm64", "win32-x64"];

const { values } = parseArgs({
  options: {
    version: { type: "string" },
    out: { type: "string", default: join(root, "release") },
    platform: { type: "string", multiple: true, default: all },
    programs: { type: "string" },
  },
});
if (!/^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$/.test(values.version ?? "")) fail("--version must be a version, such as 1.2.3");
for (const platform of values.platform) if (!all.includes(platform)) fail(`--platform ${platform} is none of ${all.join(", ")}`);

if (!values.programs) fail("--programs must be the folder with the programs: ./task release makes it, and calls this");

function fail(message) {
  console.error(message);
  process.exit(2);
}

const out = resolve(values.out);
const staged = join(out, "packages");
rmSync(out, { recursive: true, force: true });
mkdirSync(staged, { recursive: true });

const common = JSON.parse(readFileSync(join(root, "sandbox-agent/package.json"), "utf8"));
const packages = [];

for (const platform of values.platform) {
  const [os, cpu] = platform.split("-");
  const dir = join(staged, platform);
  mkdirSync(join(dir, "bin"), { recursive: true });
  const suffix = os === "win32" ? ".exe" : "";
  const program = join(dir, `bin/sandbox-agent${suffix}`);
  const built = join(values.programs, `sandbox-agent-${goNames[os]}-${goNames[cpu]}${suffix}`);
  if (!existsSync(built)) fail(`${built} is missing`);
  cpSync(built, program);
  chmodSync(program, 0o755);
  writePackage(dir, {
    name: `@sandbox-agent/${platform}`, version: values.version, description: `The program of Sandbox Agent for ${platform}.`,
    license: common.license, repository: common.repository, os: [os], cpu: [cpu], files: ["bin"], preferUnplugged: true,
  });
}

execFileSync("npm", ["run", "build"], { cwd: root, stdio: ["ignore", "ignore", "inherit"] });
for (const name of ["acp-http-client", "sandbox-agent"]) {
  const dir = join(staged, name);
  const { scripts: _, ...manifest } = JSON.parse(readFileSync(join(root, name, "package.json"), "utf8")); // it is built already
  mkdirSync(dir);
  for (const part of ["dist", "src", "README.md"]) cpSync(join(root, name, part), join(dir, part), { recursive: true, filter: (file) => !file.endsWith(".tsbuildinfo") });
  cpSync(resolve(root, "../LICENSE"), join(dir, "LICENSE"));
  if (manifest.dependencies["acp-http-client"]) manifest.dependencies["acp-http-client"] = values.version;
  if (name === "sandbox-agent") manifest.optionalDependencies = Object.fromEntries(values.platform.map((p) => [`@sandbox-agent/${p}`, values.version]));
  writePackage(dir, { ...manifest, version: values.version });
}

function writePackage(dir, manifest) {
  writeFileSync(join(dir, "package.json"), `${JSON.stringify(manifest, null, 2)}\n`);
  packages.push(dir);
}

for (const dir of packages) {
  const [packed] = JSON.parse(execFileSync("npm", ["pack", "--json", "--pack-destination", out], { cwd: dir, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }));
  const file = join(out, packed.filename);
  console.log(`${packed.name}@${packed.version}  ${packed.files.length} files  ${statSync(file).size} bytes`);
}
console.log(`nothing was published; the packages are in ${out}`);
