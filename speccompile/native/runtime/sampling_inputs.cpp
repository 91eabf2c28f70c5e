#include "sampling_inputs.h"

#include <algorithm>

namespace spc {
namespace {

// 1, 2, 4, ..: the least that is not below `count`.
int64_t power_of_two(int64_t count) {
  int64_t width = 1;
  while (width < count) width *= 2;
  return width;
}

}  // namespace

bool has_input(const Manifest& manifest, const std::string& name) {
  return std::any_of(manifest.graphs.begin(), manifest.graphs.end(), [&](const Graph& graph) { return graph.input(name) != nullptr; });
}

bool PenaltyHistory::PenaltyTokens::add(int64_t token) {
  if (!known.insert(token).second) return false;
  tokens.push_back(token);
  return true;
}

PenaltyHistory::PenaltyHistory(Engine& engine, const Manifest& manifest)
    : engine_(engine), batch_(manifest.batch_size), most_(manifest.max_length), lines_(engine.host_view(names::kHistory, {batch_, 1})) {}

void PenaltyHistory::begin(const Rows& rows) {
  seen_.assign(rows.size(), std::nullopt);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].sampling.repetition_penalty == 1) continue;
    seen_[i].emplace();
    for (const int64_t token : rows[i].prompt) seen_[i]->add(token);
  }
  lay_out();
}

void PenaltyHistory::add(size_t index, const SequenceState& row) {
  if (!seen_[index]) return;
  PenaltyTokens& seen = *seen_[index];
  for (; seen.read < row.token_ids.size(); ++seen.read) {
    const int64_t token = row.token_ids[seen.read], place = static_cast<int64_t>(seen.tokens.size());
    if (seen.add(token) && place < width()) lines_.ints()[static_cast<int64_t>(index) * width() + place] = token;
  }
}

void PenaltyHistory::widen() {
  for (const std::optional<PenaltyTokens>& seen : seen_)
    if (seen && static_cast<int64_t>(seen->tokens.size()) > width()) return lay_out();
}

// Lines that hold what has been seen.
void PenaltyHistory::lay_out() {
  size_t most = 1;
  for (const std::optional<PenaltyTokens>& seen : seen_)
    if (seen) most = std::max(most, seen->tokens.size());
  lines_ = engine_.host_view(names::kHistory, {batch_, std::min(power_of_two(static_cast<int64_t>(most)), most_)});
  for (size_t i = 0; i < seen_.size(); ++i) {
    if (!seen_[i]) continue;
    const std::vector<int64_t>& tokens = seen_[i]->tokens;
    int64_t* line = lines_.ints() + static_cast<int64_t>(i) * width();
    std::fill(line, line + width(), tokens.front());
    std::copy_n(tokens.begin(), std::min(tokens.size(), static_cast<size_t>(width())), line);
  }
}

SamplingInputs::SamplingInputs(Engine& engine, const Manifest& manifest)
    : history(engine, manifest), engine_(engine), batch_(manifest.batch_size), tokens_(manifest.tokens) {
  const Shape shape = {batch_, tokens_};
  if (has_input(manifest, names::kAcceptUniforms)) per_draft_.push_back({engine.host_view(names::kAcceptUniforms, shape), Purpose::kAccept});
  if (has_input(manifest, names::kDraftUniforms)) per_draft_.push_back({engine.host_view(names::kDraftUniforms, shape), Purpose::kDraft});
  begin({}, false);  // zeros would not be neutral
}

void SamplingInputs::write_settings(const Rows& rows) {
  static const SamplingParams greedy;
  const auto settings = [&](const char* name) { return engine_.host_view(name, {batch_}); };
  float* const temperature = settings(names::kTemperature).floats();
  float* const top_p = settings(names::kTopP).floats();
  float* const min_p = settings(names::kMinP).floats();
  float* const penalty = settings(names::kRepetitionPenalty).floats();
  int64_t* const top_k = settings(names::kTopK).ints();
  for (size_t i = 0; i < static_cast<size_t>(batch_); ++i) {
    const SamplingParams& sampling = i < rows.size() ? rows[i].sampling : greedy;
    temperature[i] = static_cast<float>(sampling.temperature);
    top_p[i] = static_cast<float>(sampling.top_p);
    min_p[i] = static_cast<float>(sampling.min_p);
    penalty[i] = static_cast<float>(sampling.repetition_penalty);
    top_k[i] = sampling.top_k;
  }
}

void SamplingInputs::begin(const Rows& rows, bool drafting) {
  write_settings(rows);
  new_tokens_.clear();
  streams_.clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    const SamplingParams& sampling = rows[i].sampling;
    Uniforms uniforms(sampling.seed, sampling.sequence, Purpose::kNewToken);
    // A round may reach behind the last token that there is room for.
    std::vector<float>& drawn = new_tokens_.emplace_back(static_cast<size_t>(rows[i].max_new_tokens + tokens_ + 1));
    for (float& number : drawn) number = uniforms.draw();
    std::vector<UniformStream>& streams = streams_.emplace_back();
    if (!drafting) continue;
    for (const DraftUniforms& each : per_draft_)
      streams.push_back({each.array.floats() + static_cast<int64_t>(i) * tokens_, Uniforms(sampling.seed, sampling.sequence, each.purpose)});
  }
  history.begin(rows);
}

void SamplingInputs::write(const Rows& rows, const std::vector<size_t>& taking, int64_t logit_rows) {
  float* const uniforms = engine_.host_view(names::kUniforms, {batch_, logit_rows}).floats();
  for (const size_t i : taking) {
    const std::vector<float>& drawn = new_tokens_[i];
    std::copy_n(drawn.begin() + static_cast<std::ptrdiff_t>(rows[i].token_ids.size()), logit_rows,
                uniforms + static_cast<int64_t>(i) * logit_rows);
    for (UniformStream& each : streams_[i])
      for (int64_t j = 0; j < tokens_; ++j) each.numbers[j] = each.stream.draw();
    history.add(i, rows[i]);
  }
  history.widen();
}

}  // namespace spc
