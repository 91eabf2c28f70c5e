#include "drafting.h"

#include <algorithm>
#include <cstring>

namespace spc {
namespace {

constexpr const char* kTarget = "target.";

// What a window of each width can accept, for the pace.
std::map<int, int> accepted_by_width(const Manifest& manifest, int64_t full, bool on_device) {
  std::map<int, int> accepts = {{1, 0}, {static_cast<int>(full), static_cast<int>(manifest.depth)}};
  if (!manifest.is_chain() || on_device) return accepts;
  accepts.clear();
  for (int width = 1; width <= full; ++width) accepts[width] = width - 1;
  return accepts;
}

bool is_own_state(const Tensor& tensor) { return tensor.role == "state" && tensor.buffer.rfind(kTarget, 0) != 0; }

}  // namespace

Drafting::Drafting(Rounds& rounds, Seconds& seconds, Stopwatch& watch, bool on_device)
    : rounds_(rounds),
      seconds_(seconds),
      watch_(watch),
      on_device_(on_device),
      draws_(rounds.manifest.sample),
      is_chain_(rounds.manifest.is_chain()),
      fused_(rounds.graph("step") != nullptr),
      // On a GPU a fused bundle would need the target's weights twice for rounds without drafts.
      can_adapt_(rounds.manifest.exact && !(fused_ && on_device)),
      full_(rounds.manifest.tokens + 1) {
  const Graph* const drafter = rounds.graph(fused_ ? "step" : "draft");
  remembers_ = drafter && std::any_of(drafter->outputs.begin(), drafter->outputs.end(), is_own_state);
  reads_alone_ = !fused_ && !(drafter && drafter->input("features"));
  overlap = has_input(rounds.manifest, "pairs");
  pace_ = std::make_unique<Pace>(accepted_by_width(rounds.manifest, full_, on_device), fused_);
  drafted_ = rounds.engine.array("window", {rounds.manifest.batch_size, full_});
  pending_ = rounds.engine.array("window", {rounds.manifest.batch_size, 1});
}

void Drafting::begin(const Rows& rows, bool speculative, bool adaptive) {
  // What is drawn depends on how many drafts there are, so the clock must not decide that.
  const bool is_certain =
      !draws_ || std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.sampling.temperature == 0; });
  adaptive_ = speculative && adaptive && is_certain && can_adapt_;
  window_ = speculative ? full_ : 1;
  unread_.reset();
  feeds_again_ = false;
  if (!adaptive_) return;
  int64_t prompt = 0, room = 0;
  for (const Row& row : rows) {
    prompt = std::max(prompt, static_cast<int64_t>(row.prompt.size()));
    room = std::max(room, row.room);
  }
  window_ = pace_->begin(prompt, room);
}

std::optional<std::vector<int64_t>> Drafting::claim_unread() {
  if (window_ == 1 || !unread_) return std::nullopt;
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
  int64_t longest = 0;
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i].active()) longest = std::max(longest, rounds_.n_total[i]);
  return is_chain_ || longest == 1 ? std::min(window_, longest) : full_;
}

void Drafting::fill(const Array& window) {
  const int64_t width = window.shape[1];
  if (window_ == 1 || width >= full_) return;
  for (int64_t row = 0; row < window.shape[0]; ++row) {
    std::copy_n(drafted_.ints() + row * full_, width, window.ints() + row * width);
    rounds_.n_total[row] = std::min(rounds_.n_total[row], width);
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
  pace_->verified(static_cast<int>(width), seconds, accepted, without);
}

void Drafting::advance(Forward& forward, const std::vector<int64_t>& n_path, const Rows& rows, bool taking, int64_t fed) {
  const bool is_step = forward.key.fused;
  if (is_step)
    unread_.reset();
  else if ((fused_ && remembers_) || unread_)
    fall_behind(n_path);
  if (taking && adaptive_) window_ = pace_->choose(unread_ ? lag_ : 0);
  if (is_step) {
    forward.hand_over();
  } else if (window_ > 1 && !fused_) {
    // of what follows the middle of a text, nobody reads drafts
    if (taking || remembers_) draft(forward, rows, fed);
  } else if (!unread_ && remembers_) {
    fall_behind(n_path);
  }
  // A `step` that is not behind reads the pending token alone, and drafts again.
  if (window_ == 1 || (fused_ && !is_step)) write_pending(forward, n_path);
}

void Drafting::write_pending(const Forward& forward, const std::vector<int64_t>& n_path) {
  const Array& pending = window_ == 1 ? pending_ : drafted_;
  for (size_t row = 0; row < n_path.size(); ++row) {
    const int64_t at = static_cast<int64_t>(row);
    pending.ints()[at * pending.shape[1]] = forward.path.ints()[at * forward.path.shape[1] + n_path[row]];
    rounds_.n_total[row] = 1;
  }
}

// The drafter does not read this run.
void Drafting::fall_behind(const std::vector<int64_t>& n_path) {
  if (!unread_) {
    unread_.emplace(rounds_.length, rounds_.length + n_path.size());
    lag_ = 0;
  }
  lag_ += *std::max_element(n_path.begin(), n_path.end());
}

// Run the drafter's own graph, over what it has missed where it has missed anything.
void Drafting::draft(Forward& forward, const Rows& rows, int64_t fed) {
  if (unread_ && !reads_alone_) return;  // the target comes first: see `claim_unread`
  const Run* const run = unread_ ? nullptr : &forward.draft();
  int64_t read = fed;
  const double start = wall_seconds();
  if (run) {
    (*run)();
  } else {
    catch_up(rows, forward.key.history);
    read = lag_;
  }
  seconds_.draft += wall_seconds() - start;
  const double seconds = watch_.lap();
  if (adaptive_ && read)
    pace_->caught_up(read, seconds, seconds);
  else if (adaptive_)
    pace_->drafted(seconds);
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
