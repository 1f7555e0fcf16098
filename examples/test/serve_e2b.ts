// A double of E2B for the shell in which the blocks of its guide are run:
//
//   node --import tsx serve_e2b.ts VARIABLES UNKNOWN
//
// VARIABLES is written, a file for the shell that leads E2B's SDK here; then the address is
// printed. Requests that the double does not know are written to UNKNOWN. Sandboxes have git's
// settings of this user. It ends, and they with it, at SIGTERM.
import { copyFileSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { E2B } from "./e2b.ts";
import type { Machine } from "./machine.ts";

const [variables = "", unknown = ""] = process.argv.slice(2);

class Served extends E2B {
  protected override add(machine: Machine): Machine {
    copyFileSync(join(homedir(), ".gitconfig"), join(machine.home, ".gitconfig"));
    return super.add(machine);
  }
}

const cloud = await new Served().listen();
process.once("SIGTERM", () => {
  writeFileSync(unknown, cloud.unknown.join("\n"));
  void cloud.close().then(() => process.exit());
});
writeFileSync(variables, Object.entries({ DOUBLE: cloud.url, ...cloud.env() }).map(([name, value]) => `export ${name}='${value}'\n`).join(""));
console.log(cloud.url);
