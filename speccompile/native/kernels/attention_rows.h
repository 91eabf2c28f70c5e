// The rows of a cache that a query of attention sees, and where they lie: floats, codes or nibbles.
#pragma once

#include <type_traits>

#include "kernels.h"
#include "sums.h"
#include SPECCOMPILE_LANES

namespace speccompile {
namespace SPECCOMPILE_PATH {

// Rows that a query sees: `committed` rows of the cache, the first `turn` of them from row `begin` on, the others, of a ring, from
// row 0 on; then `in_step` rows, whose numbers and biases stand in order.
struct Seen {
  int64_t begin, turn, committed, in_step;
  int64_t* rows;
  float* bias;

  int64_t count() const { return committed + in_step; }
};

// The keys, or the values, of a group of heads: floats, or int8 codes that a scale of their row multiplies, or nibbles.
template <class T>
struct Rows {
  static constexpr bool kAreCodes = sizeof(T) == 1, kAreNibbles = std::is_same_v<T, Nibbles>;
  static constexpr int64_t kPacked = kAreNibbles ? 2 : 1;  // columns of a T
  const T *cache, *in_step;
  int64_t width;
  const float *scales, *in_step_scales;  // of codes

  int64_t stride() const { return width / kPacked; }

  const T* at(const Seen& seen, int64_t i) const {
    if (i < seen.turn) return cache + (seen.begin + i) * stride();
    return i < seen.committed ? cache + (i - seen.turn) * stride() : in_step + seen.rows[i - seen.committed] * stride();
  }

  // Return the start of `count` rows from the i-th on, if they lie side by side; else null. All of them are committed, or none.
  const T* together(const Seen& seen, int64_t i, int64_t count) const {
    const int64_t last = i + count - 1;
    if (i >= seen.committed) {
      const int64_t* rows = seen.rows - seen.committed;
      return rows[last] - rows[i] == last - i ? at(seen, i) : nullptr;
    }
    return last < seen.turn || i >= seen.turn ? at(seen, i) : nullptr;
  }

  // The same as floats, those of codes without their scales, in `room` where they have to be copied.
  const float* floats(const Seen& seen, int64_t i, int64_t count, float* room) const {
    if (const T* const found = together(seen, i, count)) {
      if constexpr (std::is_same_v<T, float>) return found;
      else decode(found, count * width, room);
    } else {
      for (int64_t row = 0; row < count; ++row) decode(at(seen, i + row), width, room + row * width);
    }
    return room;
  }

  // f(scales of the first row, rows) for the parts of `count` rows from row `first` on whose scales lie side by side.
  template <class F>
  void for_scales(const Seen& seen, int64_t first, int64_t count, F f) const {
    const int64_t last = first + count, turn = seen.turn < last ? seen.turn : last, committed = seen.committed < last ? seen.committed : last;
    if (first < turn) f(scales + kPacked * (seen.begin + first), turn - first);
    if (first < turn) first = turn;
    if (first < committed) f(scales + kPacked * (first - seen.turn), committed - first);
    if (first < committed) first = committed;
    for (; first < last; ++first) f(in_step_scales + kPacked * seen.rows[first - seen.committed], int64_t{1});
  }

  // x [count], of the rows that are seen from row `first` on, times the rows' scales.
  void scale(const Seen& seen, int64_t first, int64_t count, float* x) const {
    for_scales(seen, first, count, [&](const float* by, int64_t rows) {
      scale_each(x, by, rows);
      x += rows;
    });
  }

  // The same of nibbles, whose rows have a scale and what a code of 0 stands for. Returns the sum of x times the latter: lane by
  // lane, then over the lanes in order.
  float scale_nibbles(const Seen& seen, int64_t first, int64_t count, float* x) const {
    float sums[kTile] = {};
    int64_t i = 0;
    const auto one = [&](const float* by) {
      sums[i % kTile] += x[i] * by[1];
      x[i++] *= by[0];
    };
    for_scales(seen, first, count, [&](const float* by, int64_t rows) {
      const int64_t end = i + rows;
      for (; i < end && i % kTile; by += 2) one(by);
      Lanes its = load_lanes(sums);
      for (; i + kTile <= end; i += kTile, by += 2 * kTile) {
        for (int n = 0; n < Lanes::kVectors; ++n) {
          Vector steps, least;
          load_pairs(by + 2 * n * kWidth, steps, least);
          const Vector weights = load(x + i + n * kWidth);
          its.part[n] = add(its.part[n], multiply(weights, least));
          store(x + i + n * kWidth, multiply(weights, steps));
        }
      }
      store_lanes(sums, its);
      for (; i < end; by += 2) one(by);
    });
    float sum = 0.0f;
    for (const float each : sums) sum += each;
    return sum;
  }

  static void scale_each(float* x, const float* by, int64_t count) {
    const int64_t whole = count - count % kWidth;
    for (int64_t i = 0; i < whole; i += kWidth) store(x + i, multiply(load(x + i), load(by + i)));
    for (int64_t i = whole; i < count; ++i) x[i] *= by[i];
  }
};

static void look(const Attention& a, int64_t b, int64_t token, Seen& seen) {
  const int64_t position = a.positions[b * a.tokens + token], end = a.length[b];
  const int64_t oldest = a.is_ring && end > a.capacity ? end - a.capacity : 0;
  int64_t first = a.window > 0 && position >= a.window ? position - a.window + 1 : 0;
  first = first < oldest ? oldest : first < end ? first : end;
  seen.committed = end - first;
  seen.begin = a.is_ring ? first % a.capacity : first;
  seen.turn = a.is_ring && seen.committed > a.capacity - seen.begin ? a.capacity - seen.begin : seen.committed;
  seen.in_step = 0;
  const float* bias = a.bias + (b * a.tokens + token) * a.rows;
  for (int64_t row = 0; row < a.rows; ++row) {
    if (bias[row] <= kHidden / 2) continue;
    seen.rows[seen.in_step] = row;
    seen.bias[seen.in_step++] = bias[row];
  }
}

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile
