// Sessions that begin with what was said in another one.
import type { ContentBlock } from "sandbox-agent";
import { conversations, gateway } from "../state/page.js";
import { limits } from "./attachments.js";
import { wordsOf, type Conversation } from "./conversation.js";
import type { UserItem } from "./items.js";
import { markdownOf } from "./words.js";

/** A copy that knows all of the session. Its agent makes it. */
export async function forkOf(conversation: Conversation): Promise<Conversation> {
  const cwd = conversation.get().info?.cwd;
  return conversations.made(await gateway.client.forkSession({ sessionId: conversation.id, ...(cwd === undefined ? {} : { cwd }) }));
}

/**
 * A session of the same agent in the same folder, with a prompt to be changed and
 * sent. What was said before it goes along as a file, which works with any agent;
 * none can copy a conversation up to a place in its middle.
 */
export async function startFrom(conversation: Conversation, item: UserItem, title: string): Promise<Conversation> {
  const { info, earlier } = conversation.get();
  const { rows } = conversation.rows.get();
  const before = rows.slice(0, Math.max(0, rows.findIndex((row) => row.item.key === item.key)));
  const session = await gateway.client.newSession({
    cwd: info?.cwd ?? "/", title: `${title} (from a prompt)`, ...(info ? { agent: info.agent } : {}), ...(info?.model ? { model: info.model } : {}),
  });
  const made = conversations.made(session);
  const said = before.length === 0 ? [] : [historyFile(markdownOf(before, title), earlier > 0)];
  made.draft = {
    remarks: [],
    text: wordsOf(item.blocks),
    attachments: [...said, ...item.blocks.filter((b) => b.type !== "text")].slice(0, limits.count),
  };
  return made;
}

/** A conversation as a file to attach. Of a long one the end, and the file says so. */
export function historyFile(markdown: string, notAll: boolean): ContentBlock {
  const cut = markdown.length > limits.text;
  const text = cut ? markdown.slice(-limits.text) : markdown;
  const lead = cut || notAll ? "What was said before, without its beginning.\n\n" : "What was said before.\n\n";
  return { type: "resource", resource: { uri: "file:///conversation.md", mimeType: "text/markdown", text: lead + text } };
}
