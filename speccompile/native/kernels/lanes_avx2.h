// Vectors of eight columns: AVX2 with FMA and F16C. See lanes.h for what each function means.
//
// Products of bytes come from AVX-VNNI where a path has it (SPECCOMPILE_VNNI), else from AVX2's own products of 16 bits.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "lanes.h"

namespace speccompile {
namespace SPECCOMPILE_PATH {

constexpr int kWidth = 8;

struct Vector {
  __m256 v;
};

SPC_INLINE Vector zero() { return {_mm256_setzero_ps()}; }
SPC_INLINE Vector broadcast(float x) { return {_mm256_set1_ps(x)}; }
SPC_INLINE Vector load(const float* p) { return {_mm256_loadu_ps(p)}; }
SPC_INLINE __m256i first_lanes(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
SPC_INLINE Vector load_some(const float* p, int count) { return {_mm256_maskload_ps(p, first_lanes(count))}; }
SPC_INLINE void store(float* p, Vector x) { _mm256_storeu_ps(p, x.v); }
SPC_INLINE void store_some(float* p, Vector x, int count) { _mm256_maskstore_ps(p, first_lanes(count), x.v); }
SPC_INLINE Vector add(Vector a, Vector b) { return {_mm256_add_ps(a.v, b.v)}; }
SPC_INLINE Vector subtract(Vector a, Vector b) { return {_mm256_sub_ps(a.v, b.v)}; }
SPC_INLINE Vector multiply(Vector a, Vector b) { return {_mm256_mul_ps(a.v, b.v)}; }
SPC_INLINE Vector divide(Vector a, Vector b) { return {_mm256_div_ps(a.v, b.v)}; }
SPC_INLINE Vector fma(Vector a, Vector b, Vector c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
SPC_INLINE Vector fma_less(Vector a, Vector b, Vector c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }
SPC_INLINE Vector largest(Vector a, Vector b) { return {_mm256_max_ps(a.v, b.v)}; }
SPC_INLINE Vector smallest(Vector a, Vector b) { return {_mm256_min_ps(a.v, b.v)}; }
SPC_INLINE Vector choose_less(Vector a, Vector b, Vector then, Vector otherwise) {
  return {_mm256_blendv_ps(otherwise.v, then.v, _mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ))};
}
SPC_INLINE Vector round(Vector x) { return {_mm256_round_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
SPC_INLINE Vector power_of_two(Vector n) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127)), 23))};
}
SPC_INLINE Vector from_bfloat16(const uint16_t* p) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16))};
}
SPC_INLINE Vector from_float16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
SPC_INLINE Vector from_bytes(const uint8_t* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes))};
}
SPC_INLINE Vector from_codes(const int8_t* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))};
}

SPC_INLINE void spread_nibbles(const uint8_t* p, float* y) {
  const __m128i pairs = _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), _mm_set1_epi8(-128));
  const __m128i low = _mm_and_si128(pairs, _mm_set1_epi8(15)), high = _mm_and_si128(_mm_srli_epi16(pairs, 4), _mm_set1_epi8(15));
  const __m128i halves[] = {_mm_unpacklo_epi8(low, high), _mm_unpackhi_epi8(low, high)};
  for (int i = 0; i < 2; ++i) {
    _mm256_storeu_ps(y + 16 * i, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(halves[i])));
    _mm256_storeu_ps(y + 16 * i + 8, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(halves[i], 8))));
  }
}
// The even floats of two vectors, then the odd ones; and back.
SPC_INLINE void take_apart(Vector& first, Vector& second) {
  const __m256 a = first.v, b = second.v;
  const auto in_order = [](__m256 x) { return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xd8)); };
  first.v = in_order(_mm256_shuffle_ps(a, b, 0x88));
  second.v = in_order(_mm256_shuffle_ps(a, b, 0xdd));
}
SPC_INLINE void put_together(Vector& first, Vector& second) {
  const __m256 low = _mm256_unpacklo_ps(first.v, second.v), high = _mm256_unpackhi_ps(first.v, second.v);
  first.v = _mm256_permute2f128_ps(low, high, 0x20);
  second.v = _mm256_permute2f128_ps(low, high, 0x31);
}
SPC_INLINE void load_pairs(const float* p, Vector& first, Vector& second) {
  first = load(p);
  second = load(p + kWidth);
  take_apart(first, second);
}
SPC_INLINE void load_apart(const uint16_t* p, Vector& even, Vector& odd) {
  const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  even.v = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
  odd.v = _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(-65536)));
}

SPC_INLINE Vector fold(const Vector* rows) {
  __m256 x[kWidth];
  for (int i = 0; i < kWidth; ++i) x[i] = rows[i / 2 + i % 2 * 4].v;  // the shuffles put them back into order
  for (int i = 0; i < 4; ++i) {
    x[i] = _mm256_add_ps(_mm256_permute2f128_ps(x[2 * i], x[2 * i + 1], 0x20),
                         _mm256_permute2f128_ps(x[2 * i], x[2 * i + 1], 0x31));
  }
  for (int i = 0; i < 2; ++i) {
    x[i] = _mm256_add_ps(_mm256_shuffle_ps(x[2 * i], x[2 * i + 1], 0x44), _mm256_shuffle_ps(x[2 * i], x[2 * i + 1], 0xee));
  }
  return {_mm256_add_ps(_mm256_shuffle_ps(x[0], x[1], 0x88), _mm256_shuffle_ps(x[0], x[1], 0xdd))};
}

SPC_INLINE void turn(Vector* square) {
  __m256 x[kWidth], y[kWidth];
  SPC_SQUARE for (int i = 0; i < kWidth; i += 2) {
    x[i] = _mm256_unpacklo_ps(square[i].v, square[i + 1].v);
    x[i + 1] = _mm256_unpackhi_ps(square[i].v, square[i + 1].v);
  }
  SPC_SQUARE for (int i = 0; i < kWidth; ++i) {
    const __m256d a = _mm256_castps_pd(x[i / 4 * 4 + i % 4 / 2]), b = _mm256_castps_pd(x[i / 4 * 4 + i % 4 / 2 + 2]);
    y[i] = _mm256_castpd_ps(i % 2 ? _mm256_unpackhi_pd(a, b) : _mm256_unpacklo_pd(a, b));
  }
  SPC_SQUARE for (int j = 0; j < 4; ++j) {
    square[j].v = _mm256_permute2f128_ps(y[j], y[4 + j], 0x20);
    square[4 + j].v = _mm256_permute2f128_ps(y[j], y[4 + j], 0x31);
  }
}

struct Integers {
  __m256i v;
};

SPC_INLINE Vector to_floats(Integers x) { return {_mm256_cvtepi32_ps(x.v)}; }

SPC_INLINE Integers store_int8(int8_t* p, Vector x) {
  const __m256i numbers = _mm256_cvtps_epi32(x.v);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(numbers), _mm256_extracti128_si256(numbers, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
  return {numbers};
}
SPC_INLINE Integers magnitudes(Vector x) {
  return {_mm256_and_si256(_mm256_castps_si256(x.v), _mm256_set1_epi32(0x7fffffff))};
}
SPC_INLINE Integers add(Integers a, Integers b) { return {_mm256_add_epi32(a.v, b.v)}; }
SPC_INLINE Integers largest(Integers a, Integers b) { return {_mm256_max_epi32(a.v, b.v)}; }
SPC_INLINE int32_t largest_of(Integers x) {
  __m128i half = _mm_max_epi32(_mm256_castsi256_si128(x.v), _mm256_extracti128_si256(x.v, 1));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}
SPC_INLINE int32_t sum_of(Integers x) {
  __m128i half = _mm_add_epi32(_mm256_castsi256_si128(x.v), _mm256_extracti128_si256(x.v, 1));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}

struct Bytes {
  __m256i v;
};

SPC_INLINE Bytes load_bytes(const uint8_t* p) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))}; }
SPC_INLINE Bytes low_nibbles(Bytes x) { return {_mm256_and_si256(x.v, _mm256_set1_epi8(15))}; }
SPC_INLINE Bytes high_nibbles(Bytes x) {
  return {_mm256_and_si256(_mm256_srli_epi16(x.v, 4), _mm256_set1_epi8(15))};
}

// GCC adds up what it can first and in pairs, which no registers hold: five rows of products then wait on the stack.
SPC_INLINE void in_order(__m256i& sum) { asm("" : "+x"(sum)); }

SPC_INLINE int32_t four(const int8_t* x) {
  int32_t bits;
  std::memcpy(&bits, x, sizeof bits);
  return bits;
}

#if defined(SPECCOMPILE_VNNI)

struct ByteSum {
  __m256i v;
};

SPC_INLINE void start(ByteSum& sum, int32_t row_sum) { sum.v = _mm256_set1_epi32(-128 * row_sum); }
SPC_INLINE void add(ByteSum& sum, Bytes w, const int8_t* x) {
  sum.v = _mm256_dpbusd_avx_epi32(sum.v, w.v, _mm256_set1_epi32(four(x)));
}
SPC_INLINE void flush(ByteSum&) {}
SPC_INLINE Integers finish(const ByteSum& sum) { return {sum.v}; }

struct NibbleSum {
  __m256i v;
};

SPC_INLINE void start(NibbleSum& sum) { sum.v = _mm256_setzero_si256(); }
SPC_INLINE void add(NibbleSum& sum, Bytes w, const int8_t* x) {
  sum.v = _mm256_dpbusd_avx_epi32(sum.v, w.v, _mm256_set1_epi32(four(x)));
}
SPC_INLINE void flush(NibbleSum&) {}
SPC_INLINE Integers finish(const NibbleSum& sum) { return {sum.v}; }

#else

// Products of bytes are added in pairs in 16 bits, which 255 * 127 * 2 would saturate, but not 128 * 127 * 2: the weight less its
// zero point, without its sign, which x takes.
struct ByteSum {
  __m256i v;
};

SPC_INLINE void start(ByteSum& sum, int32_t) { sum.v = _mm256_setzero_si256(); }
SPC_INLINE void add(ByteSum& sum, Bytes w, const int8_t* x) {
  const __m256i centred = _mm256_xor_si256(w.v, _mm256_set1_epi8(-128));
  const __m256i signed_x = _mm256_sign_epi8(_mm256_set1_epi32(four(x)), centred);
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(centred), signed_x);
  sum.v = _mm256_add_epi32(sum.v, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  in_order(sum.v);
}
SPC_INLINE void flush(ByteSum&) {}
SPC_INLINE Integers finish(const ByteSum& sum) { return {sum.v}; }

// Halves of bytes fit, and eight such pairs: 8 * 2 * 15 * 127 = 30480.
struct NibbleSum {
  __m256i words, v;
};

SPC_INLINE void start(NibbleSum& sum) { sum.words = sum.v = _mm256_setzero_si256(); }
SPC_INLINE void add(NibbleSum& sum, Bytes w, const int8_t* x) {
  sum.words = _mm256_add_epi16(sum.words, _mm256_maddubs_epi16(w.v, _mm256_set1_epi32(four(x))));
  in_order(sum.words);
}
SPC_INLINE void flush(NibbleSum& sum) {
  sum.v = _mm256_add_epi32(sum.v, _mm256_madd_epi16(sum.words, _mm256_set1_epi16(1)));
  sum.words = _mm256_setzero_si256();
}
SPC_INLINE Integers finish(const NibbleSum& sum) { return {sum.v}; }

#endif

SPC_INLINE void fetch_ahead(const void* p, int bytes) {
  _mm_prefetch(static_cast<const char*>(p) + bytes, _MM_HINT_T0);
  _mm_prefetch(static_cast<const char*>(p) + 4 * bytes, _MM_HINT_T1);
}

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile

#include "fours.h"
