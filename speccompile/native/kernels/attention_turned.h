// Products of many queries with keys that are turned first, so that a lane is a key: nothing is folded.
//
// Every product is the same sum in the same order as in attention_sums.h: of lanes, element i of a row in lane i % 16, which are then
// added in halves.
#pragma once

#include "kernels.h"
#include "sums.h"
#include SPECCOMPILE_LANES

namespace speccompile {
namespace SPECCOMPILE_PATH {

// Vectors of keys beside each other, and queries that share each load of them: as many sums as it takes to keep the multipliers busy.
constexpr int kTurnedVectors = 2, kTurnedQueries = kWidth == 8 ? 4 : 6;
constexpr int64_t kTurnedKeys = kTurnedVectors * kWidth;
// Queries for which turning a key pays.
constexpr int64_t kQueriesThatTurn = 16;

// Turn `count` keys side by side, a multiple of kTurnedKeys, whose width is a multiple of kTile: [keys, width] as
// [keys / kTurnedKeys, width, kTurnedKeys].
template <class E>
static __attribute__((noinline)) void turn_keys(const E* keys, int64_t count, int64_t width, float* turned) {
  for (int64_t first = 0; first < count; first += kWidth) {
    float* const to = turned + first / kTurnedKeys * kTurnedKeys * width + first % kTurnedKeys;
    for (int64_t d = 0; d < width; d += kWidth) {
      Vector square[kWidth];
      SPC_SQUARE for (int i = 0; i < kWidth; ++i) square[i] = load(keys + (first + i) * width + d);
      turn(square);
      SPC_SQUARE for (int i = 0; i < kWidth; ++i) store(to + (d + i) * kTurnedKeys, square[i]);
    }
  }
}

// The sums of the lanes `lane`, `lane` + kApart, .. of H queries' products with turned keys.
template <int kApart, int H>
SPC_INLINE void sum_lanes(const float* const* queries, const float* keys, int64_t width, int64_t lane, Vector (&sums)[H][kTurnedVectors]) {
  if constexpr (kApart < kTile) {
    Vector others[H][kTurnedVectors];
    sum_lanes<2 * kApart>(queries, keys, width, lane, sums);
    sum_lanes<2 * kApart>(queries, keys, width, lane + kApart, others);
    SPC_UNROLL for (int h = 0; h < H; ++h)
      SPC_UNROLL for (int c = 0; c < kTurnedVectors; ++c) sums[h][c] = add(sums[h][c], others[h][c]);
  } else {
    SPC_UNROLL for (int h = 0; h < H; ++h)
      SPC_UNROLL for (int c = 0; c < kTurnedVectors; ++c) sums[h][c] = zero();
#pragma GCC unroll 1  // unrolled, it is a tenth slower: GCC mixes the lanes up and keeps their sums in memory
    for (int64_t d = lane; d < width; d += kTile) {
      Vector columns[kTurnedVectors];
      SPC_UNROLL for (int c = 0; c < kTurnedVectors; ++c) columns[c] = load(keys + d * kTurnedKeys + c * kWidth);
      SPC_UNROLL for (int h = 0; h < H; ++h) {
        const Vector query = broadcast(queries[h][d]);
        SPC_UNROLL for (int c = 0; c < kTurnedVectors; ++c) sums[h][c] = fma(query, columns[c], sums[h][c]);
      }
    }
  }
}

// Products of H queries with `count` turned keys, a multiple of kTurnedKeys, times a scale, into scores.
template <int H>
static __attribute__((noinline)) void multiply_turned(const float* const* queries, const float* keys, int64_t count, int64_t width,
                                                      float by, float* const* scores) {
  const Vector scale = broadcast(by);
  for (int64_t first = 0; first < count; first += kTurnedKeys) {
    Vector parts[4][H][kTurnedVectors];
#pragma GCC unroll 1
    for (int64_t lane = 0; lane < 4; ++lane) {
      Vector sums[H][kTurnedVectors];
      sum_lanes<4, H>(queries, keys + first * width, width, lane, sums);
      SPC_UNROLL for (int h = 0; h < H; ++h)
        SPC_UNROLL for (int c = 0; c < kTurnedVectors; ++c) parts[lane][h][c] = sums[h][c];
    }
    SPC_UNROLL for (int h = 0; h < H; ++h)
      SPC_UNROLL for (int c = 0; c < kTurnedVectors; ++c) {
        const Vector even = add(parts[0][h][c], parts[2][h][c]), odd = add(parts[1][h][c], parts[3][h][c]);
        store(scores[h] + first + c * kWidth, multiply(add(even, odd), scale));
      }
  }
}

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile
