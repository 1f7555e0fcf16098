import { test } from "vitest";
import { chat, newSession, picture, storyAgent, World } from "./world.js";
test("dbg", async () => {
  const world = await World.start(["--no-token", ...storyAgent]);
  const page = await world.open();
  await newSession(page, { agent: "story" });
  await chat(page, "many 2000");
  await page.waitForTimeout(4000);
  for (let i = 0; i < 3; i++) { console.log(JSON.stringify(await page.evaluate(() => { const e = document.querySelector(".rows")!; return [e.scrollTop, e.scrollHeight, e.clientHeight, document.querySelector<HTMLElement>(".rows-inside")!.style.height, [...document.querySelectorAll("[data-index]")].map((x) => (x as HTMLElement).dataset.index).join(" "), document.querySelector(".to-end")?.textContent, document.querySelector<HTMLElement>(".rows-shown")!.style.transform]; }))); await page.waitForTimeout(300); }
  console.log(await Promise.race([page.evaluate(() => document.querySelector(".rows")?.innerHTML.length), new Promise((r) => setTimeout(() => r("stuck"), 3000))]));
  await Promise.race([picture(page, "dbg"), new Promise((r) => setTimeout(r, 3000))]);
  console.log(world.complaints);
  await world.stop();
});
