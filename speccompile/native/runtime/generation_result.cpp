#include "generation_result.h"

#include "../images/media.h"

namespace spc {
namespace {

Json optional_number(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

}  // namespace

Json generation_json(const Bundle& bundle, const SequenceState& row, const GenerationTimes& times, bool speculative) {
  const size_t rounds = row.path_lengths.empty() ? 0 : row.path_lengths.size() - 1;
  const double count = static_cast<double>(row.token_ids.size());
  Json found(Json::Object{
      {"text", row.has_text() ? Json(row.text) : Json()},
      {"token_ids", list_of(row.token_ids)},
      {"prompt_tokens", Json(static_cast<int64_t>(row.prompt.size()))},
      {"rounds", Json(static_cast<int64_t>(rounds))},
      {"mean_accepted", rounds ? Json((count - 1) / static_cast<double>(rounds)) : Json()},
      {"seconds", times.seconds},
      {"tokens_per_second", times.seconds > 0 ? count / times.seconds : 0.0},
      {"finish_reason", row.finish_reason},
      {"mode", speculative ? mode::kSpeculative : mode::kAutoregressive},
      {"engine", bundle.entry().name},
      {"exact", bundle.exact()},
      {"kernels", bundle.kernels().empty() ? Json() : Json(bundle.kernels())},
      {"seed", row.sampling.temperature > 0 ? Json(row.sampling.seed) : Json()},
  });
  if (row.wants_logprobs) found.set("logprobs", list_of(row.logprobs));
  if (row.n_best) found.set("top_logprobs", to_json(row.top_logprobs));
  if (row.truncated_tokens) found.set("truncated_tokens", row.truncated_tokens);
  if (times.cached_tokens) found.set("cached_tokens", times.cached_tokens);
  if (row.media) found.set("encode_seconds", row.media->encode_seconds);
  found.set("prefill_seconds", times.prefill);
  found.set("cached_tokens", times.cached_tokens);
  found.set("estimated_speedup", optional_number(times.estimated_speedup));
  found.set("verify_seconds", times.verify);
  found.set("draft_seconds", times.draft);
  found.set("path_lengths", list_of(row.path_lengths, 1));
  found.set("draft_lengths", list_of(row.draft_lengths, 1));
  found.set("round_seconds", list_of(times.rounds));
  return found;
}

}  // namespace spc
