// Attention that reads the cache in place.
//
// What a query sees is a row of keys in the order of the text: those of the committed rows, then those of the in-step rows
// that its bias does not hide. Nothing is computed for what is hidden. So a query's numbers are the same wherever the
// border between committed and in-step rows lies, and wherever its ancestors stand in a tree's window.
#pragma once

#include <type_traits>

#include "functions.h"
#include "kernels.h"
#include "scratch.h"
#include "sums.h"
#include SPECCOMPILE_LANES

namespace speccompile {
namespace SPECCOMPILE_PATH {

// What a query sees: `committed` rows of the cache, the first `turn` of them from row `begin` on, the others, of a ring, from
// row 0 on; then `in_step` rows, whose numbers and biases stand in order.
struct Seen {
  int64_t begin, turn, committed, in_step;
  int64_t* rows;
  float* bias;

  int64_t count() const { return committed + in_step; }
};

// The keys, or the values, of a group of heads: floats, or int8 codes that a scale of their row multiplies, or nibbles.
template <class T>
struct Rows {
  static constexpr bool kAreCodes = sizeof(T) == 1, kAreNibbles = std::is_same_v<T, Nibbles>;
  static constexpr int64_t kPacked = kAreNibbles ? 2 : 1;  // columns of a T
  const T *cache, *in_step;
  int64_t width;
  const float *scales, *in_step_scales;  // of codes

  const T* at(const Seen& seen, int64_t i) const {
    const int64_t stride = width / kPacked;
    if (i < seen.turn) return cache + (seen.begin + i) * stride;
    return i < seen.committed ? cache + (i - seen.turn) * stride : in_step + seen.rows[i - seen.committed] * stride;
  }

  // Where the kWidth rows from the i-th on begin, if they lie side by side in the cache; else null.
  const T* together(const Seen& seen, int64_t i) const {
    if (i + kWidth <= seen.turn) return cache + (seen.begin + i) * width;
    return i >= seen.turn && i + kWidth <= seen.committed ? cache + (i - seen.turn) * width : nullptr;
  }

  // x [what is seen] times the rows' scales.
  void scale(const Seen& seen, float* x) const {
    scale_each(x, scales + seen.begin, seen.turn);
    scale_each(x + seen.turn, scales, seen.committed - seen.turn);
    for (int64_t i = 0; i < seen.in_step; ++i) x[seen.committed + i] *= in_step_scales[seen.rows[i]];
  }

  // The same of nibbles, whose rows have a scale and what a code of 0 stands for. Returns the sum of x times the latter: lane by
  // lane, then over the lanes in order.
  float scale_nibbles(const Seen& seen, float* x) const {
    float sums[kTile] = {};
    const auto part = [&](const float* by, int64_t first, int64_t count) {
      for (int64_t i = first; i < first + count; ++i, by += 2) {
        sums[i % kTile] += x[i] * by[1];
        x[i] *= by[0];
      }
    };
    part(scales + 2 * seen.begin, 0, seen.turn);
    part(scales, seen.turn, seen.committed - seen.turn);
    for (int64_t i = 0; i < seen.in_step; ++i) part(in_step_scales + 2 * seen.rows[i], seen.committed + i, 1);
    float sum = 0.0f;
    for (const float each : sums) sum += each;
    return sum;
  }

  static void scale_each(float* x, const float* by, int64_t count) {
    const int64_t whole = count - count % kWidth;
    for (int64_t i = 0; i < whole; i += kWidth) store(x + i, multiply(load(x + i), load(by + i)));
    for (int64_t i = whole; i < count; ++i) x[i] *= by[i];
  }
};

static void look(const Attention& a, int64_t b, int64_t token, Seen& seen) {
  const int64_t position = a.positions[b * a.tokens + token], end = a.length[b];
  const int64_t oldest = a.is_ring && end > a.capacity ? end - a.capacity : 0;
  int64_t first = a.window > 0 && position >= a.window ? position - a.window + 1 : 0;
  first = first < oldest ? oldest : first < end ? first : end;
  seen.committed = end - first;
  seen.begin = a.is_ring ? first % a.capacity : first;
  seen.turn = a.is_ring && seen.committed > a.capacity - seen.begin ? a.capacity - seen.begin : seen.committed;
  seen.in_step = 0;
  const float* bias = a.bias + (b * a.tokens + token) * a.rows;
  for (int64_t row = 0; row < a.rows; ++row) {
    if (bias[row] <= kHidden / 2) continue;
    seen.rows[seen.in_step] = row;
    seen.bias[seen.in_step++] = bias[row];
  }
}

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

// Scaled products of a query with what it sees, into scores or, where kAdds, added to them.
template <int kTiles, bool kAdds, class T>
static __attribute__((noinline)) void multiply_keys(const Attention& a, const float* query, const Rows<T>& keys, const Seen& seen,
                                                    float* scores) {
  const Vector scale = broadcast(a.scale);
  const int64_t count = seen.count(), width = kTiles ? kTiles * kTile : keys.width;
  const auto put = [&](int64_t first, Vector scaled) { store(scores + first, kAdds ? add(load(scores + first), scaled) : scaled); };
  for (int64_t first = 0; first < count; first += kWidth) {
    if (const T* const cached = keys.together(seen, first)) {
      put(first, multiply(products<kTiles>(query, width, [&](int i) { return cached + i * width; }), scale));
    } else {
      const auto key = [&](int i) { return keys.at(seen, first + i < count ? first + i : first); };
      put(first, multiply(products<kTiles>(query, width, key), scale));
    }
  }
}

template <bool kAdds, class T>
static void multiply_any(const Attention& a, const float* query, const Rows<T>& keys, const Seen& seen, float* scores) {
  switch (keys.width) {
    case 64:
      return multiply_keys<4, kAdds>(a, query, keys, seen, scores);
    case 128:
      return multiply_keys<8, kAdds>(a, query, keys, seen, scores);
    default:
      return multiply_keys<0, kAdds>(a, query, keys, seen, scores);
  }
}

// Scores of what a query sees, filled up to whole tiles with what weighs nothing, however low the others are. tails: the
// rest of the keys, or null.
template <class T>
static void score(const Attention& a, const float* query, const Rows<T>& keys, const Rows<T>* tails, const Seen& seen, float* scores) {
  multiply_any<false>(a, query, keys, seen, scores);
  if constexpr (Rows<T>::kAreCodes) keys.scale(seen, scores);
  if (tails) multiply_any<true>(a, query + keys.width, *tails, seen, scores);
  const Vector cap = broadcast(a.softcap);
  const int64_t count = seen.count();
  if (a.softcap > 0.0f) {
    for (int64_t i = 0; i < count; i += kWidth) store(scores + i, multiply(cap, tangent(divide(load(scores + i), cap))));
  }
  for (int64_t i = 0; i < seen.in_step; ++i) scores[seen.committed + i] += seen.bias[i];
  for (int64_t i = count; i < tiles(count) * kTile; ++i) scores[i] = -__builtin_inff();
}

// Scores become e^(score - largest). Returns one over their sum; the sink, or null, is one score more, of no row. count: a
// multiple of sixteen.
static float soften(float* scores, int64_t count, const float* sink) {
  Vector most = load(scores);
  for (int64_t i = kWidth; i < count; i += kWidth) most = largest(most, load(scores + i));
  float all[kWidth];
  store(all, most);
  float top = sink ? *sink : all[0];
  for (float each : all) top = top > each ? top : each;
  const Vector shift = broadcast(top);
  Lanes sum = no_lanes();
  for (int64_t i = 0; i < count; i += kTile) {
    const Lanes weights = lanewise(load_lanes(scores + i), [&](Vector x) { return exponential(subtract(x, shift)); });
    store_lanes(scores + i, weights);
    sum = lanewise(sum, weights, [](Vector x, Vector y) { return add(x, y); });
  }
  if (!sink) return 1.0f / sum_of(sum);
  store(all, exponential(subtract(broadcast(*sink), shift)));
  return 1.0f / (sum_of(sum) + all[0]);
}

// The weights [heads, per_head] of what is seen, what the sums over them are multiplied by, and, of nibbles, what is added to them
// before.
struct Weights {
  const float *weights, *factors, *offsets;
  int64_t per_head;

  template <class T>
  Vector finish(Vector sum, int h) const {
    if constexpr (Rows<T>::kAreNibbles) sum = add(sum, broadcast(offsets[h]));
    return multiply(sum, broadcast(factors[h]));
  }
};

// C vectors of the contexts of H heads, from a column on: values, weighted.
template <int H, int C, class T>
static void mix(const Rows<T>& values, const Seen& seen, const Weights& by, int64_t column, float* context) {
  Vector sums[H][C];
  SPC_UNROLL for (int h = 0; h < H; ++h)
    SPC_UNROLL for (int c = 0; c < C; ++c) sums[h][c] = zero();
  const int64_t count = seen.count();
  for (int64_t i = 0; i < count; ++i) {
    const T* value = values.at(seen, i) + column / Rows<T>::kPacked;
    Vector columns[C];
    SPC_UNROLL for (int c = 0; c < C; ++c) columns[c] = load(value + c * kWidth / Rows<T>::kPacked);
    SPC_UNROLL for (int h = 0; h < H; ++h) {
      const Vector weight = broadcast(by.weights[h * by.per_head + i]);
      SPC_UNROLL for (int c = 0; c < C; ++c) sums[h][c] = fma(weight, columns[c], sums[h][c]);
    }
  }
  SPC_UNROLL for (int h = 0; h < H; ++h)
    SPC_UNROLL for (int c = 0; c < C; ++c)
      store(context + h * values.width + column + c * kWidth, by.template finish<T>(sums[h][c], h));
}

// The columns behind the last whole vector, of one head.
template <class T>
static void mix_rest(const Rows<T>& values, const Seen& seen, const Weights& by, int64_t column, float* context) {
  const int left = static_cast<int>(values.width - column);
  const int64_t count = seen.count();
  Vector sum = zero();
  for (int64_t i = 0; i < count; ++i)
    sum = fma(broadcast(by.weights[i]), load_some(values.at(seen, i) + column / Rows<T>::kPacked, left), sum);
  store_some(context + column, by.template finish<T>(sum, 0), left);
}

template <int H, class T>
static void mix_heads(const Rows<T>& values, const Seen& seen, const Weights& by, float* context) {
  int64_t column = 0;
  for (; column + 4 * kWidth <= values.width; column += 4 * kWidth) mix<H, 4>(values, seen, by, column, context);
  for (; column + kWidth <= values.width; column += kWidth) mix<H, 1>(values, seen, by, column, context);
  for (int h = 0; column < values.width && h < H; ++h) {
    const Weights own{by.weights + h * by.per_head, by.factors + h, by.offsets + h, by.per_head};
    mix_rest(values, seen, own, column, context + h * values.width);
  }
}

// All query heads of a group, for one token. weights: room for [heads of the group, what is seen, filled up]; factors: for two
// numbers a head. tails: the rest of the keys, or null.
template <class K, class T>
static void attend_rows(const Attention& a, int64_t b, int64_t token, int64_t group, const Rows<K>& keys, const Rows<T>& values,
                        const Rows<K>* tails, const Seen& seen, float* weights, float* factors) {
  const int64_t shared = a.heads / a.groups;
  float* const offsets = factors + shared;
  const int64_t head = (b * a.tokens + token) * a.heads + group * shared, query_width = attention_query_width(a);
  float* context = a.context + head * values.width;
  if (seen.count() == 0) {
    for (int64_t i = 0; i < shared * values.width; ++i) context[i] = 0.0f;
    return;
  }
  const int64_t per_head = tiles(seen.count()) * kTile;
  for (int64_t h = 0; h < shared; ++h) {
    score(a, a.query + (head + h) * query_width, keys, tails, seen, weights + h * per_head);
    factors[h] = soften(weights + h * per_head, per_head, a.sinks ? a.sinks + group * shared + h : nullptr);
    if constexpr (Rows<T>::kAreNibbles) offsets[h] = values.scale_nibbles(seen, weights + h * per_head);
    else if constexpr (Rows<T>::kAreCodes) values.scale(seen, weights + h * per_head);
  }
  int64_t h = 0;
  for (; h + 2 <= shared; h += 2)
    mix_heads<2>(values, seen, {weights + h * per_head, factors + h, offsets + h, per_head}, context + h * values.width);
  if (h < shared)
    mix_heads<1>(values, seen, {weights + h * per_head, factors + h, offsets + h, per_head}, context + h * values.width);
}

static void attend_group(const Attention& a, int64_t b, int64_t token, int64_t group, const Seen& seen, float* weights,
                         float* factors) {
  const int64_t first = b * a.groups + group, cached = first * a.capacity, rows = first * a.rows;
  if (const Codes* c = a.codes) {
    const Rows<int8_t> keys{c->key_cache + cached * a.key_width, c->key_rows + rows * a.key_width, a.key_width,
                            c->key_scales + cached, c->key_row_scales + rows};
    if (c->has_nibbles) {
      const auto pairs = [&](const int8_t* codes, int64_t row) { return reinterpret_cast<const Nibbles*>(codes) + row * a.value_width / 2; };
      const Rows<Nibbles> values{pairs(c->value_cache, cached), pairs(c->value_rows, rows), a.value_width,
                                 c->value_scales + 2 * cached, c->value_row_scales + 2 * rows};
      return attend_rows(a, b, token, group, keys, values, static_cast<const Rows<int8_t>*>(nullptr), seen, weights, factors);
    }
    const Rows<int8_t> values{c->value_cache + cached * a.value_width, c->value_rows + rows * a.value_width, a.value_width,
                              c->value_scales + cached, c->value_row_scales + rows};
    return attend_rows(a, b, token, group, keys, values, static_cast<const Rows<int8_t>*>(nullptr), seen, weights, factors);
  }
  const Rows<float> keys{a.key_cache + cached * a.key_width, a.key_rows + rows * a.key_width, a.key_width, nullptr, nullptr};
  const Rows<float> values{a.value_cache + cached * a.value_width, a.value_rows + rows * a.value_width, a.value_width, nullptr,
                           nullptr};
  attend_rows(a, b, token, group, keys, a.is_latent ? keys : values, a.is_latent ? &values : nullptr, seen, weights, factors);
}

static bool attend(const Attention& a, int64_t first, int64_t last) {
  const int64_t shared = a.heads / a.groups, apart = attention_groups(a), together = a.groups / apart;
  const int64_t blocks = (a.tokens + kTokensTogether - 1) / kTokensTogether;
  int64_t longest = 0;
  for (int64_t b = 0; b < a.batch; ++b) longest = a.length[b] > longest ? a.length[b] : longest;
  longest = longest < a.capacity ? longest : a.capacity;
  const Scratch<int64_t> rows(kTokensTogether * a.rows);
  const Scratch<float> bias(kTokensTogether * a.rows), factors(2 * shared);
  const Scratch<float> weights(shared * tiles(longest + a.rows) * kTile);
  if (!rows.data || !bias.data || !factors.data || !weights.data) return false;
  for (int64_t unit = first; unit < last; ++unit) {
    const int64_t group = unit % apart, block = unit / apart % blocks, b = unit / apart / blocks;
    const int64_t token = block * kTokensTogether;
    const int64_t count = a.tokens - token < kTokensTogether ? a.tokens - token : kTokensTogether;
    Seen seen[kTokensTogether];
    for (int64_t t = 0; t < count; ++t) {
      seen[t].rows = rows.data + t * a.rows;
      seen[t].bias = bias.data + t * a.rows;
      look(a, b, token + t, seen[t]);
    }
    for (int64_t g = group * together; g < (group + 1) * together; ++g)
      for (int64_t t = 0; t < count; ++t) attend_group(a, b, token + t, g, seen[t], weights.data, factors.data);
  }
  return true;
}

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile
