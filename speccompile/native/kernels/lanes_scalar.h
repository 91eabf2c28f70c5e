// Vectors of four columns in plain C++, for any processor. See lanes.h for what each function means.
#pragma once

#include <cstdint>
#include <cstring>

#include "lanes.h"

namespace speccompile {
namespace SPECCOMPILE_PATH {

constexpr int kWidth = 4;

struct Vector {
  float v[kWidth];
};

template <class F>
SPC_INLINE Vector each(F make) {
  Vector x;
  for (int i = 0; i < kWidth; ++i) x.v[i] = make(i);
  return x;
}

SPC_INLINE Vector broadcast(float x) {
  return each([&](int) { return x; });
}
SPC_INLINE Vector zero() { return broadcast(0.0f); }
SPC_INLINE Vector load(const float* p) {
  return each([&](int i) { return p[i]; });
}
SPC_INLINE Vector load_some(const float* p, int count) {
  return each([&](int i) { return i < count ? p[i] : 0.0f; });
}
SPC_INLINE void store(float* p, Vector x) {
  for (int i = 0; i < kWidth; ++i) p[i] = x.v[i];
}
SPC_INLINE void store_some(float* p, Vector x, int count) {
  for (int i = 0; i < count; ++i) p[i] = x.v[i];
}
SPC_INLINE Vector add(Vector a, Vector b) {
  return each([&](int i) { return a.v[i] + b.v[i]; });
}
SPC_INLINE Vector subtract(Vector a, Vector b) {
  return each([&](int i) { return a.v[i] - b.v[i]; });
}
SPC_INLINE Vector multiply(Vector a, Vector b) {
  return each([&](int i) { return a.v[i] * b.v[i]; });
}
SPC_INLINE Vector divide(Vector a, Vector b) {
  return each([&](int i) { return a.v[i] / b.v[i]; });
}
SPC_INLINE Vector fma(Vector a, Vector b, Vector c) {
  return each([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}
SPC_INLINE Vector fma_less(Vector a, Vector b, Vector c) {
  return each([&](int i) { return __builtin_fmaf(-a.v[i], b.v[i], c.v[i]); });
}
SPC_INLINE Vector largest(Vector a, Vector b) {
  return each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
SPC_INLINE Vector smallest(Vector a, Vector b) {
  return each([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
SPC_INLINE Vector choose_less(Vector a, Vector b, Vector then, Vector otherwise) {
  return each([&](int i) { return a.v[i] < b.v[i] ? then.v[i] : otherwise.v[i]; });
}
SPC_INLINE Vector round(Vector x) {
  return each([&](int i) { return __builtin_nearbyintf(x.v[i]); });
}
SPC_INLINE float from_bits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
SPC_INLINE Vector power_of_two(Vector n) {
  return each([&](int i) {
    const int32_t exponent = n.v[i] >= -126.0f ? static_cast<int32_t>(n.v[i]) : -127;  // of no number: any
    return from_bits(static_cast<uint32_t>(exponent + 127) << 23);
  });
}
SPC_INLINE Vector from_bfloat16(const uint16_t* p) {
  return each([&](int i) { return from_bits(static_cast<uint32_t>(p[i]) << 16); });
}
// A float16 has 5 bits of exponent and 10 of fraction. Moved to where a float has them, it is 2^-112 of what it means,
// which a multiplication mends, subnormal numbers included; infinities and what is no number keep their exponent.
SPC_INLINE Vector from_float16(const uint16_t* p) {
  return each([&](int i) {
    const uint32_t sign = static_cast<uint32_t>(p[i] & 0x8000) << 16, rest = static_cast<uint32_t>(p[i] & 0x7fff) << 13;
    if (rest >= 0x7c00u << 13) return from_bits(sign | 0x7f800000u | rest);
    return from_bits(sign | 0x3f800000u) * (from_bits(rest) * 0x1p112f);
  });
}
SPC_INLINE Vector from_bytes(const uint8_t* p) {
  return each([&](int i) { return static_cast<float>(p[i]); });
}
SPC_INLINE Vector from_codes(const int8_t* p) {
  return each([&](int i) { return static_cast<float>(p[i]); });
}
SPC_INLINE void spread_nibbles(const uint8_t* p, float* y) {
  for (int i = 0; i < 32; ++i) y[i] = static_cast<float>((p[i / 2] ^ 0x80) >> i % 2 * 4 & 15);
}
SPC_INLINE void load_pairs(const float* p, Vector& first, Vector& second) {
  first = each([&](int i) { return p[2 * i]; });
  second = each([&](int i) { return p[2 * i + 1]; });
}
SPC_INLINE Vector fold(const Vector* rows) {
  return each([&](int i) { return (rows[i].v[0] + rows[i].v[2]) + (rows[i].v[1] + rows[i].v[3]); });
}

SPC_INLINE void turn(Vector* square) {
  float rows[kWidth][kWidth], columns[kWidth][kWidth];
  for (int i = 0; i < kWidth; ++i) store(rows[i], square[i]);
  for (int i = 0; i < kWidth; ++i)
    for (int j = 0; j < kWidth; ++j) columns[j][i] = rows[i][j];
  for (int i = 0; i < kWidth; ++i) square[i] = load(columns[i]);
}

struct Integers {
  int32_t v[kWidth];
};

SPC_INLINE Vector to_floats(Integers x) {
  return each([&](int i) { return static_cast<float>(x.v[i]); });
}

SPC_INLINE Integers store_int8(int8_t* p, Vector x) {
  Integers numbers;
  for (int i = 0; i < kWidth; ++i) p[i] = static_cast<int8_t>(numbers.v[i] = static_cast<int32_t>(__builtin_nearbyintf(x.v[i])));
  return numbers;
}
SPC_INLINE Integers magnitudes(Vector x) {
  Integers bits;
  std::memcpy(bits.v, x.v, sizeof bits.v);
  for (int32_t& each : bits.v) each &= 0x7fffffff;
  return bits;
}
SPC_INLINE Integers add(Integers a, Integers b) {
  for (int i = 0; i < kWidth; ++i) a.v[i] += b.v[i];
  return a;
}
SPC_INLINE Integers largest(Integers a, Integers b) {
  for (int i = 0; i < kWidth; ++i) a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return a;
}
SPC_INLINE int32_t largest_of(Integers x) {
  int32_t found = x.v[0];
  for (int32_t each : x.v) found = each > found ? each : found;
  return found;
}
SPC_INLINE int32_t sum_of(Integers x) {
  int32_t sum = 0;
  for (int32_t each : x.v) sum += each;
  return sum;
}

struct Bytes {
  uint8_t v[4 * kWidth];
};

SPC_INLINE Bytes load_bytes(const uint8_t* p) {
  Bytes x;
  std::memcpy(x.v, p, sizeof x.v);
  return x;
}
SPC_INLINE Bytes low_nibbles(Bytes x) {
  for (uint8_t& each : x.v) each &= 15;
  return x;
}
SPC_INLINE Bytes high_nibbles(Bytes x) {
  for (uint8_t& each : x.v) each >>= 4;
  return x;
}

struct ByteSum : Integers {};
struct NibbleSum : Integers {};

SPC_INLINE void start(ByteSum& sum, int32_t row_sum) {
  for (int32_t& each : sum.v) each = -128 * row_sum;
}
SPC_INLINE void add(Integers& sum, const Bytes& w, const int8_t* x) {
  for (int i = 0; i < kWidth; ++i)
    for (int j = 0; j < 4; ++j) sum.v[i] += w.v[4 * i + j] * x[j];
}
SPC_INLINE Integers finish(const Integers& sum) { return sum; }

SPC_INLINE void start(NibbleSum& sum) { sum = {}; }
SPC_INLINE void flush(Integers&) {}

SPC_INLINE void fetch_ahead(const void*, int) {}

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile

#include "fours.h"
