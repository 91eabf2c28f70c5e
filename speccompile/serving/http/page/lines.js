// Text whose places in the answer are known, so that accepted draft tokens can be marked wherever they are shown.

/** A line without its end. at: place of its first character in the answer. */
export function split(text, from = 0) {
  const lines = [];
  const end = /\r\n|\n|\r/g;
  end.lastIndex = from;
  for (let start = from; start <= text.length; start = end.lastIndex) {
    const found = end.exec(text);
    lines.push({ text: text.slice(start, found ? found.index : text.length), at: start });
    if (!found) break;
  }
  return lines;
}

/** Columns of white space at a line's beginning; a tab is four. */
export function indent(line) {
  let columns = 0;
  for (const letter of line.text) {
    if (letter === " ") columns += 1;
    else if (letter === "\t") columns += 4;
    else break;
  }
  return columns;
}

/** The line without its first `count` characters. */
export function cut(line, count) {
  return { text: line.text.slice(count), at: line.at + count };
}

/** The line without at most so many columns of white space. */
export function outdent(line, columns) {
  let count = 0;
  for (let left = columns; left > 0 && count < line.text.length; count += 1) {
    const letter = line.text[count];
    if (letter !== " " && letter !== "\t") break;
    left -= letter === " " ? 1 : 4;
  }
  return cut(line, count);
}

/** Lines joined by "\n" to one text, with the place of each of its characters in the answer. */
export class Passage {
  constructor(lines) {
    this.text = lines.map((line) => line.text).join("\n");
    this._lines = [];
    let start = 0;
    for (const line of lines) {
      this._lines.push({ start, end: start + line.text.length, at: line.at });
      start += line.text.length + 1;
    }
  }

  /** Parts of text[from, to): [text, place in the answer]. A part lies within one line; "\n" is a part of its own. */
  *parts(from, to) {
    let low = 0;
    for (let high = this._lines.length - 1; low < high; ) {
      const middle = (low + high + 1) >> 1;
      if (this._lines[middle].start <= from) low = middle;
      else high = middle - 1;
    }
    for (let index = low; index < this._lines.length && this._lines[index].start < to; index += 1) {
      const line = this._lines[index];
      const start = Math.max(from, line.start);
      const end = Math.min(to, line.end);
      if (end > start) yield [this.text.slice(start, end), line.at + start - line.start];
      if (line.end >= from && line.end < to) yield ["\n", line.at + line.end - line.start];
    }
  }
}

/** Ranges [start, end) of an answer that are accepted draft tokens, in order. */
export class Marks {
  constructor(ranges = []) {
    this.ranges = ranges;
  }

  /** Add the next range. Neighbours become one. */
  add(start, end) {
    const last = this.ranges.at(-1);
    if (last && last[1] === start) last[1] = end;
    else this.ranges.push([start, end]);
  }

  /** Append a text that lies at a place of the answer to an element: nothing in it is ever read as HTML. An indent gets
   * no mark. */
  write(parent, text, at) {
    let low = 0;
    for (let high = this.ranges.length; low < high; ) {
      const middle = (low + high) >> 1;
      if (this.ranges[middle][1] <= at) low = middle + 1;
      else high = middle;
    }
    let done = 0;
    for (let index = low; index < this.ranges.length && done < text.length; index += 1) {
      const [begun, end] = this.ranges[index].map((place) => Math.min(Math.max(place - at, 0), text.length));
      const start = begun === 0 ? Math.min(end, text.length - text.trimStart().length) : begun;
      if (start >= text.length) break;
      if (start === end) continue;
      if (start > done) parent.append(text.slice(done, start));
      const mark = document.createElement("span");
      mark.className = "d";
      mark.textContent = text.slice(start, end);
      parent.append(mark);
      done = end;
    }
    if (done < text.length) parent.append(text.slice(done));
  }
}

const TURNS = /([\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069])/;

/** Name the characters inside code that turn the direction of a text, and end each where it stands: unseen, they let code
 * read as another one. The text stays the same. */
export function nameTurns(code) {
  if (!TURNS.test(code.textContent)) return;
  const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
  const nodes = [];
  while (walker.nextNode()) nodes.push(walker.currentNode);
  for (const node of nodes) {
    const parts = node.data.split(TURNS).map((part, place) => (place % 2 ? turn(part) : part));
    if (parts.length > 1) node.replaceWith(...parts.filter((part) => part !== ""));
  }
}

function turn(letter) {
  const element = document.createElement("span");
  element.className = "turn";
  element.dataset.name = `U+${letter.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
  element.textContent = letter;
  return element;
}
