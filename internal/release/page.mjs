// Builds the page as `npm run build` does, and writes which packages' code the
// bundler has put into it. A page that is there and the same is left alone, since
// somebody else may be building the program with it:
//
//   node internal/release/page.mjs PACKAGES.json
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, relative, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const root = resolve(import.meta.dirname, "../..");
const inspector = join(root, "inspector");
const require = createRequire(join(inspector, "package.json"));
const { build } = await import(pathToFileURL(join(dirname(require.resolve("vite/package.json")), "dist/node/index.js")).href);

/** Checksums of the packages' archives, by name and version. */
const sums = new Map();
for (const dir of ["inspector", "sdk-ts"]) {
  const lock = JSON.parse(readFileSync(join(root, dir, "package-lock.json"), "utf8"));
  for (const [path, entry] of Object.entries(lock.packages)) {
    const name = entry.name ?? path.split("node_modules/").pop();
    const sha512 = /^sha512-(\S+)/.exec(entry.integrity ?? "")?.[1];
    if (sha512) sums.set(`${name}@${entry.version}`, Buffer.from(sha512, "base64").toString("hex"));
  }
}

const packages = new Map();
function note(id) {
  const file = id.replace(/^\0+/, "").split("?")[0];
  if (!file.includes("/node_modules/")) return;
  for (let dir = dirname(file); dir !== dirname(dir); dir = dirname(dir)) {
    const manifest = join(dir, "package.json");
    if (!existsSync(manifest)) continue;
    const { name, version, license } = JSON.parse(readFileSync(manifest, "utf8"));
    if (!name || !version) continue; // it only says how a folder's files are read
    const key = `${name}@${version}`;
    packages.set(key, { name, version, license: typeof license === "string" ? license : "", sha512: sums.get(key) ?? "" });
    return;
  }
}

/** The files of a page with what is in them; names that begin with a dot are not the page's. */
function filesOf(dir) {
  const files = readdirSync(dir, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile() && !entry.name.startsWith("."));
  return files.map((entry) => join(entry.parentPath, entry.name)).sort().map((file) => [relative(dir, file), readFileSync(file).toString("base64")]);
}

process.env.NODE_ENV = "production";
const page = join(inspector, "dist");
const made = mkdtempSync(join(tmpdir(), "sandbox-agent-page-"));
process.once("exit", () => rmSync(made, { recursive: true, force: true }));
await build({
  root: inspector,
  configFile: join(inspector, "vite.config.ts"),
  logLevel: "warn",
  build: { outDir: made },
  plugins: [
    {
      name: "packages",
      // What is loaded and then shaken out whole counts as well: better one too many.
      generateBundle() {
        for (const id of this.getModuleIds()) note(id);
      },
    },
  ],
});
mkdirSync(page, { recursive: true });
if (JSON.stringify(filesOf(made)) !== JSON.stringify(filesOf(page))) {
  for (const name of readdirSync(page)) if (!name.startsWith(".")) rmSync(join(page, name), { recursive: true });
  for (const name of readdirSync(made)) cpSync(join(made, name), join(page, name), { recursive: true });
}
const list = [...packages.values()].sort((a, b) => (`${a.name}@${a.version}` < `${b.name}@${b.version}` ? -1 : 1));
writeFileSync(process.argv[2], `${JSON.stringify(list, null, 2)}\n`);
