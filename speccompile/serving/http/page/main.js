// The page: opens the model, and wires the composer to the conversation.

import { ApiError, get, key } from "./api.js";
import { Conversation } from "./conversation.js";
import { askForKey } from "./key.js";
import { Pictures } from "./pictures.js";
import { Settings } from "./settings.js";
import { keptTheme } from "./store.js";
import { button } from "./view.js";

const CHAT_STARTERS = ["Explain speculative decoding in three sentences", "Write a Python function that merges two sorted lists", "Give me a checklist for a code review"];
const TEXT_STARTERS = ["def read_file(path):\n", "class Stack:\n", "Once upon a time"];
const THEMES = ["auto", "light", "dark"];
const SLOWEST = 5000; // milliseconds between two looks whether the model is open

const at = (id) => document.getElementById(id);
const composer = at("composer");
const text = at("text");
const settings = new Settings((name) => name === "markdown" && conversation.drawAgain());
const pictures = new Pictures({ changed, notice });
const conversation = new Conversation(settings, { changed, notice, unauthorized, focus });

const isTouch = () => matchMedia("(pointer: coarse)").matches;

/** Go to the composer, but where that would open a keyboard on the screen. */
function focus() {
  if (!isTouch()) text.focus();
}

/** Show a line above the composer, with what can be done. Without a text there is none. */
function notice(says, action = null, act = null) {
  at("notice").hidden = !says;
  at("notice").replaceChildren(says);
  if (action) at("notice").append(button(action, act));
}

/** Follow the conversation: whether an answer is coming, and whether there is any. */
function changed() {
  const { isBusy } = conversation;
  at("send").textContent = isBusy ? "Stop" : "Send";
  at("send").setAttribute("aria-label", isBusy ? "Stop the answer" : "Send");
  at("send").disabled = !isBusy && (!settings.bundle || isNothing());
  at("empty").hidden = !settings.bundle || conversation.exchanges.length > 0;
  at("clear").hidden = conversation.exchanges.length === 0;
  at("clear-too").disabled = conversation.exchanges.length === 0;
  at("forget").hidden = !key.get();
}

const isNothing = () => !text.value.trim() && pictures.isEmpty;

function grow() {
  text.style.height = "auto";
  text.style.height = `${text.scrollHeight}px`;
  changed();
}

function write(value, seen = null) {
  text.value = value;
  if (seen) pictures.put(seen);
  grow();
  text.focus();
}

function send() {
  if (conversation.isBusy || !settings.bundle || isNothing()) return;
  if (settings.problem) return notice(settings.problem, "Settings", () => at("open-settings").click());
  notice("");
  const asked = settings.bundle.chat ? text.value.trim() : text.value;
  const seen = pictures.take();
  write("");
  conversation.ask(asked, seen);
}

function clear() {
  const cleared = conversation.clear();
  settings.close();
  text.focus();
  if (cleared.length) {
    notice("The conversation is cleared.", "Undo", () => {
      conversation.restore(cleared);
      notice("");
    });
  }
}

async function unauthorized(error) {
  const says = key.get() ? `The server does not know this key. ${error.message}` : "This server asks for a key. It is kept until this tab is closed.";
  return askForKey(says);
}

/** Wait until the model is open, and learn what it can do. */
async function open() {
  for (let wait = 250; ; wait = Math.min(SLOWEST, wait * 1.5)) {
    try {
      const [models, bundle] = await Promise.all([get("v1/models"), get("bundle")]);
      notice("");
      return start(models.data.map((model) => String(model.id)), bundle);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status === 401) {
        if (await unauthorized(error)) continue;
        return notice("This server needs an API key.", "Give one", open);
      }
      if (error.code !== "loading") return notice(`${error.title}: ${error.message}`, "Try again", open);
      notice("The model is being opened ..");
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

function start(models, bundle) {
  settings.show(bundle);
  at("model").replaceChildren(...models.map((name) => new Option(name)));
  at("model").value = bundle.model;
  at("model").disabled = models.length < 2;
  document.title = `${bundle.model} · speccompile`;
  pictures.show(bundle.chat && bundle.images);
  text.placeholder = bundle.chat ? "Ask something" : "Begin a text, and the model goes on";
  at("text-label").textContent = bundle.chat ? "Message" : "Text that the model continues";
  text.classList.toggle("mono", !bundle.chat);
  const drafts = bundle.draft_tokens ? `${bundle.draft_tokens} draft tokens` : "no drafter";
  at("about").textContent = `${bundle.decoding} · ${drafts} · context ${bundle.max_model_len.toLocaleString("en")}`;
  at("empty-title").textContent = bundle.chat ? `Talk to ${bundle.model}` : `Write with ${bundle.model}`;
  at("empty-says").textContent = bundle.chat
    ? "Answers come from this server, and what you write goes nowhere else."
    : "This model has no chat template: it goes on where your text ends. What you write goes to this server and nowhere else.";
  const starters = bundle.chat ? CHAT_STARTERS : TEXT_STARTERS;
  at("starters").classList.toggle("mono", !bundle.chat);
  at("starters").replaceChildren(...starters.map((each) => button(each.trim(), () => write(each), "")));
  conversation.begin(at("model"));
  changed();
  focus();
}

function showTheme() {
  at("theme").setAttribute("aria-label", `Theme: ${keptTheme.get()}`);
  at("theme").title = `Theme: ${keptTheme.get()}`;
}

composer.addEventListener("submit", (event) => {
  event.preventDefault();
  if (conversation.isBusy) conversation.stop();
  else send();
});
text.addEventListener("input", grow);
text.addEventListener("keydown", (event) => {
  if (event.isComposing) return; // Enter ends a word of an input method
  const last = conversation.exchanges.at(-1);
  if (event.key === "Enter" && !event.shiftKey && !isTouch()) {
    event.preventDefault();
    send();
  } else if (event.key === "ArrowUp" && !text.value && last && !conversation.isBusy) {
    event.preventDefault();
    conversation.edit();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
  if (conversation.isBusy) conversation.stop();
  else conversation.keepLast();
});
at("clear").addEventListener("click", clear);
at("clear-too").addEventListener("click", clear);
at("forget").addEventListener("click", () => {
  key.set("");
  settings.close();
  open();
});
at("theme").addEventListener("click", () => {
  keptTheme.set(THEMES[(THEMES.indexOf(keptTheme.get()) + 1) % THEMES.length]);
  showTheme();
});
conversation.onEdit = write;
showTheme();
changed();
open();
