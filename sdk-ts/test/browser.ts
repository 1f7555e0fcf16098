// A headless Chromium: the system's, else the one that comes as a package.
// That one is told to mind what sites may do.
import { accessSync, constants, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, statfsSync, statSync, utimesSync } from "node:fs";
import { homedir } from "node:os";
import { delimiter, join } from "node:path";
import packaged from "@sparticuz/chromium";
import { chromium, type Browser } from "playwright-core";

const unpacked = "TEST_CHROMIUM_UNPACKED";

function installed(): string | undefined {
  return (process.env.PATH ?? "").split(delimiter)
    .flatMap((dir) => ["chromium", "chromium-browser", "google-chrome"].map((name) => join(dir, name)))
    .find((file) => {
      try {
        accessSync(file, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
}

/** Where what tests need is kept from one run to the next, as for agents; by the browser's version. */
const cache = process.env.SANDBOX_AGENT_TEST_CACHE ?? join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "sandbox-agent-test");
const kept = "chromium-";
const unused = 14 * 24 * 3600 * 1000;

/**
 * Unpacks the browser that comes as a package, once for all test files and before they start: a program cannot be run
 * while somebody has it open for writing, as each process has that is started meanwhile. It is kept, since that takes
 * 3 s of processor time; those that nobody has used for two weeks go.
 */
export async function unpack(): Promise<void> {
  if (installed()) return;
  const { version } = JSON.parse(readFileSync(join(import.meta.dirname, "../node_modules/@sparticuz/chromium/package.json"), "utf8")) as { version: string };
  const place = join(cache, `${kept}${version}-${process.arch}`);
  if (!existsSync(place)) await unpackTo(place);
  const now = new Date();
  utimesSync(place, now, now);
  for (const name of readdirSync(cache)) {
    const one = join(cache, name);
    if (name.startsWith(kept) && (statSync(one, { throwIfNoEntry: false })?.mtimeMs ?? Infinity) < Date.now() - unused) rmSync(one, { recursive: true, force: true });
  }
  process.env[unpacked] = join(place, "chromium");
}

/** Whoever does the same at the same time may be done first. */
async function unpackTo(place: string): Promise<void> {
  mkdirSync(cache, { recursive: true });
  const dir = mkdtempSync(`${place}.`);
  const before = process.env.TMPDIR;
  process.env.TMPDIR = dir; // where it is unpacked to
  try {
    await packaged.executablePath();
    renameSync(dir, place);
  } catch (error) {
    if (!existsSync(place)) throw error;
  } finally {
    if (before === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = before;
    rmSync(dir, { recursive: true, force: true });
  }
}

/** Whether the browser's processes can share what they draw in memory. In a container they often have 64 MB. */
function sharesMemory(): boolean {
  try {
    const { bavail, bsize } = statfsSync("/dev/shm");
    return bavail * bsize >= 1 << 30;
  } catch {
    return false;
  }
}

export async function launch(): Promise<Browser> {
  const system = installed();
  // What a short life does not pay for costs a third of all time: a graphics card in software, since nothing here is
  // drawn in three dimensions; compilers that optimise; and files for what is drawn.
  const always = ["--no-sandbox", "--disable-gpu", "--disable-software-rasterizer", "--js-flags=--no-opt --no-maglev"];
  const ignoreDefaultArgs = sharesMemory() ? ["--disable-dev-shm-usage"] : [];
  if (system) return chromium.launch({ executablePath: system, args: always, ignoreDefaultArgs });
  const executablePath = process.env[unpacked];
  if (!executablePath) throw new Error("the browser was not unpacked: the global setup of the tests does it");
  // With one process for everything, closing one window would end the others.
  const unwanted = /^--(disable-web-security|single-process|no-zygote|in-process-gpu|ignore-gpu-blocklist|use-gl|use-angle|enable-unsafe-swiftshader)/;
  return chromium.launch({ executablePath, ignoreDefaultArgs, args: [...packaged.args.filter((a) => !unwanted.test(a)), ...always], headless: true });
}
