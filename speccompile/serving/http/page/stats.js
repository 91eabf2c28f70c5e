// What an answer's rounds of speculation gave: tokens a second, acceptance length, acceptance by depth.

const COUNT = new Intl.NumberFormat("en");
const RATE = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

/** Numbers of one answer. They are plain values, which are kept with it. */
export function emptyStats() {
  return { tokens: 0, promptTokens: 0, chunks: 0, rounds: 0, accepted: 0, drafted: [], kept: [], first: null, last: null, wait: null, speed: null };
}

/** Count a chunk that has come. now: milliseconds; depth: most draft tokens that a round can accept. */
export function count(stats, chunk, now, depth) {
  const drafts = chunk.choices[0]?.drafts;
  if (drafts) {
    stats.first ??= now;
    stats.last = now;
    stats.chunks += 1;
    if (stats.chunks > 1) countRound(stats, drafts, depth); // the first token is the prefill's
  }
  if (chunk.usage) {
    stats.tokens = chunk.usage.completion_tokens;
    stats.promptTokens = chunk.usage.prompt_tokens;
  }
  if (chunk.metrics) {
    stats.wait = chunk.metrics.time_to_first_token_ms;
    stats.speed = chunk.metrics.mean_itl_ms ? 1000 / chunk.metrics.mean_itl_ms : null;
  }
}

function countRound(stats, drafts, depth) {
  stats.rounds += 1;
  stats.accepted += drafts.accepted_tokens;
  for (let place = 0; place < Math.min(drafts.draft_tokens, depth); place += 1) {
    stats.drafted[place] = (stats.drafted[place] ?? 0) + 1;
    stats.kept[place] = (stats.kept[place] ?? 0) + (place < drafts.accepted_tokens ? 1 : 0);
  }
}

/** Tokens a second behind the first one: the server's own number once it has come. */
export function speed(stats) {
  if (stats.speed !== null) return stats.speed;
  return stats.last > stats.first ? ((stats.tokens - 1) / (stats.last - stats.first)) * 1000 : null;
}

/** Show the numbers in a <details>. */
export function showStats(element, stats) {
  const [summary, details] = element.children;
  const rate = speed(stats);
  const parts = [`${COUNT.format(stats.tokens)} tokens`];
  if (rate) parts.push(`${RATE.format(rate)} tokens/s`);
  if (stats.drafted.length) parts.push(`acceptance length ${(1 + stats.accepted / stats.rounds).toFixed(2)}`);
  summary.replaceChildren(parts.join(" · "));
  if (stats.drafted.length) summary.append(bars(stats));
  details.replaceChildren();
  if (element.open) details.append(table(stats, rate));
}

function bars(stats) {
  const element = document.createElement("span");
  element.className = "depths";
  element.setAttribute("role", "img");
  const said = stats.drafted.map((drafted, place) => `${place + 1}: ${percent(stats.kept[place], drafted)}`);
  element.setAttribute("aria-label", `Acceptance rate by depth. ${said.join(", ")}`);
  element.title = `Acceptance rate by depth\n${said.join("\n")}`;
  for (const [place, drafted] of stats.drafted.entries()) {
    const bar = document.createElement("i");
    const filled = document.createElement("b");
    filled.style.height = `${(100 * stats.kept[place]) / drafted}%`;
    bar.append(filled);
    element.append(bar);
  }
  return element;
}

function percent(part, whole) {
  return `${Math.round((100 * part) / whole)} %`;
}

function table(stats, rate) {
  const rows = [["Prompt tokens", COUNT.format(stats.promptTokens)]];
  if (stats.wait !== null) rows.push(["Time to first token", `${COUNT.format(Math.round(stats.wait))} ms`]);
  if (rate) rows.push(["Time for each further token", `${RATE.format(1000 / rate)} ms`]);
  rows.push(["Rounds", COUNT.format(stats.rounds)]);
  if (stats.drafted.length) rows.push(["Tokens from accepted drafts", percent(stats.accepted, Math.max(1, stats.tokens))]);
  const whole = document.createElement("div");
  whole.append(grid([], rows));
  if (stats.drafted.length) {
    const depths = stats.drafted.map((drafted, place) => [
      String(place + 1), percent(stats.kept[place], drafted), `${stats.kept[place]} of ${drafted} rounds`,
    ]);
    whole.append(grid(["Depth", "Acceptance rate", "Accepted"], depths));
  }
  return whole;
}

function grid(head, rows) {
  const element = document.createElement("table");
  const line = (texts, isHead) => {
    const row = document.createElement("tr");
    for (const [place, text] of texts.entries()) {
      const cell = document.createElement(isHead || place === 0 ? "th" : "td");
      cell.scope = isHead ? "col" : "row";
      cell.textContent = text;
      row.append(cell);
    }
    return row;
  };
  if (head.length) element.createTHead().append(line(head, true));
  element.createTBody().append(...rows.map((row) => line(row, false)));
  return element;
}
