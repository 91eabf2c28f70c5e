// States that are carried from token to token: convolutions and linear recurrences.
//
// A token's numbers depend on those before it alone, and are made by the same operations wherever a window begins. So they
// are the same for any window, and what the state becomes in one go is what it becomes token by token.
#pragma once

#include <cstring>

#include "functions.h"
#include "kernels.h"
#include "scratch.h"
#include "sums.h"
#include SPECCOMPILE_LANES

namespace speccompile {
namespace SPECCOMPILE_PATH {

static void convolve(const Convolution& c, int64_t first, int64_t last) {
  const int64_t kept = c.depth - 1;
  for (int64_t place = first; place < last; ++place) {
    const int64_t b = place / c.tokens, token = place % c.tokens;
    const float *state = c.state + b * kept * c.channels, *rows = c.rows + b * c.tokens * c.channels;
    for (int64_t i = 0; i < c.channels; i += kTile) {
      const int64_t count = c.channels - i;
      Lanes sum = no_lanes();
      for (int64_t k = 0; k < c.depth; ++k) {
        const int64_t from = token + k;
        const float* row = from < kept ? state + from * c.channels : rows + (from - kept) * c.channels;
        add_product(sum, load_lanes(row + i, count), load_lanes(c.weight + k * c.channels + i, count));
      }
      sum = lanewise(sum, load_lanes(c.bias + i, count), [](Vector v, Vector w) { return add(v, w); });
      if (c.is_silu) sum = lanewise(sum, [](Vector v) { return silu(v); });
      store_lanes(c.y + place * c.channels + i, sum, count);
    }
  }
}

// One head of a row of the batch: its rows [T, ..], its state, and where its results go.
struct Head {
  const float *query, *key, *value, *gates, *beta, *state;  // gates: e^decay; query, beta: or null; state: or null for zeros
  float *context, *updated;                                 // or null
  int64_t tokens, key_width, value_width, decay_width;

  const float* key_of(int64_t token) const { return key + token * key_width; }
  const float* query_of(int64_t token) const { return query + token * key_width; }
  const float* gates_of(int64_t token) const { return gates + token * decay_width; }
};

constexpr int kChains = 4;  // partial sums over the channels of a key: channel i goes into sum i % 4

// A sum over the channels of a key, for each of C vectors of columns.
template <int C>
struct ChannelSum {
  Vector chain[kChains][C];

  ChannelSum() {
    for (auto& sums : chain)
      for (Vector& sum : sums) sum = zero();
  }
  Vector total(int c) const { return join(join(chain[0][c], chain[1][c]), join(chain[2][c], chain[3][c])); }

 private:
  static Vector join(Vector a, Vector b) { return add(a, b); }
};

// f(channel, its chain) for all channels of a key.
template <class F>
SPC_INLINE void for_channels(int64_t width, F f) {
  int64_t i = 0;
  for (; i + kChains <= width; i += kChains) {
#pragma GCC unroll 4
    for (int k = 0; k < kChains; ++k) f(i + k, k);
  }
  for (; i < width; ++i) f(i, static_cast<int>(i % kChains));
}

// Columns of a head's state, which depend on no others: C vectors of them or, where kPart, the first `left` of one.
template <int C, bool kPart>
struct Block {
  const Head& h;
  int64_t column;
  int left;

  Vector get(const float* p, int c) const { return kPart ? load_some(p, left) : load(p + c * kWidth); }
  void put(float* p, int c, Vector x) const { kPart ? store_some(p, x, left) : store(p + c * kWidth, x); }

  // The rows of a state at `p`, of which one begins every `stride` numbers.
  struct Rows {
    float* p;
    int64_t stride;
  };

  // One token: reads the state in `from`, leaves it in `to`, which may be the same.
  template <bool kDelta>
  void take(int64_t token, Rows from, Rows to) const {
    const float *key = h.key_of(token), *gates = h.gates_of(token), *query = h.query ? h.query_of(token) : key;
    const int64_t every = h.decay_width > 1;
    Vector update[C];
    SPC_UNROLL for (int c = 0; c < C; ++c) update[c] = get(h.value + token * h.value_width + column, c);
    if (kDelta) {
      ChannelSum<C> recalled;
      for_channels(h.key_width, [&](int64_t i, int k) {
        const Vector gate = broadcast(gates[i * every]), own = broadcast(key[i]);
        SPC_UNROLL for (int c = 0; c < C; ++c) {
          const Vector decayed = multiply(get(from.p + i * from.stride, c), gate);
          put(to.p + i * to.stride, c, decayed);
          recalled.chain[k][c] = fma(own, decayed, recalled.chain[k][c]);
        }
      });
      SPC_UNROLL for (int c = 0; c < C; ++c) update[c] = multiply(subtract(update[c], recalled.total(c)), broadcast(h.beta[token]));
    }
    ChannelSum<C> read;
    for_channels(h.key_width, [&](int64_t i, int k) {
      const Vector gate = broadcast(gates[i * every]), own = broadcast(key[i]), asks = broadcast(query[i]);
      SPC_UNROLL for (int c = 0; c < C; ++c) {
        const Vector before = kDelta ? get(to.p + i * to.stride, c) : multiply(get(from.p + i * from.stride, c), gate);
        const Vector after = fma(own, update[c], before);
        put(to.p + i * to.stride, c, after);
        read.chain[k][c] = fma(asks, after, read.chain[k][c]);
      }
    });
    for (int c = 0; h.context && c < C; ++c) put(h.context + token * h.value_width + column, c, read.total(c));
  }

  // All tokens of the head; `room` for the columns of a state.
  void run(float* room) const {
    const Rows own{room, C * kWidth};
    // A state that is not written to is only read: the first token goes from there into `room`.
    Rows from{const_cast<float*>(h.state) + column, h.value_width};
    if (!h.state) {
      std::memset(room, 0, static_cast<size_t>(h.key_width * own.stride) * sizeof *room);
      from = own;
    }
    for (int64_t token = 0; token < h.tokens; ++token) {
      const bool leaves = h.updated && token + 1 == h.tokens;
      const Rows to = leaves ? Rows{h.updated + column, h.value_width} : own;
      h.beta ? take<true>(token, from, to) : take<false>(token, from, to);
      from = to;
    }
  }
};

// A state of one column: its channels lie side by side. The sums over them have sixteen lanes.
static void recur_column(const Head& h, float* room) {
  const int64_t width = h.key_width, filled = tiles(width) * kTile;
  const auto lanes = [width](const float* p, int64_t i) { return load_lanes(p + i, width - i); };
  for (int64_t i = 0; i < filled; i += kTile) store_lanes(room + i, h.state ? lanes(h.state, i) : no_lanes());
  for (int64_t token = 0; token < h.tokens; ++token) {
    const float *key = h.key_of(token), *gates = h.gates_of(token);
    Lanes recalled = no_lanes(), read = no_lanes();
    for (int64_t i = 0; i < width; i += kTile) {
      const auto times = [](Vector x, Vector y) { return multiply(x, y); };
      const Lanes factors = h.decay_width > 1 ? lanes(gates, i) : lanewise(no_lanes(), [&](Vector) { return broadcast(*gates); });
      const Lanes decayed = lanewise(load_lanes(room + i), factors, times);
      store_lanes(room + i, decayed);
      add_product(recalled, lanes(key, i), decayed);
    }
    const float value = h.value[token], update = h.beta ? (value - sum_of(recalled)) * h.beta[token] : value;
    for (int64_t i = 0; i < width; i += kTile) {
      Lanes after = load_lanes(room + i);
      add_product(after, lanes(key, i), lanewise(after, [&](Vector) { return broadcast(update); }));
      store_lanes(room + i, after);
      if (h.query) add_product(read, lanes(h.query_of(token), i), after);
    }
    if (h.context) h.context[token] = sum_of(read);
  }
  if (h.updated) std::memcpy(h.updated, room, static_cast<size_t>(width) * sizeof *room);
}

constexpr int kTogether = kWidth == 16 ? 2 : kWidth == 8 ? 1 : 4;  // vectors of columns: four sums of each in registers

static void recur_head(const Head& h, float* room) {
  if (h.value_width == 1) return recur_column(h, room);
  int64_t column = 0;
  for (; column + kTogether * kWidth <= h.value_width; column += kTogether * kWidth) Block<kTogether, false>{h, column, 0}.run(room);
  for (; column + kWidth <= h.value_width; column += kWidth) Block<1, false>{h, column, 0}.run(room);
  if (column < h.value_width) Block<1, true>{h, column, static_cast<int>(h.value_width - column)}.run(room);
}

static void exponentials(const float* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; i += kTile)
    store_lanes(y + i, lanewise(load_lanes(x + i, count - i), [](Vector each) { return exponential(each); }), count - i);
}

static bool recur(const Recurrence& r, int64_t first, int64_t last) {
  Nearby nearby;
  const Scratch<float> gates(r.tokens * r.decay_width, &nearby), room(tiles(r.key_width) * kTile * kTogether * kWidth, &nearby);
  if (!gates.data || !room.data) return false;
  for (int64_t unit = first; unit < last; ++unit) {
    const int64_t b = unit / r.heads, group = b * r.groups + unit % r.heads / (r.heads / r.groups);
    const int64_t keys = group * r.tokens * r.key_width, values = unit * r.tokens * r.value_width, size = r.key_width * r.value_width;
    const float* state = r.state + unit * size;
    const int64_t count = r.count ? r.count[b] : r.tokens;
    if (count == 0) {
      if (r.updated && r.updated + unit * size != state) std::memcpy(r.updated + unit * size, state, static_cast<size_t>(size) * sizeof *state);
      continue;
    }
    exponentials(r.decay + unit * r.tokens * r.decay_width, count * r.decay_width, gates.data);
    const Head h{r.query ? r.query + keys : nullptr, r.key + keys, r.value + values, gates.data,
                 r.beta ? r.beta + unit * r.tokens : nullptr, r.length[b] > 0 ? state : nullptr,
                 r.context ? r.context + values : nullptr, r.updated ? r.updated + unit * size : nullptr,
                 count, r.key_width, r.value_width, r.decay_width};
    recur_head(h, room.data);
  }
  return true;
}

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile
