#include "sampling_inputs.h"

#include <algorithm>

namespace spc {

bool has_input(const Manifest& manifest, const std::string& name) {
  return std::any_of(manifest.graphs.begin(), manifest.graphs.end(), [&](const Graph& graph) { return graph.input(name) != nullptr; });
}

void PenaltyHistory::PenaltyTokens::add(const SequenceState& row) {
  for (; length < row.size(); ++length)
    if (known.insert(row.token(length)).second) tokens.push_back(row.token(length));
}

PenaltyHistory::PenaltyHistory(Engine& engine, const Manifest& manifest)
    : engine_(engine), batch_(manifest.batch_size), most_(manifest.max_length), seen_(static_cast<size_t>(batch_)) {}

void PenaltyHistory::admit(int64_t slot, const SequenceState& row) {
  release(slot);
  seen_[static_cast<size_t>(slot)].emplace().add(row);
}

void PenaltyHistory::release(int64_t slot) {
  seen_[static_cast<size_t>(slot)].reset();
  written_.erase(written_.lower_bound({slot, 0}), written_.lower_bound({slot + 1, 0}));
}

void PenaltyHistory::add(int64_t slot, const SequenceState& row) {
  if (auto& seen = seen_[static_cast<size_t>(slot)]) seen->add(row);
}

int64_t PenaltyHistory::write(const Span& rows) {
  size_t most = 1;
  for (int64_t slot = rows.start; slot < rows.stop; ++slot)
    if (const auto& seen = seen_[static_cast<size_t>(slot)]) most = std::max(most, seen->tokens.size());
  const int64_t width = std::min(power_of_two(static_cast<int64_t>(most)), most_);
  int64_t* const lines = engine_.host_view(names::kHistory, {batch_, width}).ints();
  for (int64_t slot = rows.start; slot < rows.stop; ++slot) {
    const auto& seen = seen_[static_cast<size_t>(slot)];
    if (!seen) continue;
    const std::vector<int64_t>& tokens = seen->tokens;
    int64_t* const line = lines + slot * width;
    size_t& written = written_[{slot, width}];
    if (!written) std::fill_n(line, width, tokens.front());
    const size_t end = std::min(tokens.size(), static_cast<size_t>(width));
    for (; written < end; ++written) line[written] = tokens[written];
  }
  return width;
}

SamplingInputs::SamplingInputs(Engine& engine, const Manifest& manifest)
    : engine_(engine),
      batch_(manifest.batch_size),
      tokens_(manifest.tokens),
      history_(engine, manifest),
      new_tokens_(static_cast<size_t>(batch_)),
      streams_(static_cast<size_t>(batch_)) {
  for (const SamplingOption& option : kSamplingOptions)
    if (option.is_input && option.kind != SamplingKind::kSeed) settings_.push_back({option, engine.host_view(option.name, {batch_})});
  const Shape shape = {batch_, tokens_};
  if (has_input(manifest, names::kAcceptUniforms)) per_draft_.push_back({engine.host_view(names::kAcceptUniforms, shape), Purpose::kAccept});
  if (has_input(manifest, names::kDraftUniforms)) per_draft_.push_back({engine.host_view(names::kDraftUniforms, shape), Purpose::kDraft});
  if (has_input(manifest, names::kAdjusted)) adjustments_.emplace(engine, manifest);
  for (int64_t slot = 0; slot < batch_; ++slot) set(slot, {});  // zeros would not be neutral
}

void SamplingInputs::admit(int64_t slot, const SequenceState& row, bool drafting) {
  const SamplingParams& sampling = row.sampling;
  set(slot, sampling);
  Uniforms uniforms(sampling.seed, sampling.sequence, Purpose::kNewToken);
  // A round may go beyond the last token that the sequence may have.
  std::vector<float>& drawn = new_tokens_[static_cast<size_t>(slot)];
  drawn.resize(static_cast<size_t>(row.max_new_tokens + tokens_ + 1));
  for (float& number : drawn) number = uniforms.draw();
  std::vector<UniformStream>& streams = streams_[static_cast<size_t>(slot)];
  streams.clear();
  if (drafting)
    for (const DraftUniforms& each : per_draft_)
      streams.push_back({each.array.floats() + slot * tokens_, Uniforms(sampling.seed, sampling.sequence, each.purpose)});
  if (sampling.repetition_penalty != 1) history_.admit(slot, row);
  if (adjustments_) adjustments_->admit(slot, row);
}

void SamplingInputs::release(int64_t slot) {
  set(slot, {});
  history_.release(slot);
  if (adjustments_) adjustments_->release(slot);
}

int64_t SamplingInputs::write(const Span& rows, const SlotList& taking, int64_t logit_rows) {
  float* const uniforms = engine_.host_view(names::kUniforms, {batch_, logit_rows}).floats();
  for (const Slot* const slot : taking) {
    const SequenceState& row = *slot->sequence;
    const std::vector<float>& drawn = new_tokens_[static_cast<size_t>(slot->index)];
    std::copy_n(drawn.begin() + static_cast<std::ptrdiff_t>(row.token_ids.size()), logit_rows, uniforms + slot->index * logit_rows);
    for (UniformStream& each : streams_[static_cast<size_t>(slot->index)])
      for (int64_t i = 0; i < tokens_; ++i) each.numbers[i] = each.stream.draw();
    history_.add(slot->index, row);
  }
  return history_.write(rows);
}

void SamplingInputs::set(int64_t slot, const SamplingParams& sampling) {
  for (const SettingInput& each : settings_) {
    if (each.option.number)
      each.array.floats()[slot] = static_cast<float>(sampling.*each.option.number);
    else
      each.array.ints()[slot] = sampling.*each.option.count;
  }
}

}  // namespace spc
