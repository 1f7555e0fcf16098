#!/usr/bin/env node
// Acme: a made-up coding agent with a line protocol, for the page about bridges.
import { createInterface } from "node:readline";
import { setImmediate } from "node:timers/promises";

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
let cancelled = false;

async function work(text) {
  if (text === "crash") {
    process.stderr.write("boom\n", () => process.exit(3));
    return;
  }
  if (text === "run") {
    while (!cancelled) {
      say({ text: "tick" });
      await setImmediate();
    }
  } else if (text === "stream") {
    for (let i = 0; i < 20; i++) say({ text: `${i} ` });
  } else if (text === "garbage") {
    process.stdout.write("no line of the protocol\n");
    say({ text: "fine" });
  } else {
    say({ text: text.startsWith("echo ") ? text.slice(5) : "hello" });
  }
  say({ done: true });
}

const input = createInterface({ input: process.stdin });
input.on("line", (line) => {
  const { prompt, cancel } = JSON.parse(line);
  cancelled = cancel === true;
  if (prompt) void work(prompt.map((part) => part.text ?? "").join(""));
});
input.on("close", () => process.exit(0));
