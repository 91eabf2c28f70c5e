#include "usage.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace spc::http {
namespace {

Json rounded(double value, double digits) { return std::round(value * digits) / digits; }

Json milliseconds(std::optional<double> seconds) { return seconds ? rounded(1000 * *seconds, 1000) : Json(); }

int64_t sum(const std::vector<int64_t>& values) { return std::accumulate(values.begin(), values.end(), int64_t{0}); }

// Return the number of accepted draft tokens in the answer: those that its end cut off do not count.
int64_t accepted_drafts(const FinishedSequence& sequence) {
  const auto count = static_cast<int64_t>(sequence.token_ids.size());
  int64_t start = 1, found = 0;  // the prefill gives one token
  for (size_t round = 0; round < sequence.path_lengths.size(); ++round) {
    const int64_t length = sequence.path_lengths[round], end = std::min(start + length - 1, count);
    if (sequence.draft_lengths[round]) found += std::max<int64_t>(0, end - start);
    start += length;
  }
  return found;
}

// Return statistics of the rounds with drafts. Without such a round, the values are those of decoding without drafts: readers of
// vLLM's metrics accept no null.
Json speculation(const FinishedSequence& sequence, int64_t most) {
  int64_t steps = 0, accepted = 0;
  std::vector<int64_t> histogram(static_cast<size_t>(most) + 1);
  for (size_t round = 0; round < sequence.path_lengths.size(); ++round) {
    if (!sequence.draft_lengths[round]) continue;
    const int64_t count = sequence.path_lengths[round] - 1;
    ++steps;
    accepted += count;
    if (count <= most) ++histogram[static_cast<size_t>(count)];
  }
  const int64_t drafts = sum(sequence.draft_lengths);
  const auto real = [](int64_t value) { return static_cast<double>(value); };
  return Json::Object{{"mean_acceptance_length", rounded(1 + real(accepted) / real(std::max<int64_t>(1, steps)), 10000)},
                      {"draft_acceptance_rate", rounded(real(accepted) / real(std::max<int64_t>(1, drafts)), 10000)},
                      {"acceptance_histogram", list_of(histogram)},
                      {"num_spec_steps", steps},
                      {"num_accepted_draft_tokens", accepted},
                      {"num_draft_tokens", drafts},
                      {"num_spec_tokens", most}};
}

}  // namespace

Json usage(int64_t prompt_tokens, int64_t new_tokens) {
  return Json::Object{{"prompt_tokens", prompt_tokens}, {"completion_tokens", new_tokens}, {"total_tokens", prompt_tokens + new_tokens}};
}

Json final_usage(const Finished& sequences, int64_t each) {
  int64_t prompts = 0, cached = 0, accepted = 0, drafts = 0, new_tokens = 0;
  for (size_t index = 0; index < sequences.size(); ++index) {
    const FinishedSequence& sequence = *sequences[index];
    new_tokens += static_cast<int64_t>(sequence.token_ids.size());
    accepted += accepted_drafts(sequence);
    drafts += sum(sequence.draft_lengths);
    if (index % static_cast<size_t>(each)) continue;
    prompts += sequence.prompt_tokens;
    cached += sequence.cached_tokens;
  }
  Json found = usage(prompts, new_tokens);
  found.set("prompt_tokens_details", Json::Object{{"cached_tokens", cached}, {"audio_tokens", 0}});
  found.set("completion_tokens_details", Json::Object{{"accepted_prediction_tokens", accepted},
                                                      {"rejected_prediction_tokens", drafts - accepted},
                                                      {"reasoning_tokens", 0},
                                                      {"audio_tokens", 0}});
  return found;
}

Json metrics(const FinishedSequence& sequence, int64_t drafts) {
  const std::vector<double> gaps = [&] {
    std::vector<double> found;
    for (const Json& each : sequence.json["round_seconds"].list()) found.push_back(each.number());
    return found;
  }();
  const double decoding = std::accumulate(gaps.begin(), gaps.end(), 0.0), count = static_cast<double>(sequence.token_ids.size());
  const double seconds = sequence.seconds;
  return Json::Object{{"time_to_first_token_ms", milliseconds(sequence.first_token_seconds)},
                      {"generation_time_ms", milliseconds(seconds)},
                      {"queue_time_ms", milliseconds(sequence.queue_seconds)},
                      {"mean_itl_ms", count > 1 ? milliseconds(decoding / (count - 1)) : Json()},
                      {"tokens_per_second", rounded(seconds > 0 ? count / seconds : 0, 1000)},
                      {"speculative_decoding", sequence.speculative ? speculation(sequence, drafts) : Json()}};
}

}  // namespace spc::http
