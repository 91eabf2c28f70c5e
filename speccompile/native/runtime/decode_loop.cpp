#include "decode_loop.h"

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

// Numbers of the rows of these lines that are active.
std::vector<size_t> active(const Rows& rows, const Span& lines) {
  std::vector<size_t> found;
  for (size_t row = static_cast<size_t>(lines.start); row < std::min(rows.size(), static_cast<size_t>(lines.stop)); ++row)
    if (rows[row].is_active()) found.push_back(row);
  return found;
}

// Neighbours among these rows that have as much to read from the same place on, which read side by side without padding.
std::vector<Span> alike(const Rows& rows, const std::vector<size_t>& reading, const std::vector<int64_t>& since) {
  std::vector<Span> found;
  for (const size_t row : reading) {
    const int64_t line = static_cast<int64_t>(row);
    const bool is_next = !found.empty() && found.back().stop == line;
    if (is_next && rows[row].size() == rows[row - 1].size() && since[row] == since[row - 1])
      ++found.back().stop;
    else
      found.push_back({line, line + 1});
  }
  return found;
}

}  // namespace

DecodeLoop::DecodeLoop(Engine& engine, const Manifest& manifest, bool on_device)
    : manifest_(manifest), rounds_(engine, manifest), watch_(clock(on_device)), drafting_(rounds_, seconds, watch_, on_device) {
  if (has_input(manifest, names::kUniforms)) sampler_.emplace(engine, manifest);
  if (has_input(manifest, names::kParents)) parents_ = engine.host_view(names::kParents, {manifest.batch_size, manifest.tokens + 1});
}

void DecodeLoop::begin(Rows& rows, bool speculative, bool adaptive) {
  watch_.start();
  logprobs_ = std::any_of(rows.begin(), rows.end(), [](const SequenceState& row) { return row.wants_logprobs; });
  if (parents_)  // a chain, until there are drafts
    for (size_t i = 0; i < parents_->count(); ++i) parents_->ints()[i] = static_cast<int64_t>(i) % parents_->shape[1] - 1;
  if (sampler_) sampler_->begin(rows, speculative);
  drafting_.begin(rows, speculative, adaptive);
  std::fill_n(rounds_.length, static_cast<size_t>(manifest_.batch_size), 0);
  is_new_ = true;
  watch_.pause();
}

void DecodeLoop::step(Rows& rows) {
  watch_.resume();
  if (is_new_) {
    is_new_ = false;
    seconds = {};
    const double start = wall_seconds();
    prefill(rows, std::vector<int64_t>(rows.size(), 0));
    seconds = {wall_seconds() - start, 0, 0};
  } else if (std::any_of(rows.begin(), rows.end(), [](const SequenceState& row) { return row.is_active(); })) {
    if (const auto unread = drafting_.rows_to_reread())
      prefill(rows, *unread);
    else
      decode(rows);
  }
  watch_.pause();
}

// Give the target every row's text from `since` on, and take the token behind it: one group of like rows after the other where
// the engine runs some alone, else all side by side.
//
// That is the prefill; later, what a drafter has missed that reads beside the target.
void DecodeLoop::prefill(Rows& rows, const std::vector<int64_t>& since) {
  if (!rounds_.engine.supports_batch_slices()) return prefill(rows, since, rounds_.all(), true);
  const std::vector<Span> groups = alike(rows, active(rows, rounds_.all()), since);
  for (const Span& lines : groups) prefill(rows, since, lines, &lines == &groups.back());
}

// The same of some rows, in chunks that end together. last: no other text waits to be read.
void DecodeLoop::prefill(Rows& rows, const std::vector<int64_t>& since, const Span& lines, bool last) {
  const size_t first = static_cast<size_t>(lines.start);
  std::vector<Span> spans(static_cast<size_t>(lines.size()));
  for (const size_t row : active(rows, lines)) spans[row - first] = {since[row], rows[row].size()};
  const std::vector<std::vector<Span>> chunks = right_aligned_chunks(spans, manifest_.prefill_chunk, drafting_.overlap);
  for (const std::vector<Span>& parts : chunks) {
    const bool taking = &parts == &chunks.back();
    int64_t width = 0;
    for (const Span& part : parts) width = std::max(width, part.size());
    VerifyPass& run = forward(width, 1, rows, lines, taking);
    for (size_t i = 0; i < parts.size(); ++i) {
      rounds_.length[first + i] = parts[i].start;
      rounds_.n_given[first + i] = rounds_.n_total[first + i] = parts[i].size();
      int64_t* const line = run.window.ints() + static_cast<int64_t>(first + i) * width;
      for (int64_t place = parts[i].start; place < parts[i].stop; ++place) line[place - parts[i].start] = rows[first + i].token(place);
    }
    drafting_.record_prefill(width, verify(run, rows, taking));
    for (size_t i = 0; drafting_.needs_next_prompt_token && i < parts.size(); ++i)  // the text goes on otherwise than the target guesses
      if (parts[i].stop < spans[i].stop)
        run.path.ints()[static_cast<int64_t>(first + i) * run.path.shape[1] + parts[i].size()] = rows[first + i].token(parts[i].stop);
    prepare_next_windows(run, rows, {taking, width, last && taking});
  }
}

// One round: the pending token of every row, and its drafts.
void DecodeLoop::decode(Rows& rows) {
  const std::vector<size_t> decoding = active(rows, rounds_.all());
  std::vector<char> is_active(rows.size());
  std::fill_n(rounds_.n_given, static_cast<size_t>(manifest_.batch_size), 0);
  for (const size_t row : decoding) rounds_.n_given[row] = is_active[row] = 1;
  const Span least = {static_cast<int64_t>(decoding.front()), static_cast<int64_t>(decoding.back()) + 1};
  const Span lines = rounds_.engine.supports_batch_slices() ? least : rounds_.all();
  const int64_t width = drafting_.width(rows);
  VerifyPass& run = forward(width, width, rows, lines, true);
  drafting_.write_window(run.window, rows, lines);
  const bool is_first = !run.has_run;
  const double spent = verify(run, rows, true);
  drafting_.record_verify(width, is_first ? std::nullopt : std::optional<double>(spent), rows, is_active);
  prepare_next_windows(run, rows, {true, 0, true});
}

// Run the target; the rows take what was accepted, unless this is the middle of a text. Returns the seconds since the last
// lap: of a round, but for what its drafts took.
//
// A fused step has drafted by then: its time counts as verification.
double DecodeLoop::verify(VerifyPass& forward, Rows& rows, bool taking) {
  const double start = wall_seconds();
  forward.verify();
  forward.has_run = true;
  seconds.verify += wall_seconds() - start;
  for (const size_t i : taking ? active(rows, forward.key.rows) : std::vector<size_t>()) {
    const int64_t given = rounds_.n_given[i];
    check_path(given, rounds_.n_path[i], forward.key.window);
    check_path(given, rounds_.n_total[i], forward.key.window);
    const int64_t* const tokens = forward.path.ints() + static_cast<int64_t>(i) * forward.path.shape[1] + given;
    const size_t count = static_cast<size_t>(rounds_.n_path[i] + 1 - given);
    const std::vector<double> logprobs = rows[i].wants_logprobs ? forward.logprobs(i, tokens, count) : std::vector<double>();
    rows[i].append_tokens(tokens, count, rounds_.n_total[i] - given, logprobs);
  }
  return watch_.lap();
}

// Commit the path and make the next window.
void DecodeLoop::prepare_next_windows(VerifyPass& forward, const Rows& rows, const RunInfo& ran) {
  const std::vector<size_t> left = active(rows, forward.key.rows);
  std::vector<int64_t> lengths(rounds_.length, rounds_.length + manifest_.batch_size);
  const std::vector<int64_t> n_path(rounds_.n_path, rounds_.n_path + manifest_.batch_size);
  for (size_t row = static_cast<size_t>(forward.key.rows.start); row < static_cast<size_t>(forward.key.rows.stop); ++row) {
    check_path(0, n_path[row], forward.key.window);
    lengths[row] = 0;  // no other row's attention is made longer by an idle one
  }
  for (const size_t row : left) lengths[row] = rounds_.length[row] + n_path[row];
  if (!ran.sampled || !left.empty()) drafting_.prepare_next_windows(forward, n_path, rows, ran);
  std::copy(lengths.begin(), lengths.end(), rounds_.length);
}

// The graphs at these widths over these rows, and the inputs of those that sample, where they take tokens.
VerifyPass& DecodeLoop::forward(int64_t window, int64_t logit_rows, const Rows& rows, const Span& lines, bool taking) {
  int64_t history = 1;
  if (sampler_) {
    sampler_->write(rows, taking ? active(rows, lines) : std::vector<size_t>(), logit_rows);
    history = sampler_->history.width();
  }
  return rounds_.forward({window, logit_rows, history, drafting_.is_fused(), logprobs_, lines});
}

}  // namespace spc
