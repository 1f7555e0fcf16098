// Installs the packages of the folders that are named, from their lockfiles. What was
// installed is kept outside the repository and linked into the next fresh clone: to
// unpack it again costs a minute of processor time.
//
//   node .ci/node-modules.mjs sdk-ts inspector
//
// The files in node_modules and in the cache are the same ones, so they are made
// read-only: nobody changes the cache by an edit. Sets that nobody has used for two
// weeks are removed. SANDBOX_AGENT_NO_MODULES_CACHE=1 does without all this.
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { chmod, link, mkdir, mkdtemp, readdir, readFile, readlink, rename, rm, stat, symlink, utimes } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const unused = 14 * 24 * 3600 * 1000;
const root = join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "sandbox-agent", "modules");
const cached = !process.env.SANDBOX_AGENT_NO_MODULES_CACHE && process.platform !== "win32";
const marker = ".package-lock.json"; // npm writes it last

/** Makes a tree of links to the files of another. */
async function mirror(from, to) {
  await mkdir(to);
  for (const entry of await readdir(from, { withFileTypes: true })) {
    const [source, target] = [join(from, entry.name), join(to, entry.name)];
    if (entry.isDirectory()) await mirror(source, target);
    else if (entry.isSymbolicLink()) await symlink(await readlink(source), target);
    else await link(source, target);
  }
}

async function readOnly(dir) {
  for (const entry of await readdir(dir, { withFileTypes: true })) {
    const path = join(dir, entry.name);
    if (entry.isDirectory()) await readOnly(path);
    else if (entry.isFile() && entry.name !== marker) await chmod(path, (await stat(path)).mode & 0o555);
  }
}

const modified = (path) => stat(path).then((s) => s.mtimeMs, () => 0);

async function install(dir) {
  const modules = join(dir, "node_modules");
  const lock = await readFile(join(dir, "package-lock.json")).catch(() => undefined);
  if (!lock || (await modified(join(modules, marker))) > (await modified(join(dir, "package-lock.json")))) return;
  const manifest = await readFile(join(dir, "package.json"));
  const key = createHash("sha256").update([process.version, process.platform, process.arch, lock, manifest].join("\0")).digest("hex");
  const kept = join(root, key);
  const now = new Date();
  if (cached && (await modified(join(kept, marker)))) {
    try {
      await rm(modules, { recursive: true, force: true });
      await mirror(kept, modules);
      await Promise.all([utimes(kept, now, now), utimes(join(modules, marker), now, now)]);
      return;
    } catch {
      // The cache is on another disk, or being removed: install.
    }
  }
  const run = promisify(execFile)("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], { cwd: dir, shell: process.platform === "win32", maxBuffer: 64 << 20 });
  const { stdout, stderr } = await run.catch((error) => error);
  process.stderr.write(`${stdout ?? ""}${stderr ?? ""}`);
  await run;
  if (!cached) return;
  try {
    await mkdir(root, { recursive: true });
    const half = join(await mkdtemp(join(root, "new-")), "node_modules");
    await mirror(modules, half);
    await readOnly(half);
    await rename(half, kept);
    await rm(join(half, ".."), { recursive: true });
  } catch {
    // Somebody else has kept the same, or there is no room: this clone has its packages.
  }
}

const results = await Promise.allSettled(process.argv.slice(2).map(install));
for (const { reason } of results) if (reason) console.error(String(reason.message ?? reason));
for (const name of cached ? await readdir(root).catch(() => []) : []) {
  if (Date.now() - (await modified(join(root, name))) > unused) await rm(join(root, name), { recursive: true, force: true });
}
process.exit(results.some(({ reason }) => reason) ? 1 : 0);
