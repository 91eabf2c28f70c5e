#include "rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../contract.h"
#include "../errors.h"

namespace spc::audio {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

bool writes_times(const Manifest& manifest) {
  return std::any_of(manifest.graphs.begin(), manifest.graphs.end(), [](const Graph& graph) { return graph.input(names::kTimestamps) != nullptr; });
}

std::vector<uint8_t> without(std::vector<uint8_t> mask, const std::vector<int64_t>& tokens) {
  for (const int64_t token : tokens) mask[static_cast<size_t>(token)] = 0;  // tokens of the section are of the vocabulary
  return mask;
}

}  // namespace

TimeRules TimeRules::of(const Manifest& manifest) {
  const AudioSection& audio = *manifest.source->audio;
  const std::optional<int64_t> first = audio.first_timestamp(manifest.vocabulary_size);
  if (!first || !writes_times(manifest))
    throw Error(Kind::kUsage, "timestamps: received true, but this bundle's target has no tokens of times",
                "leave timestamps out, or build a Whisper whose generation_config.json has no_timestamps_token_id");
  const std::vector<int64_t>& ends = manifest.eos_token_ids;
  return {*first, audio.max_initial_timestamp, ends.empty() ? *first : *std::min_element(ends.begin(), ends.end())};
}

Written TimeRules::after(const Written& written, int64_t token) const {
  const bool is_time = token >= first;
  return {written.size + 1, is_time, written.ends_in_time || !written.size, is_time ? std::optional<int64_t>(token) : written.time};
}

void TimeRules::forbid(uint8_t* allowed, int64_t size, const Written& written) const {
  const auto hide = [&](int64_t from, int64_t to) {
    from = std::clamp<int64_t>(from, 0, size);
    std::fill(allowed + from, allowed + std::clamp(to, from, size), uint8_t{0});
  };
  hide(first - 1, first);
  if (written.ends_in_time) written.was_time ? hide(first, size) : hide(0, end);
  if (written.time) {  // the second of a pair may repeat the first
    const bool is_second = written.ends_in_time && !written.was_time;
    hide(first, *written.time + (is_second ? 0 : 1));
  }
  if (written.size) return;
  hide(0, first);
  if (max_initial) hide(first + *max_initial + 1, size);
}

void TimeRules::hide_text(std::vector<float>& logits) const {
  const auto times = logits.begin() + static_cast<std::ptrdiff_t>(first);
  const float best = *std::max_element(times, logits.end());
  if (best == kNever) return;
  float sum = 0;
  for (auto each = times; each != logits.end(); ++each) sum += std::exp(*each - best);
  if (best + std::log(sum) > *std::max_element(logits.begin(), times)) std::fill(logits.begin(), times, kNever);
}

std::shared_ptr<const TokenRules> TokenRules::of(const Manifest& manifest, bool timed) {
  const AudioSection& audio = *manifest.source->audio;
  auto made = std::make_shared<TokenRules>();
  made->later_ = without(std::vector<uint8_t>(static_cast<size_t>(manifest.vocabulary_size), 1), audio.suppressed);
  made->first_ = without(made->later_, audio.begin_suppressed);
  if (timed) made->times_ = TimeRules::of(manifest);
  return made;
}

std::shared_ptr<const TokenRules> TokenRules::only(const std::vector<int64_t>& tokens, int64_t size) {
  auto made = std::make_shared<TokenRules>();
  made->later_.assign(static_cast<size_t>(size), tokens.empty() ? 1 : 0);
  for (const int64_t token : tokens) made->later_[static_cast<size_t>(token)] = 1;
  made->first_ = made->later_;
  return made;
}

Written TokenRules::after(const Written& written, int64_t token) const {
  if (times_) return times_->after(written, token);
  Written found;
  found.size = written.size + 1;
  return found;
}

void TokenRules::allow(uint8_t* allowed, const Written& written) const {
  const std::vector<uint8_t>& mask = written.size ? later_ : first_;
  std::copy(mask.begin(), mask.end(), allowed);
  if (times_) times_->forbid(allowed, size(), written);
}

std::vector<float> TokenRules::apply(const float* logits, const Written& written) const {
  std::vector<uint8_t> allowed(later_.size());
  allow(allowed.data(), written);
  std::vector<float> found(later_.size());
  for (size_t token = 0; token < found.size(); ++token) found[token] = allowed[token] ? logits[token] : kNever;
  if (times_) times_->hide_text(found);
  return found;
}

void RuleMatcher::accept_tokens(const int64_t* tokens, size_t count) {
  for (size_t i = 0; i < count; ++i) written_ = rules_->after(written_, tokens[i]);
}

void RuleMatcher::read_logits(const std::vector<const float*>& logits, const int64_t* tokens) {
  Written written = written_;
  if (!written.size) first_logits.assign(logits.at(0), logits[0] + rules_->size());
  for (size_t i = 0; i < logits.size(); ++i) {
    const std::vector<float> possible = rules_->apply(logits[i], written);
    const double best = *std::max_element(possible.begin(), possible.end());
    double sum = 0;
    for (const float each : possible) sum += std::exp(each - best);
    scores.push_back(possible[static_cast<size_t>(tokens[i])] - best - std::log(sum));
    written = rules_->after(written, tokens[i]);
  }
}

void RuleMatcher::write(uint8_t* allowed, int64_t rows, const int64_t* drafts, size_t count, const std::vector<int64_t>& parents) const {
  std::vector<Written> states = {written_};
  for (size_t node = 1; node <= count; ++node) {  // what a graph says is not trusted
    const bool is_known = parents[node] >= 0 && parents[node] < static_cast<int64_t>(node);
    states.push_back(rules_->after(states[is_known ? static_cast<size_t>(parents[node]) : node - 1], drafts[node - 1]));
  }
  for (int64_t row = 0; row < rows; ++row) rules_->allow(allowed + row * rules_->size(), states[std::min(static_cast<size_t>(row), states.size() - 1)]);
}

}  // namespace spc::audio
