/** The folder that a path is in. */
export function parentOf(path: string): string {
  const at = path.replace(/\/+$/, "").lastIndexOf("/");
  return at <= 0 ? "/" : path.slice(0, at);
}

export const join = (folder: string, name: string) => `${folder.replace(/\/+$/, "")}/${name}`;

/** The parts of an absolute path, each with where it leads. */
export function crumbs(path: string): { name: string; path: string }[] {
  const out = [{ name: "/", path: "/" }];
  let at = "";
  for (const name of path.split("/").filter((part) => part !== "")) {
    at += `/${name}`;
    out.push({ name, path: at });
  }
  return out;
}

/** What is wrong with the name of a file; undefined when nothing is. */
export function badName(name: string): string | undefined {
  if (name.trim() === "") return "A name is needed.";
  if (name.includes("/")) return "A name has no slash.";
  if (name === "." || name === "..") return "This name means a folder.";
  return undefined;
}

const pictures: Record<string, string> = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp", avif: "image/avif", bmp: "image/bmp", ico: "image/x-icon", svg: "image/svg+xml" };

/** The kind of a picture by its name; undefined for other files. */
export const pictureType = (name: string) => pictures[name.split(".").pop()?.toLowerCase() ?? ""];

/** The text of a file; undefined when it is none. */
export function textOf(bytes: Uint8Array): string | undefined {
  if (bytes.subarray(0, 8000).includes(0)) return undefined;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

/** How the lines of a text end. A browser's text field knows one way only. */
export function endings(text: string): "lf" | "crlf" | "mixed" {
  const crlf = text.split("\r\n").length - 1;
  const all = text.split("\n").length - 1;
  return crlf === 0 ? "lf" : crlf === all ? "crlf" : "mixed";
}

export const withLF = (text: string) => text.replaceAll("\r\n", "\n");
export const withCRLF = (text: string) => withLF(text).replaceAll("\n", "\r\n");

/**
 * The whole lines of a part of a file; where a line is longer than the part, whole characters of UTF-8.
 * `begins` says that the part begins with a line or goes on with one, `last` that the file ends with it.
 */
export function wholeLines(part: Uint8Array, begins: boolean, last: boolean): { readonly from: number; readonly to: number } {
  let from = 0;
  const newline = begins ? -1 : part.indexOf(10);
  if (newline >= 0 && newline + 1 < part.length) from = newline + 1;
  else while (from < Math.min(3, part.length) && (part[from]! & 0xc0) === 0x80) from++;
  let to = part.length;
  if (!last) {
    const newline = part.lastIndexOf(10);
    if (newline >= from) to = newline + 1;
    else {
      let begin = to;
      while (begin > Math.max(from, to - 4) && (part[begin - 1]! & 0xc0) === 0x80) begin--;
      const lead = part[begin - 1] ?? 0;
      const length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
      if (begin > from && length > to - begin + 1) to = begin - 1;
    }
  }
  return { from, to };
}
