// Log-probabilities of chosen tokens, and of the best ones (runtime/logprobs.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "../json.h"

namespace spc {

// The most probable tokens at one position with their log-probabilities, the best first, the lower token first of two that are
// equal.
using BestTokens = std::vector<std::pair<int64_t, double>>;

// Log-probabilities of a round. chosen: of every token; best: at each of their positions, empty unless requested.
struct Logprobs {
  std::vector<double> chosen;
  std::vector<BestTokens> best;

  // Append the natural logarithm of a token's probability under logits [count], at temperature 1, and the `n_best` best tokens.
  void add(const float* logits, size_t count, int64_t token, int64_t n_best);
};

// Return lists of [token, log-probability], one for each position.
Json to_json(const std::vector<BestTokens>& best);

}  // namespace spc
