// Formulas as elements of the page. Loaded with the first formula.
import temml from "temml";
import "temml/dist/Temml-Local.css";

const namespace = "http://www.w3.org/1998/Math/MathML";

// What comes out of a formula is what stands here, whatever the formula says. No links, no pictures, no names.
const elements = new Set("math mrow mi mn mo mtext mspace ms mfrac msqrt mroot msub msup msubsup munder mover munderover mmultiscripts mprescripts none mtable mtr mtd mpadded mphantom mstyle menclose merror".split(" "));
const attributes = new Set("display displaystyle scriptlevel mathvariant stretchy fence separator lspace rspace minsize maxsize symmetric largeop movablelimits accent accentunder linethickness width height depth voffset columnalign rowspacing columnspacing columnlines rowlines frame columnspan rowspan notation form dir mathcolor mathbackground mathsize".split(" "));
const styles = /^(color|background-?[cC]olor|padding(-?\w+)?|margin(-?\w+)?|border(-?\w+)*|width|height|text-?[aA]lign|vertical-?[aA]lign|display|math-?\w+|font-?[sS]ize|font-?[wW]eight|font-?[sS]tyle|white-?[sS]pace)$/;
const harmless = /^[-#\w.,%() +]*$/;

/** What a formula may be: it expands its own macros no further, and asks for no more room, in units of a letter. */
const limits = { expand: 1000, size: [30, 30] as [number, number], characters: 5000, deep: 200 };

interface Node {
  readonly type?: string;
  readonly text?: string;
  readonly children?: readonly Node[];
  readonly attributes?: Readonly<Record<string, unknown>>;
  readonly classes?: readonly string[];
  readonly style?: Readonly<Record<string, string>>;
}

function build(node: Node, into: Element | DocumentFragment, depth: number): void {
  if (depth > limits.deep) throw new Error("it is nested too deep");
  if (typeof node.text === "string") return void into.append(node.text);
  const { type } = node;
  if (type === undefined || !elements.has(type)) {
    for (const child of node.children ?? []) build(child, into, depth + 1);
    return;
  }
  const element = document.createElementNS(namespace, type) as MathMLElement;
  for (const [name, value] of Object.entries(node.attributes ?? {})) if (attributes.has(name)) element.setAttribute(name, String(value));
  const classes = (node.classes ?? []).filter((c) => /^(tml-|math)[\w-]*$/.test(c));
  if (classes.length > 0) element.setAttribute("class", classes.join(" "));
  for (const [name, value] of Object.entries(node.style ?? {})) {
    if (styles.test(name) && harmless.test(value) && !/url/i.test(value)) element.style.setProperty(name.replace(/[A-Z]/g, (c) => `-${c.toLowerCase()}`), value);
  }
  for (const child of node.children ?? []) build(child, element, depth + 1);
  into.append(element);
}

/** The formula as MathML. Throws an error that says what is wrong with it. */
export function typeset(tex: string, display: boolean): DocumentFragment {
  if (tex.length > limits.characters) throw new Error(`it has more than ${limits.characters} characters`);
  const tree = temml.__renderToMathMLTree(tex, { displayMode: display, throwOnError: true, trust: false, strict: false, maxExpand: limits.expand, maxSize: limits.size }) as Node;
  const out = document.createDocumentFragment();
  build(tree, out, 0);
  return out;
}
