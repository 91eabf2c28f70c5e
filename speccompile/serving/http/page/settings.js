// Settings that this bundle takes, in a drawer.

import { isKept, loadSettings, saveSettings } from "./store.js";

const PROBLEMS = {
  temperature: "Temperature: expected a number from 0 to 2.",
  top_p: "Top p: expected a number above 0, at most 1.",
  seed: "Seed: expected a whole number, 0 or more.",
  max_tokens: "New tokens at most: expected a whole number, 1 or more.",
  stop: "Stop before: expected at most 16 texts of at most 1024 characters.",
};
const TEXT_TOKENS = 256; // of an answer of a model without turns, which may know no end

export class Settings {
  /** changed: called with the name of a setting that the person has changed. */
  constructor(changed) {
    this._changed = changed;
    this._dialog = document.getElementById("settings");
    this._form = document.getElementById("settings-form");
    this._error = document.getElementById("settings-error");
    this._form.addEventListener("submit", (event) => event.preventDefault());
    this._form.addEventListener("change", (event) => this._change(event.target.name));
    document.getElementById("open-settings").addEventListener("click", () => this._dialog.showModal());
    document.getElementById("close-settings").addEventListener("click", () => this._dialog.close());
    this._dialog.addEventListener("click", (event) => {
      if (event.target === this._dialog) this._dialog.close(); // beside the drawer
    });
    document.getElementById("reset").addEventListener("click", () => this._fill({}));
    document.getElementById("kept").textContent = isKept()
      ? "The conversation and these settings are kept in this browser, until you clear them. The server keeps neither."
      : "This browser keeps nothing: the conversation ends with the page, also when it is loaded again.";
  }

  close() {
    this._dialog.close();
  }

  /** Show what a bundle takes. bundle: of /bundle. */
  show(bundle) {
    this.bundle = bundle;
    const able = {
      system_prompt: bundle.system_prompt,
      sampling: bundle.decoding === "sampling",
      text: bundle.text,
      drafts: bundle.draft_tokens > 0,
    };
    for (const element of this._form.querySelectorAll("[data-needs]")) element.hidden = !able[element.dataset.needs];
    this._form.elements.max_tokens.max = bundle.max_model_len;
    this._form.elements.max_tokens.placeholder = bundle.chat ? "as many as fit" : String(TEXT_TOKENS);
    this._fill(loadSettings(), false);
  }

  get(name) {
    return this._form.elements[name].checked;
  }

  _fill(kept, isChange = true) {
    const { elements } = this._form;
    const defaults = { markdown: this.bundle.chat, speculative: this.bundle.speculative, marks: true };
    for (const element of elements) {
      if (!element.name) continue;
      if (element.type === "checkbox") element.checked = kept[element.name] ?? defaults[element.name];
      else element.value = kept[element.name] ?? "";
    }
    this._change(isChange ? "markdown" : null);
  }

  _change(name) {
    const wrong = [...this._form.elements].find((element) => element.name && !this._isValid(element));
    this._error.hidden = !wrong;
    this._error.textContent = wrong ? PROBLEMS[wrong.name] : "";
    const values = {};
    for (const element of this._form.elements) {
      if (element.name) values[element.name] = element.type === "checkbox" ? element.checked : element.value;
    }
    if (name) saveSettings(values);
    document.body.classList.toggle("marks", values.marks);
    if (name) this._changed(name);
  }

  _isValid(element) {
    if (element.closest("[hidden]")) return true;
    if (element.name === "stop") return this._stop().length <= 16 && this._stop().every((text) => text.length <= 1024);
    return element.validity.valid;
  }

  _stop() {
    const lines = this._form.elements.stop.value.split("\n").filter(Boolean);
    return lines.map((line) => line.replace(/\\([nt\\])/g, (_, letter) => ({ n: "\n", t: "\t", "\\": "\\" })[letter]));
  }

  /** Fields of a request. A setting that is wrong is left out: the drawer says so. */
  fields() {
    const { elements } = this._form;
    const found = {};
    for (const name of ["temperature", "top_p", "seed", "max_tokens"]) {
      const element = elements[name];
      if (!element.closest("[hidden]") && element.value && element.validity.valid) found[name] = Number(element.value);
    }
    if (!this.bundle.chat) found.max_tokens ??= TEXT_TOKENS;
    if (this.bundle.text && this._isValid(elements.stop) && this._stop().length) found.stop = this._stop();
    if (this.bundle.draft_tokens > 0) found.speculative = elements.speculative.checked;
    return found;
  }

  /** The problem of a setting, or "". */
  get problem() {
    return this._error.textContent;
  }

  get system() {
    return this.bundle.system_prompt ? this._form.elements.system.value.trim() : "";
  }
}
