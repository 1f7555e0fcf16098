import { EventDecoder, inTime, ofStream, type ServerEvent } from "acp-http-client";

const maxEvent = 32 << 20;

/** The events of a response. Leaving the loop ends the request; a comment comes every 15 s, and without one it is over for who waits longer than that. */
export async function* readEvents(response: Response, silenceMs: number | undefined): AsyncGenerator<ServerEvent, void, undefined> {
  if (response.body === null) return;
  const reader = response.body.getReader();
  const decoder = new EventDecoder(maxEvent);
  try {
    for (;;) {
      const { done, value } = await inTime(reader, ofStream(silenceMs));
      if (done) return;
      yield* decoder.push(value);
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
