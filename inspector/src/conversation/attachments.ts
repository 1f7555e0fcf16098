import type { ContentBlock } from "sandbox-agent";
import { bytes, plural } from "../kit/text.js";

/** What a prompt may carry. The gateway takes 32 MiB in one message, and pictures grow by a third on the way. */
export const limits = { count: 10, image: 5_000_000, text: 1_000_000, total: 18_000_000 } as const;

const images = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

const sizeOf = (block: ContentBlock) => (block.type === "image" ? block.data.length : block.type === "resource" && "text" in block.resource ? block.resource.text.length : 0);

/** Turns files into blocks of a prompt; for those that cannot be, says why: each reason once. */
export async function attach(files: readonly File[], already: readonly ContentBlock[]): Promise<{ blocks: ContentBlock[]; problems: string[] }> {
  const blocks: ContentBlock[] = [];
  const problems = new Map<string, string[]>(); // names of files, by what is wrong
  const refuse = (file: File, why: string) => void problems.set(why, [...(problems.get(why) ?? []), file.name]);
  let total = already.reduce((n, b) => n + sizeOf(b), 0);
  for (const file of files) {
    if (already.length + blocks.length >= limits.count) {
      refuse(file, `a prompt carries at most ${limits.count} files`);
      continue;
    }
    const result = await one(file);
    if (typeof result === "string") refuse(file, result);
    else if (total + sizeOf(result) > limits.total) refuse(file, `all files of a prompt together have at most ${bytes(limits.total)}`);
    else {
      total += sizeOf(result);
      blocks.push(result);
    }
  }
  return { blocks, problems: [...problems].map(([why, [name, ...others]]) => `${name}${others.length > 0 ? ` and ${plural(others.length, "other file")}` : ""}: ${why}`) };
}

async function one(file: File): Promise<ContentBlock | string> {
  const name = file.name || (file.type.startsWith("image/") ? `pasted.${file.type.slice(6)}` : "pasted.txt");
  const picture = images.has(file.type);
  if (picture && file.size > limits.image) return `pictures have at most ${bytes(limits.image)}, this one has ${bytes(file.size)}`;
  if (!picture && file.size > limits.text) return `text files have at most ${bytes(limits.text)}, this one has ${bytes(file.size)}; put it into the session's folder instead`;
  let content: ArrayBuffer;
  try {
    content = await file.arrayBuffer();
  } catch {
    return "it cannot be read: a folder, or gone meanwhile";
  }
  if (picture) return { type: "image", mimeType: file.type, data: base64(new Uint8Array(content)) };
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(content);
    if (text.includes("\u0000")) return "it is neither a picture nor a text";
    return { type: "resource", resource: { uri: `file:///${encodeURIComponent(name)}`, mimeType: file.type || "text/plain", text } };
  } catch {
    return "it is neither a picture nor a text in UTF-8";
  }
}

export function base64(data: Uint8Array): string {
  let text = "";
  for (let i = 0; i < data.length; i += 0x8000) text += String.fromCharCode(...data.subarray(i, i + 0x8000));
  return btoa(text);
}

/** What an attachment is called. */
export function nameOf(block: ContentBlock): string {
  if (block.type === "image") return "Picture";
  if (block.type === "resource") return decoded(block.resource.uri.split("/").pop() ?? "file");
  return block.type;
}

/** A part of a URI as people read it. Other clients' URIs can have a % that means itself. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
