// Products of a window's rows with a weight of many columns.
//
// A lane is a column, and its sum is made in the order of the weight's rows, so nothing depends on how many rows or
// columns are computed together. That is decided in groups.h; the sums stand in products_floats.h and products_codes.h.
#pragma once

#include "products_codes.h"
#include "products_floats.h"

namespace speccompile {
namespace SPECCOMPILE_PATH {

constexpr int64_t kFloatDepth = 1024;  // rows of a float weight that stay in the cache while many rows of x pass by

// Blocks of one kind of product: C vectors next to each other for M rows, at most kRows of them. kPairs: two beside each
// other for rows that find the weight in the cache.
template <class T>
struct FloatBlocks {
  using Product = FloatProduct;
  static constexpr bool kPairs = false;
  static constexpr int kRows = kFloatRows;
  static constexpr int columns(int rows) { return float_columns(rows, sizeof(T)); }
  template <int M, int C>
  static void compute(const Product& p, const Place& at) {
    float_block<T, M, C>(p, at);
  }
};

struct Int8Blocks {
  using Product = Int8Product;
  static constexpr bool kPairs = kWidth == 16;
  static constexpr int kRows = kIntegerRows;
  static constexpr int columns(int rows) { return int8_columns(rows); }
  template <int M, int C>
  static void compute(const Product& p, const Place& at) {
    int8_block<M, C>(p, at);
  }
};

struct Int4Blocks {
  using Product = Int4Product;
  static constexpr bool kPairs = false;
  static constexpr int kRows = kIntegerRows;
  static constexpr int columns(int rows) { return int4_columns(rows); }
  template <int M, int C>
  static void compute(const Product& p, const Place& at) {
    int4_block<M, C>(p, at);
  }
};

template <class Sum>
struct CodeBlocks {
  using Product = BlockProduct;
  static constexpr bool kPairs = kWidth == 16 && kCodes<Sum> == 4;
  static constexpr int kRows = kIntegerRows;
  static constexpr int columns(int rows) { return kCodes<Sum> == 8 ? int4_columns(rows) : bytes_columns(rows); }
  template <int M, int C>
  static void compute(const Product& p, const Place& at) {
    code_block<Sum, M, C>(p, at);
  }
};

// The vectors [at.vector, last) for a group of rows.
template <class Blocks, int M>
static void compute_rows(const typename Blocks::Product& p, Place at, int64_t last) {
  constexpr int C = Blocks::columns(M);
  if constexpr (Blocks::kPairs && M > 5 && M < 10) {  // as many sums as there are registers for; fewer rows are no later group
    // From the cache loads of x bound a product, which two vectors share; memory is read faster from one place.
    for (; at.row > 0 && at.vector + 2 <= last; at.vector += 2) Blocks::template compute<M, 2>(p, at);
  }
  for (; at.vector + C <= last; at.vector += C) Blocks::template compute<M, C>(p, at);
  if constexpr (C > kParts) {  // tiles are whole
    for (; at.vector < last; ++at.vector) Blocks::template compute<M, 1>(p, at);
  }
}

template <class Blocks, int M = Blocks::kRows>
static void compute_group(const typename Blocks::Product& p, const Place& at, int64_t last, int64_t rows) {
  if constexpr (M > 1) {
    if (rows < M) return compute_group<Blocks, M - 1>(p, at, last, rows);
  }
  compute_rows<Blocks, M>(p, at, last);
}

// Tiles [first, last), so many columns at a time that they stay in the cache while all rows of x pass by.
template <class Blocks>
static void compute_tiles(const typename Blocks::Product& p, int64_t depth, int64_t step, int64_t first, int64_t last) {
  const bool in_one_go = p.out.rows <= Blocks::kRows;
  const int64_t tiles_together = in_one_go ? last - first : kTilesTogether;
  for (int64_t tile = first; tile < last; tile += tiles_together) {
    const int64_t end = (tile + tiles_together < last ? tile + tiles_together : last) * kParts;
    const int64_t rows = in_one_go ? depth : step;
    for (int64_t begin = 0; begin < depth; begin += rows) {
      const int64_t stop = begin + rows < depth ? begin + rows : depth;
      for_groups(p.out.rows, Blocks::kRows, [&](int64_t row, int64_t count) {
        compute_group<Blocks>(p, Place{row, tile * kParts, begin, stop}, end, count);
      });
    }
  }
}

static void product_float32(const FloatProduct& p, int64_t first, int64_t last) {
  compute_tiles<FloatBlocks<float>>(p, p.depth, kFloatDepth, first, last);
}

static void product_bfloat16(const FloatProduct& p, int64_t first, int64_t last) {
  compute_tiles<FloatBlocks<uint16_t>>(p, p.depth, kFloatDepth, first, last);
}

static bool product_int8(const Int8Product& p, int64_t first, int64_t last) {
  compute_tiles<Int8Blocks>(p, p.x.depth, p.x.depth, first, last);
  return true;
}

static bool product_int4(const Int4Product& p, int64_t first, int64_t last) {
  compute_tiles<Int4Blocks>(p, p.x.depth, p.x.depth, first, last);
  return true;
}

static void product_blocks4(const BlockProduct& p, int64_t first, int64_t last) {
  compute_tiles<CodeBlocks<NibbleSum>>(p, p.x.depth, p.x.depth, first, last);
}

static void product_blocks8(const BlockProduct& p, int64_t first, int64_t last) {
  compute_tiles<CodeBlocks<ByteSum>>(p, p.x.depth, p.x.depth, first, last);
}

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile
