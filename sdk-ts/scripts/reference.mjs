// Writes docs/typescript-api.mdx: what the packages export, call by call, out of their sources.
//
//   node scripts/reference.mjs [FILE]
import { writeFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import ts from "typescript";

const root = resolve(import.meta.dirname, "..");
const parts = [
  ["sandbox-agent", "sandbox-agent/src/index.ts", "Clients of the gateway."],
  ["sandbox-agent/local", "sandbox-agent/src/local.ts", "A gateway on this machine; Node only."],
  ["acp-http-client", "acp-http-client/src/index.ts", "Streams to any ACP server."],
];

/** The page, with its head. */
export function reference() {
  // Texts and names are all that is wanted: what other packages and the language have need not be read.
  const options = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.NodeNext, noLib: true, types: [], noEmit: true };
  const host = ts.createCompilerHost(options);
  host.resolveModuleNameLiterals = (names, from) => names.map(({ text }) => {
    const own = text.startsWith(".") && !text.endsWith(".gen.js");
    return { resolvedModule: own ? { resolvedFileName: resolve(dirname(from), text.replace(/\.js$/, ".ts")), extension: ".ts" } : undefined };
  });
  const program = ts.createProgram(parts.map(([, file]) => resolve(root, file)), options, host);
  const checker = program.getTypeChecker();
  const seen = new Set();
  let out = `---
title: TypeScript reference
description: Every class, call and option of the two packages
---

{/* This page is generated from the sources: npm run generate in sdk-ts. */}

[TypeScript](/typescript) has the examples. What a type of the protocol has in it stands in the schema of ACP; types of the HTTP API are in
the [HTTP API](/http-api).
`;
  for (const [name, file, about] of parts) {
    out += `\n## ${name}\n\n${about}\n`;
    const source = program.getSourceFile(resolve(root, file));
    const exported = checker.getExportsOfModule(checker.getSymbolAtLocation(source)).map((s) => (s.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(s) : s));
    for (const symbol of exported) {
      // What another package has made stands with that one.
      const at = symbol.declarations?.find((d) => d.getSourceFile().fileName.startsWith(`${dirname(resolve(root, file))}/`));
      if (!at || seen.has(symbol)) continue;
      seen.add(symbol);
      out += entry(checker, symbol, at);
    }
  }
  return out;
}

function entry(checker, symbol, at) {
  const name = symbol.getName();
  const head = `\n### ${name}\n\n${prose(checker, symbol)}`;
  if (ts.isClassDeclaration(at) || ts.isInterfaceDeclaration(at)) {
    const members = at.members.filter(isPublic);
    if (members.length === 0) return head;
    return `${head}<AccordionGroup>\n${members.map((m) => member(checker, m)).join("")}</AccordionGroup>\n`;
  }
  if (ts.isFunctionDeclaration(at)) return `${head}${code(signature(at))}`;
  return `${head}${code(at.getText().replace(/^export /, ""))}`;
}

function isPublic(m) {
  if (ts.isSemicolonClassElement(m) || m.name && ts.isPrivateIdentifier(m.name)) return false;
  return (ts.getCombinedModifierFlags(m) & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected)) === 0;
}

function member(checker, m) {
  const symbol = m.name && checker.getSymbolAtLocation(m.name);
  const name = ts.isConstructorDeclaration(m) ? "constructor" : m.name ? m.name.getText() : m.getText();
  const called = (ts.isMethodDeclaration(m) || ts.isMethodSignature(m)) ? `${name}(${m.parameters.map((p) => p.name.getText().startsWith("{") ? "options" : `${p.dotDotDotToken ? "..." : ""}${p.name.getText()}`).join(", ")})` : name;
  const text = symbol ? ts.displayPartsToString(symbol.getDocumentationComment(checker)).trim() : "";
  const short = plain(text.split(/(?<=\.)\s/)[0]);
  return `<Accordion title="${called.replaceAll('"', "'")}"${short ? ` description="${short}"` : ""}>\n\n${text && plain(text) !== short ? `${escaped(text)}\n\n` : ""}${code(signature(m))}\n</Accordion>\n`;
}

/** A text for an attribute of an element. */
const plain = (text) => text.replaceAll("\n", " ").replaceAll('"', "'").replaceAll("`", "");

/** What is declared, without what it does. */
function signature(node) {
  const printer = ts.createPrinter({ removeComments: true });
  const bare = ts.isMethodDeclaration(node)
    ? ts.factory.createMethodDeclaration(kept(node), node.asteriskToken, node.name, node.questionToken, node.typeParameters, node.parameters, node.type, undefined)
    : ts.isFunctionDeclaration(node)
      ? ts.factory.createFunctionDeclaration(undefined, node.asteriskToken, node.name, node.typeParameters, node.parameters, node.type, undefined)
      : ts.isConstructorDeclaration(node)
        ? ts.factory.createConstructorDeclaration(undefined, node.parameters, undefined)
        : ts.isGetAccessorDeclaration(node)
          ? ts.factory.createPropertyDeclaration([ts.factory.createModifier(ts.SyntaxKind.ReadonlyKeyword)], node.name, undefined, node.type, undefined)
          : ts.isPropertyDeclaration(node)
            ? ts.factory.createPropertyDeclaration(node.modifiers, node.name, node.questionToken, node.type, node.type ? undefined : node.initializer)
            : node;
  return printer.printNode(ts.EmitHint.Unspecified, bare, node.getSourceFile());
}

const kept = (node) => node.modifiers?.filter((m) => m.kind === ts.SyntaxKind.StaticKeyword);

function prose(checker, symbol) {
  const text = ts.displayPartsToString(symbol.getDocumentationComment(checker)).trim();
  return text ? `${escaped(text)}\n\n` : "";
}

const code = (text) => `\`\`\`text\n${text}\n\`\`\`\n`;

/** Markdown in which nothing is an element or an expression of MDX, outside of its code. */
const escaped = (text) => text.replace(/\{@link (\w+)\s*\}/g, "`$1`").split(/(```[\s\S]*?```|`[^`]*`)/).map((part, i) => (i % 2 === 1 ? part.replace(/^```\w+/, "```text") : part.replace(/[{}<]/g, "\\$&"))).join("");

if (process.argv[1] === import.meta.filename) writeFileSync(process.argv[2] ?? resolve(root, "../docs/typescript-api.mdx"), reference());
