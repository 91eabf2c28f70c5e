// Products of many rows by AMX: sixteen rows times sixteen columns, 64 or 32 numbers deep, in one instruction.
//
// Its sums are exact integers, and what follows them is what products.h does, in the same order: no bit is different.
#pragma once

#include "products.h"
#include "scratch.h"

namespace speccompile {
namespace SPECCOMPILE_PATH {

constexpr int64_t kFewestRows = 10;  // with fewer, vectors are faster

// To GCC 12 the instructions below read no memory (amxtileintrin.h): what was written for them must be written before.
SPC_INLINE void finish_writing() { asm volatile("" ::: "memory"); }

struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {};  // of a row
  uint8_t rows[16] = {};
};

// Tiles 0 to 3 hold sums, 4 and 5 rows of x, 6 and 7 columns of the weight, `depth` numbers of each.
class Tiles {
 public:
  explicit Tiles(int depth) {
    TileShapes shapes;
    for (int i = 0; i < 8; ++i) {
      shapes.bytes[i] = static_cast<uint16_t>(i == 4 || i == 5 ? depth : 64);
      shapes.rows[i] = static_cast<uint8_t>(i < 6 ? 16 : depth / 4);
    }
    finish_writing();
    _tile_loadconfig(&shapes);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

SPC_INLINE Integers load_sums(const int32_t* p) { return {_mm512_loadu_si512(p)}; }

// Two tiles of rows times two tiles of columns; the second of either may be the first again, and is then computed in vain.
static void int8_tiles(const Int8Product& p, const int64_t (&row)[2], const int64_t (&tile)[2], int32_t* sums) {
  const int64_t depth = p.x.depth;
  const int8_t *x0 = p.x.numbers + row[0] * depth, *x1 = p.x.numbers + row[1] * depth;
  const uint8_t *w0 = p.numbers + tile[0] * depth * kTile, *w1 = p.numbers + tile[1] * depth * kTile;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t k = 0; k < depth; k += 64) {
    _tile_loadd(4, x0 + k, static_cast<size_t>(depth));
    _tile_loadd(6, w0 + k * kTile, 64);
    _tile_dpbsud(0, 4, 6);
    _tile_loadd(7, w1 + k * kTile, 64);
    _tile_dpbsud(1, 4, 7);
    _tile_loadd(5, x1 + k, static_cast<size_t>(depth));
    _tile_dpbsud(2, 5, 6);
    _tile_dpbsud(3, 5, 7);
  }
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + 256, 64);
  _tile_stored(2, sums + 512, 64);
  _tile_stored(3, sums + 768, 64);
}

static void put_int8(const Int8Product& p, int64_t row, int64_t tile, const int32_t* sums) {
  const Vector scales = load(p.scales + tile * kTile);
  const int64_t count = p.out.rows - row < 16 ? p.out.rows - row : 16;
  for (int64_t m = 0; m < count; ++m) {
    const __m512i offset = _mm512_set1_epi32(128 * static_cast<int32_t>(p.x.sums[row + m]));
    const Integers sum{_mm512_sub_epi32(load_sums(sums + m * kTile).v, offset)};
    const Vector scale = multiply(broadcast(p.x.scales[row + m]), scales);
    put(p.out, row + m, tile, multiply(to_floats(sum), scale));
  }
}

static bool wide_int8(const Int8Product& p, int64_t first, int64_t last) {
  if (p.out.rows < kFewestRows) return product_int8(p, first, last);
  alignas(64) int32_t sums[1024];
  const Tiles tiles(64);
  for (int64_t t = first; t < last; t += 2) {
    for (int64_t r = 0; r < p.out.rows; r += 32) {
      const int64_t row[2] = {r, r + 16 < p.out.rows ? r + 16 : r}, tile[2] = {t, t + 1 < last ? t + 1 : t};
      int8_tiles(p, row, tile, sums);
      for (int i = 0; i < 4; ++i) {
        const bool again = (i / 2 && row[1] == row[0]) || (i % 2 && tile[1] == tile[0]);
        if (!again) put_int8(p, row[i / 2], tile[i % 2], sums + 256 * i);
      }
    }
  }
  return true;
}

// The numbers of a tile of columns less their zero points, a signed byte each: [depth / 4, 16, 4].
static void spread(const Int4Product& p, int64_t tile, int8_t* out) {
  const uint8_t* numbers = p.numbers + tile * p.x.depth / 2 * kTile;
  const uint8_t* zero_points = p.zero_points + tile * (p.x.depth / p.x.block) * kTile;
  for (int64_t k = 0; k < p.x.depth; k += p.x.block) {
    const __m128i zeros = _mm_loadu_si128(reinterpret_cast<const __m128i*>(zero_points + k / p.x.block * kTile));
    const __m512i four_each = _mm512_mullo_epi32(_mm512_cvtepu8_epi32(zeros), _mm512_set1_epi32(0x01010101));
    for (int64_t i = k; i < k + p.x.block; i += 8) {
      const Bytes both = load_bytes(numbers + i / 2 * kTile);
      fetch_ahead(numbers + i / 2 * kTile, ahead(1));
      _mm512_store_si512(out + i * kTile, _mm512_sub_epi8(low_nibbles(both).v, four_each));
      _mm512_store_si512(out + (i + 4) * kTile, _mm512_sub_epi8(high_nibbles(both).v, four_each));
    }
  }
  finish_writing();
}

// A tile of columns times sixteen rows, two blocks of kBlock numbers at a time. While the tiles multiply two of them,
// vectors add up the two before.
template <int kBlock>
class Int4Tile {
 public:
  // w: the columns' numbers, spread.
  static void compute(const Int4Product& p, const int8_t* w, int64_t row, int64_t tile) {
    alignas(64) int32_t sums[2][512];
    const int64_t depth = p.x.depth, blocks = depth / kBlock;
    const int8_t* x = p.x.numbers + row * depth;
    Scales scales{p.scales + tile * blocks * kTile, p.x.scales + row, p.x.rows};
    Vector totals[16];
    for (Vector& total : totals) total = zero();
    int64_t b = 0;
    for (; b + 2 < blocks; b += 2) {
      multiply(x + b * kBlock, w + b * kBlock * kTile, depth, 1);
      if (b) add<2>(sums[(b / 2 + 1) % 2], scales, totals);
      save(sums[b / 2 % 2]);
    }
    const bool odd = b + 1 == blocks;
    multiply(x + b * kBlock, w + b * kBlock * kTile, depth, odd ? 0 : 1);
    if (b) add<2>(sums[(b / 2 + 1) % 2], scales, totals);
    save(sums[b / 2 % 2]);
    odd ? add<1>(sums[b / 2 % 2], scales, totals) : add<2>(sums[b / 2 % 2], scales, totals);
    const Vector factor = load(p.factors + tile * kTile);
    for (int m = 0; m < 16 && row + m < p.out.rows; ++m) put(p.out, row + m, tile, SPECCOMPILE_PATH::multiply(totals[m], factor));
  }

 private:
  static constexpr int kStep = kBlock < 64 ? kBlock : 64;

  struct Scales {
    const uint16_t* of_columns;
    const float* of_rows;
    int64_t rows;
  };

  // Blocks 0 and `second` into the tiles 0 and 1.
  SPC_INLINE void multiply(const int8_t* x, const int8_t* w, int64_t depth, int64_t second) {
    const size_t apart = static_cast<size_t>(depth);
    _tile_zero(0);
    for (int k = 0; k < kBlock; k += kStep) {
      _tile_loadd(4, x + k, apart);
      _tile_loadd(6, w + k * kTile, 64);
      _tile_dpbssd(0, 4, 6);
    }
    x += second * kBlock;
    w += second * kBlock * kTile;
    _tile_zero(1);
    for (int k = 0; k < kBlock; k += kStep) {
      _tile_loadd(5, x + k, apart);
      _tile_loadd(7, w + k * kTile, 64);
      _tile_dpbssd(1, 5, 7);
    }
  }

  SPC_INLINE void save(int32_t* sums) {
    _tile_stored(0, sums, 64);
    _tile_stored(1, sums + 256, 64);
  }

  // The next kCount blocks.
  template <int kCount>
  SPC_INLINE void add(const int32_t* sums, Scales& scales, Vector (&totals)[16]) {
    for (int i = 0; i < kCount; ++i) {
      const Vector scale = from_float16(scales.of_columns);
      for (int m = 0; m < 16; ++m)
        totals[m] = add_block(totals[m], to_floats(load_sums(sums + 256 * i + m * kTile)), scale, scales.of_rows[m]);
      scales.of_columns += kTile;
      scales.of_rows += scales.rows;
    }
  }
};

static bool wide_int4(const Int4Product& p, int64_t first, int64_t last) {
  if (p.out.rows < kFewestRows) return product_int4(p, first, last);
  const Scratch<int8_t> numbers(p.x.depth * kTile);
  if (!numbers.data) return false;
  const auto compute = p.x.block == 32 ? Int4Tile<32>::compute : p.x.block == 64 ? Int4Tile<64>::compute : Int4Tile<128>::compute;
  const Tiles tiles(p.x.block == 32 ? 32 : 64);
  for (int64_t tile = first; tile < last; ++tile) {
    spread(p, tile, numbers.data);
    for (int64_t row = 0; row < p.out.rows; row += 16) compute(p, numbers.data, row, tile);
  }
  return true;
}

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile
