// The conversation: asks the server, and keeps what was said.

import { ApiError, stream } from "./api.js";
import { Marks } from "./lines.js";
import { count, emptyStats } from "./stats.js";
import { loadConversation, saveConversation } from "./store.js";
import { ExchangeView } from "./view.js";

const FRAME = 30; // milliseconds between two drawings at least, and
const SHARE = 4; // so many times what the last one took: a long block leaves time for everything else
const SAVE = 1000; // milliseconds between two savings while an answer comes
const NEAR = 60; // pixels from the end that still follow it

export class Conversation {
  /** page: changed(), notice(says, action, act), focus(), unauthorized(error): whether a key was given. */
  constructor(settings, page) {
    this._settings = settings;
    this._page = page;
    this._place = document.getElementById("conversation");
    this._scroll = document.getElementById("scroll");
    this._toEnd = document.getElementById("to-end");
    this._live = document.getElementById("live");
    this._views = [];
    this._running = null;
    this._edited = null;
    this._former = null;
    this.exchanges = [];
    this.onEdit = () => {};
    this._follows = true;
    this._scroll.addEventListener("scroll", () => this._look());
    this._toEnd.addEventListener("click", () => {
      this._follows = true;
      this._follow();
    });
    new ResizeObserver(() => this._follow()).observe(this._scroll);
    addEventListener("pagehide", () => {
      if (this._isChanged) this._save(); // else another tab may have kept more since
      this._isLeft = true; // what breaks now does so because the page is left
    });
    addEventListener("pageshow", () => (this._isLeft = false));
  }

  get isBusy() {
    return this._running !== null;
  }

  /** Show what was kept. model: element whose value is the model's name. */
  begin(model) {
    this._model = model;
    if (this.exchanges.length) return;
    this.exchanges = loadConversation();
    this.drawAgain();
  }

  restore(exchanges) {
    this.exchanges = exchanges;
    this.drawAgain();
    this._save();
  }

  /** Forget everything. Returns it, for those who change their mind. */
  clear() {
    this.stop();
    this._edited = null;
    const cleared = this.exchanges;
    this.restore([]);
    return cleared;
  }

  drawAgain() {
    this._views = [];
    this._place.replaceChildren();
    for (const exchange of this.exchanges) this._show(exchange);
    this._settle();
    this._follows = true;
    this._follow();
  }

  stop() {
    this._running?.abort();
  }

  /** Ask something. An edited message takes the place of the last one. pictures: {name, url} of each. former: the
   * exchange whose answer this one replaces, as soon as something comes. */
  ask(asked, pictures = [], former = null) {
    if (this._edited) this._drop();
    const exchange = { asked, pictures, answer: "", marks: [], isText: !this._settings.bundle.chat, stats: emptyStats(), end: null, error: null, isOpen: true };
    if (former?.answer) this._former = former;
    this.exchanges.push(exchange);
    this._show(exchange);
    this._follows = true;
    this._run(exchange);
  }

  _again() {
    this._page.notice("");
    const former = this._drop();
    this.ask(former.asked, former.pictures, former);
    this._page.focus();
  }

  /** Put the last message into the composer. What is sent next takes its place. */
  edit() {
    const last = this.exchanges.at(-1);
    this._edited = last;
    this.onEdit(last.asked, last.pictures);
    this._page.notice("Sending replaces your last message and its answer.", "Keep it", () => this.keepLast());
  }

  keepLast() {
    if (!this._edited) return;
    this._edited = null;
    this._page.notice("");
    this.onEdit("", []);
  }

  _drop() {
    this._edited = null;
    this._views.pop()?.element.remove();
    return this.exchanges.pop();
  }

  _goOn() {
    const exchange = this.exchanges.at(-1);
    Object.assign(exchange, { end: null, error: null, isOpen: true, stats: emptyStats() });
    this._run(exchange);
    this._page.focus();
  }

  _show(exchange) {
    const actions = { regenerate: () => this._again(), retry: () => this._again(), edit: () => this.edit(), goOn: () => this._goOn() };
    const view = new ExchangeView(exchange, actions, {
      markdown: this._settings.get("markdown"),
      announce: (from, text) => from === this._told && this._say(text),
    });
    this._views.push(view);
    this._place.append(view.element);
  }

  /** Read a text to those who listen: only what is new, part by part. */
  _say(text) {
    const part = document.createElement("p");
    part.textContent = text.slice(0, 2000);
    this._live.append(part);
    while (this._live.children.length > 20) this._live.firstChild.remove();
  }

  async _run(exchange) {
    const running = new AbortController();
    this._running = running;
    this._isChanged = true;
    this._told = exchange;
    this._live.replaceChildren();
    this._settle();
    try {
      await this._receive(exchange, running.signal);
    } catch (error) {
      if (running.signal.aborted) exchange.end = "stopped";
      else if (!(error instanceof ApiError)) throw error;
      else if (error.status === 401 && (await this._page.unauthorized(error))) queueMicrotask(() => this._again());
      else exchange.error = { title: error.title, message: error.message, retryAfter: error.retryAfter };
    } finally {
      if (this._running === running) this._running = null;
      exchange.isOpen = false;
      this._draw(exchange);
      if (this._former) this._keepFormer(exchange);
      this._settle();
      this._save();
      this._told = null;
    }
  }

  /** Show the former answer again: nothing has come in its place. */
  _keepFormer(exchange) {
    const { answer, marks, stats, end, error } = this._former;
    this._former = null;
    if (exchange.end && exchange.end !== "stopped") return; // its answer is empty
    Object.assign(exchange, { answer, marks, stats, end: exchange.error ? null : end, error: exchange.error ?? error });
    this._told = null; // those who listen have heard it
    if (this.exchanges.includes(exchange)) this.drawAgain();
  }

  async _receive(exchange, signal) {
    const marks = new Marks(exchange.marks);
    let saved = performance.now();
    for await (const chunk of stream(this._path, this._body(exchange), signal)) {
      const now = performance.now();
      count(exchange.stats, chunk, now, this._settings.bundle.draft_depth);
      const choice = chunk.choices[0];
      if (!choice) continue;
      for (const span of choice.drafts?.spans ?? []) this._append(exchange, span.text, span.draft ? marks : null);
      if (!choice.drafts) this._append(exchange, choice.delta?.content ?? choice.text ?? "", null);
      exchange.end = choice.finish_reason ?? exchange.end;
      this._schedule(exchange);
      if (now - saved > SAVE) {
        saved = now;
        this._save();
      }
    }
  }

  _append(exchange, text, marks) {
    const start = exchange.answer.length;
    exchange.answer += text;
    if (text) this._former = null;
    marks?.add(start, exchange.answer.length);
  }

  get _path() {
    return this._settings.bundle.chat ? "v1/chat/completions" : "v1/completions";
  }

  _body(exchange) {
    const streaming = { stream: true, stream_options: { include_usage: true, continuous_usage_stats: true }, return_drafts: true };
    const fields = { model: this._model.value, ...this._settings.fields(), ...streaming };
    if (exchange.isText) return { ...fields, prompt: exchange.asked + exchange.answer };
    const messages = this._settings.system ? [{ role: "system", content: this._settings.system }] : [];
    for (const each of this.exchanges) {
      if (each !== exchange && !each.answer) continue; // it failed: the model has not seen it
      messages.push({ role: "user", content: contentOf(each) });
      if (each !== exchange) messages.push({ role: "assistant", content: each.answer });
    }
    return { ...fields, messages };
  }

  /** Draw soon. Timers also run where frames do not: in a page behind another. */
  _schedule(exchange) {
    this._timer ??= setTimeout(() => {
      this._draw(exchange);
    }, Math.max(FRAME, SHARE * (this._took ?? 0)));
  }

  _draw(exchange) {
    clearTimeout(this._timer);
    this._timer = null;
    const begun = performance.now();
    this._views.find((view) => view.exchange === exchange)?.draw();
    this._follow();
    this._took = performance.now() - begun;
  }

  /** Show what can be done with each exchange now. */
  _settle() {
    for (const view of this._views) view.settle(!this.isBusy && view === this._views.at(-1));
    this._page.changed();
    this._follow();
  }

  _follow() {
    if (!this._follows) return this._look();
    this._scroll.scrollTop = this._scroll.scrollHeight;
    this._toEnd.hidden = true;
  }

  /** See whether the person reads further up, where the text must stay. */
  _look() {
    const { scrollHeight, scrollTop, clientHeight } = this._scroll;
    this._follows = scrollHeight - scrollTop - clientHeight < NEAR;
    this._toEnd.hidden = this._follows;
  }

  _save() {
    this._isChanged = true;
    const kept = this._former && this.exchanges.length ? [...this.exchanges.slice(0, -1), this._former] : this.exchanges;
    const lost = this._isLeft ? null : saveConversation(kept);
    if (!lost || this._lost === lost) return;
    this._lost = lost;
    this._page.notice(
      lost === "pictures"
        ? "This browser has no room for the pictures: they are lost when the page is loaded again."
        : "This browser keeps no more: what comes now is lost when the page is loaded again.",
    );
  }
}

/** A message's content in OpenAI's form: its pictures first. */
function contentOf({ asked, pictures }) {
  const parts = (pictures ?? []).filter(({ url }) => url).map(({ url }) => ({ type: "image_url", image_url: { url } }));
  if (!parts.length) return asked;
  return asked ? [...parts, { type: "text", text: asked }] : parts;
}
