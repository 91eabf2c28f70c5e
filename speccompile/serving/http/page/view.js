// The conversation's elements. Texts of people and of models become text nodes, never HTML.

import { Marks } from "./lines.js";
import { MarkdownView } from "./markdown.js";
import { showStats } from "./stats.js";

const ENDS = {
  length: "It ends here: this is the limit of new tokens, or of the context.",
  stopped: "You stopped the answer.",
  interrupted: "The page was closed before the answer had ended.",
};

function make(tag, { className = "", text = "" } = {}, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  element.append(...children);
  return element;
}

export function button(text, act, className = "quiet") {
  const element = make("button", { className, text });
  element.type = "button";
  element.addEventListener("click", act);
  return element;
}

/** A button that copies a text. says: for screen readers, where there are several. */
export function copyButton(read, says) {
  const element = button("Copy", async () => {
    element.textContent = (await copied(read())) ? "Copied" : "Not copied";
    setTimeout(() => (element.textContent = "Copy"), 1500);
  });
  element.setAttribute("aria-label", says);
  return element;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // no clipboard without TLS, but on the machine itself
  }
  const area = make("textarea", { className: "hidden" });
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

/** A picture of a message; its name where the browser has not kept it. */
export function thumbnail({ name, url }) {
  if (!url) return make("p", { className: "lost", text: `${name}: this browser has not kept it, and the model no longer sees it.` });
  const image = make("img");
  Object.assign(image, { src: url, alt: name, title: name });
  return image;
}

/** An exchange: what was asked, the answer, how it went, and what can be done with it. */
export class ExchangeView {
  /** actions: regenerate, edit, goOn, retry. markdown: whether to read the answer as Markdown. */
  constructor(exchange, actions, { markdown, announce }) {
    this.exchange = exchange;
    this._actions = actions;
    this._announce = announce;
    this._marks = new Marks(exchange.marks);
    this._isPlain = exchange.isText && !markdown;
    this._isMarkdown = markdown;
    this.element = make("article");
    if (!this._isPlain) {
      const asked = make("div", { className: "asked" });
      if (exchange.pictures?.length) asked.append(make("div", { className: "seen" }, ...exchange.pictures.map(thumbnail)));
      if (exchange.asked) asked.append(make("div", { className: "bubble", text: exchange.asked }));
      this.element.append(make("h2", { className: "hidden", text: "You" }), asked);
    }
    this._answer = make("div", { className: "answer" });
    this._said = make("div");
    const stats = make("details", { className: "stats" }, make("summary"), make("div"));
    stats.addEventListener("toggle", () => {
      showStats(stats, exchange.stats);
      if (stats.open) stats.scrollIntoView({ block: "nearest" });
    });
    this._stats = stats;
    this._doing = make("div", { className: "doing" });
    this._under = make("div", { className: "under" }, this._doing, stats);
    const heading = make("h2", { className: "hidden", text: this._isPlain ? "Text" : "Answer" });
    this.element.append(heading, this._answer, this._said, this._under);
    this._begin();
    this.draw();
  }

  _begin() {
    this._drawn = 0;
    this._markdown = null;
    if (this._isMarkdown) {
      this._markdown = new MarkdownView(this._answer, this._marks, copyButton);
      return;
    }
    this._plain = make("div", { className: this._isPlain ? "plain text" : "plain" });
    if (this._isPlain) this._plain.append(make("span", { className: "lead", text: this.exchange.asked }));
    this._answer.append(this._plain);
  }

  /** Draw what has come since. */
  draw() {
    const { exchange } = this;
    const isWhole = !exchange.isOpen;
    if (this._markdown) {
      for (const node of this._markdown.draw(exchange.answer, isWhole)) {
        const said = node.className === "code" ? node.querySelector("pre") : node; // without its button
        this._announce(exchange, said.textContent);
      }
    } else {
      for (const line of exchange.answer.slice(this._drawn).split(/(?<=\n)/)) {
        this._marks.write(this._plain, line, this._drawn);
        this._drawn += line.length;
      }
      if (isWhole) this._announce(exchange, exchange.answer);
    }
    this._answer.classList.toggle("writing", exchange.isOpen);
    this._answer.setAttribute("aria-busy", String(exchange.isOpen));
    this._stats.hidden = !exchange.stats.chunks;
    if (exchange.stats.chunks) showStats(this._stats, exchange.stats);
  }

  /** Show how it ended, and what can be done now. isLast: whether nothing was asked since. */
  settle(isLast) {
    const { exchange } = this;
    this._said.replaceChildren();
    this._doing.replaceChildren();
    if (exchange.isOpen) return;
    if (exchange.error) this._said.append(this._failure(exchange.error, isLast));
    else if (exchange.end in ENDS) this._said.append(make("p", { className: "end", text: ENDS[exchange.end] }));
    else if (!exchange.answer) this._said.append(make("p", { className: "end", text: "The answer is empty." }));
    if (exchange.answer) this._doing.append(copyButton(() => exchange.answer, "Copy answer"));
    if (!isLast) return;
    if (!exchange.error) this._doing.append(button("Regenerate", this._actions.regenerate));
    this._doing.append(button("Edit", this._actions.edit));
    if (exchange.isText && exchange.end === "length") this._doing.append(button("Continue", this._actions.goOn));
  }

  _failure(error, isLast) {
    const box = make("div", { className: "failed" }, make("strong", { text: error.title }), make("p", { text: error.message }));
    if (!isLast) return box;
    box.setAttribute("role", "alert");
    box.append(button("Try again", this._actions.retry, ""));
    this._countDown(box.lastChild, Math.min(600, Math.ceil(error.retryAfter ?? 0)));
    return box;
  }

  /** Let a button wait for as long as the server asked. */
  _countDown(element, seconds) {
    element.disabled = seconds > 0;
    element.textContent = seconds > 0 ? `Try again in ${seconds} s` : "Try again";
    if (seconds > 0) setTimeout(() => this._countDown(element, seconds - 1), 1000);
  }
}
