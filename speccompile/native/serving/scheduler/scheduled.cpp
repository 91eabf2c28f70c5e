#include "scheduled.h"

#include <algorithm>
#include <tuple>
#include <type_traits>

namespace spc {

TokenIds ScheduledSequence::cached_token_ids() const {
  TokenIds all = row.identity();
  all.pop_back();
  return all;
}

std::pair<int64_t, std::optional<double>> ScheduledSequence::record_tokens(double now) {
  const auto fresh = static_cast<int64_t>(row.token_ids.size()) - static_cast<int64_t>(shown_);
  std::optional<double> gap;
  rounds_ = row.path_lengths.size();
  if (last_token_time) {
    gap = now - *last_token_time;
    gaps.push_back(*gap);
  } else {
    first_token_time = now;
  }
  last_token_time = now;
  return {fresh, gap};
}

void ScheduledSequence::emit(std::shared_ptr<const FinishedSequence> finished) {
  const auto since = [this](const auto& all) {
    return std::decay_t<decltype(all)>(all.begin() + static_cast<std::ptrdiff_t>(std::min(shown_, all.size())), all.end());
  };
  OutputDelta delta;
  delta.index = index;
  delta.text = row.text.substr(std::min(told_, row.text.size()));
  delta.token_ids = since(row.token_ids);
  delta.logprobs = since(row.logprobs);
  if (row.n_best) delta.top_logprobs = since(row.top_logprobs);
  delta.finished = std::move(finished);
  std::tie(delta.draft_tokens, delta.accepted) = last_round();
  shown_ = row.token_ids.size();
  told_ = row.text.size();
  request->deliver(std::move(delta));
}

// Return the draft tokens that the round since the last call verified and accepted; zeros without a round.
std::pair<int64_t, int64_t> ScheduledSequence::last_round() {
  const size_t before = std::exchange(emitted_rounds_, row.path_lengths.size());
  if (emitted_rounds_ == before || !row.draft_lengths.back()) return {0, 0};
  return {row.draft_lengths.back(), row.path_lengths.back() - 1};
}

GenerationTimes ScheduledSequence::spent(double now) const {
  const double begun = start_time.value_or(now);
  GenerationTimes found;
  found.seconds = now - begun;
  found.prefill = first_token_time ? *first_token_time - begun : 0;
  found.rounds = gaps;
  found.verify = verify;
  found.draft = draft;
  found.cached_tokens = cached;
  found.queue = begun - arrival_time;
  if (first_token_time) found.first_token = *first_token_time - arrival_time;
  return found;
}

}  // namespace spc
