// The two sums of attention: products of queries with keys that lie side by side, and values that are weighted and added.
#pragma once

#include <type_traits>

#include "groups.h"
#include "kernels.h"
#include "sums.h"
#include SPECCOMPILE_LANES

namespace speccompile {
namespace SPECCOMPILE_PATH {

// Queries that a value is read for at a time.
constexpr int kMixed = 4;
// Queries that share each load of a key, if a tile is one vector. More would leave too few registers for the sums.
constexpr int kMultiplied = kWidth == kTile ? 2 : 1;

// Products of a query with kWidth keys. kTiles: of their width, or 0 for any width. key: where each begins.
template <int kTiles, class F>
SPC_INLINE Vector products(const float* query, int64_t width, F key) {
  Vector sums[kWidth];
  const int64_t rest = kTiles ? 0 : width % kTile, whole = kTiles ? kTiles * kTile : width - rest;
#pragma GCC unroll 16
  for (int i = 0; i < kWidth; ++i) {
    const auto* own = key(i);
    Lanes sum = no_lanes();
#pragma GCC unroll 8
    for (int64_t d = 0; d < whole; d += kTile) add_product(sum, load_lanes(query + d), load_lanes(own + d));
    if (rest) add_product(sum, load_lanes(query + whole, rest), load_lanes(own + whole, rest));
    sums[i] = halved(sum);
  }
  return fold(sums);
}

// The same of H queries with kWidth / H keys side by side, whose width is a multiple of kTile: those of a query beside each other.
template <int H, int kTiles, class E>
SPC_INLINE Vector products_of_some(const float* const* queries, int64_t any_width, const E* keys) {
  constexpr int kKeys = kWidth / H;
  const int64_t width = kTiles ? kTiles * kTile : any_width;
  Vector sums[kWidth];
#pragma GCC unroll 16
  for (int i = 0; i < kWidth; ++i) sums[i] = zero();
#pragma GCC unroll 4
  for (int64_t d = 0; d < width; d += kWidth) {
    Vector query[H];
    SPC_UNROLL for (int h = 0; h < H; ++h) query[h] = load(queries[h] + d);
#pragma GCC unroll 16
    for (int i = 0; i < kKeys; ++i) {
      const auto key = once(load(keys + i * width + d));
      SPC_UNROLL for (int h = 0; h < H; ++h) sums[h * kKeys + i] = fma(query[h], key, sums[h * kKeys + i]);
    }
  }
  return fold(sums);
}

// Products of H queries with `count` keys side by side, times a scale, into scores. Returns how many keys were taken: the rest are
// fewer than kWidth / H.
template <int H, int kTiles, class E>
static __attribute__((noinline)) int64_t multiply_some(const float* const* queries, const E* keys, int64_t count, int64_t any_width, float by,
                                                       float* const* scores) {
  constexpr int kKeys = kWidth / H;
  const Vector scale = broadcast(by);
  const int64_t width = kTiles ? kTiles * kTile : any_width;
  int64_t first = 0;
  for (; first + kKeys <= count; first += kKeys) {
    float all[kWidth];
    store(all, multiply(products_of_some<H, kTiles>(queries, width, keys + first * width), scale));
    SPC_UNROLL for (int h = 0; h < H; ++h) std::memcpy(scores[h] + first, all + h * kKeys, kKeys * sizeof *all);
  }
  return first;
}

// Products of a query with `count` keys side by side, times a scale, into scores or, where kAdds, added to them.
template <int kTiles, bool kAdds, class E>
static __attribute__((noinline)) void multiply_keys(const float* query, const E* keys, int64_t count, int64_t any_width, float by,
                                                    float* scores) {
  const Vector scale = broadcast(by);
  const int64_t width = kTiles ? kTiles * kTile : any_width;
  int64_t first = 0;
  for (; first + kWidth <= count; first += kWidth) {
    const E* const from = keys + first * width;
    const Vector scaled = multiply(products<kTiles>(query, width, [&](int i) { return from + i * width; }), scale);
    store(scores + first, kAdds ? add(load(scores + first), scaled) : scaled);
  }
  const int left = static_cast<int>(count - first);
  if (left == 0) return;
  const auto key = [&](int i) { return keys + (first + (i < left ? i : 0)) * width; };
  const Vector scaled = multiply(products<kTiles>(query, width, key), scale);
  store_some(scores + first, kAdds ? add(load_some(scores + first, left), scaled) : scaled, left);
}

// f(tiles) with the number of tiles of common widths as a constant, and 0 for other widths.
template <class F>
static auto with_tiles(int64_t width, F f) {
  switch (width) {
    case 64:
      return f(std::integral_constant<int, 4>());
    case 128:
      return f(std::integral_constant<int, 8>());
    default:
      return f(std::integral_constant<int, 0>());
  }
}

template <int H, class E>
static int64_t multiply_any_some(const float* const* queries, const E* keys, int64_t count, int64_t width, float by, float* const* scores) {
  return with_tiles(width, [&](auto tiles) { return multiply_some<H, decltype(tiles)::value>(queries, keys, count, width, by, scores); });
}

template <bool kAdds, class E>
static void multiply_any(const float* query, const E* keys, int64_t count, int64_t width, float by, float* scores) {
  with_tiles(width, [&](auto tiles) { multiply_keys<decltype(tiles)::value, kAdds>(query, keys, count, width, by, scores); });
}

// C vectors of the contexts of H queries, from a column on: `count` values side by side, weighted, are added.
template <int H, int C, class E>
static void mix(const E* values, int64_t count, int64_t width, const float* const* weights, int64_t column, float* const* contexts) {
  Vector sums[H][C];
  SPC_UNROLL for (int h = 0; h < H; ++h)
    SPC_UNROLL for (int c = 0; c < C; ++c) sums[h][c] = load(contexts[h] + column + c * kWidth);
  const E* value = values + column;
#pragma GCC unroll 2
  for (int64_t i = 0; i < count; ++i, value += width) {
    Vector columns[C];
    SPC_UNROLL for (int c = 0; c < C; ++c) columns[c] = load(value + c * kWidth);
    SPC_UNROLL for (int h = 0; h < H; ++h) {
      const Vector weight = broadcast(weights[h][i]);
      SPC_UNROLL for (int c = 0; c < C; ++c) sums[h][c] = fma(weight, columns[c], sums[h][c]);
    }
  }
  SPC_UNROLL for (int h = 0; h < H; ++h)
    SPC_UNROLL for (int c = 0; c < C; ++c) store(contexts[h] + column + c * kWidth, sums[h][c]);
}

template <int H, class E>
static void mix_queries(const E* values, int64_t count, int64_t width, const float* const* weights, float* const* contexts) {
  constexpr int C = H > 2 && !kManyRegisters ? 2 : 4;
  int64_t column = 0;
  for (; column + C * kWidth <= width; column += C * kWidth) mix<H, C>(values, count, width, weights, column, contexts);
  for (; column + kWidth <= width; column += kWidth) mix<H, 1>(values, count, width, weights, column, contexts);
  const int left = static_cast<int>(width - column);
  for (int h = 0; left > 0 && h < H; ++h) {  // the columns behind the last whole vector
    Vector sum = load_some(contexts[h] + column, left);
    for (int64_t i = 0; i < count; ++i) sum = fma(broadcast(weights[h][i]), load_some(values + i * width + column, left), sum);
    store_some(contexts[h] + column, sum, left);
  }
}

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile
