// Recurrences and convolutions: the same bits on every path, in any parts and in place; nearly what float64 gives.
#include <memory>
#include <vector>

#include "check.h"

namespace {

using namespace speccompile;

struct Sizes {
  int64_t batch, tokens, heads, groups, key_width, value_width, decay_width;
  bool has_beta;
};

// Numbers of one recurrence. Where the length is 0 the state is never read: it holds NaN.
struct Inputs {
  Buffer<float> query, key, value, decay, beta, state, context, updated;
  Buffer<int64_t> length, count;
  Recurrence recurrence;

  Inputs(const Sizes& s, Place place)
      : query(s.batch * s.groups * s.tokens * s.key_width, place), key(query.count, place),
        value(s.batch * s.heads * s.tokens * s.value_width, place), decay(s.batch * s.heads * s.tokens * s.decay_width, place),
        beta(s.batch * s.heads * s.tokens, place), state(s.batch * s.heads * s.key_width * s.value_width, place),
        context(value.count, place), updated(state.count, place), length(s.batch, place), count(s.batch, place),
        recurrence{query.data, key.data, value.data, decay.data, s.has_beta ? beta.data : nullptr, state.data, length.data, nullptr,
                   context.data, nullptr, s.batch, s.tokens, s.heads, s.groups, s.key_width, s.value_width, s.decay_width} {
    Random random(static_cast<uint64_t>(s.tokens * 10000 + s.key_width * 100 + s.value_width));
    const float share = 1.0f / std::sqrt(static_cast<float>(s.key_width));
    for (Buffer<float>* each : {&query, &value, &state}) each->fill([&] { return random.number(); });
    key.fill([&] { return random.number() * share; });
    decay.fill([&] { return -std::fabs(random.number()); });
    beta.fill([&] { return std::fabs(random.number()) * 0.5f; });
    for (int64_t b = 0; b < s.batch; ++b) {
      length[b] = b % 2;
      count[b] = (s.tokens + b) % (s.tokens + 1);
      for (int64_t i = 0; length[b] == 0 && count[b] > 0 && i < state.count / s.batch; ++i) state[b * state.count / s.batch + i] = std::nanf("");
    }
  }
};

// One head in float64: contexts [T, V], and the state [K, V] after each token.
void check_head(const Inputs& in, int64_t unit, const std::string& what) {
  const Recurrence& r = in.recurrence;
  const int64_t b = unit / r.heads, keys = (b * r.groups + unit % r.heads / (r.heads / r.groups)) * r.tokens * r.key_width;
  const int64_t size = r.key_width * r.value_width;
  std::vector<double> s(static_cast<size_t>(size));
  const auto at = [&](int64_t i, int64_t v) -> double& { return s[static_cast<size_t>(i * r.value_width + v)]; };
  const auto near = [&](float found, double expected, const char* part) {
    CHECK(std::fabs(static_cast<double>(found) - expected) < 1e-4, "%s: %s %a, expected %a", what.c_str(), part, static_cast<double>(found), expected);
  };
  for (int64_t i = 0; i < size && r.length[b] > 0; ++i) s[static_cast<size_t>(i)] = static_cast<double>(r.state[unit * size + i]);
  for (int64_t t = 0; t < r.tokens; ++t) {
    const int64_t row = unit * r.tokens + t;
    for (int64_t v = 0; v < r.value_width; ++v) {
      double recalled = 0, context = 0, update = static_cast<double>(r.value[row * r.value_width + v]);
      for (int64_t i = 0; i < r.key_width; ++i) {
        at(i, v) *= std::exp(static_cast<double>(r.decay[row * r.decay_width + i % r.decay_width]));
        recalled += static_cast<double>(r.key[keys + t * r.key_width + i]) * at(i, v);
      }
      if (r.beta) update = (update - recalled) * static_cast<double>(r.beta[row]);
      for (int64_t i = 0; i < r.key_width; ++i) {
        at(i, v) += static_cast<double>(r.key[keys + t * r.key_width + i]) * update;
        context += static_cast<double>(r.query[keys + t * r.key_width + i]) * at(i, v);
        if (t + 1 == in.count[b]) near(in.updated[unit * size + i * r.value_width + v], at(i, v), "the state");
      }
      near(in.context[row * r.value_width + v], context, "the context");
    }
  }
}

void test_recurrence(const Sizes& s) {
  const std::string what = "recurrence " + sizes({s.batch, s.tokens, s.heads, s.groups, s.key_width, s.value_width, s.decay_width, s.has_beta});
  std::unique_ptr<Inputs> first;
  on_every_path([&](const Kernels& kernels, Place place) {
    auto in = std::make_unique<Inputs>(s, place);
    Random random(1);
    const auto run = [&](const Recurrence& r) {
      in_parts(random, s.batch * s.heads, [&](int64_t begin, int64_t end) { CHECK(kernels.recur(r, begin, end), "memory"); });
    };
    run(in->recurrence);
    Recurrence moves = in->recurrence;
    moves.query = nullptr, moves.context = nullptr, moves.count = in->count.data, moves.updated = in->updated.data;
    run(moves);
    if (first) check_same(in->context, first->context, kernels.name, what), check_same(in->updated, first->updated, kernels.name, what);
    for (int64_t unit = 0; !first && unit < s.batch * s.heads; ++unit) check_head(*in, unit, what);
    moves.updated = in->state.data;  // in place
    run(moves);
    check_same(in->state, in->updated, kernels.name, what + " in place");
    if (!first) first = std::move(in);
  });
}

void test_convolution(int64_t tokens, int64_t channels, int64_t depth, bool is_silu) {
  const std::string what = "convolution " + sizes({tokens, channels, depth});
  std::unique_ptr<Buffer<float>> first;
  on_every_path([&](const Kernels& kernels, Place place) {
    Buffer<float> rows(2 * tokens * channels, place), state(2 * (depth - 1) * channels, place), weight(depth * channels, place), bias(channels, place);
    auto y = std::make_unique<Buffer<float>>(rows.count, place);
    Random random(7);
    for (Buffer<float>* each : {&rows, &state, &weight, &bias}) each->fill([&] { return random.number(); });
    const Convolution c{rows.data, state.data, weight.data, bias.data, y->data, 2, tokens, channels, depth, is_silu};
    in_parts(random, 2 * tokens, [&](int64_t begin, int64_t end) { kernels.convolve(c, begin, end); });
    if (first) return check_same(*y, *first, kernels.name, what);
    for (int64_t i = 0; i < y->count; ++i) {
      const int64_t channel = i % channels, token = i / channels % tokens, b = i / channels / tokens;
      double sum = static_cast<double>(bias[channel]);
      for (int64_t k = 0; k < depth; ++k) {
        const int64_t from = token + k - (depth - 1);
        const float row = from < 0 ? state[(b * (depth - 1) + token + k) * channels + channel] : rows[(b * tokens + from) * channels + channel];
        sum += static_cast<double>(row) * static_cast<double>(weight[k * channels + channel]);
      }
      if (is_silu) sum /= 1.0 + std::exp(-sum);
      CHECK(std::fabs(static_cast<double>((*y)[i]) - sum) < 1e-5, "%s: %a, expected %a", what.c_str(), static_cast<double>((*y)[i]), sum);
    }
    first = std::move(y);
  });
}

void test_softplus(int64_t count) {
  std::unique_ptr<Buffer<float>> first;
  on_every_path([&](const Kernels& kernels, Place place) {
    Buffer<float> x(count, place);
    auto y = std::make_unique<Buffer<float>>(count, place);
    Random random(9);
    x.fill([&] { return random.any() * 20.0f; });
    kernels.softplus(x.data, count, y->data);
    if (first) return check_same(*y, *first, kernels.name, "softplus");
    first = std::move(y);
  });
}

}  // namespace

int main() {
  for (const bool has_beta : {false, true}) {
    for (const int64_t tokens : {1, 2, 5, 9}) test_recurrence({3, tokens, 4, 2, 20, 24, 1, has_beta});
    for (const int64_t width : {1, 3, 4, 7, 8, 15, 16, 17, 32, 33, 64, 70}) {
      test_recurrence({2, 3, 2, 1, width, 71 - width, width, has_beta});
      test_recurrence({2, 2, 3, 3, width, 1, 1, has_beta});
    }
  }
  for (const int64_t channels : {1, 7, 16, 33}) {
    test_convolution(6, channels, 4, false);
    test_convolution(1, channels, 1, true);
    test_convolution(3, channels, 3, true);
  }
  for (const int64_t count : {1, 15, 16, 300}) test_softplus(count);
  return 0;
}
