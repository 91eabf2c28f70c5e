// Log-probabilities of chosen tokens (runtime/logprobs.py).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace spc {

// Return the natural logarithm of a token's probability under logits [count], at temperature 1.
inline double chosen_logprob(const float* logits, size_t count, int64_t token) {
  const double most = *std::max_element(logits, logits + count);
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += std::exp(logits[i] - most);
  return logits[token] - most - std::log(sum);
}

}  // namespace spc
