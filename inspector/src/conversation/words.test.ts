import { expect, test } from "vitest";
import { Transcript } from "./transcript.js";
import { markdownOf, wordsOf } from "./words.js";

test("a conversation is copied as it was written, however it is cut for the page", () => {
  const t = new Transcript();
  t.prompt([{ type: "text", text: "Show me" }], 1);
  const code = `\`\`\`ts\n${Array.from({ length: 900 }, (_, i) => `const line${i} = "${"x".repeat(70)}";`).join("\n")}\n\`\`\``;
  const text = `One.\n\n${code}\n\nTwo.`;
  for (let i = 0; i < text.length; i += 997) t.apply({ sessionUpdate: "agent_message_chunk", messageId: "m", content: { type: "text", text: text.slice(i, i + 997) } }, 2);
  t.apply({ sessionUpdate: "tool_call_update", toolCallId: "t", title: "npm test", status: "completed", content: [{ type: "content", content: { type: "text", text: "3 passed" } }] }, 3);
  expect(t.rows.length).toBeGreaterThan(4);
  expect(markdownOf(t.rows, "A title")).toBe(`# A title\n\n## Prompt\n\nShow me\n\n${text}\n\n**npm test** (completed)\n\n\`\`\`\n3 passed\n\`\`\`\n`);
  expect(t.rows.map(wordsOf).filter((w) => w.includes("3 passed"))).toHaveLength(1);
});
