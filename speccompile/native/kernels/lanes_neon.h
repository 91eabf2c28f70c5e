// Vectors of four columns: NEON with dot products. See lanes.h for what each function means.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#define SPC_UNROLLS  // 32 registers hold the sums of all rows, if the loops over them are unrolled
#include "lanes.h"

namespace speccompile {
namespace SPECCOMPILE_PATH {

constexpr int kWidth = 4;

struct Vector {
  float32x4_t v;
};

SPC_INLINE Vector zero() { return {vdupq_n_f32(0.0f)}; }
SPC_INLINE Vector broadcast(float x) { return {vdupq_n_f32(x)}; }
SPC_INLINE Vector load(const float* p) { return {vld1q_f32(p)}; }
SPC_INLINE Vector load_some(const float* p, int count) {
  float some[kWidth] = {};
  std::memcpy(some, p, static_cast<size_t>(count) * sizeof *p);
  return load(some);
}
SPC_INLINE void store(float* p, Vector x) { vst1q_f32(p, x.v); }
SPC_INLINE void store_some(float* p, Vector x, int count) {
  float all[kWidth];
  store(all, x);
  std::memcpy(p, all, static_cast<size_t>(count) * sizeof *p);
}
SPC_INLINE Vector add(Vector a, Vector b) { return {vaddq_f32(a.v, b.v)}; }
SPC_INLINE Vector subtract(Vector a, Vector b) { return {vsubq_f32(a.v, b.v)}; }
SPC_INLINE Vector multiply(Vector a, Vector b) { return {vmulq_f32(a.v, b.v)}; }
SPC_INLINE Vector divide(Vector a, Vector b) { return {vdivq_f32(a.v, b.v)}; }
SPC_INLINE Vector fma(Vector a, Vector b, Vector c) { return {vfmaq_f32(c.v, a.v, b.v)}; }
SPC_INLINE Vector fma_less(Vector a, Vector b, Vector c) { return {vfmsq_f32(c.v, a.v, b.v)}; }
SPC_INLINE Vector largest(Vector a, Vector b) { return {vbslq_f32(vcgtq_f32(a.v, b.v), a.v, b.v)}; }
SPC_INLINE Vector smallest(Vector a, Vector b) { return {vbslq_f32(vcltq_f32(a.v, b.v), a.v, b.v)}; }
SPC_INLINE Vector choose_less(Vector a, Vector b, Vector then, Vector otherwise) {
  return {vbslq_f32(vcltq_f32(a.v, b.v), then.v, otherwise.v)};
}
SPC_INLINE Vector round(Vector x) { return {vrndnq_f32(x.v)}; }
SPC_INLINE Vector power_of_two(Vector n) {
  return {vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n.v), vdupq_n_s32(127)), 23))};
}
SPC_INLINE Vector from_bfloat16(const uint16_t* p) { return {vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16))}; }
SPC_INLINE Vector from_float16(const uint16_t* p) { return {vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)))}; }
SPC_INLINE Vector from_bytes(const uint8_t* p) {
  uint32_t bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  const uint16x8_t words = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(bytes)));
  return {vcvtq_f32_u32(vmovl_u16(vget_low_u16(words)))};
}
SPC_INLINE Vector from_codes(const int8_t* p) {
  uint32_t bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  const int16x8_t words = vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(bytes)));
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(words)))};
}

SPC_INLINE float32x4_t add_halves(Vector a, Vector b) {
  return vaddq_f32(vcombine_f32(vget_low_f32(a.v), vget_low_f32(b.v)), vcombine_f32(vget_high_f32(a.v), vget_high_f32(b.v)));
}
SPC_INLINE void spread_nibbles(const uint8_t* p, float* y) {
  const uint8x16_t pairs = veorq_u8(vld1q_u8(p), vdupq_n_u8(0x80));
  const uint8x16x2_t numbers = vzipq_u8(vandq_u8(pairs, vdupq_n_u8(15)), vshrq_n_u8(pairs, 4));
  for (int i = 0; i < 2; ++i) {
    const uint16x8_t words[] = {vmovl_u8(vget_low_u8(numbers.val[i])), vmovl_u8(vget_high_u8(numbers.val[i]))};
    for (int n = 0; n < 2; ++n) {
      vst1q_f32(y + 16 * i + 8 * n, vcvtq_f32_u32(vmovl_u16(vget_low_u16(words[n]))));
      vst1q_f32(y + 16 * i + 8 * n + 4, vcvtq_f32_u32(vmovl_u16(vget_high_u16(words[n]))));
    }
  }
}
SPC_INLINE void load_pairs(const float* p, Vector& first, Vector& second) {
  const float32x4x2_t pairs = vld2q_f32(p);
  first.v = pairs.val[0], second.v = pairs.val[1];
}

SPC_INLINE Vector fold(const Vector* rows) {
  const float32x4_t first = add_halves(rows[0], rows[1]), second = add_halves(rows[2], rows[3]);
  return {vaddq_f32(vuzp1q_f32(first, second), vuzp2q_f32(first, second))};
}

SPC_INLINE void turn(Vector* square) {
  const float32x4x2_t first = vtrnq_f32(square[0].v, square[1].v), second = vtrnq_f32(square[2].v, square[3].v);
  for (int i = 0; i < 2; ++i) {
    square[i].v = vcombine_f32(vget_low_f32(first.val[i]), vget_low_f32(second.val[i]));
    square[i + 2].v = vcombine_f32(vget_high_f32(first.val[i]), vget_high_f32(second.val[i]));
  }
}

struct Integers {
  int32x4_t v;
};

SPC_INLINE Vector to_floats(Integers x) { return {vcvtq_f32_s32(x.v)}; }

SPC_INLINE Integers store_int8(int8_t* p, Vector x) {
  const int32x4_t numbers = vcvtnq_s32_f32(x.v);
  const int16x4_t words = vmovn_s32(numbers);
  const int32_t bytes = vget_lane_s32(vreinterpret_s32_s8(vmovn_s16(vcombine_s16(words, words))), 0);
  std::memcpy(p, &bytes, sizeof bytes);
  return {numbers};
}
SPC_INLINE Integers magnitudes(Vector x) { return {vandq_s32(vreinterpretq_s32_f32(x.v), vdupq_n_s32(0x7fffffff))}; }
SPC_INLINE Integers add(Integers a, Integers b) { return {vaddq_s32(a.v, b.v)}; }
SPC_INLINE Integers largest(Integers a, Integers b) { return {vmaxq_s32(a.v, b.v)}; }
SPC_INLINE int32_t largest_of(Integers x) { return vmaxvq_s32(x.v); }
SPC_INLINE int32_t sum_of(Integers x) { return vaddvq_s32(x.v); }

struct Bytes {
  uint8x16_t v;
};

SPC_INLINE Bytes load_bytes(const uint8_t* p) { return {vld1q_u8(p)}; }
SPC_INLINE Bytes low_nibbles(Bytes x) { return {vandq_u8(x.v, vdupq_n_u8(15))}; }
SPC_INLINE Bytes high_nibbles(Bytes x) { return {vshrq_n_u8(x.v, 4)}; }

constexpr bool kLoadsSixteen = true;
struct Sixteen {
  int8x16_t v;
};

SPC_INLINE Sixteen load_sixteen(const int8_t* x) { return {vld1q_s8(x)}; }

struct ByteSum {
  int32x4_t v;
};

SPC_INLINE void start(ByteSum& sum, int32_t) { sum.v = vdupq_n_s32(0); }  // the offset goes before the product
template <int kFour>
SPC_INLINE void add_four(ByteSum& sum, Bytes w, Sixteen x) {
  sum.v = vdotq_laneq_s32(sum.v, vreinterpretq_s8_u8(veorq_u8(w.v, vdupq_n_u8(128))), x.v, kFour);
}
SPC_INLINE void flush(ByteSum&) {}
SPC_INLINE Integers finish(const ByteSum& sum) { return {sum.v}; }

struct NibbleSum {
  int32x4_t v;
};

SPC_INLINE void start(NibbleSum& sum) { sum.v = vdupq_n_s32(0); }
template <int kFour>
SPC_INLINE void add_four(NibbleSum& sum, Bytes w, Sixteen x) {
  sum.v = vdotq_laneq_s32(sum.v, vreinterpretq_s8_u8(w.v), x.v, kFour);
}
SPC_INLINE void flush(NibbleSum&) {}
SPC_INLINE Integers finish(const NibbleSum& sum) { return {sum.v}; }

SPC_INLINE void fetch_ahead(const void* p, int bytes) { __builtin_prefetch(static_cast<const char*>(p) + bytes); }

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile
