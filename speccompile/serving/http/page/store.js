// What this browser keeps: the conversation and the settings, for this server's address alone.

const CONVERSATION = `speccompile:conversation:${location.pathname}`;
const SETTINGS = `speccompile:settings:${location.pathname}`;
const VERSION = 1;

/** Write a value; null removes it. Returns whether the browser keeps it. */
function write(name, value) {
  try {
    if (value === null) localStorage.removeItem(name);
    else localStorage.setItem(name, JSON.stringify({ version: VERSION, value }));
    return true;
  } catch {
    return false; // storage is blocked or full
  }
}

function read(name) {
  try {
    const kept = JSON.parse(localStorage.getItem(name));
    return kept?.version === VERSION ? kept.value : null;
  } catch {
    return null;
  }
}

/** Whether this browser keeps anything. */
export function isKept() {
  return write("speccompile:probe", true) && write("speccompile:probe", null);
}

export const keptTheme = {
  get: () => document.documentElement.dataset.theme ?? "auto",
  set(theme) {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("speccompile:theme", theme); // read by theme.js
    } catch {
      // it holds for this page
    }
  },
};

/** Keep the conversation, and return what there was no room for: null, "pictures", or "everything". */
export function saveConversation(exchanges) {
  if (write(CONVERSATION, exchanges.length ? exchanges : null)) return null;
  const texts = exchanges.map((each) => ({ ...each, pictures: each.pictures.map(({ name }) => ({ name, url: null })) }));
  return write(CONVERSATION, texts) ? "pictures" : "everything";
}

export const saveSettings = (settings) => write(SETTINGS, settings);

/** The exchanges that were kept. One whose answer had not ended is marked as interrupted. */
export function loadConversation() {
  const exchanges = read(CONVERSATION);
  if (!Array.isArray(exchanges)) return [];
  const valid = exchanges.filter((each) => typeof each?.asked === "string" && typeof each.answer === "string" && each.stats);
  for (const each of valid) {
    each.pictures = Array.isArray(each.pictures) ? each.pictures.filter(isPicture) : [];
    if (each.isOpen) Object.assign(each, { isOpen: false, end: "interrupted" });
    if (each.error) each.error.retryAfter = null; // it is over
  }
  return valid;
}

const isPicture = (each) => typeof each?.name === "string" && (each.url === null || String(each.url).startsWith("data:image/"));

export function loadSettings() {
  const settings = read(SETTINGS);
  return settings && typeof settings === "object" ? settings : {};
}
