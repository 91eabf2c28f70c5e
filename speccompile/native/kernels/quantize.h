// Activations in eight bits, and in the order in which products of floats read them.
#pragma once

#include <cstring>

#include "groups.h"
#include "kernels.h"
#include SPECCOMPILE_LANES

namespace speccompile {
namespace SPECCOMPILE_PATH {

// Below this a block counts as zeros: 127 divided by it must stay a number.
constexpr float kTiny = 1e-30f;

// The bits of the largest magnitude: as integers they are ordered like the numbers, NaN above infinity.
static int32_t largest_bits(const float* x, int64_t count) {
  Integers most = magnitudes(zero());
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) most = largest(most, magnitudes(load(x + i)));
  if (i < count) most = largest(most, magnitudes(load_some(x + i, static_cast<int>(count - i))));
  return largest_of(most);
}

// numbers [block] of x [count], count <= block, and their sum. factor: 127 / the largest magnitude.
static float quantize_block(const float* x, int64_t count, int64_t block, float factor, int8_t* numbers) {
  const Vector factors = broadcast(factor);
  Integers sum = magnitudes(zero());
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) sum = add(sum, store_int8(numbers + i, multiply(load(x + i), factors)));
  if (i < count) {  // the block ends with a whole vector
    const Vector some = load_some(x + i, static_cast<int>(count - i));
    sum = add(sum, store_int8(numbers + i, multiply(some, factors)));
    i += kWidth;
  }
  std::memset(numbers + i, 0, static_cast<size_t>(block - i));
  return static_cast<float>(sum_of(sum));
}

static void quantize(const float* x, int64_t depth, const QuantizedRows& out, int64_t first, int64_t last) {
  const int64_t blocks = out.depth / out.block;
  for (int64_t row = first; row < last; ++row) {
    bool finite = true;
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t start = b * out.block, count = depth - start < out.block ? depth - start : out.block;
      int8_t* numbers = out.numbers + row * out.depth + start;
      const int32_t bits = largest_bits(x + row * depth + start, count);
      float largest;
      std::memcpy(&largest, &bits, sizeof largest);
      finite = finite && bits < 0x7f800000;
      const bool empty = !finite || largest < kTiny;
      out.scales[b * out.rows + row] = empty ? 0.0f : largest / 127.0f;
      out.sums[b * out.rows + row] =
          empty ? 0.0f : quantize_block(x + row * depth + start, count, out.block, 127.0f / largest, numbers);
      if (empty) std::memset(numbers, 0, static_cast<size_t>(out.block));
    }
    if (finite) continue;
    for (int64_t b = 0; b < blocks; ++b) out.scales[b * out.rows + row] = __builtin_nanf("");
  }
}

// The largest magnitude is 127 steps; a quotient is divided, so that its bits are those of the definition.
static void encode(const Encoding& e, int64_t first, int64_t last) {
  const Vector most = broadcast(127.0f), least = broadcast(-127.0f);
  for (int64_t row = first; row < last; ++row) {
    const float* x = e.x + row * e.width;
    int8_t* codes = e.codes + row * e.width;
    const int32_t bits = largest_bits(x, e.width);
    float magnitude;
    std::memcpy(&magnitude, &bits, sizeof magnitude);
    const float scale = magnitude / 127.0f;
    e.scales[row] = scale;
    const Vector divisor = broadcast(scale == 0.0f ? 1.0f : scale);
    const auto code = [&](Vector values) { return largest(smallest(divide(values, divisor), most), least); };
    int64_t i = 0;
    for (; i + kWidth <= e.width; i += kWidth) store_int8(codes + i, code(load(x + i)));
    if (i == e.width) continue;
    int8_t some[kWidth];
    store_int8(some, code(load_some(x + i, static_cast<int>(e.width - i))));
    std::memcpy(codes + i, some, static_cast<size_t>(e.width - i));
  }
}

// Sixteen levels from the least to the most of a row, in even widths. A quotient is divided, as above.
static void encode_nibbles(const Encoding& e, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; ++row) {
    const float* x = e.x + row * e.width;
    uint8_t* codes = reinterpret_cast<uint8_t*>(e.codes) + row * e.width / 2;
    float least = x[0], most = x[0];
    for (int64_t i = 1; i < e.width; ++i) {
      least = x[i] < least ? x[i] : least;
      most = x[i] > most ? x[i] : most;
    }
    const float scale = (most - least) / 15.0f, divisor = scale == 0.0f ? 1.0f : scale;
    e.scales[2 * row] = scale, e.scales[2 * row + 1] = least;
    const auto code = [&](int64_t i) {
      const float level = __builtin_nearbyintf((x[i] - least) / divisor);
      return static_cast<unsigned>(level < 15.0f ? level > 0.0f ? level : 0.0f : 15.0f);
    };
    for (int64_t i = 0; i < e.width; i += 2) codes[i / 2] = static_cast<uint8_t>((code(i) | code(i + 1) << 4) ^ 0x80);
  }
}

// Groups of rows, each as [depth, rows of the group]: what is read together lies together.
static void pack(const float* x, int64_t rows, int64_t depth, float* panels) {
  for_groups(rows, kFloatRows, [&](int64_t first, int64_t count) {
    float* panel = panels + first * depth;
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t m = 0; m < count; ++m) panel[k * count + m] = x[(first + m) * depth + k];
  });
}

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile
