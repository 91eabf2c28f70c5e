#include "low_rank.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace speccompile {
namespace {

constexpr int64_t kNumbersApart = 1 << 15;  // less is not worth another thread
constexpr int64_t kLanes = 16;              // partial sums, the same number on every processor

float dot(const float* x, const float* a, int64_t count) {
  float sums[kLanes] = {};
  int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += x[k + lane] * a[k + lane];
  for (int64_t lane = 0; k < count; ++k, ++lane) sums[lane] += x[k] * a[k];
  for (int64_t half = kLanes / 2; half; half /= 2)
    for (int64_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  return sums[0];
}

}  // namespace

// The product is summed up by itself, and added to y once: padding of zeros changes no bit.
void LowRank::compute(Context& context) const {
  const Tensor base = context.input(0), rows = context.input(1), first = context.input(2), second = context.input(3), slots = context.input(4);
  const Shape &y = base.shape(3, "y"), &x = rows.shape(3, "x"), &a = first.shape(3, "a"), &b = second.shape(3, "b");
  expect(x[0] == y[0] && x[1] == y[1], "x", x);
  expect(a[2] == x[2] && a[0] > 0, "a", a);
  expect(b[0] == a[0] && b[1] == a[1] && b[2] == y[2], "b", b);
  expect(slots.shape().count() == y[0], "the adapter", slots.shape());
  const int64_t *slot = slots.data<int64_t>(), tokens = y[1], width = y[2], depth = x[2], rank = a[1];
  for (int64_t row = 0; row < y[0]; ++row)
    if (slot[row] < 0 || slot[row] >= a[0])
      throw OperatorError("received the adapter " + std::to_string(slot[row]) + ", expected 0 to " + std::to_string(a[0] - 1));
  float* out = context.output<float>(0, y);
  context.parallel(y[0] * tokens, 1 + kNumbersApart / (1 + rank * (depth + width)), [&](int64_t begin, int64_t end) {
    std::vector<float> sum(static_cast<size_t>(width));
    for (int64_t i = begin; i < end; ++i) {
      const float* from = base.data<float>() + i * width;
      const int64_t own = slot[i / tokens];
      if (own == 0) {
        std::memmove(out + i * width, from, static_cast<size_t>(width) * sizeof(float));
        continue;
      }
      const float *left = first.data<float>() + own * rank * depth, *right = second.data<float>() + own * rank * width;
      std::fill(sum.begin(), sum.end(), 0.0f);
      for (int64_t j = 0; j < rank; ++j) {
        const float share = dot(rows.data<float>() + i * depth, left + j * depth, depth);
        for (int64_t n = 0; n < width; ++n) sum[static_cast<size_t>(n)] += share * right[j * width + n];
      }
      for (int64_t n = 0; n < width; ++n) out[i * width + n] = from[n] + sum[static_cast<size_t>(n)];
    }
    return true;
  });
}

}  // namespace speccompile
