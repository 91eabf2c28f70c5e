// Attention that reads the cache in place.
//
// A query sees a row of keys in the order of the text: those of the committed rows, then those of the in-step rows
// that its bias does not hide. Nothing is computed for what is hidden. So a query's numbers are the same wherever the
// border between committed and in-step rows lies, and wherever its ancestors stand in a tree's window.
#pragma once

#include "attention_rows.h"
#include "attention_sums.h"
#include "attention_turned.h"
#include "functions.h"
#include "kernels.h"
#include "scratch.h"
#include "sums.h"
#include SPECCOMPILE_LANES

namespace speccompile {
namespace SPECCOMPILE_PATH {

// Rows of keys or values that are read together: as floats they fit the processor's nearest cache, where all queries that see
// them find them.
static int64_t rows_together(int64_t width) {
  const int64_t fit = 4096 / width / kTile * kTile;
  return fit < kTile ? kTile : fit < 4 * kTile ? fit : 4 * kTile;
}

// Rows whose scores are kept at a time: with those of all queries they fit the second cache, however long the text is.
constexpr int64_t kScoresTogether = 512;
// Queries whose scores are kept at a time: for all of them a row is read once, and its codes become floats once.
constexpr int64_t kQueriesTogether = 64;

// Rows that are read next. Where many queries see a row, the processor does not foresee them, so rarely is one read: then each query asks
// for some of them while it computes. All at once would wait for each other.
class Next {
 public:
  template <class T>
  Next(const Rows<T>& rows, const Seen& seen, int64_t i, int64_t count, int64_t queries) {
    if (queries < kMany || i >= seen.count()) return;
    const int64_t lines = count * rows.stride() * static_cast<int64_t>(sizeof(T)) / kLine;
    at_ = reinterpret_cast<const char*>(rows.at(seen, i));
    end_ = at_ + lines * kLine;
    step_ = (lines + queries - 1) / queries * kLine;
  }
  // Ask for what falls to so many queries.
  void fetch(int64_t queries) {
    const char* const end = queries * step_ < end_ - at_ ? at_ + queries * step_ : end_;
    for (; at_ < end; at_ += kLine) __builtin_prefetch(at_, 0, 2);
  }

 private:
  static constexpr int64_t kLine = 64, kMany = 8;
  const char *at_ = nullptr, *end_ = nullptr;
  int64_t step_ = 0;
};

// f(rows, first, count, next) for rows [first, last) of what `queries` see, a few at a time: floats, or codes where they lie side by
// side and no more queries than `few` see them.
template <class T, class F>
static void for_rows(const Rows<T>& rows, const Seen& seen, int64_t first, int64_t last, int64_t queries, int64_t few, float* room, F f) {
  const int64_t most = rows_together(rows.width);
  for (int64_t count; first < last; first += count) {
    count = last - first < most ? last - first : most;
    Next next(rows, seen, first + count, most, queries);
    if constexpr (std::is_same_v<T, int8_t>) {
      if (const T* const codes = queries > few ? nullptr : rows.together(seen, first, count)) {
        f(codes, first, count, next);
        continue;
      }
    }
    f(rows.floats(seen, first, count, room), first, count, next);
  }
}

// Queries of one group of heads, in the order of tokens and heads, those of a token beside each other, which see the same
// committed rows. Of each: the scores, then weights, of some rows [per_head], and what the softmax over the rows before has come to: the
// highest score, the lanes of the sum of weights, and, of nibbles, what is added to the sum of weighted values. room: for rows as floats. turned: for keys that are turned.
struct Together {
  const Attention& a;
  const Seen* seen;  // [tokens]
  int64_t tokens, heads, first_query, query_stride, per_head;
  float *weights, *highest, *sums, *offsets, *room, *turned;

  int64_t count() const { return tokens * heads; }
  // Return the start of a query's numbers [.., width].
  template <class X>
  X* at(X* x, int64_t q, int64_t width) const {
    return x + (first_query + q / heads * query_stride + q % heads) * width;
  }
  float* context(int64_t q, int64_t width) const { return at(a.context, q, width); }
};

// Rows [first, last) of what is seen.
struct Part {
  int64_t first, last;

  // Return how many of a query's rows are among them.
  int64_t count(const Seen& seen) const { return (seen.count() < last ? seen.count() : last) - first; }

  // f(first query, queries, what they see, first row, end of rows): the committed rows once for all, those in-step by token.
  template <class F>
  void for_queries(const Together& g, F f) const {
    const int64_t committed = g.seen->committed, behind = first > committed ? first : committed;
    if (first < committed) f(int64_t{0}, g.count(), *g.seen, first, committed < last ? committed : last);
    for (int64_t t = 0; t < g.tokens; ++t)
      if (behind < first + count(g.seen[t])) f(t * g.heads, g.heads, g.seen[t], behind, first + count(g.seen[t]));
  }
};

// Products of the queries [first, end) with rows side by side, turned, times a scale. query, scores: of a query.
template <class E, class Q, class S>
static void multiply_turning(const E* rows, int64_t count, int64_t width, float by, float* turned, int64_t q, int64_t end, Next& next,
                             Q query, S scores) {
  const int64_t whole = count - count % kTurnedKeys;
  turn_keys(rows, whole, width, turned);
  const auto multiply_some = [&](auto some) {
    constexpr int H = decltype(some)::value;
    for (; q + H <= end; q += H) {
      const float* several[H];
      float* into[H];
      for (int h = 0; h < H; ++h) several[h] = query(q + h), into[h] = scores(q + h);
      next.fetch(H);
      multiply_turned<H>(several, turned, whole, width, by, into);
      for (int h = 0; h < H && whole < count; ++h)
        multiply_any<false>(several[h], rows + whole * width, count - whole, width, by, into[h] + whole);
    }
  };
  multiply_some(std::integral_constant<int, kTurnedQueries>());
  if constexpr (kTurnedQueries > 4) multiply_some(std::integral_constant<int, 4>());
  for (; q < end; ++q) {  // too few to keep the multipliers busy
    next.fetch(1);
    multiply_any<false>(query(q), rows, count, width, by, scores(q));
  }
}

template <bool kAdds, class T>
static void multiply(const Together& g, const Part& part, const Rows<T>& keys, int64_t column) {
  const int64_t query_width = attention_query_width(g.a);
  const bool is_whole = keys.width % kTile == 0;
  part.for_queries(g, [&](int64_t first_query, int64_t queries, const Seen& seen, int64_t first, int64_t last) {
    const bool turns = !kAdds && is_whole && queries >= kQueriesThatTurn && rows_together(keys.width) % kTurnedKeys == 0;
    for_rows(keys, seen, first, last, queries, turns ? queries : 1, g.room, [&](const auto* rows, int64_t row, int64_t count, Next& next) {
      const int64_t end = first_query + queries;
      const auto query = [&](int64_t q) { return g.at(g.a.query, q, query_width) + column; };
      const auto scores = [&](int64_t q) { return g.weights + q * g.per_head + row - part.first; };
      if (turns) return multiply_turning(rows, count, keys.width, g.a.scale, g.turned, first_query, end, next, query, scores);
      int64_t q = first_query;
      if constexpr (!kAdds && kMultiplied > 1) {
        for (; is_whole && q + kMultiplied <= end; q += kMultiplied) {
          const float* several[kMultiplied];
          float* into[kMultiplied];
          for (int h = 0; h < kMultiplied; ++h) several[h] = query(q + h), into[h] = scores(q + h);
          next.fetch(kMultiplied);
          const int64_t done = multiply_any_some<kMultiplied>(several, rows, count, keys.width, g.a.scale, into);
          for (int h = 0; h < kMultiplied && done < count; ++h)
            multiply_any<false>(several[h], rows + done * keys.width, count - done, keys.width, g.a.scale, into[h] + done);
        }
      }
      for (; q < end; ++q) {
        next.fetch(1);
        multiply_any<kAdds>(query(q), rows, count, keys.width, g.a.scale, scores(q));
      }
    });
  });
}

// Products become the scores of `count` rows that a query sees, from row `first` on, filled up to whole tiles with what weighs nothing,
// however low the others are.
static void finish_scores(const Attention& a, const Seen& seen, int64_t first, int64_t count, float* scores) {
  const Vector cap = broadcast(a.softcap);
  if (a.softcap > 0.0f) {
    for (int64_t i = 0; i < count; i += kWidth) store(scores + i, multiply(cap, tangent(divide(load(scores + i), cap))));
  }
  for (int64_t i = first < seen.committed ? seen.committed - first : 0; i < count; ++i) scores[i] += seen.bias[first + i - seen.committed];
  for (int64_t i = count; i < tiles(count) * kTile; ++i) scores[i] = -__builtin_inff();
}

static float power(float x) {
  float all[kWidth];
  store(all, exponential(broadcast(x)));
  return all[0];
}

// Scores become e^(score - highest), the highest of these and of what came before, and are added to the sums. Returns what the earlier
// sums are to be multiplied by, those of weights have been. count: a multiple of sixteen.
static float soften(float* scores, int64_t count, float* highest, float* sums) {
  Vector most = load(scores);
  for (int64_t i = kWidth; i < count; i += kWidth) most = largest(most, load(scores + i));
  float all[kWidth];
  store(all, most);
  const float before = *highest;
  for (float each : all) *highest = *highest > each ? *highest : each;
  const float factor = before < *highest ? power(before - *highest) : 1.0f;
  const Vector shift = broadcast(*highest), by = broadcast(factor);
  Lanes sum = lanewise(load_lanes(sums), [&](Vector x) { return multiply(x, by); });
  for (int64_t i = 0; i < count; i += kTile) {
    const Lanes weights = lanewise(load_lanes(scores + i), [&](Vector x) { return exponential(subtract(x, shift)); });
    store_lanes(scores + i, weights);
    sum = lanewise(sum, weights, [](Vector x, Vector y) { return add(x, y); });
  }
  store_lanes(sums, sum);
  return factor;
}

template <class T>
static void mix_all(const Together& g, const Part& part, const Rows<T>& values) {
  const int64_t width = values.width;
  part.for_queries(g, [&](int64_t first_query, int64_t queries, const Seen& seen, int64_t first, int64_t last) {
    for_rows(values, seen, first, last, queries, kMixed, g.room, [&](const auto* rows, int64_t row, int64_t count, Next& next) {
      int64_t q = first_query;
      const auto mix_some = [&](auto some) {
        constexpr int H = decltype(some)::value;
        for (; q + H <= first_query + queries; q += H) {
          const float* weights[H];
          float* contexts[H];
          for (int h = 0; h < H; ++h) {
            weights[h] = g.weights + (q + h) * g.per_head + row - part.first;
            contexts[h] = g.context(q + h, width);
          }
          next.fetch(H);
          mix_queries<H>(rows, count, width, weights, contexts);
        }
      };
      mix_some(std::integral_constant<int, kMixed>());
      mix_some(std::integral_constant<int, 2>());
      mix_some(std::integral_constant<int, 1>());
    });
  });
}

static void multiply_all(float* x, int64_t count, float by) {
  for (int64_t i = 0; i < count; ++i) x[i] *= by;
}

// Add what some rows weigh, and their weighted values, to what the rows before have come to.
template <class K, class T>
static void attend_part(const Together& g, const Part& part, const Rows<K>& keys, const Rows<T>& values, const Rows<K>* tails) {
  multiply<false>(g, part, keys, 0);
  if constexpr (Rows<K>::kAreCodes) {
    for (int64_t q = 0; q < g.count(); ++q) {
      const Seen& seen = g.seen[q / g.heads];
      if (part.count(seen) > 0) keys.scale(seen, part.first, part.count(seen), g.weights + q * g.per_head);
    }
  }
  if (tails) multiply<true>(g, part, *tails, keys.width);
  for (int64_t q = 0; q < g.count(); ++q) {
    const Seen& seen = g.seen[q / g.heads];
    const int64_t count = part.count(seen);
    if (count <= 0) continue;
    float* const weights = g.weights + q * g.per_head;
    finish_scores(g.a, seen, part.first, count, weights);
    const float factor = soften(weights, tiles(count) * kTile, g.highest + q, g.sums + q * kTile);
    if (factor != 1.0f) multiply_all(g.context(q, values.width), values.width, factor);
    if constexpr (Rows<T>::kAreNibbles) g.offsets[q] = g.offsets[q] * factor + values.scale_nibbles(seen, part.first, count, weights);
    else if constexpr (Rows<T>::kAreCodes) values.scale(seen, part.first, count, weights);
  }
  mix_all(g, part, values);
}

// tails: the rest of the keys, or null. sinks: of the heads, or null; a sink is one score more, of no row.
template <class K, class T>
static void attend_rows(const Together& g, const Rows<K>& keys, const Rows<T>& values, const Rows<K>* tails, const float* sinks) {
  int64_t longest = 0;
  for (int64_t t = 0; t < g.tokens; ++t) longest = g.seen[t].count() > longest ? g.seen[t].count() : longest;
  for (int64_t q = 0; q < g.count(); ++q) {
    g.highest[q] = sinks ? sinks[q % g.heads] : -__builtin_inff();
    g.offsets[q] = 0.0f;
    store_lanes(g.sums + q * kTile, no_lanes());
    std::memset(g.context(q, values.width), 0, static_cast<size_t>(values.width) * sizeof(float));
  }
  for (int64_t first = 0; first < longest; first += kScoresTogether) attend_part(g, Part{first, first + kScoresTogether}, keys, values, tails);
  for (int64_t q = 0; q < g.count(); ++q) {
    if (g.seen[q / g.heads].count() == 0) continue;
    float* const context = g.context(q, values.width);
    const float sink = sinks ? power(sinks[q % g.heads] - g.highest[q]) : 0.0f;
    const float factor = 1.0f / (sum_of(load_lanes(g.sums + q * kTile)) + sink);
    for (int64_t i = 0; i < values.width; ++i) context[i] = (Rows<T>::kAreNibbles ? context[i] + g.offsets[q] : context[i]) * factor;
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
  const int64_t shared = a.heads / a.groups, together = attention_tokens(a), blocks = (a.tokens + together - 1) / together;
  const int64_t fit = kQueriesTogether / shared, of_block = a.tokens < together ? a.tokens : together;
  const int64_t most = fit > of_block ? of_block : fit > 1 ? fit : 1, queries = most * shared;
  int64_t longest = 0;
  for (int64_t b = 0; b < a.batch; ++b) longest = a.length[b] > longest ? a.length[b] : longest;
  longest = (longest < a.capacity ? longest : a.capacity) + a.rows;
  const int64_t per_head = tiles(longest < kScoresTogether ? longest : kScoresTogether) * kTile;
  Nearby nearby;
  const Scratch<int64_t> rows(together * a.rows, &nearby);
  const Scratch<float> bias(together * a.rows, &nearby), states((2 + kTile) * queries, &nearby);
  const int64_t widest = a.key_width > a.value_width ? a.key_width : a.value_width, narrowest = a.key_width + a.value_width - widest;
  const Scratch<float> room(rows_together(narrowest) * widest, &nearby);
  const Scratch<float> weights(queries * per_head, &nearby), turned(queries < kQueriesThatTurn ? 0 : rows_together(a.key_width) * a.key_width, &nearby);
  if (!rows.data || !bias.data || !states.data || !weights.data || !room.data || !turned.data) return false;
  float *const sums = states.data, *const highest = sums + kTile * queries, *const offsets = highest + queries;
  for (int64_t unit = first; unit < last; ++unit) {
    const int64_t group = unit % a.groups, block = unit / a.groups % blocks, b = unit / a.groups / blocks;
    const int64_t token = block * together, count = a.tokens - token < together ? a.tokens - token : together;
    Seen seen[kTokensTogether];
    for (int64_t t = 0; t < count; ++t) {
      seen[t].rows = rows.data + t * a.rows;
      seen[t].bias = bias.data + t * a.rows;
      look(a, b, token + t, seen[t]);
    }
    for (int64_t t = 0, some; t < count; t += some) {
      some = see_the_same(seen + t, count - t < most ? count - t : most);
      const int64_t query = (b * a.tokens + token + t) * a.heads + group * shared;
      attend_group({a, seen + t, some, shared, query, a.heads, per_head, weights.data, highest, sums, offsets, room.data, turned.data}, b, group);
    }
  }
  return true;
}

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile
