import { EventDecoder, type ServerEvent } from "acp-http-client";

const maxEvent = 32 << 20;

/** The events of a response. Leaving the loop ends the request. */
export async function* readEvents(response: Response): AsyncGenerator<ServerEvent, void, undefined> {
  if (response.body === null) return;
  const reader = response.body.getReader();
  const decoder = new EventDecoder(maxEvent);
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* decoder.push(value);
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
