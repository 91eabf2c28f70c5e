// Attention that reads the cache in place.
//
// A query sees a row of keys in the order of the text: those of the committed rows, then those of the in-step rows
// that its bias does not hide. Nothing is computed for what is hidden. So a query's numbers are the same wherever the
// border between committed and in-step rows lies, and wherever its ancestors stand in a tree's window.
#pragma once

#include "attention_rows.h"
#include "functions.h"
#include "groups.h"
#include "kernels.h"
#include "scratch.h"
#include "sums.h"
#include SPECCOMPILE_LANES

namespace speccompile {
namespace SPECCOMPILE_PATH {

// Rows of keys or values that are read together: as floats they fit the processor's nearest cache, where all queries that see
// them find them.
constexpr int64_t kRowsTogether = 32;
// Queries whose weights are kept at a time.
constexpr int64_t kQueriesTogether = 16;
// Queries that a value is read for at a time.
constexpr int kMixed = 4;

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

template <bool kAdds, class E>
static void multiply_any(const float* query, const E* keys, int64_t count, int64_t width, float by, float* scores) {
  switch (width) {
    case 64:
      return multiply_keys<4, kAdds>(query, keys, count, width, by, scores);
    case 128:
      return multiply_keys<8, kAdds>(query, keys, count, width, by, scores);
    default:
      return multiply_keys<0, kAdds>(query, keys, count, width, by, scores);
  }
}

// f(rows, first, count) for rows [first, last) of what is seen, a few at a time: floats, or codes where they are read once and
// lie side by side.
template <class T, class F>
static void for_rows(const Rows<T>& rows, const Seen& seen, int64_t first, int64_t last, bool is_shared, float* room, F f) {
  for (int64_t count; first < last; first += count) {
    count = last - first < kRowsTogether ? last - first : kRowsTogether;
    if constexpr (std::is_same_v<T, int8_t>) {
      if (const T* const codes = is_shared ? nullptr : rows.together(seen, first, count)) {
        f(codes, first, count);
        continue;
      }
    }
    f(rows.floats(seen, first, count, room), first, count);
  }
}

// Queries of one group of heads, in the order of tokens and heads, those of a token beside each other, which see the same
// committed rows. Weights [tokens * heads, per_head]; factors and offsets [tokens * heads]: what the sums over weighted values are
// multiplied by, and, of nibbles, what is added to them before. room: for rows as floats.
struct Together {
  const Attention& a;
  const Seen* seen;  // [tokens]
  int64_t tokens, heads, first_query, query_stride, per_head;
  float *weights, *factors, *offsets, *room;

  int64_t count() const { return tokens * heads; }
  // Return the start of a query's numbers [.., width].
  template <class X>
  X* at(X* x, int64_t q, int64_t width) const {
    return x + (first_query + q / heads * query_stride + q % heads) * width;
  }

  // f(first query, queries, what they see, first row, end of rows): the committed rows once for all, those in-step by token.
  template <class F>
  void for_parts(F f) const {
    if (seen->committed > 0) f(int64_t{0}, count(), *seen, int64_t{0}, seen->committed);
    for (int64_t t = 0; t < tokens; ++t)
      if (seen[t].in_step > 0) f(t * heads, heads, seen[t], seen[t].committed, seen[t].count());
  }
};

template <bool kAdds, class T>
static void multiply(const Together& g, const Rows<T>& keys, int64_t column) {
  const int64_t query_width = attention_query_width(g.a);
  g.for_parts([&](int64_t first_query, int64_t queries, const Seen& seen, int64_t first, int64_t last) {
    for_rows(keys, seen, first, last, queries > 1, g.room, [&](const auto* rows, int64_t row, int64_t count) {
      for (int64_t q = first_query; q < first_query + queries; ++q)
        multiply_any<kAdds>(g.at(g.a.query, q, query_width) + column, rows, count, keys.width, g.a.scale, g.weights + q * g.per_head + row);
    });
  });
}

// Products become the scores of what a query sees, filled up to whole tiles with what weighs nothing, however low the others are.
static void finish_scores(const Attention& a, const Seen& seen, float* scores) {
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

template <class T>
static void mix_all(const Together& g, const Rows<T>& values) {
  const int64_t width = values.width;
  g.for_parts([&](int64_t first_query, int64_t queries, const Seen& seen, int64_t first, int64_t last) {
    for_rows(values, seen, first, last, queries > kMixed, g.room, [&](const auto* rows, int64_t row, int64_t count) {
      int64_t q = first_query;
      const auto mix_some = [&](auto some) {
        constexpr int H = decltype(some)::value;
        for (; q + H <= first_query + queries; q += H) {
          const float* weights[H];
          float* contexts[H];
          for (int h = 0; h < H; ++h) {
            weights[h] = g.weights + (q + h) * g.per_head + row;
            contexts[h] = g.at(g.a.context, q + h, width);
          }
          mix_queries<H>(rows, count, width, weights, contexts);
        }
      };
      mix_some(std::integral_constant<int, kMixed>());
      mix_some(std::integral_constant<int, 2>());
      mix_some(std::integral_constant<int, 1>());
    });
  });
}

// tails: the rest of the keys, or null. sinks: of the heads, or null.
template <class K, class T>
static void attend_rows(const Together& g, const Rows<K>& keys, const Rows<T>& values, const Rows<K>* tails, const float* sinks) {
  multiply<false>(g, keys, 0);
  if constexpr (Rows<K>::kAreCodes)
    for (int64_t q = 0; q < g.count(); ++q) keys.scale(g.seen[q / g.heads], g.weights + q * g.per_head);
  if (tails) multiply<true>(g, *tails, keys.width);
  for (int64_t q = 0; q < g.count(); ++q) {
    const Seen& seen = g.seen[q / g.heads];
    float *const weights = g.weights + q * g.per_head, *const context = g.at(g.a.context, q, values.width);
    for (int64_t i = 0; i < values.width; ++i) context[i] = 0.0f;
    if (seen.count() == 0) continue;
    finish_scores(g.a, seen, weights);
    g.factors[q] = soften(weights, tiles(seen.count()) * kTile, sinks ? sinks + q % g.heads : nullptr);
    if constexpr (Rows<T>::kAreNibbles) g.offsets[q] = values.scale_nibbles(seen, weights);
    else if constexpr (Rows<T>::kAreCodes) values.scale(seen, weights);
  }
  mix_all(g, values);
  for (int64_t q = 0; q < g.count(); ++q) {
    float* const context = g.at(g.a.context, q, values.width);
    const float offset = Rows<T>::kAreNibbles ? g.offsets[q] : 0.0f;
    if (g.seen[q / g.heads].count() == 0) continue;
    for (int64_t i = 0; i < values.width; ++i) context[i] = (Rows<T>::kAreNibbles ? context[i] + offset : context[i]) * g.factors[q];
  }
}

static void attend_group(const Together& g, int64_t b, int64_t group) {
  const Attention& a = g.a;
  const int64_t first = b * a.groups + group, cached = first * a.capacity, rows = first * a.rows;
  const float* const sinks = a.sinks ? a.sinks + group * g.heads : nullptr;
  if (const Codes* c = a.codes) {
    const Rows<int8_t> keys{c->key_cache + cached * a.key_width, c->key_rows + rows * a.key_width, a.key_width,
                            c->key_scales + cached, c->key_row_scales + rows};
    const Rows<int8_t>* const none = nullptr;
    if (c->has_nibbles) {
      const auto pairs = [&](const int8_t* codes, int64_t row) { return reinterpret_cast<const Nibbles*>(codes) + row * a.value_width / 2; };
      const Rows<Nibbles> values{pairs(c->value_cache, cached), pairs(c->value_rows, rows), a.value_width,
                                 c->value_scales + 2 * cached, c->value_row_scales + 2 * rows};
      return attend_rows(g, keys, values, none, sinks);
    }
    const Rows<int8_t> values{c->value_cache + cached * a.value_width, c->value_rows + rows * a.value_width, a.value_width,
                              c->value_scales + cached, c->value_row_scales + rows};
    return attend_rows(g, keys, values, none, sinks);
  }
  const Rows<float> keys{a.key_cache + cached * a.key_width, a.key_rows + rows * a.key_width, a.key_width, nullptr, nullptr};
  const Rows<float> values{a.value_cache + cached * a.value_width, a.value_rows + rows * a.value_width, a.value_width, nullptr,
                           nullptr};
  attend_rows(g, keys, a.is_latent ? keys : values, a.is_latent ? &values : nullptr, sinks);
}

// Tokens of a row of the batch from the first on, at most `most`, that see as many committed rows: the same ones.
static int64_t see_the_same(const Seen* seen, int64_t most) {
  int64_t count = 1;
  while (count < most && seen[count].committed == seen->committed) ++count;
  return count;
}

static bool attend(const Attention& a, int64_t first, int64_t last) {
  const int64_t shared = a.heads / a.groups, apart = attention_groups(a), together = a.groups / apart;
  const int64_t blocks = (a.tokens + kTokensTogether - 1) / kTokensTogether, fit = kQueriesTogether / shared;
  const int64_t of_block = a.tokens < kTokensTogether ? a.tokens : kTokensTogether, most = fit > of_block ? of_block : fit > 1 ? fit : 1;
  int64_t longest = 0;
  for (int64_t b = 0; b < a.batch; ++b) longest = a.length[b] > longest ? a.length[b] : longest;
  longest = longest < a.capacity ? longest : a.capacity;
  const int64_t per_head = tiles(longest + a.rows) * kTile;
  Nearby nearby;
  const Scratch<int64_t> rows(kTokensTogether * a.rows, &nearby);
  const Scratch<float> bias(kTokensTogether * a.rows, &nearby), factors(2 * most * shared, &nearby);
  const Scratch<float> room(kRowsTogether * (a.key_width > a.value_width ? a.key_width : a.value_width), &nearby);
  const Scratch<float> weights(most * shared * per_head, &nearby);
  if (!rows.data || !bias.data || !factors.data || !weights.data || !room.data) return false;
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
    for (int64_t t = 0, some; t < count; t += some) {
      some = see_the_same(seen + t, count - t < most ? count - t : most);
      for (int64_t g = group * together; g < (group + 1) * together; ++g) {
        const int64_t query = (b * a.tokens + token + t) * a.heads + g * shared;
        attend_group({a, seen + t, some, shared, query, a.heads, per_head, weights.data, factors.data, factors.data + most * shared, room.data}, b, g);
      }
    }
  }
  return true;
}

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile
