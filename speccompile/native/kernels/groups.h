// Numbers of rows and columns that a product computes together: as many sums as the processor has registers for.
#pragma once

#include "kernels.h"
#include SPECCOMPILE_LANES

namespace speccompile {
namespace SPECCOMPILE_PATH {

constexpr int kParts = kTile / kWidth;          // vectors of a tile
constexpr bool kManyRegisters = kWidth != 8;    // 32 vector registers, 16 with AVX2

// The most rows of each kind of product: windows of so many read a weight once.
constexpr int kFloatRows = kManyRegisters ? 12 : 6, kIntegerRows = kWidth == 16 ? 12 : kManyRegisters ? 8 : 5;

// Vectors of columns beside each other, for a number of rows: few where the rows alone give the processor enough to do, because
// memory is read fastest from one place. bytes: of a number of the weight.
constexpr int float_columns(int rows, int bytes) {
  if (kWidth == 8 || rows > 6) return 2;
  return kWidth == 16 && rows < 3 && bytes == 4 ? 2 : 4;
}
constexpr int int8_columns(int rows) { return kWidth == 16 ? 1 : kWidth == 8 || rows > 5 ? 2 : 4; }
constexpr int int4_columns(int rows) { return kWidth == 8 || kLoadsSixteen || (kWidth < 8 && rows < 3) ? 2 : 1; }
constexpr int bytes_columns(int rows) { return kWidth == 8 && rows > 3 ? 1 : int4_columns(rows); }

// f(first, count) for groups of at most `most` rows, as equal as can be.
template <class F>
static void for_groups(int64_t rows, int64_t most, F f) {
  const int64_t groups = (rows + most - 1) / most;
  int64_t first = 0;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t count = rows / groups + (group < rows % groups);
    f(first, count);
    first += count;
  }
}

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile
