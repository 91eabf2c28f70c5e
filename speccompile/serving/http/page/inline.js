// Markdown inside a paragraph: code, emphasis, links. Makes elements and text nodes, never HTML from a text.

import { nameTurns } from "./lines.js";

const DEEPEST = 8; // of emphasis in emphasis; below, marks are text
const FARTHEST = 4000; // characters to an end of emphasis or of a link's text
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const SPACE = /\s/;
const WORD = /[\p{L}\p{N}]/u;
const ADDRESS = /https?:\/\/[^\s<>"'`\\^{|}]+/iy;
const TAGS = { "*": "em", _: "em", "**": "strong", __: "strong", "~~": "del" };

/** Append the Markdown in passage[from, to) to an element. inLink: the element is a link, which holds no other. */
export function inline(parent, passage, marks, from = 0, to = passage.text.length, depth = 0, inLink = false) {
  const { text } = passage;
  const missing = new Set(); // ends that do not come any more: they are looked for once
  let plain = from; // what is not yet written is text from here
  const flush = (end) => write(parent, passage, marks, plain, end);
  for (let place = from; place < to; ) {
    const found = depth < DEEPEST ? special(text, place, to, missing) : null;
    if (!found || (found.href && inLink)) {
      place += 1;
      continue;
    }
    flush(place);
    if (found.tag) {
      const element = document.createElement(found.tag);
      if (found.href) point(element, found.href);
      if (found.tag === "code") {
        write(element, passage, marks, found.start, found.end, " ");
        nameTurns(element);
      } else inline(element, passage, marks, found.start, found.end, depth + 1, inLink || Boolean(found.href));
      parent.append(element);
    } else {
      write(parent, passage, marks, found.start, found.end);
    }
    plain = place = found.next;
  }
  flush(to);
}

/** What begins at a place: its content [start, end), where the text goes on, and the element that it becomes. */
function special(text, place, to, missing) {
  switch (text[place]) {
    case "\\":
      if (place + 1 < to && PUNCTUATION.test(text[place + 1])) return { start: place + 1, end: place + 2, next: place + 2 };
      return null;
    case "`":
      return code(text, place, to, missing);
    case "*":
    case "_":
    case "~":
      return emphasis(text, place, to, missing);
    case "!":
      return text[place + 1] === "[" ? link(text, place + 1, to) : null; // a picture is a link: nothing is loaded
    case "[":
      return link(text, place, to);
    case "<":
      return bare(text, place + 1, to, ">");
    case "h":
    case "H":
      return place > 0 && WORD.test(text[place - 1]) ? null : bare(text, place, to, "");
    default:
      return null;
  }
}

function run(text, place, to) {
  let end = place;
  while (end < to && text[end] === text[place]) end += 1;
  return end - place;
}

function code(text, place, to, missing) {
  const ticks = run(text, place, to);
  let start = place + ticks;
  const whole = { start: place, end: start, next: start }; // no end: the ticks are text
  if (missing.has(ticks)) return whole;
  for (let end = text.indexOf("`", start); end >= 0 && end < to; end = text.indexOf("`", end)) {
    const closing = run(text, end, to);
    if (closing === ticks) {
      const next = end + closing;
      const isPadded = text[start] === " " && text[end - 1] === " " && text.slice(start, end).trim();
      if (isPadded) [start, end] = [start + 1, end - 1];
      return { tag: "code", start, end, next };
    }
    end += closing;
  }
  missing.add(ticks);
  return whole;
}

function emphasis(text, place, to, missing) {
  const letter = text[place];
  const length = run(text, place, to);
  const whole = { start: place, end: place + length, next: place + length };
  const size = letter === "~" ? 2 : Math.min(length, 2);
  const sign = letter.repeat(size);
  const start = place + size;
  const isInWord = letter === "_" && place > 0 && WORD.test(text[place - 1]);
  if (length > 3 || length < size || whole.end >= to || SPACE.test(text[whole.end]) || isInWord) return whole;
  if (missing.has(sign)) return whole;
  const farthest = Math.min(to, start + FARTHEST);
  for (let end = text.indexOf(sign, whole.end); end >= 0 && end + size <= farthest; end = text.indexOf(sign, end)) {
    const closing = run(text, end, to);
    const isEnd = !SPACE.test(text[end - 1]) && text[end - 1] !== "\\" && (closing === size || closing >= 3);
    const goesOn = letter === "_" && end + closing < to && WORD.test(text[end + closing]);
    if (isEnd && !goesOn) {
      const last = end + closing - size; // of a longer run the first signs end what is inside
      return { tag: TAGS[sign], start, end: last, next: end + closing };
    }
    end += closing;
  }
  missing.add(sign);
  return whole;
}

/** [text](address), where the address is one that may be opened. */
function link(text, place, to) {
  const last = Math.min(to, place + FARTHEST);
  let open = 0;
  let end = place;
  for (; end < last; end += 1) {
    if (text[end] === "\\") end += 1;
    else if (text[end] === "[") open += 1;
    else if (text[end] === "]" && --open === 0) break;
    if (open > DEEPEST) return null;
  }
  if (end >= last || text[end + 1] !== "(") return null;
  const closing = closed(text, end + 2, to);
  if (closing < 0) return null;
  const href = address(text.slice(end + 2, closing).trim().split(/\s/, 1)[0].replace(/^<|>$/g, ""));
  if (!href) return null;
  return { tag: "a", href, start: place + 1, end, next: closing + 1 };
}

/** Place of the ")" that ends an address, which may have pairs of parentheses. */
function closed(text, place, to) {
  let open = 0;
  for (let end = place; end < Math.min(to, place + FARTHEST) && text[end] !== "\n"; end += 1) {
    if (text[end] === "(") open += 1;
    else if (text[end] === ")" && open-- === 0) return end;
  }
  return -1;
}

/** An address that stands in the text, behind which a text may have to come. */
function bare(text, place, to, behind) {
  ADDRESS.lastIndex = place;
  const found = ADDRESS.exec(text);
  if (!found) return null;
  let end = Math.min(to, place + found[0].length);
  if (behind) {
    if (text[end] !== behind || end >= to) return null;
  } else {
    while (/[.,:;!?*_~)\]]/.test(text[end - 1]) && !(text[end - 1] === ")" && text.slice(place, end).includes("("))) end -= 1;
  }
  const href = address(text.slice(place, end));
  return href && { tag: "a", href, start: place, end, next: end + behind.length };
}

/** An address of the web as the browser writes it, or null: no other scheme, and none that begins at this server. */
export function address(written) {
  if (!/^https?:\/\//i.test(written)) return null;
  try {
    const url = new URL(written);
    return url.protocol === "https:" || url.protocol === "http:" ? url.href : null;
  } catch {
    return null;
  }
}

function point(element, href) {
  element.href = href;
  element.title = href;
  element.target = "_blank";
  element.rel = "noopener noreferrer nofollow";
}

/** Append a part of a passage as text. lineBreak: text for an end of a line; by default it is a <br>. */
function write(parent, passage, marks, from, to, lineBreak = null) {
  for (const [text, at] of passage.parts(from, to)) {
    if (text !== "\n") marks.write(parent, text, at);
    else parent.append(lineBreak ?? document.createElement("br"));
  }
}
