#include "drafting.h"

#include <algorithm>
#include <cstring>

namespace spc {
namespace {

// What a window of each width can accept, for the pace.
std::map<int, int> accepted_by_width(const Manifest& manifest, int64_t full, bool on_device) {
  std::map<int, int> accepts = {{1, 0}, {static_cast<int>(full), static_cast<int>(manifest.depth)}};
  if (!manifest.is_chain() || on_device) return accepts;
  accepts.clear();
  for (int width = 1; width <= full; ++width) accepts[width] = width - 1;
  return accepts;
}

bool is_kept(const Tensor& tensor) { return tensor.role == role::kState && tensor.buffer.rfind(kKept, 0) == 0; }

bool is_own_state(const Tensor& tensor) {
  return tensor.role == role::kState && tensor.buffer.rfind(std::string(part::kTarget) + ".", 0) != 0 && !is_kept(tensor);
}

}  // namespace

Drafting::Drafting(Rounds& rounds, Seconds& seconds, Stopwatch& watch, bool on_device)
    : rounds_(rounds),
      seconds_(seconds),
      watch_(watch),
      on_device_(on_device),
      draws_(rounds.manifest.sample),
      is_chain_(rounds.manifest.is_chain()),
      fused_(rounds.graph(graph::kStep) != nullptr),
      full_(rounds.manifest.tokens + 1) {
  const Graph* const drafter = rounds.graph(fused_ ? graph::kStep : graph::kDraft);
  remembers_ = drafter && std::any_of(drafter->outputs.begin(), drafter->outputs.end(), is_own_state);
  learns_ = drafter && std::any_of(drafter->outputs.begin(), drafter->outputs.end(), is_kept);
  reads_alone_ = !fused_ && !(drafter && drafter->input(names::kFeatures));
  has_graph_ = drafter != nullptr;
  skips_ = !learns_ && (reads_alone_ || !remembers_);
  found_.resize(static_cast<size_t>(rounds.manifest.batch_size));
  has_drafts_.resize(found_.size());
  proposed_.resize(found_.size() * static_cast<size_t>(full_));
  const bool pairs = has_input(rounds.manifest, names::kPairs), moves_on = carries(rounds.manifest.graphs, part::kTarget);
  overlap = pairs && fused_;
  is_told = pairs && !fused_;
  keeps_up_ = moves_on && remembers_ && !fused_ && !reads_alone_;
  // On a GPU a fused bundle would need the target's weights twice for rounds without drafts.
  can_adapt_ = rounds.manifest.exact && !(fused_ && (on_device || (moves_on && remembers_)));
  propose_with({});
  accepts_ = accepted_by_width(rounds.manifest, full_, on_device);
  pace_ = std::make_unique<Pace>(accepts_, fused_);
  drafted_ = rounds.engine.array(names::kWindow, {rounds.manifest.batch_size, full_});
  if (has_input(rounds.manifest, names::kParents)) parents_ = rounds.engine.array(names::kParents, drafted_.shape);
}

void Drafting::propose_with(Proposer proposer) {
  if (takes_proposals(rounds_.manifest) || !gate_of(rounds_.manifest).is_null()) proposals_.emplace(std::move(proposer), rounds_.manifest);
}

void Drafting::begin(const Rows& rows, bool speculative, bool adaptive) {
  // What is drawn depends on how many drafts there are, so the clock must not decide that.
  const bool is_certain =
      !draws_ || std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.sampling.temperature == 0; });
  adaptive_ = speculative && adaptive && is_certain && can_adapt_;
  window_ = speculative ? full_ : 1;
  unread_.reset();
  feeds_again_ = skipped_ = false;
  std::fill(has_drafts_.begin(), has_drafts_.end(), false);
  if (!adaptive_) return;
  int64_t prompt = 0, room = 0;
  for (const Row& row : rows) {
    prompt = std::max(prompt, static_cast<int64_t>(row.prompt.size()));
    room = std::max(room, row.room);
  }
  window_ = pace_->begin(prompt, room);
}

std::optional<std::vector<int64_t>> Drafting::claim_unread() {
  if (window_ == 1 || !unread_ || reads_alone_) return std::nullopt;
  std::optional<std::vector<int64_t>> unread = std::move(unread_);
  unread_.reset();
  feeds_again_ = true;
  return unread;
}

void Drafting::fed(int64_t tokens, double seconds) {
  if (adaptive_ && window_ > 1 && !reads_alone_) pace_->caught_up(tokens, seconds, feeds_again_ ? seconds : 0.0);
}

int64_t Drafting::width(const Rows& rows) const {
  if (window_ == 1 || on_device_) return window_;
  int64_t longest = 1;
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i].active() && has_drafts_[i]) longest = std::max(longest, rounds_.n_total[i]);
  const bool narrows = is_chain_ || proposals_;  // the first of the drafts are as good a window as all of them
  return narrows || longest == 1 ? std::min(window_, longest) : full_;
}

void Drafting::fill(const Array& window, const Rows& rows, const Span& lines) {
  const int64_t width = window.shape[1];
  for (int64_t line = lines.start; line < lines.stop; ++line) {
    const size_t row = static_cast<size_t>(line);
    if (row >= rows.size() || !rows[row].active()) {
      rounds_.n_total[row] = 0;
    } else if (width == 1 || !has_drafts_[row]) {
      window.ints()[line * width] = rows[row].token_ids.back();
      rounds_.n_total[row] = 1;
    } else {
      if (width != full_) std::copy_n(drafted_.ints() + line * full_, width, window.ints() + line * width);
      rounds_.n_total[row] = std::min(rounds_.n_total[row], width);
    }
  }
}

void Drafting::verified(int64_t width, double seconds, const Rows& rows, const std::vector<char>& active) {
  if (!adaptive_) return;
  if (window_ == 1) return pace_->single(seconds);
  std::vector<int> accepted;
  int without = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!active[i]) continue;
    if (rows[i].draft_lengths.back())
      accepted.push_back(static_cast<int>(rows[i].path_lengths.back() - 1));
    else
      ++without;
  }
  const bool is_timed = accepts_.count(static_cast<int>(width));  // trees of the host have as many nodes as it found
  pace_->verified(static_cast<int>(is_timed ? width : full_), seconds, accepted, without);
}

void Drafting::advance(Forward& forward, const std::vector<int64_t>& n_path, const Rows& rows, const Ran& ran) {
  const bool is_step = forward.key.fused;
  const Span& lines = forward.key.rows;
  if (is_step)
    unread_.reset();
  else if ((fused_ && remembers_) || unread_)
    fall_behind(n_path, lines);
  if (ran.taking && ran.last && adaptive_) window_ = pace_->choose(unread_ ? lag_ : 0);
  skipped_ = skipped_ && window_ > 1;
  have_drafts(rows, lines, is_step && ran.taking);
  if (is_step) {
    forward.hand_over();
  } else if (window_ > 1 && !fused_) {
    // of what follows the middle of a text, nobody reads drafts
    if (ran.taking || remembers_ || learns_) draft(forward, n_path, rows, ran);
  } else if (adaptive_ && (keeps_up_ || (learns_ && !fused_ && !remembers_))) {
    read(forward);
  } else if (!unread_ && remembers_) {
    fall_behind(n_path, lines);
  }
}

void Drafting::have_drafts(const Rows& rows, const Span& lines, bool drafts) {
  for (size_t row = static_cast<size_t>(lines.start); row < static_cast<size_t>(lines.stop); ++row)
    has_drafts_[row] = drafts && row < rows.size() && rows[row].active();
}

// Nobody reads the drafts, but what learns nothing while it rests would never pay again, and what would have to be fed beside the
// target later must be so now.
void Drafting::read(Forward& forward) {
  const Run& run = forward.draft();  // which is bound the first time
  const double start = wall_seconds();
  run();
  seconds_.draft += wall_seconds() - start;
}

// The drafter does not read this run.
void Drafting::fall_behind(const std::vector<int64_t>& n_path, const Span& lines) {
  if (!unread_) {
    unread_.emplace(rounds_.length, rounds_.length + n_path.size());
    lag_ = 0;
  }
  lag_ += *std::max_element(n_path.begin() + lines.start, n_path.begin() + lines.stop);
}

// Ask the host, and run the drafter's own graph, where the host has not drafted for all rows; over what it has missed, where it
// has missed anything.
void Drafting::draft(Forward& forward, const std::vector<int64_t>& n_path, const Rows& rows, const Ran& ran) {
  if (unread_ && !reads_alone_) return;  // the target comes first: see `claim_unread`
  const Run* const run = has_graph_ && !unread_ ? &forward.draft() : nullptr;
  int64_t read = 0;
  const double start = wall_seconds();
  std::fill(found_.begin(), found_.end(), -1);
  const bool all = ran.taking && propose(rows, forward.key.rows);
  if (!has_graph_ || (!ran.fed && skips_ && all)) {
    skip(n_path, forward.key.rows);
  } else if (run) {
    (*run)();
    have_drafts(rows, forward.key.rows, ran.taking);
    read = ran.fed;
  } else {
    read = skipped_ ? 0 : lag_;
    catch_up(rows, forward.key.history);
    have_drafts(rows, rounds_.all(), true);
  }
  put();
  seconds_.draft += wall_seconds() - start;
  const double seconds = watch_.lap();
  if (adaptive_ && read)
    pace_->caught_up(read, seconds, seconds);
  else if (adaptive_)
    pace_->drafted(seconds);
}

// Ask for the drafts of every active row of these. Returns whether all have some.
bool Drafting::propose(const Rows& rows, const Span& lines) {
  if (!proposals_) return false;
  bool all = true;
  for (size_t i = static_cast<size_t>(lines.start); i < std::min(rows.size(), static_cast<size_t>(lines.stop)); ++i) {
    if (!rows[i].active()) continue;
    const int64_t start = static_cast<int64_t>(i) * full_;
    int64_t* const parents = parents_.data ? parents_.ints() + start : nullptr;
    found_[i] = proposals_->write(rows[i].whole(), proposed_.data() + start, parents, window_ - 1);
    all = all && found_[i];
  }
  return all;
}

// The next window has no drafts but the host's. Where a graph drafts, it does not read this run.
void Drafting::skip(const std::vector<int64_t>& n_path, const Span& lines) {
  if (!has_graph_ || !remembers_ || unread_) return;
  fall_behind(n_path, lines);
  skipped_ = true;
}

// Make the host's drafts the window of every row that has any, and of all where no graph has written one.
void Drafting::put() {
  for (size_t i = 0; i < found_.size(); ++i) {
    if (found_[i] < 0 || (has_graph_ && !found_[i])) continue;
    const int64_t start = static_cast<int64_t>(i) * full_;
    std::copy_n(proposed_.data() + start, found_[i] + 1, drafted_.ints() + start);
    rounds_.n_total[i] = 1 + found_[i];
    has_drafts_[i] = true;
  }
}

// The drafter reads what it has missed of every row's committed tokens, then the pending one, and drafts.
//
// Each run reads the token behind its part as well, as it does in a prefill, where the target has proposed it.
void Drafting::catch_up(const Rows& rows, int64_t history) {
  std::vector<Span> missed;
  for (size_t i = 0; i < rows.size(); ++i)
    missed.push_back(rows[i].active() ? Span{(*unread_)[i], rows[i].size() - 1} : Span{});
  const size_t batch = static_cast<size_t>(rounds_.manifest.batch_size);
  std::fill_n(rounds_.n_path, batch, 0);
  std::fill_n(rounds_.length, batch, 0);
  for (const std::vector<Span>& parts : aligned_parts(missed, rounds_.manifest.prefill_chunk)) {
    int64_t longest = 0;
    for (const Span& part : parts) longest = std::max(longest, part.size());
    CatchUp& reading = rounds_.catch_up(longest, history);
    for (size_t i = 0; i < parts.size(); ++i) {
      int64_t* const line = reading.path.ints() + static_cast<int64_t>(i) * reading.path.shape[1];
      if (rows[i].active())
        for (int64_t place = parts[i].start; place <= parts[i].stop; ++place) line[place - parts[i].start] = rows[i].token(place);
      rounds_.n_path[i] = parts[i].size();
      rounds_.length[i] = parts[i].start;
    }
    reading.run();
  }
  unread_.reset();
}

}  // namespace spc
