// Sixteen lanes, on every path: they decide the order of sums over the elements of a row.
//
// Element i of a row goes into lane i % 16. The lanes are then added in halves: eight pairs at a distance of eight, four at
// a distance of four, two at two, and one.
#pragma once

#include <cstring>

#include "kernels.h"
#include SPECCOMPILE_LANES

namespace speccompile {
namespace SPECCOMPILE_PATH {

struct Lanes {
  static constexpr int kVectors = kTile / kWidth;
  Vector part[kVectors];
};

SPC_INLINE Lanes no_lanes() {
  Lanes x;
  for (Vector& part : x.part) part = zero();
  return x;
}

SPC_INLINE Lanes load_lanes(const float* p) {
  Lanes x;
  for (int i = 0; i < Lanes::kVectors; ++i) x.part[i] = load(p + i * kWidth);
  return x;
}

SPC_INLINE Lanes load_lanes(const float* p, int64_t count) {
  if (count >= kTile) return load_lanes(p);
  Lanes x;
  for (int i = 0; i < Lanes::kVectors; ++i) {
    const int64_t left = count - i * kWidth;
    x.part[i] = left <= 0 ? zero() : left >= kWidth ? load(p + i * kWidth) : load_some(p + i * kWidth, static_cast<int>(left));
  }
  return x;
}

// Rows of codes are read as rows of floats are.
SPC_INLINE Vector load(const int8_t* p) { return from_codes(p); }

SPC_INLINE Vector load_some(const int8_t* p, int count) {
  int8_t some[kWidth] = {};
  std::memcpy(some, p, static_cast<size_t>(count));
  return from_codes(some);
}

SPC_INLINE Lanes load_lanes(const int8_t* p) {
  Lanes x;
  for (int i = 0; i < Lanes::kVectors; ++i) x.part[i] = from_codes(p + i * kWidth);
  return x;
}

SPC_INLINE Lanes load_lanes(const int8_t* p, int64_t count) {
  int8_t some[kTile] = {};
  std::memcpy(some, p, static_cast<size_t>(count));
  return load_lanes(some);
}

// The `width` numbers of a row as floats.
SPC_INLINE void decode(const float* row, int64_t width, float* y) { std::memcpy(y, row, static_cast<size_t>(width) * sizeof *y); }

SPC_INLINE void decode(const int8_t* row, int64_t width, float* y) {
  int64_t i = 0;
  for (; i + 32 <= width; i += 32) {
#pragma GCC unroll 8
    for (int n = 0; n < 32; n += kWidth) store(y + i + n, from_codes(row + i + n));
  }
  for (; i < width; ++i) y[i] = static_cast<float>(row[i]);
}

// The sign bit of a byte is turned, so that bytes are numbers from -128 to 127.
SPC_INLINE void decode(const Nibbles* row, int64_t width, float* y) {
  int64_t i = 0;
  for (; i + 32 <= width; i += 32) spread_nibbles(&row[i / 2].pair, y + i);
  for (; i < width; ++i) y[i] = static_cast<float>((row[i / 2].pair ^ 0x80) >> i % 2 * 4 & 15);
}

SPC_INLINE void store_lanes(float* p, const Lanes& x) {
  for (int i = 0; i < Lanes::kVectors; ++i) store(p + i * kWidth, x.part[i]);
}

SPC_INLINE void store_lanes(float* p, const Lanes& x, int64_t count) {
  if (count >= kTile) return store_lanes(p, x);
  for (int i = 0; i < Lanes::kVectors; ++i) {
    const int64_t left = count - i * kWidth;
    if (left >= kWidth) {
      store(p + i * kWidth, x.part[i]);
    } else if (left > 0) {
      store_some(p + i * kWidth, x.part[i], static_cast<int>(left));
    }
  }
}

template <class F>
SPC_INLINE Lanes lanewise(const Lanes& a, F make) {
  Lanes x;
  for (int i = 0; i < Lanes::kVectors; ++i) x.part[i] = make(a.part[i]);
  return x;
}

template <class F>
SPC_INLINE Lanes lanewise(const Lanes& a, const Lanes& b, F make) {
  Lanes x;
  for (int i = 0; i < Lanes::kVectors; ++i) x.part[i] = make(a.part[i], b.part[i]);
  return x;
}

SPC_INLINE void add_product(Lanes& sum, const Lanes& a, const Lanes& b) {
  for (int i = 0; i < Lanes::kVectors; ++i) sum.part[i] = fma(a.part[i], b.part[i], sum.part[i]);
}

// The first foldings, down to one vector.
SPC_INLINE Vector halved(const Lanes& x) {
  Vector part[Lanes::kVectors];
  for (int i = 0; i < Lanes::kVectors; ++i) part[i] = x.part[i];
  for (int n = Lanes::kVectors / 2; n > 0; n /= 2)
    for (int i = 0; i < n; ++i) part[i] = add(part[i], part[i + n]);
  return part[0];
}

SPC_INLINE float sum_of(const Lanes& x) {
  Vector rows[kWidth];
  for (Vector& row : rows) row = zero();
  rows[0] = halved(x);
  float sums[kWidth];
  store(sums, fold(rows));
  return sums[0];
}

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile
