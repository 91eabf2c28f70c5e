// Sixteen bytes of a row of x, whose fours products take one after the other: here where they lie, and each is broadcast from memory.
// A path whose dot products name one of four lanes loads them at once (lanes_neon.h).
#pragma once

namespace speccompile {
namespace SPECCOMPILE_PATH {

constexpr bool kLoadsSixteen = false;
using Sixteen = const int8_t*;

SPC_INLINE Sixteen load_sixteen(const int8_t* x) { return x; }

template <int kFour, class Sum>
SPC_INLINE void add_four(Sum& sum, const Bytes& w, Sixteen x) {
  add(sum, w, x + 4 * kFour);
}

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile
