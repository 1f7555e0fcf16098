import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { AcpRpcError } from "sandbox-agent";
import { modelsOf } from "./models.js";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const unavailable = new AcpRpcError(-32603, "not now", { type: "urn:sandbox-agent:error:unavailable" });
const model = { modelId: "m", name: "M", variants: [] };

/** A client that fails so often. */
const failing = (times: number, error: Error) => {
  const listModels = vi.fn(async () => {
    if (times-- > 0) throw error;
    return { availableModels: [model], currentModelId: "m" };
  });
  return { listModels } as unknown as Parameters<typeof modelsOf>[1] & { readonly listModels: typeof listModels };
};

test("what cannot be said for a moment is asked again, and is not that there are none", async () => {
  const client = failing(3, unavailable);
  const asked = modelsOf("a", client, new AbortController().signal);
  await vi.runAllTimersAsync();
  expect(await asked).toEqual([{ id: "m", name: "M", variants: [] }]);
  expect(client.listModels).toHaveBeenCalledTimes(4);
});

test("what does not pass is told", async () => {
  const error = new AcpRpcError(-32000, "log in first");
  await expect(modelsOf("a", failing(1, error), new AbortController().signal)).rejects.toBe(error);
});

test("what does not pass in the end is told as well", async () => {
  const client = failing(Infinity, unavailable);
  const asked = expect(modelsOf("a", client, new AbortController().signal)).rejects.toBe(unavailable);
  await vi.runAllTimersAsync();
  await asked;
  expect(client.listModels).toHaveBeenCalledTimes(6);
});

test("nobody is asked any more when the form is left", async () => {
  const client = failing(9, unavailable);
  const left = new AbortController();
  const asked = modelsOf("a", client, left.signal);
  await vi.advanceTimersByTimeAsync(0);
  left.abort();
  expect(await asked).toEqual([]);
  expect(client.listModels).toHaveBeenCalledTimes(1);
});
