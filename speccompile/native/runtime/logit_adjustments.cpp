#include "logit_adjustments.h"

#include <algorithm>

namespace spc {
namespace {

bool has_penalty(const SamplingParams& sampling) { return sampling.frequency_penalty != 0 || sampling.presence_penalty != 0; }

}  // namespace

int64_t power_of_two(int64_t count) {
  int64_t width = 1;
  while (width < count) width *= 2;
  return width;
}

AdjustedTokens::AdjustedTokens(const SequenceState& row) : row_(row), counts_(has_penalty(row.sampling)) {
  for (const auto& [token, bias] : row.sampling.logit_bias) {
    places_.emplace(token, tokens_.size());
    tokens_.push_back(token);
    times_.push_back(0);
  }
}

int64_t AdjustedTokens::update() {
  for (; counts_ && read_ < row_.token_ids.size(); ++read_) {
    const int64_t token = row_.token_ids[read_];
    const auto [place, is_new] = places_.emplace(token, tokens_.size());
    if (is_new) {
      tokens_.push_back(token);
      times_.push_back(0);
    }
    ++times_[place->second];
  }
  return static_cast<int64_t>(tokens_.size());
}

double AdjustedTokens::penalty(int64_t count) const {
  return count ? -(row_.sampling.frequency_penalty * static_cast<double>(count)) - row_.sampling.presence_penalty : 0;
}

void AdjustedTokens::write(const Lines& lines, const int64_t* drafts, size_t count, const std::vector<int64_t>& parents) const {
  std::vector<int64_t> tokens = tokens_;
  const auto& biases = row_.sampling.logit_bias;
  for (int64_t node = 0; node < lines.rows; ++node) {
    float* const penalties = lines.penalties + node * lines.width;
    for (size_t place = 0; place < biases.size(); ++place) lines.biases[node * lines.width + static_cast<int64_t>(place)] = static_cast<float>(biases[place].second);
    for (size_t place = 0; place < times_.size(); ++place) penalties[place] = static_cast<float>(penalty(times_[place]));
  }
  if (counts_) write_drafts(lines, tokens, drafts, count, parents);
  // Padding repeats the first token, with its values: equal tokens of a row must have equal values.
  const int64_t size = static_cast<int64_t>(tokens.size());
  for (int64_t node = 0; node < lines.rows; ++node) {
    const int64_t begin = node * lines.width;
    std::copy(tokens.begin(), tokens.end(), lines.tokens + begin);
    std::fill(lines.tokens + begin + size, lines.tokens + begin + lines.width, lines.tokens[begin]);
    std::fill(lines.biases + begin + size, lines.biases + begin + lines.width, lines.biases[begin]);
    std::fill(lines.penalties + begin + size, lines.penalties + begin + lines.width, lines.penalties[begin]);
  }
}

// Count the drafts before each node. Add those to `tokens` that are new in a line.
void AdjustedTokens::write_drafts(const Lines& lines, std::vector<int64_t>& tokens, const int64_t* drafts, size_t count,
                                  const std::vector<int64_t>& parents) const {
  std::vector<size_t> places;  // of each draft
  for (size_t draft = 0; draft < count; ++draft) {
    const auto known = places_.find(drafts[draft]);
    const auto added = std::find(tokens.begin() + static_cast<std::ptrdiff_t>(tokens_.size()), tokens.end(), drafts[draft]);
    places.push_back(known != places_.end() ? known->second : static_cast<size_t>(added - tokens.begin()));
    if (places.back() == tokens.size()) tokens.push_back(drafts[draft]);
  }
  std::vector<std::map<size_t, int64_t>> paths(count + 1);  // of each node: place -> its number of times among the drafts up to it
  for (size_t node = 1; node <= count; ++node) {
    paths[node] = paths[static_cast<size_t>(parents[node])];
    ++paths[node][places[node - 1]];
    for (const auto& [place, times] : paths[node])
      lines.penalties[node * static_cast<size_t>(lines.width) + place] = static_cast<float>(penalty(times + (place < times_.size() ? times_[place] : 0)));
  }
}

LogitAdjustments::LogitAdjustments(Engine& engine, const Manifest& manifest)
    : engine_(engine),
      manifest_(manifest),
      most_(std::max(kNarrowestAdjusted, std::min(manifest.vocabulary_size, kMostBiases + manifest.max_length + manifest.tokens))),
      parents_(engine, manifest) {}

void LogitAdjustments::admit(int64_t slot, const SequenceState& row) {
  release(slot);
  if (has_penalty(row.sampling) || !row.sampling.logit_bias.empty()) slots_.emplace(slot, row);
}

int64_t LogitAdjustments::width(const SlotList& taking, int64_t logit_rows) {
  int64_t needed = 0;
  for (const Slot* const slot : taking)
    if (const auto own = slots_.find(slot->index); own != slots_.end()) needed = std::max({int64_t{1}, needed, own->second.update() + logit_rows - 1});
  return needed ? std::min(std::max(kNarrowestAdjusted, power_of_two(needed)), most_) : 1;
}

void LogitAdjustments::write(const VerifyPass& forward, const BoundGraphs& rounds, const SlotList& taking) const {
  const int64_t rows = forward.key.logit_rows, width = forward.key.adjusted;
  if (width == 1) return;
  const Shape shape = {manifest_.batch_size, rows, width};
  int64_t* const tokens = engine_.host_view(names::kAdjusted, shape).ints();
  float *const biases = engine_.host_view(names::kBiases, shape).floats(), *const penalties = engine_.host_view(names::kPenalties, shape).floats();
  for (const Slot* const slot : taking) {
    const int64_t begin = slot->index * rows * width;
    const AdjustedTokens::Lines lines = {tokens + begin, biases + begin, penalties + begin, rows, width};
    std::fill_n(lines.tokens, rows * width, 0);
    std::fill_n(lines.biases, rows * width, 0.0f);
    std::fill_n(lines.penalties, rows * width, 0.0f);
    const auto own = slots_.find(slot->index);
    if (own == slots_.end()) continue;
    const int64_t given = rounds.n_given[slot->index], total = rounds.n_total[slot->index];
    const std::vector<int64_t> parents = parents_.of(slot->index);
    const int64_t most = std::min({manifest_.tokens, rows - 1, static_cast<int64_t>(parents.size()) - 1});
    const size_t count = static_cast<size_t>(std::clamp<int64_t>(total - given, 0, most));
    own->second.write(lines, forward.window.ints() + slot->index * forward.window.shape[1] + given, count, parents);
  }
}

}  // namespace spc
