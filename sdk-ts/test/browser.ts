// A headless Chromium: the system's, else the one that comes as a package.
// That one is told to mind what sites may do.
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import packaged from "@sparticuz/chromium";
import { chromium, type Browser } from "playwright-core";

export async function launch(): Promise<Browser> {
  const system = (process.env.PATH ?? "").split(delimiter)
    .flatMap((dir) => ["chromium", "chromium-browser", "google-chrome"].map((name) => join(dir, name)))
    .find((file) => {
      try {
        accessSync(file, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
  if (system) return chromium.launch({ executablePath: system, args: ["--no-sandbox"] });
  // With one process for everything, closing one window would end the others.
  const unwanted = /^--(disable-web-security|single-process|no-zygote)/;
  return chromium.launch({ executablePath: await packaged.executablePath(), args: packaged.args.filter((a) => !unwanted.test(a)), headless: true });
}
