// Requests to this server. Addresses are relative, so that the page also works below a path of a proxy.

const KEY = "speccompile:key";
const TITLES = {
  0: "The server cannot be reached",
  400: "The server cannot answer this",
  401: "This server needs an API key",
  404: "The server has no such model",
  413: "This is too long for the server",
  429: "The server is busy",
  500: "The server failed",
  502: "The server behind this address cannot be reached",
  503: "The server is not ready",
  504: "This took too long",
};

/** An error to show. status: of HTTP, 0 without an answer; retryAfter: seconds, or null. */
export class ApiError extends Error {
  constructor(title, message, { status = 0, code = null, retryAfter = null } = {}) {
    super(message);
    Object.assign(this, { title, status, code, retryAfter });
  }
}

/** The API key of this tab. It is kept in no other place. */
export const key = {
  get() {
    try {
      return sessionStorage.getItem(KEY) ?? this._kept ?? "";
    } catch {
      return this._kept ?? "";
    }
  },
  set(text) {
    this._kept = text;
    try {
      if (text) sessionStorage.setItem(KEY, text);
      else sessionStorage.removeItem(KEY);
    } catch {
      // storage is blocked: it lives as long as the page
    }
  },
};

/** The response to a request. Throws ApiError unless it is a good one, and AbortError if the signal aborts it. */
async function request(path, options = {}) {
  const headers = { ...options.headers };
  if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "same-origin", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(TITLES[0], "It may have ended, or the network is down.");
  }
  if (!response.ok) throw await refused(response);
  return response;
}

async function refused(response) {
  const { status } = response;
  let error = null;
  try {
    ({ error } = await response.json());
  } catch {
    // a proxy's page, which says nothing that we know how to show
  }
  const message = error?.message ? String(error.message) : `It answered with HTTP ${status}.`;
  const retryAfter = Number.parseFloat(response.headers.get("retry-after"));
  const details = { status, code: error?.code ?? null, retryAfter: Number.isFinite(retryAfter) ? retryAfter : null };
  return new ApiError(TITLES[status] ?? TITLES[status >= 500 ? 500 : 400], message, details);
}

/** The JSON at a path. */
export async function get(path) {
  const response = await request(path);
  try {
    return await response.json();
  } catch {
    throw new ApiError(TITLES[500], `What it sent for ${path} is no JSON.`);
  }
}

/** Yield the chunks of a streamed answer. Throws ApiError also for an error that comes later, and for an early end. */
export async function* stream(path, body, signal) {
  const headers = { "Content-Type": "application/json", Accept: "text/event-stream" };
  const response = await request(path, { method: "POST", headers, body: JSON.stringify(body), signal });
  for await (const data of events(response.body, signal)) {
    if (data === "[DONE]") return;
    let chunk;
    try {
      chunk = JSON.parse(data);
    } catch {
      throw new ApiError(TITLES[500], "It sent an event that is no JSON.");
    }
    if (chunk.error) {
      throw new ApiError("The server ended the answer", String(chunk.error.message), { status: 500, code: chunk.error.code });
    }
    yield chunk;
  }
  throw cutOff();
}

function cutOff() {
  return new ApiError("The connection broke", "The server sent no end of its answer: it may have ended.", { code: "cut" });
}

/** Yield the data of server-sent events. */
async function* events(body, signal) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += value.replaceAll("\r", "");
      const found = text.split("\n\n");
      text = found.pop();
      for (const event of found) {
        const data = event.split("\n").filter((line) => line.startsWith("data:"));
        if (data.length) yield data.map((line) => line.slice(5).replace(/^ /, "")).join("\n");
      }
    }
  } catch (error) {
    if (signal.aborted) throw new DOMException("stopped", "AbortError");
    throw error instanceof ApiError ? error : cutOff();
  } finally {
    reader.cancel().catch(() => {});
  }
}
