#include "draft_controller.h"

#include <algorithm>
#include <cstring>
#include <utility>

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

bool is_kept(const Tensor& tensor) { return tensor.role == role::kState && tensor.buffer.rfind(kPersistentPrefix, 0) == 0; }

bool is_own_state(const Tensor& tensor) {
  return tensor.role == role::kState && tensor.buffer.rfind(std::string(component::kTarget) + ".", 0) != 0 && !is_kept(tensor);
}

}  // namespace

DraftController::DraftController(BoundGraphs& rounds, Seconds& seconds, Stopwatch& watch, bool on_device)
    : rounds_(rounds),
      seconds_(seconds),
      watch_(watch),
      on_device_(on_device),
      draws_(rounds.manifest.sample),
      is_chain_(rounds.manifest.is_chain()),
      fused_(rounds.graph(graph::kStep) != nullptr),
      full_(rounds.manifest.tokens + 1) {
  const Graph* const drafter = rounds.graph(fused_ ? graph::kStep : graph::kDraft);
  has_own_cache_ = drafter && std::any_of(drafter->outputs.begin(), drafter->outputs.end(), is_own_state);
  has_persistent_state_ = drafter && std::any_of(drafter->outputs.begin(), drafter->outputs.end(), is_kept);
  catches_up_alone_ = !fused_ && !(drafter && drafter->input(names::kFeatures));
  has_graph_ = drafter != nullptr;
  skips_host_rounds_ = !has_persistent_state_ && (catches_up_alone_ || !has_own_cache_);
  found_.resize(static_cast<size_t>(rounds.manifest.batch_size));
  has_drafts_.resize(found_.size());
  proposed_.resize(found_.size() * static_cast<size_t>(full_));
  const bool pairs = has_input(rounds.manifest, names::kPairs), moves_on = has_recurrent_states(rounds.manifest.graphs, component::kTarget);
  overlap = pairs && fused_;
  needs_next_prompt_token = pairs && !fused_;
  always_reads_ = moves_on && has_own_cache_ && !fused_ && !catches_up_alone_;
  // On a GPU a fused bundle would need the target's weights twice for rounds without drafts.
  may_adapt_ = rounds.manifest.exact && !(fused_ && (on_device || (moves_on && has_own_cache_)));
  set_proposer({});
  accepts_ = accepted_by_width(rounds.manifest, full_, on_device);
  policy_ = std::make_unique<AdaptiveDraftLength>(accepts_, fused_);
  drafted_ = rounds.engine.host_view(names::kWindow, {rounds.manifest.batch_size, full_});
  if (has_input(rounds.manifest, names::kParents)) parents_ = rounds.engine.host_view(names::kParents, drafted_.shape);
}

void DraftController::set_proposer(Proposer proposer) {
  if (needs_proposer(rounds_.manifest) || !gate_config(rounds_.manifest).is_null()) proposals_.emplace(std::move(proposer), rounds_.manifest);
}

void DraftController::begin(const Rows& rows, bool speculative, bool adaptive) {
  // What is drawn depends on how many drafts there are, so the clock must not decide that.
  const bool is_certain =
      !draws_ || std::all_of(rows.begin(), rows.end(), [](const SequenceState& row) { return row.sampling.temperature == 0; });
  adaptive_ = speculative && adaptive && is_certain && may_adapt_;
  window_ = speculative ? full_ : 1;
  unread_.reset();
  feeds_again_ = lags_by_host_rounds_ = false;
  std::fill(has_drafts_.begin(), has_drafts_.end(), false);
  if (!adaptive_) return;
  int64_t prompt = 0, room = 0;
  for (const SequenceState& row : rows) {
    prompt = std::max(prompt, static_cast<int64_t>(row.prompt.size()));
    room = std::max(room, row.max_new_tokens);
  }
  window_ = policy_->begin(prompt, room);
}

std::optional<std::vector<int64_t>> DraftController::rows_to_reread() {
  if (window_ == 1 || !unread_ || catches_up_alone_) return std::nullopt;
  std::optional<std::vector<int64_t>> unread = std::move(unread_);
  unread_.reset();
  feeds_again_ = true;
  return unread;
}

void DraftController::record_prefill(int64_t tokens, double seconds) {
  if (adaptive_ && window_ > 1 && !catches_up_alone_) policy_->record_catch_up(tokens, seconds, feeds_again_ ? seconds : 0.0);
}

int64_t DraftController::width(const Rows& rows) const {
  if (window_ == 1 || on_device_) return window_;
  int64_t longest = 1;
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i].is_active() && has_drafts_[i]) longest = std::max(longest, rounds_.n_total[i]);
  const bool narrows = is_chain_ || proposals_;  // the first of the drafts are as good a window as all of them
  return narrows || longest == 1 ? std::min(window_, longest) : full_;
}

void DraftController::write_window(const Array& window, const Rows& rows, const Span& lines) {
  const int64_t width = window.shape[1];
  for (int64_t line = lines.start; line < lines.stop; ++line) {
    const size_t row = static_cast<size_t>(line);
    if (row >= rows.size() || !rows[row].is_active()) {
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

void DraftController::record_verify(int64_t width, std::optional<double> seconds, const Rows& rows, const std::vector<char>& active) {
  if (!adaptive_) return;
  if (window_ == 1) return policy_->record_autoregressive(seconds);
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
  policy_->record_verify(static_cast<int>(is_timed ? width : full_), seconds, accepted, without);
}

void DraftController::prepare_next_windows(VerifyPass& forward, const std::vector<int64_t>& n_path, const Rows& rows, const RunInfo& ran) {
  const bool is_step = forward.key.fused;
  const Span& lines = forward.key.rows;
  if (is_step)
    unread_.reset();
  else if ((fused_ && has_own_cache_) || unread_)
    mark_lagging(n_path, lines);
  if (ran.sampled && ran.is_last_chunk && adaptive_) window_ = policy_->next_width(unread_ ? lag_ : 0);
  lags_by_host_rounds_ = lags_by_host_rounds_ && window_ > 1;
  set_has_drafts(rows, lines, is_step && ran.sampled);
  if (is_step) {
    forward.copy_next_inputs();
  } else if (window_ > 1 && !fused_) {
    // of what follows the middle of a text, nobody reads drafts
    if (ran.sampled || has_own_cache_ || has_persistent_state_) draft(forward, n_path, rows, ran);
  } else if (adaptive_ && (always_reads_ || (has_persistent_state_ && !fused_ && !has_own_cache_))) {
    read(forward);
  } else if (!unread_ && has_own_cache_) {
    mark_lagging(n_path, lines);
  }
}

void DraftController::set_has_drafts(const Rows& rows, const Span& lines, bool drafts) {
  for (size_t row = static_cast<size_t>(lines.start); row < static_cast<size_t>(lines.stop); ++row)
    has_drafts_[row] = drafts && row < rows.size() && rows[row].is_active();
}

// Nobody reads the drafts, but what learns nothing while it rests would never pay again, and what would have to be fed beside the
// target later must be so now.
void DraftController::read(VerifyPass& forward) {
  const Run& run = forward.draft();  // which is bound the first time
  const double start = wall_seconds();
  run();
  seconds_.draft += wall_seconds() - start;
}

// The drafter does not read this run.
void DraftController::mark_lagging(const std::vector<int64_t>& n_path, const Span& lines) {
  if (!unread_) {
    unread_.emplace(rounds_.length, rounds_.length + n_path.size());
    lag_ = 0;
  }
  lag_ += *std::max_element(n_path.begin() + lines.start, n_path.begin() + lines.stop);
}

// Ask the host, and run the drafter's own graph, where the host has not drafted for all rows; over what it has missed, where it
// has missed anything.
void DraftController::draft(VerifyPass& forward, const std::vector<int64_t>& n_path, const Rows& rows, const RunInfo& ran) {
  if (unread_ && !catches_up_alone_) return;  // the target comes first: see `claim_unread`
  const Run* const run = has_graph_ && !unread_ ? &forward.draft() : nullptr;
  int64_t read = 0;
  bool is_first = false;
  const double start = wall_seconds();
  std::fill(found_.begin(), found_.end(), -1);
  const bool all = ran.sampled && propose(rows, forward.key.rows);
  if (!has_graph_ || (!ran.prefill_tokens && skips_host_rounds_ && all)) {
    mark_host_drafted(n_path, forward.key.rows);
  } else if (run) {
    (*run)();
    is_first = !std::exchange(forward.has_drafted, true);
    set_has_drafts(rows, forward.key.rows, ran.sampled);
    read = ran.prefill_tokens;
  } else {
    read = lags_by_host_rounds_ ? 0 : lag_;
    catch_up(rows, forward.key.history);
    set_has_drafts(rows, rounds_.all(), true);
  }
  write_host_drafts();
  seconds_.draft += wall_seconds() - start;
  const double seconds = watch_.lap();
  if (adaptive_ && read)
    policy_->record_catch_up(read, seconds, seconds);
  else if (adaptive_)
    policy_->record_draft(is_first ? std::nullopt : std::optional<double>(seconds));
}

// Ask for the drafts of every active row of these. Returns whether all have some.
bool DraftController::propose(const Rows& rows, const Span& lines) {
  if (!proposals_) return false;
  bool all = true;
  for (size_t i = static_cast<size_t>(lines.start); i < std::min(rows.size(), static_cast<size_t>(lines.stop)); ++i) {
    if (!rows[i].is_active()) continue;
    const int64_t start = static_cast<int64_t>(i) * full_;
    int64_t* const parents = parents_.data ? parents_.ints() + start : nullptr;
    found_[i] = proposals_->write(rows[i].all_token_ids(), proposed_.data() + start, parents, window_ - 1);
    all = all && found_[i];
  }
  return all;
}

// The next window has no drafts but the host's. Where a graph drafts, it does not read this run.
void DraftController::mark_host_drafted(const std::vector<int64_t>& n_path, const Span& lines) {
  if (!has_graph_ || !has_own_cache_ || unread_) return;
  mark_lagging(n_path, lines);
  lags_by_host_rounds_ = true;
}

// Make the host's drafts the window of every row that has any, and of all where no graph has written one.
void DraftController::write_host_drafts() {
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
void DraftController::catch_up(const Rows& rows, int64_t history) {
  std::vector<Span> missed;
  for (size_t i = 0; i < rows.size(); ++i)
    missed.push_back(rows[i].is_active() ? Span{(*unread_)[i], rows[i].size() - 1} : Span{});
  const size_t batch = static_cast<size_t>(rounds_.manifest.batch_size);
  std::fill_n(rounds_.n_path, batch, 0);
  std::fill_n(rounds_.length, batch, 0);
  for (const std::vector<Span>& parts : right_aligned_chunks(missed, rounds_.manifest.prefill_chunk)) {
    int64_t longest = 0;
    for (const Span& part : parts) longest = std::max(longest, part.size());
    CatchUp& reading = rounds_.catch_up(longest, history);
    for (size_t i = 0; i < parts.size(); ++i) {
      int64_t* const line = reading.path.ints() + static_cast<int64_t>(i) * reading.path.shape[1];
      if (rows[i].is_active())
        for (int64_t place = parts[i].start; place <= parts[i].stop; ++place) line[place - parts[i].start] = rows[i].token(place);
      rounds_.n_path[i] = parts[i].size();
      rounds_.length[i] = parts[i].start;
    }
    reading.run();
  }
  unread_.reset();
}

}  // namespace spc
