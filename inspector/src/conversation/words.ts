import type { ContentBlock } from "sandbox-agent";
import { nameOf } from "./attachments.js";
import type { FileChange, Item, PlanItem, Row, ToolItem, UserItem } from "./items.js";

const ofBlock = (block: ContentBlock) => (block.type === "text" ? block.text : `[${block.type === "resource_link" ? block.name : nameOf(block)}]`);

/** What a person said, as text. */
export const promptText = (item: UserItem) => item.blocks.map(ofBlock).join("\n");

const ofChange = ({ operation, path, from }: FileChange) => (from === undefined ? `${operation} ${path}` : `${operation} ${from} to ${path}`);

const ofDocument = ({ document }: PlanItem) => (document === undefined ? undefined : document.type === "markdown" ? document.text : document.type === "file" ? document.uri : `[plan: ${document.name}]`);

function toolText(item: ToolItem): string {
  const content = item.content.map((c) => (c.type === "diff" ? `${c.path}\n${c.newText}` : c.type === "change" ? ofChange(c.change) : c.type === "content" ? ofBlock(c.content) : c.type === "output" ? c.text : ""));
  return [item.title, ...content, ...item.children.map((child) => (child.kind === "tool" ? toolText(child) : child.segments.whole))].join("\n");
}

/** The words of a row that can be searched. */
export function wordsOf(row: Row): string {
  const { item } = row;
  switch (item.kind) {
    case "user":
      return promptText(item);
    case "text":
      return item.segments.all[row.segment]?.text ?? "";
    case "thought":
      return item.segments.whole;
    case "tool":
      return toolText(item);
    case "plan":
      return ofDocument(item) ?? item.entries.map((e) => e.content).join("\n");
    case "note":
      return `${item.title}\n${item.detail ?? ""}`;
    case "turn":
      return item.error ?? "";
  }
}

/** A code block around a text, with a fence that is not in it. */
function fenced(text: string, language = ""): string {
  let fence = "```";
  while (text.includes(fence)) fence += "`";
  return `${fence}${language}\n${text.replace(/\n$/, "")}\n${fence}`;
}

function toolMarkdown(item: ToolItem): string {
  const content = item.content.map((c) => (c.type === "diff" ? `${c.path}\n\n${fenced(c.newText)}` : c.type === "change" ? ofChange(c.change) : c.type === "content" ? (c.content.type === "text" && !c.content.text.startsWith("```") ? fenced(c.content.text) : ofBlock(c.content)) : c.type === "output" && c.text !== "" ? fenced(c.text) : ""));
  return [`**${item.title || item.tool}** (${item.asked?.answer?.name ?? item.status})`, ...content.filter((c) => c !== "")].join("\n\n");
}

/** A conversation as Markdown, as far as it is read. */
export function markdownOf(rows: readonly Row[], title: string): string {
  const parts = [`# ${title}`];
  let before: Item | undefined;
  for (const { item } of rows) {
    if (before?.key === item.key) continue; // another segment of the same text
    before = item;
    if (item.kind === "user") parts.push("## Prompt", promptText(item));
    else if (item.kind === "text") parts.push(...(item.segments.whole.trim() === "" ? [] : [item.segments.whole.trim()]));
    else if (item.kind === "tool") parts.push(toolMarkdown(item));
    else if (item.kind === "plan") parts.push(ofDocument(item) ?? item.entries.map((e) => `- [${e.status === "completed" ? "x" : " "}] ${e.content}`).join("\n"));
    else if (item.kind === "note") parts.push(`> ${item.title}`);
    else if (item.kind === "turn" && item.error !== undefined) parts.push(`> The turn failed: ${item.error}`);
  }
  return `${parts.join("\n\n")}\n`;
}
