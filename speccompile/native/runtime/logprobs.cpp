#include "logprobs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace spc {

void Logprobs::add(const float* logits, size_t count, int64_t token, int64_t n_best) {
  const double most = *std::max_element(logits, logits + count);
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += std::exp(logits[i] - most);
  const double total = std::log(sum);
  chosen.push_back(logits[token] - most - total);
  BestTokens& found = best.emplace_back();
  if (!n_best) return;
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(std::min(count, static_cast<size_t>(n_best)));
  std::partial_sort(order.begin(), end, order.end(), [logits](int64_t one, int64_t other) {
    return logits[one] != logits[other] ? logits[one] > logits[other] : one < other;
  });
  for (auto place = order.begin(); place != end; ++place) found.emplace_back(*place, logits[*place] - most - total);
}

Json to_json(const std::vector<BestTokens>& best) {
  Json::List found;
  for (const BestTokens& position : best) {
    Json::List& line = found.emplace_back(Json::List()).list();
    for (const auto& [token, logprob] : position) line.push_back(Json::List{token, logprob});
  }
  return found;
}

}  // namespace spc
