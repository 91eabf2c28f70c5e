// The dialog that asks for an API key.

import { key } from "./api.js";

/** Ask for a key. says: why. Returns whether one was given; it is then kept for this tab. */
export function askForKey(says) {
  const dialog = document.getElementById("key");
  const text = document.getElementById("key-text");
  document.getElementById("key-says").textContent = says;
  text.value = "";
  return new Promise((resolve) => {
    const listening = new AbortController();
    const finish = (given) => {
      listening.abort();
      if (given) key.set(given);
      text.value = "";
      dialog.close();
      resolve(Boolean(given));
    };
    const options = { signal: listening.signal };
    document.getElementById("key-form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (text.value.trim()) finish(text.value.trim());
    }, options);
    document.getElementById("key-cancel").addEventListener("click", () => finish(""), options);
    dialog.addEventListener("close", () => finish(""), options);
    dialog.showModal();
    text.focus();
  });
}
