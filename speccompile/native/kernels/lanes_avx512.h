// Vectors of sixteen columns: AVX-512 with VNNI. See lanes.h for what each function means.
#pragma once

// GCC 12 takes what its own header leaves undefined on purpose for a mistake.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstdint>
#include <cstring>

#include "lanes.h"

namespace speccompile {
namespace SPECCOMPILE_PATH {

constexpr int kWidth = 16;

struct Vector {
  __m512 v;
};

SPC_INLINE Vector zero() { return {_mm512_setzero_ps()}; }
SPC_INLINE Vector broadcast(float x) { return {_mm512_set1_ps(x)}; }
SPC_INLINE Vector load(const float* p) { return {_mm512_loadu_ps(p)}; }
SPC_INLINE Vector load_some(const float* p, int count) {
  return {_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), p)};
}
SPC_INLINE void store(float* p, Vector x) { _mm512_storeu_ps(p, x.v); }
SPC_INLINE void store_some(float* p, Vector x, int count) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << count) - 1), x.v);
}
SPC_INLINE Vector add(Vector a, Vector b) { return {_mm512_add_ps(a.v, b.v)}; }
SPC_INLINE Vector subtract(Vector a, Vector b) { return {_mm512_sub_ps(a.v, b.v)}; }
SPC_INLINE Vector multiply(Vector a, Vector b) { return {_mm512_mul_ps(a.v, b.v)}; }
SPC_INLINE Vector divide(Vector a, Vector b) { return {_mm512_div_ps(a.v, b.v)}; }
SPC_INLINE Vector fma(Vector a, Vector b, Vector c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
SPC_INLINE Vector fma_less(Vector a, Vector b, Vector c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
SPC_INLINE Vector largest(Vector a, Vector b) { return {_mm512_max_ps(a.v, b.v)}; }
SPC_INLINE Vector smallest(Vector a, Vector b) { return {_mm512_min_ps(a.v, b.v)}; }
SPC_INLINE Vector choose_less(Vector a, Vector b, Vector then, Vector otherwise) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), otherwise.v, then.v)};
}
SPC_INLINE Vector round(Vector x) {
  return {_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
SPC_INLINE Vector scaled(Vector x, Vector n) { return {_mm512_scalef_ps(x.v, n.v)}; }
SPC_INLINE Vector from_bfloat16(const uint16_t* p) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}
SPC_INLINE Vector from_float16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
SPC_INLINE Vector from_bytes(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes))};
}
SPC_INLINE Vector from_codes(const int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
}

SPC_INLINE void spread_nibbles(const uint8_t* p, float* y) {
  const __m128i pairs = _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), _mm_set1_epi8(-128));
  const __m128i low = _mm_and_si128(pairs, _mm_set1_epi8(15)), high = _mm_and_si128(_mm_srli_epi16(pairs, 4), _mm_set1_epi8(15));
  _mm512_storeu_ps(y, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_unpacklo_epi8(low, high))));
  _mm512_storeu_ps(y + kWidth, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_unpackhi_epi8(low, high))));
}
SPC_INLINE void load_pairs(const float* p, Vector& first, Vector& second) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512 a = _mm512_loadu_ps(p), b = _mm512_loadu_ps(p + kWidth);
  first.v = _mm512_permutex2var_ps(a, even, b);
  second.v = _mm512_permutex2var_ps(a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b);
}

SPC_INLINE Vector fold(const Vector* rows) {
  __m512 x[kWidth];
  for (int i = 0; i < kWidth; ++i) x[i] = rows[i / 4 + i % 4 * 4].v;  // the shuffles put them back into order
  for (int i = 0; i < 8; ++i) {
    x[i] = _mm512_add_ps(_mm512_shuffle_f32x4(x[2 * i], x[2 * i + 1], 0x44),
                         _mm512_shuffle_f32x4(x[2 * i], x[2 * i + 1], 0xee));
  }
  for (int i = 0; i < 4; ++i) {
    x[i] = _mm512_add_ps(_mm512_shuffle_f32x4(x[2 * i], x[2 * i + 1], 0x88),
                         _mm512_shuffle_f32x4(x[2 * i], x[2 * i + 1], 0xdd));
  }
  for (int i = 0; i < 2; ++i) {
    x[i] = _mm512_add_ps(_mm512_shuffle_ps(x[2 * i], x[2 * i + 1], 0x44), _mm512_shuffle_ps(x[2 * i], x[2 * i + 1], 0xee));
  }
  return {_mm512_add_ps(_mm512_shuffle_ps(x[0], x[1], 0x88), _mm512_shuffle_ps(x[0], x[1], 0xdd))};
}

SPC_INLINE void turn(Vector* square) {
  __m512 x[kWidth], y[kWidth];
  SPC_SQUARE for (int i = 0; i < kWidth; i += 2) {
    x[i] = _mm512_unpacklo_ps(square[i].v, square[i + 1].v);
    x[i + 1] = _mm512_unpackhi_ps(square[i].v, square[i + 1].v);
  }
  // y[4 k + j]: column j of each quarter of rows 4 k to 4 k + 3
  SPC_SQUARE for (int i = 0; i < kWidth; ++i) {
    const __m512d a = _mm512_castps_pd(x[i / 4 * 4 + i % 4 / 2]), b = _mm512_castps_pd(x[i / 4 * 4 + i % 4 / 2 + 2]);
    y[i] = _mm512_castpd_ps(i % 2 ? _mm512_unpackhi_pd(a, b) : _mm512_unpacklo_pd(a, b));
  }
  SPC_SQUARE for (int j = 0; j < 4; ++j) {
    const __m512 even = _mm512_shuffle_f32x4(y[j], y[4 + j], 0x88), odd = _mm512_shuffle_f32x4(y[j], y[4 + j], 0xdd);
    const __m512 later_even = _mm512_shuffle_f32x4(y[8 + j], y[12 + j], 0x88), later_odd = _mm512_shuffle_f32x4(y[8 + j], y[12 + j], 0xdd);
    square[j].v = _mm512_shuffle_f32x4(even, later_even, 0x88);
    square[8 + j].v = _mm512_shuffle_f32x4(even, later_even, 0xdd);
    square[4 + j].v = _mm512_shuffle_f32x4(odd, later_odd, 0x88);
    square[12 + j].v = _mm512_shuffle_f32x4(odd, later_odd, 0xdd);
  }
}

struct Integers {
  __m512i v;
};

SPC_INLINE Vector to_floats(Integers x) { return {_mm512_cvtepi32_ps(x.v)}; }

SPC_INLINE Integers store_int8(int8_t* p, Vector x) {
  const __m512i numbers = _mm512_cvtps_epi32(x.v);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(numbers));
  return {numbers};
}
SPC_INLINE Integers magnitudes(Vector x) {
  return {_mm512_and_si512(_mm512_castps_si512(x.v), _mm512_set1_epi32(0x7fffffff))};
}
SPC_INLINE Integers add(Integers a, Integers b) { return {_mm512_add_epi32(a.v, b.v)}; }
SPC_INLINE Integers largest(Integers a, Integers b) { return {_mm512_max_epi32(a.v, b.v)}; }
SPC_INLINE int32_t largest_of(Integers x) { return _mm512_reduce_max_epi32(x.v); }
SPC_INLINE int32_t sum_of(Integers x) { return _mm512_reduce_add_epi32(x.v); }

struct Bytes {
  __m512i v;
};

// Loaded once, whatever is done with it: loads are what bounds products here.
template <class V>
SPC_INLINE V once(V x) {
  asm("" : "+v"(x.v));
  return x;
}

SPC_INLINE Bytes load_bytes(const uint8_t* p) { return once(Bytes{_mm512_loadu_si512(p)}); }
SPC_INLINE Bytes low_nibbles(Bytes x) { return {_mm512_and_si512(x.v, _mm512_set1_epi8(15))}; }
SPC_INLINE Bytes high_nibbles(Bytes x) {
  return {_mm512_and_si512(_mm512_srli_epi16(x.v, 4), _mm512_set1_epi8(15))};
}

SPC_INLINE __m512i broadcast_four(const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, sizeof four);
  return _mm512_set1_epi32(four);
}

struct ByteSum {
  __m512i v;
};

SPC_INLINE void start(ByteSum& sum, int32_t row_sum) { sum.v = _mm512_set1_epi32(-128 * row_sum); }
SPC_INLINE void add(ByteSum& sum, Bytes w, const int8_t* x) {
  sum.v = _mm512_dpbusd_epi32(sum.v, w.v, broadcast_four(x));
}
SPC_INLINE void flush(ByteSum&) {}
SPC_INLINE Integers finish(const ByteSum& sum) { return {sum.v}; }

struct NibbleSum {
  __m512i v;
};

SPC_INLINE void start(NibbleSum& sum) { sum.v = _mm512_setzero_si512(); }
SPC_INLINE void add(NibbleSum& sum, Bytes w, const int8_t* x) {
  sum.v = _mm512_dpbusd_epi32(sum.v, w.v, broadcast_four(x));
}
SPC_INLINE void flush(NibbleSum&) {}
SPC_INLINE Integers finish(const NibbleSum& sum) { return {sum.v}; }

#if defined(SPECCOMPILE_AMX)
SPC_INLINE void fetch_ahead(const void* p, int bytes) {
  _mm_prefetch(static_cast<const char*>(p) + bytes, _MM_HINT_T0);
  _mm_prefetch(static_cast<const char*>(p) + 4 * bytes, _MM_HINT_T1);
}
#else
// Once a line: a fetch takes the place of one of the two loads of a cycle, and loads are what bounds windows of a few rows. So far
// that a core which reads 40 GB/s need not wait for 100 ns.
SPC_INLINE void fetch_ahead(const void* p, int) { _mm_prefetch(static_cast<const char*>(p) + 6144, _MM_HINT_T0); }
#endif

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile

#include "fours.h"
