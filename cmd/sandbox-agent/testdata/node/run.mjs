// Runs the scenarios of a topic with an agent, against a gateway with the real one.
//
//   node run.mjs TOPIC AGENT
//
// TOPIC.mjs has the steps that agents share and agents/AGENT.mjs what differs:
// names and arguments of tools, scenarios of its own, and those that the agent
// cannot have, with reasons. The environment says where everything is; see
// realRun.play. Prints a JSON line {name, ok, detail, ms} for each scenario, or
// {name, without} for one that the agent cannot have.
import assert from "node:assert/strict";
import { World, env } from "./link.mjs";
import { Follower, readTwice } from "./second.mjs";

const SILENCE = 90_000; // ms in which nothing comes: what is waited for will not
const LIMIT = 300_000; // ms for one scenario

const [topic, name] = process.argv.slice(2);
env.TRANSPORT = ["turns", "sessions", "early"].includes(topic) ? "http" : "ws";
const { default: agent } = await import(`./agents/${name}.mjs`);
const { default: shared, first = {}, last = {} } = await import(`./${topic}.mjs`);
const { own = {}, without = {} } = agent[topic] ?? {};
// Each scenario beside another borrows sessions of its own, and may cost a start of the agent.
const AT_ONCE = agent.oneProcess ? 2 : 1;
// Turns are followed in version 2 of the protocol as they happen; where clients and their
// answers are counted, sessions are read afterwards only.
if (topic === "turns") World.follower = new Follower();
let read = 0;

for (const name of Object.keys(without)) {
  assert.ok(shared[name] ?? first[name] ?? last[name], `${name}, which the agent does not have, is no scenario`);
}
const chosen = (scenarios) => Object.entries(scenarios).filter(([name]) => !without[name] && (!env.ONLY || name.includes(env.ONLY)));

/** What work comes to, or the end of the waiting for it. */
async function inTime(work) {
  const started = Date.now();
  let timer;
  const late = new Promise((_, reject) => {
    timer = setInterval(() => {
      const silent = Date.now() - Math.max(started, World.heard);
      if (silent > SILENCE) reject(new Error(`nothing came for ${silent} ms`));
      if (Date.now() - started > LIMIT) reject(new Error(`no end after ${LIMIT} ms`));
    }, 1000);
  });
  try {
    return await Promise.race([work(), late]);
  } finally {
    clearInterval(timer);
  }
}

World.read = async (sessions) => {
  const got = await readTwice(sessions, World.follower);
  read += got;
  return got;
};

const told = (error) => `${error.stack ?? error}\n${error.code ?? ""} ${JSON.stringify(error.data ?? null)}`;

/** What scenarios share is read when all have had it: the conversation of one is a part of that. */
async function readShared() {
  for (const session of World.returned()) {
    try {
      assert.equal(await inTime(() => World.read([session])), 1, "it cannot be loaded");
    } catch (error) {
      console.log(JSON.stringify({ name: `second reading of ${session.join(" in ")}`, ok: false, detail: told(error) }));
    }
  }
}

async function run([name, scenario]) {
  const world = new World(name);
  const started = Date.now();
  let detail = "";
  try {
    await inTime(async () => {
      await scenario(world, agent);
      await World.read(world.ends());
    });
  } catch (error) {
    const links = new Set([...world.links, ...world.borrowed.map(([, s]) => s.link)]);
    const shown = [...links].flatMap((l) => [...l.updates.values()].flat()).filter((u) => u.sessionUpdate !== "available_commands_update");
    detail = `${told(error)}\nlast updates:\n${shown.slice(-12).map((u) => JSON.stringify(u).slice(0, 400)).join("\n")}`;
  }
  const ms = Date.now() - started;
  await Promise.race([world.close(!detail), new Promise((resolve) => setTimeout(resolve, 10_000).unref())]);
  console.log(JSON.stringify({ name, ok: !detail, detail, ms }));
}

for (const [name, reason] of Object.entries(without)) console.log(JSON.stringify({ name, without: reason }));
for (const one of chosen(first)) await run(one);
const queue = chosen({ ...shared, ...own });
await Promise.all(Array.from({ length: AT_ONCE }, async () => {
  for (let next = queue.shift(); next; next = queue.shift()) await run(next);
}));
await readShared();
// What others would notice: each alone, behind all others.
for (const one of chosen(last)) {
  await run(one);
  await readShared();
}
World.follower?.close();
if (read === 0 && topic === "turns") console.log(JSON.stringify({ name: "second reading", ok: false, detail: "no session was read in both versions" }));
process.exit(0);
