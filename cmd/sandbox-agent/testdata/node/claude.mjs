// Runs the scenarios of one file against a gateway with the real Claude Code.
//
//   node claude.mjs FILE
//
// The environment says where everything is; see claudeRun.play. Prints a JSON
// line {name, ok, detail, ms} for each scenario.
import { World, env } from "./claude-link.mjs";

const LIMIT = 90_000; // ms for one scenario
const AT_ONCE = 3; // each has a program of its own that takes a processor while it starts

const { default: all } = await import(`./${process.argv[2]}`);
const queue = Object.entries(all).filter(([name]) => !env.ONLY || name.includes(env.ONLY));

async function run([name, scenario]) {
  const world = new World(name);
  const started = Date.now();
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no end after ${LIMIT} ms`)), LIMIT);
  });
  let detail = "";
  try {
    await Promise.race([scenario(world), late]);
  } catch (error) {
    const shown = world.links.flatMap((l) => [...l.updates.values()].flat()).filter((u) => u.sessionUpdate !== "available_commands_update");
    detail = `${error.stack ?? error}\n${error.code ?? ""} ${JSON.stringify(error.data ?? null)}\nlast updates:\n${shown.slice(-12).map((u) => JSON.stringify(u).slice(0, 400)).join("\n")}`;
  }
  clearTimeout(timer);
  const ms = Date.now() - started;
  await Promise.race([world.close(), new Promise((resolve) => setTimeout(resolve, 10_000).unref())]);
  console.log(JSON.stringify({ name, ok: !detail, detail, ms }));
}

await Promise.all(Array.from({ length: AT_ONCE }, async () => {
  for (let next = queue.shift(); next; next = queue.shift()) await run(next);
}));
process.exit(0);
