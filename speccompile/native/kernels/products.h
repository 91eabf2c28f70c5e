// Products of a window's rows with a weight of many columns.
//
// A lane is a column, and its sum is made in the order of the weight's rows, so nothing depends on how many rows or
// columns are computed together. That is decided in groups.h; here stand the sums.
#pragma once

#include "groups.h"
#include "kernels.h"
#include SPECCOMPILE_LANES

namespace speccompile {
namespace SPECCOMPILE_PATH {

constexpr int64_t kFloatDepth = 1024;  // rows of a float weight that stay in the cache while many rows of x pass by

// Where the columns of a vector begin in a weight of `depth` rows, each with `size` elements a column.
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

SPC_INLINE Vector load_weight(const float* p) { return load(p); }
SPC_INLINE Vector load_weight(const uint16_t* p) { return from_bfloat16(p); }

// Fetch ahead what the vector c of C reads. Those of a tile lie in the same lines of the cache.
template <int C>
SPC_INLINE void fetch_line(const void* p, int c) {
  constexpr int places = (C + kParts - 1) / kParts;
  if (c % kParts == 0) fetch_ahead(p, ahead(places));
}

// Where a block of a product stands: rows of x, vectors of columns, and rows of the weight.
struct Place {
  int64_t row, vector, begin, end;
};

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
#pragma GCC unroll 8
    for (int i = 0; i < 32; i += 4) {
      SPC_UNROLL for (int c = 0; c < C; ++c) {
        const Bytes numbers = load_bytes(w[c] + i * kTile);
        fetch_line<C>(w[c] + i * kTile, c);
        SPC_UNROLL for (int m = 0; m < M; ++m) add(sums[m][c], numbers, x[m] + i);
      }
    }
    SPC_UNROLL for (int c = 0; c < C; ++c) {
      SPC_UNROLL for (int m = 0; m < M; ++m) flush(sums[m][c]);
      w[c] += 32 * kTile;
    }
    SPC_UNROLL for (int m = 0; m < M; ++m) x[m] += 32;
  }
  SPC_UNROLL for (int c = 0; c < C; ++c) {
    const Vector scales = load(p.scales + (at.vector + c) * kWidth);
    SPC_UNROLL for (int m = 0; m < M; ++m) {
      const Vector scale = multiply(broadcast(p.x.scales[at.row + m]), scales);
      put(p.out, at.row + m, at.vector + c, multiply(to_floats(finish(sums[m][c])), scale));
    }
  }
}

// sum: of a block, without its zero point.
SPC_INLINE Vector add_block(Vector total, Vector sum, Vector scale, float x_scale) {
  return fma(sum, multiply(scale, broadcast(x_scale)), total);
}

// Rows of a block [M, 32] times columns of a weight, behind which the pointers then stand.
template <int M, int C>
SPC_INLINE void add_nibbles(NibbleSum (&sums)[M][C], const uint8_t* (&w)[C], const int8_t* (&x)[M]) {
#pragma GCC unroll 4
  for (int i = 0; i < 32; i += 8) {
    Bytes low[C], high[C];
    SPC_UNROLL for (int c = 0; c < C; ++c) {
      const Bytes both = load_bytes(w[c] + i / 2 * kTile);
      fetch_line<C>(w[c] + i / 2 * kTile, c);
      low[c] = low_nibbles(both);
      high[c] = high_nibbles(both);
    }
    SPC_UNROLL for (int m = 0; m < M; ++m) {
      SPC_UNROLL for (int c = 0; c < C; ++c) add(sums[m][c], low[c], x[m] + i);
      SPC_UNROLL for (int c = 0; c < C; ++c) add(sums[m][c], high[c], x[m] + i + 4);
    }
  }
  SPC_UNROLL for (int c = 0; c < C; ++c) {
    SPC_UNROLL for (int m = 0; m < M; ++m) flush(sums[m][c]);
    w[c] += 16 * kTile;
  }
  SPC_UNROLL for (int m = 0; m < M; ++m) x[m] += 32;
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
    if constexpr (kIsShort) {
      add_nibbles(sums, w, x);
    } else {
      for (int64_t k = 0; k < block; k += 32) add_nibbles(sums, w, x);
    }
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
  SPC_UNROLL for (int c = 0; c < C; ++c) {
    const Vector factor = load(p.factors + (at.vector + c) * kWidth);
    SPC_UNROLL for (int m = 0; m < M; ++m) put(p.out, at.row + m, at.vector + c, multiply(totals[m][c], factor));
  }
}

template <int M, int C>
SPC_INLINE void int4_block(const Int4Product& p, const Place& at) {
  p.x.block == 32 ? int4_columns_of<M, C, true>(p, at) : int4_columns_of<M, C, false>(p, at);
}

// Codes of a column in four bytes, and what is done with them: two in a byte, or one.
template <class Sum>
constexpr int64_t kCodes = 0;
template <>
constexpr int64_t kCodes<NibbleSum> = 8;
template <>
constexpr int64_t kCodes<ByteSum> = 4;

SPC_INLINE void begin(NibbleSum& sum, float) { start(sum); }
SPC_INLINE void begin(ByteSum& sum, float row_sum) { start(sum, static_cast<int32_t>(row_sum)); }
SPC_INLINE void add_codes(NibbleSum& sum, Bytes both, const int8_t* x) {
  add(sum, low_nibbles(both), x);
  add(sum, high_nibbles(both), x + 4);
}
SPC_INLINE void add_codes(ByteSum& sum, Bytes numbers, const int8_t* x) { add(sum, numbers, x); }
// The sum without the zero point: integers below 2^24, so nothing is rounded. Bytes begin without it.
SPC_INLINE Vector centred(const NibbleSum& sum, float zero_point, float row_sum) {
  return fma_less(broadcast(zero_point), broadcast(row_sum), to_floats(finish(sum)));
}
SPC_INLINE Vector centred(const ByteSum& sum, float, float) { return to_floats(finish(sum)); }

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
    for (int64_t i = 0; i < block; i += codes) {
      Bytes numbers[C];
      SPC_UNROLL for (int c = 0; c < C; ++c) {
        numbers[c] = load_bytes(w[c]);
        fetch_line<C>(w[c], c);
        w[c] += 4 * kTile;
      }
      SPC_UNROLL for (int m = 0; m < M; ++m)
        SPC_UNROLL for (int c = 0; c < C; ++c) add_codes(sums[m][c], numbers[c], x[m] + i);
    }
    SPC_UNROLL for (int m = 0; m < M; ++m)
      SPC_UNROLL for (int c = 0; c < C; ++c) flush(sums[m][c]);
    SPC_UNROLL for (int m = 0; m < M; ++m) x[m] += block;
    SPC_UNROLL for (int c = 0; c < C; ++c) {
      const Vector scale = load(scales[c] + b * kTile);
      fetch_line<C>(scales[c] + b * kTile, c);
      SPC_UNROLL for (int m = 0; m < M; ++m)
        totals[m][c] = add_block(totals[m][c], centred(sums[m][c], p.zero_point, row_sums[m]), scale, row_scales[m]);
      if (p.offsets) {
        const Vector offset = load(offsets[c] + b * kTile);
        fetch_line<C>(offsets[c] + b * kTile, c);
        SPC_UNROLL for (int m = 0; m < M; ++m)
          totals[m][c] = fma(offset, broadcast(row_sums[m] * row_scales[m]), totals[m][c]);
      }
    }
  }
  SPC_UNROLL for (int c = 0; c < C; ++c)
    SPC_UNROLL for (int m = 0; m < M; ++m) put(p.out, at.row + m, at.vector + c, totals[m][c]);
}

// How one kind of product is cut into blocks: C vectors beside each other for M rows, at most kRows of them.
template <class T>
struct FloatBlocks {
  using Product = FloatProduct;
  static constexpr int kRows = kFloatRows;
  static constexpr int columns(int rows) { return float_columns(rows, sizeof(T)); }
  template <int M, int C>
  static void compute(const Product& p, const Place& at) {
    float_block<T, M, C>(p, at);
  }
};

struct Int8Blocks {
  using Product = Int8Product;
  static constexpr int kRows = kInt8Rows;
  static constexpr int columns(int rows) { return int8_columns(rows); }
  template <int M, int C>
  static void compute(const Product& p, const Place& at) {
    int8_block<M, C>(p, at);
  }
};

struct Int4Blocks {
  using Product = Int4Product;
  static constexpr int kRows = kInt4Rows;
  static constexpr int columns(int rows) { return int4_columns(rows); }
  template <int M, int C>
  static void compute(const Product& p, const Place& at) {
    int4_block<M, C>(p, at);
  }
};

template <class Sum>
struct CodeBlocks {
  using Product = BlockProduct;
  static constexpr int kRows = kInt4Rows;
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
