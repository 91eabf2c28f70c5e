// Blocks of products with weights in float32 and bfloat16.
#pragma once

#include "places.h"

namespace speccompile {
namespace SPECCOMPILE_PATH {

SPC_INLINE Vector load_weight(const float* p) { return load(p); }
SPC_INLINE Vector load_weight(const uint16_t* p) { return from_bfloat16(p); }

// Columns of a weight that are read as the even ones and the odd ones: sixteen numbers of bfloat16 then cost two instructions
// and not four, of which five rows of x leave the multipliers too few places. Sums of columns wait in the same order.
template <class T>
constexpr bool kReadsApart = false;
template <>
constexpr bool kReadsApart<uint16_t> = kWidth == 8;

template <class T, int C>
SPC_INLINE void load_columns(const T* const (&w)[C], int64_t k, Vector (&columns)[C]) {
  SPC_UNROLL for (int c = 0; c < C; ++c) {
    if constexpr (!kReadsApart<T>) {
      columns[c] = load_weight(w[c] + k * kTile);
    } else if (c % 2 == 0) {
      load_apart(w[c] + k * kTile, columns[c], columns[c + 1]);
    }
    fetch_line<C>(w[c] + k * kTile, c);
  }
}

template <class T, int M, int C>
static __attribute__((noinline)) void float_block(const FloatProduct& p, const Place& at) {
  const float* panel = p.panels + at.row * p.depth;
  static_assert(!kReadsApart<T> || C % 2 == 0, "vectors of columns come in pairs");
  const T* w[C];
  Vector sums[M][C];
  SPC_UNROLL for (int c = 0; c < C; ++c) w[c] = at_vector(static_cast<const T*>(p.weight), at.vector + c, p.depth, 1);
  SPC_UNROLL for (int m = 0; m < M; ++m)
    SPC_UNROLL for (int c = 0; c < C; ++c) sums[m][c] = at.begin ? taken_up(p.out, at.row + m, at.vector + c) : zero();
  if constexpr (kReadsApart<T>) {
    SPC_UNROLL for (int m = 0; m < M; ++m)
      SPC_UNROLL for (int c = 0; c < C; c += 2) take_apart(sums[m][c], sums[m][c + 1]);
  }
  for (int64_t k = at.begin; k < at.end; ++k) {
    Vector columns[C];
    load_columns(w, k, columns);
    SPC_UNROLL for (int m = 0; m < M; ++m) {
      const Vector x = broadcast(panel[k * M + m]);
      SPC_UNROLL for (int c = 0; c < C; ++c) sums[m][c] = fma(x, columns[c], sums[m][c]);
    }
  }
  if constexpr (kReadsApart<T>) {
    SPC_UNROLL for (int m = 0; m < M; ++m)
      SPC_UNROLL for (int c = 0; c < C; c += 2) put_together(sums[m][c], sums[m][c + 1]);
  }
  SPC_UNROLL for (int m = 0; m < M; ++m)
    SPC_UNROLL for (int c = 0; c < C; ++c) put(p.out, at.row + m, at.vector + c, sums[m][c], at.end == p.depth);
}

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile
