// Pictures of the next message: dropped on the page, pasted, or chosen.

import { button, thumbnail } from "./view.js";

const at = (id) => document.getElementById(id);

export class Pictures {
  /** page: changed(), notice(says). */
  constructor(page) {
    this._page = page;
    this._list = [];
    this._isAble = false;
    at("add-pictures").addEventListener("click", () => at("picture-files").click());
    at("picture-files").addEventListener("change", ({ target }) => {
      this.add([...target.files]);
      target.value = ""; // the same file can be chosen again
    });
    addEventListener("paste", (event) => this._takes(event, event.clipboardData));
    addEventListener("drop", (event) => {
      document.body.classList.remove("dropping");
      this._takes(event, event.dataTransfer);
    });
    addEventListener("dragover", (event) => {
      if (!this._isAble || !event.dataTransfer.types.includes("Files")) return;
      event.preventDefault();
      document.body.classList.add("dropping");
    });
    addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) document.body.classList.remove("dropping"); // it has left the window
    });
  }

  /** isAble: whether the model sees pictures in messages. */
  show(isAble) {
    this._isAble = isAble;
    at("add-pictures").hidden = !isAble;
  }

  get isEmpty() {
    return !this._list.length;
  }

  /** Return the pictures, {name, url} each with a data: URL, and forget them. */
  take() {
    const taken = this._list;
    this.put([]);
    return taken;
  }

  /** Take the place of the pictures that are here. */
  put(pictures) {
    this._list = pictures;
    this._draw();
  }

  /** Read files. One that is no picture is told of, and left out. */
  async add(files) {
    const others = files.filter((file) => !file.type.startsWith("image/"));
    const read = await Promise.allSettled(files.filter((file) => !others.includes(file)).map(dataUrl));
    this.put([...this._list, ...read.filter((each) => each.value).map((each) => each.value)]);
    if (others.length) this._page.notice(`${others.map((file) => file.name).join(", ")}: expected a picture.`);
    else if (read.some((each) => !each.value)) this._page.notice("A picture could not be read.");
    else this._page.notice("");
  }

  _takes(event, data) {
    if (!this._isAble || !data?.files.length) return;
    event.preventDefault();
    this.add([...data.files]);
  }

  _draw() {
    at("pictures").hidden = this.isEmpty;
    at("pictures").replaceChildren(...this._list.map((picture) => this._item(picture)));
    this._page.changed();
  }

  _item(picture) {
    const remove = button("Remove", () => {
      this.put(this._list.filter((each) => each !== picture));
      at("text").focus();
    });
    remove.setAttribute("aria-label", `Remove ${picture.name}`);
    const item = document.createElement("li");
    item.append(thumbnail(picture), remove);
    return item;
  }
}

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve({ name: file.name || "picture", url: reader.result }));
    reader.addEventListener("error", () => reject(reader.error));
    reader.readAsDataURL(file);
  });
}
