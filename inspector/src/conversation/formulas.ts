import type { MarkedExtension, Tokens } from "marked";

/** A formula in TeX. */
export interface MathsToken extends Tokens.Generic {
  readonly type: "maths";
  readonly tex: string;
  readonly display: boolean;
}

const token = (raw: string, tex: string, display: boolean): MathsToken => ({ type: "maths", raw, tex: tex.trim(), display });

// A dollar is most often money: a formula has no blank behind its first sign, none before its last one, and no digit behind that.
const inlines: readonly (readonly [RegExp, boolean])[] = [
  [/^\$\$([^$\n](?:[^$]|\\\$)*?)\$\$/, true],
  [/^\$((?![\s$])(?:\\[\s\S]|[^$\\\n])*?(?:\\[\s\S]|[^\s$\\]))\$(?![\d$])/, false],
  [/^\\\(([\s\S]+?)\\\)/, false],
  [/^\\\[([\s\S]+?)\\\]/, true],
];
const blocks: readonly RegExp[] = [/^ {0,3}\$\$[ \t]*\n?((?:(?!\$\$)[\s\S])+?)\n?[ \t]*\$\$[ \t]*(?:\n|$)/, /^ {0,3}\\\[[ \t]*\n?((?:(?!\\\])[\s\S])+?)\n?[ \t]*\\\][ \t]*(?:\n|$)/];

/** Formulas as people and agents write them: `$…$`, `$$…$$`, `\(…\)` and `\[…\]`. */
export const mathsInMarkdown: MarkedExtension = {
  extensions: [
    {
      name: "maths", level: "block",
      start: (text) => /^ {0,3}(?:\$\$|\\\[)/m.exec(text)?.index,
      tokenizer: (text) => {
        for (const block of blocks) {
          const found = block.exec(text);
          if (found?.[1]?.trim()) return token(found[0], found[1], true);
        }
        return undefined;
      },
    },
    {
      name: "maths", level: "inline",
      start: (text) => /\$|\\[([]/.exec(text)?.index,
      tokenizer: (text) => {
        for (const [inline, display] of inlines) {
          const found = inline.exec(text);
          if (found?.[1]?.trim()) return token(found[0], found[1], display);
        }
        return undefined;
      },
    },
  ],
};
