import type { SandboxAgentClient } from "sandbox-agent";
import { mayPass, retryMs } from "../state/retry.js";

/** What a person may choose. */
export interface Choice {
  readonly id: string;
  readonly name: string;
  readonly description?: string;
  readonly variants?: readonly string[];
}

/** How often the models are asked for where that may pass: not every agent that cannot be started now can be in a moment. */
const tries = 6;

/** The models of an agent. What may pass is tried again, until the signal is aborted: then there are none. Rejects with what does not pass. */
export async function modelsOf(agent: string, client: Pick<SandboxAgentClient<2>, "listModels">, signal: AbortSignal): Promise<readonly Choice[]> {
  for (let failed = 0; !signal.aborted; failed++) {
    try {
      const { availableModels } = await client.listModels({ agent });
      return availableModels.map((m) => ({ id: m.modelId, name: m.name ?? m.modelId, ...(m.description ? { description: m.description } : {}), ...(m.variants ? { variants: m.variants } : {}) }));
    } catch (error) {
      if (!mayPass(error) || failed + 1 >= tries) throw error;
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, retryMs(failed));
        signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
      });
    }
  }
  return [];
}
