// A headless Chromium: the system's, else the one that comes as a package.
// That one is told to mind what sites may do.
import { accessSync, constants, mkdtempSync, rmSync } from "node:fs";
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

export async function launch(): Promise<Browser> {
  const system = installed();
  // Nothing here is drawn in three dimensions: a graphics card in software costs a fifth of all time.
  const always = ["--no-sandbox", "--disable-gpu", "--disable-software-rasterizer"];
  if (system) return chromium.launch({ executablePath: system, args: always });
  const executablePath = process.env[unpacked];
  if (!executablePath) throw new Error("the browser was not unpacked: the global setup of the tests does it");
  // With one process for everything, closing one window would end the others.
  const unwanted = /^--(disable-web-security|single-process|no-zygote|in-process-gpu|ignore-gpu-blocklist|use-gl|use-angle|enable-unsafe-swiftshader)/;
  return chromium.launch({ executablePath, args: [...packaged.args.filter((a) => !unwanted.test(a)), ...always], headless: true });
}
