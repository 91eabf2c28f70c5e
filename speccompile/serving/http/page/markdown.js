// Markdown of an answer, drawn while it comes. Small on purpose: what it does not know is shown as text.

import { inline } from "./inline.js";
import { Passage, cut, indent, nameTurns, outdent, split } from "./lines.js";

const DEEPEST = 8; // lists and quotes in each other; below, they are text
const FENCE = /^ {0,3}(`{3,}|~{3,})(.*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+|$)/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^([ \t]*)([-*+]|\d{1,9}[.)])([ \t]+|$)/;

/** An answer's element. Blocks that are complete stay as they are; only what may still change is drawn again. */
export class MarkdownView {
  constructor(element, marks, copy) {
    this._element = element;
    this._marks = marks;
    this._copy = copy;
    this._from = 0;
    this._open = [];
  }

  /** Draw a text that begins like the one before. Return the elements that are complete. */
  draw(text, isWhole = false) {
    const blocks = parse(split(text, this._from), this._marks, this._copy);
    for (const block of this._open) block.node.remove();
    for (const block of blocks) this._element.append(block.node);
    const complete = isWhole ? blocks.length : this._complete(text, blocks);
    this._open = blocks.slice(complete);
    this._from = isWhole ? text.length : (this._open[0]?.at ?? this._from);
    return blocks.slice(0, complete).map((block) => block.node);
  }

  /** Number of blocks that cannot change any more. One whose first line is not whole may become a part of the one
   * before: "-" may begin a list, or the line below a table's head. */
  _complete(text, blocks) {
    const last = blocks.at(-1);
    const isBegun = last && /[\n\r]/.test(text.slice(last.at));
    return Math.max(0, blocks.length - (isBegun ? 1 : 2));
  }
}

/** Blocks of some lines: their element, and the place where they begin. */
function parse(lines, marks, copy, depth = 0) {
  const blocks = [];
  for (let index = 0; index < lines.length; ) {
    if (!lines[index].text.trim()) {
      index += 1;
      continue;
    }
    const read = depth < DEEPEST ? (READERS.find((reader) => reader.begins(lines, index)) ?? PARAGRAPH) : PARAGRAPH;
    const [node, next] = read.take(lines, index, { marks, copy, depth });
    blocks.push({ node, at: lines[index].at });
    index = next;
  }
  return blocks;
}

function make(tag, ...children) {
  const element = document.createElement(tag);
  element.append(...children);
  return element;
}

/** Read lines[index..] while they belong to a block. */
function linesWhile(lines, index, belongs) {
  let next = index;
  while (next < lines.length && belongs(lines[next], next)) next += 1;
  return next;
}

const fence = {
  begins(lines, index) {
    const found = FENCE.exec(lines[index].text);
    return found && !(found[1][0] === "`" && found[2].includes("`"));
  },
  take(lines, index, { marks, copy }) {
    const [, sign, info] = FENCE.exec(lines[index].text);
    const closes = (line) => {
      const text = line.text.trim();
      return indent(line) < 4 && text.length >= sign.length && text === sign[0].repeat(text.length);
    };
    const end = linesWhile(lines, index + 1, (line) => !closes(line));
    const inside = lines.slice(index + 1, end).map((line) => outdent(line, indent(lines[index])));
    return [codeBlock(inside, info.trim().split(/[\s,{]/, 1)[0], marks, copy), Math.min(end + 1, lines.length)];
  },
};

function codeBlock(lines, language, marks, copy) {
  const passage = new Passage(lines);
  const code = make("code");
  for (const [text, at] of passage.parts(0, passage.text.length)) marks.write(code, text, at);
  nameTurns(code);
  const pre = make("pre", code);
  pre.tabIndex = 0; // a keyboard can scroll it
  pre.setAttribute("role", "group");
  pre.setAttribute("aria-label", language ? `Code, ${language.slice(0, 30)}` : "Code");
  const bar = make("div", make("span", language.slice(0, 30) || "code"), copy(() => passage.text, "Copy code"));
  bar.className = "bar";
  const block = make("div", bar, pre);
  block.className = "code";
  return block;
}

const heading = {
  begins: (lines, index) => HEADING.test(lines[index].text),
  take(lines, index, { marks }) {
    const [opening, signs] = HEADING.exec(lines[index].text);
    const line = cut(lines[index], opening.length);
    line.text = line.text.trimEnd();
    const title = line.text.replace(/#{1,50}$/, "");
    if (!title || /[ \t]$/.test(title)) line.text = title.trimEnd();
    const element = make(`h${Math.min(6, signs.length + 2)}`); // the page's own are above
    inline(element, new Passage([line]), marks);
    return [element, index + 1];
  },
};

const rule = {
  begins: (lines, index) => lines[index].text.length < 200 && RULE.test(lines[index].text),
  take: (lines, index) => [make("hr"), index + 1],
};

const quote = {
  begins: (lines, index) => QUOTE.test(lines[index].text),
  take(lines, index, { marks, copy, depth }) {
    const next = linesWhile(lines, index, (line) => QUOTE.test(line.text));
    const inside = lines.slice(index, next).map((line) => cut(line, QUOTE.exec(line.text)[0].length));
    return [make("blockquote", ...parse(inside, marks, copy, depth + 1).map((block) => block.node)), next];
  },
};

const list = {
  begins: (lines, index) => ITEM.test(lines[index].text) && indent(lines[index]) < 4,
  take(lines, index, context) {
    const first = ITEM.exec(lines[index].text);
    const isOrdered = first[2].length > 1;
    const element = make(isOrdered ? "ol" : "ul");
    if (isOrdered && Number.parseInt(first[2], 10) !== 1) element.start = Number.parseInt(first[2], 10);
    const kind = first[2].at(-1);
    let next = index;
    for (let item; (item = itemAt(lines, next, kind)); ) {
      const end = endOfItem(lines, next, item);
      const inside = [cut(lines[next], Math.min(item.width, lines[next].text.length))];
      for (const line of lines.slice(next + 1, end)) inside.push(outdent(line, item.columns));
      element.append(make("li", ...parse(inside, context.marks, context.copy, context.depth + 1).map((block) => block.node)));
      next = end;
    }
    return [element, next];
  },
};

/** The item that begins at a line, possibly behind blank ones: characters and columns before its content. */
function itemAt(lines, index, kind) {
  if (index >= lines.length) return null;
  const found = ITEM.exec(lines[index].text);
  if (!found || found[2].at(-1) !== kind || indent(lines[index]) >= 4 || RULE.test(lines[index].text)) return null;
  const spaces = found[3].length > 4 ? 1 : Math.max(1, found[3].length);
  const width = found[1].length + found[2].length + spaces;
  return { width, columns: indent(lines[index]) + found[2].length + spaces, at: indent(lines[index]) };
}

/** The line behind an item. Models indent what belongs to an item by two columns as often as by its content's. */
function endOfItem(lines, index, item) {
  const belongs = Math.min(item.columns, item.at + 2);
  let next = index + 1;
  for (; next < lines.length; next += 1) {
    const line = lines[next];
    if (!line.text.trim()) continue;
    const isParagraph = lines[next - 1].text.trim() && !READERS.some((reader) => reader.begins(lines, next));
    if (indent(line) < belongs && !isParagraph) break;
  }
  return next;
}

const table = {
  begins(lines, index) {
    if (!lines[index].text.includes("|") || index + 1 >= lines.length) return false;
    const below = cells(lines[index + 1]);
    return below.every((cell) => /^:?-+:?$/.test(cell.text)) && below.length === cells(lines[index]).length;
  },
  take(lines, index, { marks }) {
    const sides = cells(lines[index + 1]).map((cell) => side(cell.text));
    const row = (tag, line) => {
      const filled = cells(line).map((cell, column) => {
        const element = make(tag);
        if (sides[column]) element.className = sides[column];
        inline(element, new Passage([cell]), marks);
        return element;
      });
      return make("tr", ...filled);
    };
    const next = linesWhile(lines, index + 2, (line) => line.text.includes("|"));
    const body = lines.slice(index + 2, next).map((line) => row("td", line));
    const block = make("div", make("table", make("thead", row("th", lines[index])), make("tbody", ...body)));
    block.className = "table";
    return [block, next];
  },
};

/** Class of a column's cells by the line below the head, as in ":-:"; none where they begin at the start. */
const side = (dashes) => (!dashes.endsWith(":") ? "" : dashes.startsWith(":") ? "center" : "end");

/** Cells of a table's line. */
function cells(line) {
  const found = [];
  let start = 0;
  for (let place = 0; place <= line.text.length; place += 1) {
    if (place < line.text.length && (line.text[place] !== "|" || line.text[place - 1] === "\\")) continue;
    const written = line.text.slice(start, place);
    const cell = cut(line, start + written.length - written.trimStart().length);
    cell.text = written.trim();
    found.push(cell);
    start = place + 1;
  }
  if (found.length > 1 && !found[0].text) found.shift();
  if (found.length > 1 && !found.at(-1).text) found.pop();
  return found;
}

const READERS = [fence, heading, rule, quote, list, table];

const PARAGRAPH = {
  take(lines, index, { marks, depth }) {
    const isMore = (line, place) =>
      place === index || (line.text.trim() && (depth >= DEEPEST || !READERS.some((reader) => reader.begins(lines, place))));
    const next = linesWhile(lines, index, isMore);
    const trimmed = lines.slice(index, next).map((line) => {
      const inner = outdent(line, indent(line));
      return { text: inner.text.trimEnd(), at: inner.at };
    });
    const element = make("p");
    inline(element, new Passage(trimmed), marks);
    return [element, next];
  },
};
