#include "loop.h"

#include <algorithm>
#include <string>

#include "../errors.h"

namespace spc {
namespace {

// A graph that lies must not make us read what is not there. length: of the path, without the token behind it.
void check_path(int64_t given, int64_t accepted, int64_t length) {
  if (accepted < given || accepted > length)
    throw Error(Kind::kEngine, "the graph accepted " + std::to_string(accepted) + " of " + std::to_string(length) + " tokens, " +
                                   std::to_string(given) + " of them given", "build the bundle again");
}

// Put the token behind every part of a text, which goes on, in the place of the target's guess.
void tell_next(const Forward& forward, const std::vector<Span>& parts, const std::vector<Span>& spans, const Rows& rows) {
  for (size_t i = 0; i < parts.size(); ++i)
    if (parts[i].stop < spans[i].stop)
      forward.path.ints()[static_cast<int64_t>(i) * forward.path.shape[1] + parts[i].size()] = rows[i].token(parts[i].stop);
}

}  // namespace

Loop::Loop(Engine& engine, const Manifest& manifest, bool on_device)
    : manifest_(manifest), rounds_(engine, manifest), watch_(clock(on_device)), drafting_(rounds_, seconds, watch_, on_device) {
  if (has_input(manifest, "uniforms")) sampler_.emplace(engine, manifest);
  if (has_input(manifest, "parents")) parents_ = engine.array("parents", {manifest.batch_size, manifest.tokens + 1});
}

void Loop::begin(Rows& rows, bool speculative, bool adaptive) {
  watch_.start();
  logprobs_ = std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.wants_logprobs; });
  if (parents_)  // a chain, until there are drafts
    for (size_t i = 0; i < parents_->count(); ++i) parents_->ints()[i] = static_cast<int64_t>(i) % parents_->shape[1] - 1;
  if (sampler_) sampler_->begin(rows, speculative);
  drafting_.begin(rows, speculative, adaptive);
  is_new_ = true;
  watch_.pause();
}

void Loop::step(Rows& rows) {
  watch_.resume();
  if (is_new_) {
    is_new_ = false;
    seconds = {};
    const double start = wall_seconds();
    feed(rows, std::vector<int64_t>(rows.size(), 0));
    seconds = {wall_seconds() - start, 0, 0};
  } else if (std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.active(); })) {
    if (const auto unread = drafting_.claim_unread())
      feed(rows, *unread);
    else
      decode(rows);
  }
  watch_.pause();
}

// Give the target every row's text from `since` on, in chunks, and take the token behind it.
//
// That is the prefill; later, what a drafter has missed that reads beside the target.
void Loop::feed(Rows& rows, const std::vector<int64_t>& since) {
  std::vector<Span> spans;
  for (size_t i = 0; i < rows.size(); ++i) spans.push_back(rows[i].active() ? Span{since[i], rows[i].size()} : Span{});
  const size_t batch = static_cast<size_t>(manifest_.batch_size);
  std::fill_n(rounds_.length, batch, 0);
  const std::vector<std::vector<Span>> chunks = aligned_parts(spans, manifest_.prefill_chunk, drafting_.overlap);
  for (const std::vector<Span>& parts : chunks) {
    const bool taking = &parts == &chunks.back();
    int64_t width = 0;
    for (const Span& part : parts) width = std::max(width, part.size());
    Forward& run = forward(width, 1, rows, taking);
    std::fill_n(rounds_.n_given, batch, 0);
    for (size_t i = 0; i < parts.size(); ++i) {
      rounds_.length[i] = parts[i].start;
      for (int64_t place = parts[i].start; place < parts[i].stop; ++place)
        run.window.ints()[static_cast<int64_t>(i) * width + place - parts[i].start] = rows[i].token(place);
      rounds_.n_given[i] = parts[i].size();
    }
    std::copy_n(rounds_.n_given, batch, rounds_.n_total);
    drafting_.fed(width, verify(run, rows, taking));
    if (drafting_.is_told) tell_next(run, parts, spans, rows);
    advance(run, rows, taking, width);
  }
}

// One round: the pending token of every row, and its drafts.
void Loop::decode(Rows& rows) {
  std::vector<char> active;
  for (size_t i = 0; i < rows.size(); ++i) {
    active.push_back(rows[i].active());
    rounds_.n_given[i] = rows[i].active();
  }
  const int64_t width = drafting_.width(rows);
  Forward& run = forward(width, width, rows, true);
  drafting_.fill(run.window);
  drafting_.verified(width, verify(run, rows, true), rows, active);
  advance(run, rows, true, 0);
}

// Run the target; the rows take what was accepted, unless this is the middle of a text. Returns the seconds since the last
// lap: of a round, but for what its drafts took.
//
// A fused step has drafted by then: its time counts as verification.
double Loop::verify(Forward& forward, Rows& rows, bool taking) {
  const double start = wall_seconds();
  forward.verify();
  seconds.verify += wall_seconds() - start;
  for (size_t i = 0; taking && i < rows.size(); ++i) {
    if (!rows[i].active()) continue;
    const int64_t given = rounds_.n_given[i];
    check_path(given, rounds_.n_path[i], forward.key.window);
    check_path(given, rounds_.n_total[i], forward.key.window);
    const int64_t* const tokens = forward.path.ints() + static_cast<int64_t>(i) * forward.path.shape[1] + given;
    const size_t count = static_cast<size_t>(rounds_.n_path[i] + 1 - given);
    const std::vector<double> logprobs = rows[i].wants_logprobs ? forward.logprobs(i, tokens, count) : std::vector<double>();
    rows[i].take(tokens, count, rounds_.n_total[i] - given, logprobs);
  }
  return watch_.lap();
}

// Commit the path and make the next window. fed: tokens of a text that were given; taking: as in `verify`.
void Loop::advance(Forward& forward, const Rows& rows, bool taking, int64_t fed) {
  const bool is_over = std::none_of(rows.begin(), rows.end(), [](const Row& row) { return row.active(); });
  if (taking && is_over) return;
  const size_t batch = static_cast<size_t>(manifest_.batch_size);
  const std::vector<int64_t> n_path(rounds_.n_path, rounds_.n_path + batch);
  for (const int64_t accepted : n_path) check_path(0, accepted, forward.key.window);
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < batch; ++i) {
    const bool is_idle = i < rows.size() && !rows[i].active();  // no other row's attention is made longer by an idle one
    lengths.push_back(is_idle ? 0 : rounds_.length[i] + n_path[i]);
  }
  drafting_.advance(forward, n_path, rows, taking, fed);
  std::copy_n(lengths.begin(), batch, rounds_.length);
}

// The graphs at these widths, and the inputs of the rows that sample, where they take tokens.
Forward& Loop::forward(int64_t window, int64_t logit_rows, const Rows& rows, bool taking) {
  int64_t history = 1;
  if (sampler_) {
    static const Rows none;
    sampler_->write(taking ? rows : none, logit_rows);
    history = sampler_->history.width();
  }
  return rounds_.forward({window, logit_rows, history, drafting_.is_fused(), logprobs_});
}

}  // namespace spc
