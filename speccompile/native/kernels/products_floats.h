// Blocks of products with weights in float32 and bfloat16.
#pragma once

#include "places.h"

namespace speccompile {
namespace SPECCOMPILE_PATH {

SPC_INLINE Vector load_weight(const float* p) { return load(p); }
SPC_INLINE Vector load_weight(const uint16_t* p) { return from_bfloat16(p); }

template <class T, int M, int C>
static __attribute__((noinline)) void float_block(const FloatProduct& p, const Place& at) {
  const float* panel = p.panels + at.row * p.depth;
  const T* w[C];
  Vector sums[M][C];
  SPC_UNROLL for (int c = 0; c < C; ++c) w[c] = at_vector(static_cast<const T*>(p.weight), at.vector + c, p.depth, 1);
  SPC_UNROLL for (int m = 0; m < M; ++m)
    SPC_UNROLL for (int c = 0; c < C; ++c) sums[m][c] = at.begin ? taken_up(p.out, at.row + m, at.vector + c) : zero();
  for (int64_t k = at.begin; k < at.end; ++k) {
    Vector columns[C];
    SPC_UNROLL for (int c = 0; c < C; ++c) {
      columns[c] = load_weight(w[c] + k * kTile);
      fetch_line<C>(w[c] + k * kTile, c);
    }
    SPC_UNROLL for (int m = 0; m < M; ++m) {
      const Vector x = broadcast(panel[k * M + m]);
      SPC_UNROLL for (int c = 0; c < C; ++c) sums[m][c] = fma(x, columns[c], sums[m][c]);
    }
  }
  SPC_UNROLL for (int m = 0; m < M; ++m)
    SPC_UNROLL for (int c = 0; c < C; ++c) put(p.out, at.row + m, at.vector + c, sums[m][c], at.end == p.depth);
}

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile
