// Diagrams as pictures. Loaded with the first diagram.
import mermaid from "mermaid";

/** Larger diagrams are not drawn: it would be felt. */
export const limits = { characters: 20_000, edges: 300 } as const;

const token = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function colours(dark: boolean): Record<string, unknown> {
  const [text, soft, line, card, sunk, accent, note] = ["--text", "--soft", "--line-strong", "--card", "--sunk", "--accent-bg", "--warn-bg"].map(token);
  return {
    darkMode: dark, background: token("--card"), fontSize: "14px",
    primaryColor: accent, primaryTextColor: text, primaryBorderColor: token("--accent"), secondaryColor: sunk, secondaryTextColor: text, secondaryBorderColor: line, tertiaryColor: card, tertiaryTextColor: text, tertiaryBorderColor: line,
    lineColor: soft, textColor: text, titleColor: text, edgeLabelBackground: card, clusterBkg: sunk, clusterBorder: line, noteBkgColor: note, noteTextColor: text, noteBorderColor: line,
    actorBkg: accent, actorTextColor: text, actorBorder: token("--accent"), signalColor: text, signalTextColor: text, labelBoxBkgColor: sunk, labelTextColor: text, loopTextColor: text, activationBkgColor: sunk, pieTitleTextColor: text, pieLegendTextColor: text, pieSectionTextColor: text, pieStrokeColor: soft, pieOuterStrokeColor: soft, pieOpacity: "1",
    ...Object.fromEntries(["--accent-bg", "--info-bg", "--warn-bg", "--bad-bg", "--press", "--good-bg", "--hover", "--del", "--add", "--sunk"].map((name, i) => [`pie${i + 1}`, token(name)])),
  };
}

/**
 * What a diagram may not change by what stands in it: everything. The words of an
 * agent choose boxes and arrows, not styles of the page nor what is safe.
 */
const own = ["secure", "securityLevel", "startOnLoad", "maxTextSize", "maxEdges", "suppressErrorRendering", "theme", "themeVariables", "themeCSS", "fontFamily", "altFontFamily", "htmlLabels", "look", "layout", "darkMode", "dompurifyConfig", "logLevel", "elk", "legacyMathML", "forceLegacyMathML", "deterministicIds", "deterministicIDSeed", "wrap", "arrowMarkerAbsolute", "flowchart", "sequence", "class", "state", "er", "gantt", "journey", "timeline", "pie", "gitGraph", "quadrantChart", "xyChart", "requirement", "kanban", "packet", "radar"];

export interface Drawn {
  readonly picture: Blob;
  readonly width: number;
  readonly height: number;
}

/** Boxes can be pictures of other places, which would learn who reads this. The name of that can be written with escapes. */
const loadsPictures = (source: string) => source.includes("@{") && /img|\\/i.test(source);

let next = 0;

/** Draws a diagram. Throws an error that says what is wrong with it. */
export async function draw(source: string, dark: boolean): Promise<Drawn> {
  if (source.length > limits.characters) throw new Error(`it has more than ${limits.characters} characters`);
  if (loadsPictures(source)) throw new Error("pictures in diagrams are not shown here");
  mermaid.initialize({
    startOnLoad: false, securityLevel: "strict", secure: own, suppressErrorRendering: true, maxTextSize: limits.characters, maxEdges: limits.edges, deterministicIds: true,
    theme: "base", themeVariables: colours(dark), fontFamily: "system-ui, sans-serif", htmlLabels: false, flowchart: { htmlLabels: false, useMaxWidth: false }, sequence: { useMaxWidth: false }, class: { htmlLabels: false, useMaxWidth: false }, logLevel: "fatal",
  });
  // It is measured in the page, where nobody sees it, and shown as a picture: what a picture holds can do nothing.
  const place = document.createElement("div");
  place.className = "drawing-place";
  place.setAttribute("aria-hidden", "true");
  document.body.append(place);
  try {
    const { svg } = await mermaid.render(`diagram-${next++}`, source, place);
    const element = new DOMParser().parseFromString(svg, "text/html").querySelector("svg");
    if (!element) throw new Error("nothing was drawn");
    const [, , width = 0, height = 0] = (element.getAttribute("viewBox") ?? "").split(/[\s,]+/).map(Number);
    if (!(width > 0 && height > 0 && width < 50_000 && height < 50_000)) throw new Error("it has no size that can be shown");
    element.setAttribute("width", String(width));
    element.setAttribute("height", String(height));
    element.style.removeProperty("max-width");
    return { picture: new Blob([new XMLSerializer().serializeToString(element)], { type: "image/svg+xml" }), width: Math.ceil(width), height: Math.ceil(height) };
  } finally {
    place.remove();
  }
}
