import { test } from "vitest";
import { connected, World } from "./world.js";

test("an agent that wants a login leads to the place where it is explained", async () => {
  const world = await World.start(["--no-token"], { MOCK_AUTH_REQUIRED: "1" });
  try {
    const page = await world.open("#/sessions/new");
    await connected(page);
    await page.getByLabel("Folder", { exact: true }).fill("/tmp");
    await page.getByRole("button", { name: "Start", exact: true }).click();
    await page.getByText("The agent refused").waitFor();
    await page.getByRole("link", { name: "How to log in" }).click();
    await page.waitForURL(/#\/agents\/mock$/);
    await page.locator("#nav [aria-current]").getByText("Agents").waitFor();
  } finally {
    await world.stop();
  }
});
