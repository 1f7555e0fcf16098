// A headless Chromium: the system's, else the one that comes as a package.
// That one is told to mind what sites may do.
import { accessSync, constants, mkdtempSync, rmSync, statfsSync } from "node:fs";
import { tmpdir } from "node:os";
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

/**
 * Unpacks the browser that comes as a package, once for all test files and before they start: a program cannot be run
 * while somebody has it open for writing, as each process has that is started meanwhile. Returns what removes it.
 */
export async function unpack(): Promise<() => void> {
  if (installed()) return () => {};
  const dir = mkdtempSync(join(tmpdir(), "sandbox-agent-chromium-"));
  const before = process.env.TMPDIR;
  process.env.TMPDIR = dir; // where it is unpacked to
  try {
    process.env[unpacked] = await packaged.executablePath();
  } finally {
    if (before === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = before;
  }
  return () => rmSync(dir, { recursive: true, force: true });
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
