// Blocks of products with weights in integers: a scale a column (int8), or a scale a block of rows (int4, stored codes).
#pragma once

#include "places.h"

namespace speccompile {
namespace SPECCOMPILE_PATH {

// The loop is not unrolled, so `complete` lies in memory. It must not be the array of the sums: GCC would then store these at
// every addition.
template <int M, int C>
SPC_INLINE void put_block(const Output& out, const Place& at, const Vector (&complete)[M][C]) {
  for (int m = 0; m < M; ++m)
    for (int c = 0; c < C; ++c) put(out, at.row + m, at.vector + c, complete[m][c]);
}

// Four rows of a weight, the kFour-th from the pointers on, times columns. x: the sixteen among which they are.
template <int kFour, int M, int C>
SPC_INLINE void add_bytes(ByteSum (&sums)[M][C], const uint8_t* const (&w)[C], const Sixteen (&x)[M]) {
  SPC_UNROLL for (int c = 0; c < C; ++c) {
    const Bytes numbers = load_bytes(w[c] + 4 * kFour * kTile);
    fetch_line<C>(w[c] + 4 * kFour * kTile, c);
    SPC_UNROLL for (int m = 0; m < M; ++m) add_four<kFour % 4>(sums[m][c], numbers, x[m]);
  }
}

template <int M>
SPC_INLINE void load_sixteens(const int8_t* const (&x)[M], int64_t k, Sixteen (&loaded)[M]) {
  SPC_UNROLL for (int m = 0; m < M; ++m) loaded[m] = load_sixteen(x[m] + k);
}

// Sixteen rows of a weight, the kSixteen-th from the pointers on, times columns. k: the first of the sixteen of x.
template <int kSixteen, int M, int C>
SPC_INLINE void add_sixteen(ByteSum (&sums)[M][C], const uint8_t* const (&w)[C], const int8_t* const (&x)[M], int64_t k) {
  Sixteen loaded[M];
  load_sixteens(x, k, loaded);
  add_bytes<4 * kSixteen>(sums, w, loaded);
  add_bytes<4 * kSixteen + 1>(sums, w, loaded);
  add_bytes<4 * kSixteen + 2>(sums, w, loaded);
  add_bytes<4 * kSixteen + 3>(sums, w, loaded);
}

template <int M, int C>
static __attribute__((noinline)) void int8_block(const Int8Product& p, const Place& at) {
  ByteSum sums[M][C];
  const uint8_t* w[C];
  const int8_t* x[M];
  SPC_UNROLL for (int c = 0; c < C; ++c) w[c] = at_vector(p.numbers, at.vector + c, p.x.depth / 4, 4);
  SPC_UNROLL for (int m = 0; m < M; ++m) {
    x[m] = p.x.numbers + (at.row + m) * p.x.depth;
    SPC_UNROLL for (int c = 0; c < C; ++c) start(sums[m][c], static_cast<int32_t>(p.x.sums[at.row + m]));
  }
  for (int64_t k = 0; k < p.x.depth; k += 32) {
    add_sixteen<0>(sums, w, x, k);
    add_sixteen<1>(sums, w, x, k + 16);
    SPC_UNROLL for (int c = 0; c < C; ++c) {
      SPC_UNROLL for (int m = 0; m < M; ++m) flush(sums[m][c]);
      w[c] += 32 * kTile;
    }
  }
  Vector complete[M][C];
  SPC_UNROLL for (int c = 0; c < C; ++c) {
    const Vector scales = load(p.scales + (at.vector + c) * kWidth);
    SPC_UNROLL for (int m = 0; m < M; ++m)
      complete[m][c] = multiply(to_floats(finish(sums[m][c])), multiply(broadcast(p.x.scales[at.row + m]), scales));
  }
  put_block(p.out, at, complete);
}

// sum: of a block, without its zero point.
SPC_INLINE Vector add_block(Vector total, Vector sum, Vector scale, float x_scale) {
  return fma(sum, multiply(scale, broadcast(x_scale)), total);
}

// Eight rows of a weight, the kEight-th from the pointers on, times columns. x: the sixteen among which they are.
template <int kEight, int M, int C>
SPC_INLINE void add_eight(NibbleSum (&sums)[M][C], const uint8_t* const (&w)[C], const Sixteen (&x)[M]) {
  Bytes low[C], high[C];
  SPC_UNROLL for (int c = 0; c < C; ++c) {
    const Bytes both = load_bytes(w[c] + 4 * kEight * kTile);
    fetch_line<C>(w[c] + 4 * kEight * kTile, c);
    low[c] = low_nibbles(both);
    high[c] = high_nibbles(both);
  }
  SPC_UNROLL for (int m = 0; m < M; ++m) {
    SPC_UNROLL for (int c = 0; c < C; ++c) add_four<2 * kEight % 4>(sums[m][c], low[c], x[m]);
    SPC_UNROLL for (int c = 0; c < C; ++c) add_four<2 * kEight % 4 + 1>(sums[m][c], high[c], x[m]);
  }
}

template <int kSixteen, int M, int C>
SPC_INLINE void add_sixteen(NibbleSum (&sums)[M][C], const uint8_t* const (&w)[C], const int8_t* const (&x)[M], int64_t k) {
  Sixteen loaded[M];
  load_sixteens(x, k, loaded);
  add_eight<2 * kSixteen>(sums, w, loaded);
  add_eight<2 * kSixteen + 1>(sums, w, loaded);
}

// Rows of a block [M, 32], from column k on, times columns of a weight, behind which the pointers then stand.
template <int M, int C>
SPC_INLINE void add_nibbles(NibbleSum (&sums)[M][C], const uint8_t* (&w)[C], const int8_t* (&x)[M], int64_t k) {
  add_sixteen<0>(sums, w, x, k);
  add_sixteen<1>(sums, w, x, k + 16);
  SPC_UNROLL for (int c = 0; c < C; ++c) {
    SPC_UNROLL for (int m = 0; m < M; ++m) flush(sums[m][c]);
    w[c] += 16 * kTile;
  }
}

// kIsShort: blocks of 32, whose sums need not outlive a loop.
template <int M, int C, bool kIsShort>
static __attribute__((noinline)) void int4_columns_of(const Int4Product& p, const Place& at) {
  const int64_t block = kIsShort ? 32 : p.x.block, blocks = p.x.depth / block;
  Vector totals[M][C];
  const uint8_t *w[C], *zero_points[C];
  const uint16_t* scales[C];
  const int8_t* x[M];
  SPC_UNROLL for (int m = 0; m < M; ++m) {
    x[m] = p.x.numbers + (at.row + m) * p.x.depth;
    SPC_UNROLL for (int c = 0; c < C; ++c) totals[m][c] = zero();
  }
  SPC_UNROLL for (int c = 0; c < C; ++c) {
    w[c] = at_vector(p.numbers, at.vector + c, p.x.depth / 8, 4);
    scales[c] = at_vector(p.scales, at.vector + c, blocks, 1);
    zero_points[c] = at_vector(p.zero_points, at.vector + c, blocks, 1);
  }
  const float *row_sums = p.x.sums + at.row, *row_scales = p.x.scales + at.row;
  for (int64_t b = 0; b < blocks; ++b, row_sums += p.x.rows, row_scales += p.x.rows) {
    NibbleSum sums[M][C];
    SPC_UNROLL for (int m = 0; m < M; ++m)
      SPC_UNROLL for (int c = 0; c < C; ++c) start(sums[m][c]);
    for (int64_t k = 0; k < block; k += 32) add_nibbles(sums, w, x, b * block + k);
    SPC_UNROLL for (int c = 0; c < C; ++c) {
      const Vector scale = from_float16(scales[c] + b * kTile), zero_point = from_bytes(zero_points[c] + b * kTile);
      if (b % 4 == 0) {  // four blocks' zero points fill a line, and their scales two
        fetch_line<C>(zero_points[c] + b * kTile, c);
        fetch_line<C>(scales[c] + b * kTile, c);
        fetch_line<C>(scales[c] + (b + 2) * kTile, c);
      }
      SPC_UNROLL for (int m = 0; m < M; ++m) {
        // Integers below 2^24, all three: nothing is rounded.
        const Vector sum = fma_less(zero_point, broadcast(row_sums[m]), to_floats(finish(sums[m][c])));
        totals[m][c] = add_block(totals[m][c], sum, scale, row_scales[m]);
      }
    }
  }
  Vector complete[M][C];
  SPC_UNROLL for (int c = 0; c < C; ++c) {
    const Vector factor = load(p.factors + (at.vector + c) * kWidth);
    SPC_UNROLL for (int m = 0; m < M; ++m) complete[m][c] = multiply(totals[m][c], factor);
  }
  put_block(p.out, at, complete);
}

template <int M, int C>
SPC_INLINE void int4_block(const Int4Product& p, const Place& at) {
  p.x.block == 32 ? int4_columns_of<M, C, true>(p, at) : int4_columns_of<M, C, false>(p, at);
}

// Number of codes of a column in four bytes: two in a byte, or one.
template <class Sum>
constexpr int64_t kCodes = 0;
template <>
constexpr int64_t kCodes<NibbleSum> = 8;
template <>
constexpr int64_t kCodes<ByteSum> = 4;

SPC_INLINE void begin(NibbleSum& sum, float) { start(sum); }
SPC_INLINE void begin(ByteSum& sum, float row_sum) { start(sum, static_cast<int32_t>(row_sum)); }
// The sum without the zero point: integers below 2^24, so nothing is rounded. Bytes begin without it.
SPC_INLINE Vector centred(const NibbleSum& sum, float zero_point, float row_sum) {
  return fma_less(broadcast(zero_point), broadcast(row_sum), to_floats(finish(sum)));
}
SPC_INLINE Vector centred(const ByteSum& sum, float, float) { return to_floats(finish(sum)); }

// Sixteen rows of a block times columns of a weight, behind which the pointers then stand.
template <class Sum, int M, int C>
SPC_INLINE void add_half(Sum (&sums)[M][C], const uint8_t* (&w)[C], const int8_t* const (&x)[M], int64_t k) {
  add_sixteen<0>(sums, w, x, k);
  SPC_UNROLL for (int c = 0; c < C; ++c) w[c] += 16 / kCodes<Sum> * 4 * kTile;
}

template <class Sum, int M, int C>
static __attribute__((noinline)) void code_block(const BlockProduct& p, const Place& at) {
  constexpr int64_t codes = kCodes<Sum>;
  const int64_t block = p.x.block, blocks = p.x.depth / block;
  Vector totals[M][C];
  const uint8_t* w[C];
  const float *scales[C], *offsets[C];
  const int8_t* x[M];
  SPC_UNROLL for (int m = 0; m < M; ++m) {
    x[m] = p.x.numbers + (at.row + m) * p.x.depth;
    SPC_UNROLL for (int c = 0; c < C; ++c) totals[m][c] = zero();
  }
  SPC_UNROLL for (int c = 0; c < C; ++c) {
    w[c] = at_vector(p.numbers, at.vector + c, p.x.depth / codes, 4);
    scales[c] = at_vector(p.scales, at.vector + c, blocks, 1);
    offsets[c] = p.offsets ? at_vector(p.offsets, at.vector + c, blocks, 1) : nullptr;
  }
  for (int64_t b = 0; b < blocks; ++b) {
    const float* const row_sums = p.x.sums + b * p.x.rows + at.row;
    const float* const row_scales = p.x.scales + b * p.x.rows + at.row;
    Sum sums[M][C];
    SPC_UNROLL for (int m = 0; m < M; ++m)
      SPC_UNROLL for (int c = 0; c < C; ++c) begin(sums[m][c], row_sums[m]);
    add_half(sums, w, x, b * block);
    if (block == 32) add_half(sums, w, x, b * block + 16);
    SPC_UNROLL for (int m = 0; m < M; ++m)
      SPC_UNROLL for (int c = 0; c < C; ++c) flush(sums[m][c]);
    SPC_UNROLL for (int c = 0; c < C; ++c) {
      const Vector scale = load(scales[c] + b * kTile);
      fetch_line<C>(scales[c] + b * kTile, c);
      SPC_UNROLL for (int m = 0; m < M; ++m)
        totals[m][c] = add_block(totals[m][c], centred(sums[m][c], p.zero_point, row_sums[m]), scale, row_scales[m]);
      if (p.offsets) {
        const Vector offset = load(offsets[c] + b * kTile);
        const float* again = row_sums;
        asm("" : "+r"(again));  // else GCC reads sums and scales one by one before it asks for offsets, for both uses
        fetch_line<C>(offsets[c] + b * kTile, c);
        SPC_UNROLL for (int m = 0; m < M; ++m)
          totals[m][c] = fma(offset, broadcast(again[m] * row_scales[m]), totals[m][c]);
      }
    }
  }
  Vector complete[M][C];
  SPC_UNROLL for (int m = 0; m < M; ++m)
    SPC_UNROLL for (int c = 0; c < C; ++c) complete[m][c] = totals[m][c];
  put_block(p.out, at, complete);
}

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile
