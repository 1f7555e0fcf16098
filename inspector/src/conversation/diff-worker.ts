// Compares texts that differ much, in a thread of its own: the page stays quick.
import { diffTexts, maxEdits } from "./diffs.js";

const thread = globalThis as unknown as { onmessage: (event: MessageEvent<{ before: string; after: string }>) => void; postMessage(answer: unknown): void };
thread.onmessage = ({ data }) => thread.postMessage(diffTexts(data.before, data.after, maxEdits.inWorker));
