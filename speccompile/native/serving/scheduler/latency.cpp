#include "latency.h"

#include <algorithm>

#include "../../contract_table.h"

namespace spc {
namespace {

double moved(double average, double seconds) { return average != 0 ? kKeptLatency * average + (1 - kKeptLatency) * seconds : seconds; }

}  // namespace

void LatencyEstimates::record_round(double seconds) { round_ = moved(round_, seconds); }

void LatencyEstimates::record_prefill(int64_t tokens, double seconds) {
  seconds_ = kKeptLatency * seconds_ + seconds;
  tokens_ = kKeptLatency * tokens_ + static_cast<double>(std::max(tokens, kSmallestChunk));
}

void LatencyEstimates::record_copy(double seconds) { copy_ = moved(copy_, seconds); }

double LatencyEstimates::prefill_seconds(int64_t tokens) const { return tokens_ != 0 ? static_cast<double>(tokens) * seconds_ / tokens_ : 0; }

std::optional<int64_t> LatencyEstimates::chunk(int64_t waiting, int64_t decoding, int64_t taken) const {
  constexpr double kMost = 1 << 30;
  const double token = prefill_seconds(1);
  if (token == 0 || round_ == 0 || decoding < 1) return std::nullopt;
  const double share = static_cast<double>(waiting) / static_cast<double>(waiting + decoding);
  const auto affordable = static_cast<int64_t>(std::min(static_cast<double>(2 * kChunkRounds) * share * round_ / token, kMost));
  if (taken && 2 * taken > affordable) return 0;
  int64_t power = 1;
  while (power * 2 <= affordable - taken) power *= 2;
  return std::max<int64_t>(kSmallestChunk, power);
}

}  // namespace spc
