// Compiles pages of the documentation as MDX and says which cannot be read.
import { readFileSync } from "node:fs";
import { compile } from "@mdx-js/mdx";

for (const name of process.argv.slice(2)) {
  // What stands before the first heading is for the site, not for MDX.
  const text = readFileSync(name, "utf8").replace(/^---\n[\s\S]*?\n---\n/, "");
  try {
    await compile(text, { format: "mdx" });
  } catch (err) {
    console.error(`${name}: ${err.message}${err.line ? ` (line ${err.line} behind the front matter)` : ""}`);
    process.exitCode = 1;
  }
}
