import { useState } from "react";
import type { ContentBlock } from "sandbox-agent";
import { Dialog } from "../kit/dialog.js";
import { Icon } from "../kit/icons.js";
import { baseName, bytes } from "../kit/text.js";
import { hrefOfFile } from "../state/router.js";
import { Code, languageOf } from "./Code.js";
import { Markdown } from "./Markdown.js";

const pictures = /^image\/(png|jpeg|gif|webp|avif|svg\+xml)$/;

/** A piece of content that is no text of the conversation: a picture, a file, a link. */
export function Block({ block, text = "markdown" }: { block: ContentBlock; text?: "markdown" | "plain" }) {
  switch (block.type) {
    case "text":
      return text === "markdown" ? <Markdown text={block.text} /> : <p className="plain">{block.text}</p>;
    case "image":
      return pictures.test(block.mimeType) ? <Picture data={block.data} type={block.mimeType} name={block.uri ?? undefined} /> : <Chip name={block.uri ?? "image"} note={block.mimeType} />;
    case "audio":
      return <audio controls src={`data:${block.mimeType};base64,${block.data}`} />;
    case "resource_link":
      return <Chip name={block.title ?? block.name} note={block.mimeType ?? undefined} uri={block.uri} size={typeof block.size === "number" ? block.size : undefined} />;
    case "resource":
      return "text" in block.resource
        ? <details className="resource"><summary><Icon name="files" size={14} /> {baseName(block.resource.uri)}</summary><Code code={block.resource.text} language={languageOf(block.resource.uri)} bare /></details>
        : <Chip name={baseName(block.resource.uri)} note={block.resource.mimeType ?? "binary"} size={Math.floor((block.resource.blob.length * 3) / 4)} />;
    default:
      return <Chip name={String((block as { type: string }).type)} note="of a kind that this page does not know" />;
  }
}

function Picture({ data, type, name }: { data: string; type: string; name: string | undefined }) {
  const [large, setLarge] = useState(false);
  const src = `data:${type};base64,${data}`;
  const label = name ? baseName(name) : "Picture";
  return (
    <>
      <button type="button" className="picture" onClick={() => setLarge(true)} aria-label={`${label}, show large`}>
        <img src={src} alt={label} />
      </button>
      {large && <Dialog title={label} wide onClose={() => setLarge(false)}><img src={src} alt={label} /></Dialog>}
    </>
  );
}

/** The path that a file's URI names; undefined for others, and for what is none. */
function pathOf(uri: string): string | undefined {
  try {
    return uri.startsWith("file://") ? decodeURIComponent(uri.slice(7)) : undefined;
  } catch {
    return undefined;
  }
}

function Chip({ name, note, uri, size }: { name: string; note?: string | undefined; uri?: string; size?: number | undefined }) {
  const path = uri === undefined ? undefined : pathOf(uri);
  const inside = (
    <>
      <Icon name="files" size={14} />
      <span className="clip">{name}</span>
      {(note || size !== undefined) && <span className="soft small">{[note, size === undefined ? undefined : bytes(size)].filter(Boolean).join(", ")}</span>}
    </>
  );
  return path ? <a className="chip" href={hrefOfFile(path)} title={path}>{inside}</a> : <span className="chip" title={uri}>{inside}</span>;
}
