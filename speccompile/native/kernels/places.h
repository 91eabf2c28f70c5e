// Places of a product's blocks: vectors of columns of a weight, rows of x, and rows of the output.
#pragma once

#include "groups.h"
#include "kernels.h"
#include SPECCOMPILE_LANES

namespace speccompile {
namespace SPECCOMPILE_PATH {

// Return the start of a vector's columns in a weight of `depth` rows, each with `size` elements a column.
template <class T>
SPC_INLINE const T* at_vector(const T* weight, int64_t vector, int64_t depth, int64_t size) {
  return weight + (vector / kParts * depth * kTile + vector % kParts * kWidth) * size;
}

SPC_INLINE int columns_left(const Output& out, int64_t vector) {
  const int64_t left = out.columns - vector * kWidth;
  return static_cast<int>(left < kWidth ? left : kWidth);
}

SPC_INLINE void put(const Output& out, int64_t row, int64_t vector, Vector value, bool complete = true) {
  const int count = columns_left(out, vector);
  const float* bias = out.bias && complete ? out.bias + vector * kWidth : nullptr;
  float* y = out.y + row * out.columns + vector * kWidth;
  if (count == kWidth) {
    store(y, bias ? add(value, load(bias)) : value);
  } else if (count > 0) {
    store_some(y, bias ? add(value, load_some(bias, count)) : value, count);
  }
}

SPC_INLINE Vector taken_up(const Output& out, int64_t row, int64_t vector) {
  const int count = columns_left(out, vector);
  const float* y = out.y + row * out.columns + vector * kWidth;
  return count == kWidth ? load(y) : count > 0 ? load_some(y, count) : zero();
}

// Fetch ahead what the vector c of C reads. Those of a tile lie in the same lines of the cache.
template <int C>
SPC_INLINE void fetch_line(const void* p, int c) {
  constexpr int places = (C + kParts - 1) / kParts;
  if (c % kParts == 0) fetch_ahead(p, ahead(places));
}

// Place of a block of a product: rows of x, vectors of columns, and rows of the weight.
struct Place {
  int64_t row, vector, begin, end;
};

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile
