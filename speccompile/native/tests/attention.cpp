// Attention: the same bits on every path and in any parts, nearly what float64 gives, and nothing read that is not seen.
#include <memory>

#include "check.h"

namespace {

using namespace speccompile;

struct Sizes {
  int64_t batch, tokens, heads, groups, rows, capacity, key_width, value_width, window;
  float softcap;
  bool has_sinks = false, is_latent = false;

  int64_t query_width() const { return key_width + (is_latent ? value_width : 0); }
  int64_t context_width() const { return is_latent ? key_width : value_width; }
};

// Numbers of one attention; NaN where nothing may be read.
struct Inputs {
  Buffer<float> query, key_rows, value_rows, key_cache, value_cache, bias, sinks, context;
  Buffer<int64_t> length, positions;
  Attention attention;

  Inputs(const Sizes& s, Place place)
      : query(s.batch * s.tokens * s.heads * s.query_width(), place), key_rows(s.batch * s.groups * s.rows * s.key_width, place),
        value_rows(s.batch * s.groups * s.rows * s.value_width, place), key_cache(s.batch * s.groups * s.capacity * s.key_width, place),
        value_cache(s.batch * s.groups * s.capacity * s.value_width, place), bias(s.batch * s.tokens * s.rows, place),
        sinks(s.heads, place), context(s.batch * s.tokens * s.heads * s.context_width(), place), length(s.batch, place), positions(s.batch * s.tokens, place),
        attention{query.data, key_rows.data, value_rows.data, key_cache.data, value_cache.data, bias.data, length.data, positions.data, context.data,
                  s.batch, s.tokens, s.heads, s.groups, s.rows, s.capacity, s.key_width, s.value_width, 0.3f, s.softcap, s.window, s.has_sinks ? sinks.data : nullptr, s.is_latent, false, nullptr} {
    Random random(static_cast<uint64_t>(s.tokens * 10000 + s.capacity * 100 + s.key_width));
    for (Buffer<float>* each : {&query, &key_rows, &value_rows, &key_cache, &value_cache, &sinks}) each->fill([&] { return random.number(); });
    bias.fill([&] { return random.integer(0, 2) ? 0.0f : kHidden; });
    length.fill([&] { return random.integer(0, s.capacity); });
    for (int64_t i = 0; i < positions.count; ++i) positions[i] = length[i / s.tokens] + random.integer(0, s.tokens);
    hide(s, key_cache, s.key_width);
    hide(s, value_cache, s.value_width);
  }

  void hide(const Sizes& s, Buffer<float>& cache, int64_t width) {
    for (int64_t i = 0; i < cache.count; ++i)
      if (i / width % s.capacity >= length[i / width / s.capacity / s.groups]) cache[i] = std::nanf("");
  }
};

double product(const float* one, const float* other, int64_t width) {
  double sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += static_cast<double>(one[i]) * static_cast<double>(other[i]);
  return sum;
}

// Compute the attention of one head of a token in float64, into context [its width].
void attend_in_doubles(const Attention& a, int64_t b, int64_t token, int64_t head, double* context) {
  const int64_t group = b * a.groups + head / (a.heads / a.groups), position = a.positions[b * a.tokens + token];
  const float* query = a.query + ((b * a.tokens + token) * a.heads + head) * attention_query_width(a);
  const int64_t width = a.is_latent ? a.key_width : a.value_width;
  double total = 0, top = a.sinks ? static_cast<double>(a.sinks[head]) : -1e300;
  bool sees = false;
  for (int64_t i = 0; i < width; ++i) context[i] = 0;
  for (const bool weighs : {false, true}) {  // first the largest score, then what is relative to it
    if (weighs && a.sinks) total = std::exp(static_cast<double>(a.sinks[head]) - top);
    for (int64_t i = 0; i < a.length[b] + a.rows; ++i) {
      const bool committed = i < a.length[b];
      const int64_t row = committed ? group * a.capacity + i : group * a.rows + i - a.length[b];
      const float bias = committed ? 0.0f : a.bias[(b * a.tokens + token) * a.rows + i - a.length[b]];
      if (bias <= kHidden / 2 || (committed && a.window && i <= position - a.window)) continue;
      const float* key = (committed ? a.key_cache : a.key_rows) + row * a.key_width;
      const float* other = (committed ? a.value_cache : a.value_rows) + row * a.value_width;
      double score = product(query, key, a.key_width) + (a.is_latent ? product(query + a.key_width, other, a.value_width) : 0);
      score *= static_cast<double>(a.scale);
      if (a.softcap > 0) score = static_cast<double>(a.softcap) * std::tanh(score / static_cast<double>(a.softcap));
      score += static_cast<double>(bias);
      if (!weighs) top = std::max(top, score);
      if (!weighs) continue;
      const float* value = a.is_latent ? key : other;
      sees = true;
      total += std::exp(score - top);
      for (int64_t d = 0; d < width; ++d) context[d] += std::exp(score - top) * static_cast<double>(value[d]);
    }
  }
  for (int64_t i = 0; sees && i < width; ++i) context[i] /= total;
}

void check_near(const Inputs& in, const std::string& what) {
  const Attention& a = in.attention;
  const double bound = a.softcap > 0 ? 4e-6 : 2e-6;  // a score is as large as the cap, and its rounding with it
  const int64_t width = a.is_latent ? a.key_width : a.value_width;
  Buffer<double> context(width, Place::kEnd);
  for (int64_t i = 0; i < a.batch * a.tokens * a.heads; ++i) {
    attend_in_doubles(a, i / a.heads / a.tokens, i / a.heads % a.tokens, i % a.heads, context.data);
    for (int64_t d = 0; d < width; ++d)
      CHECK(std::fabs(static_cast<double>(in.context[i * width + d]) - context[d]) < bound * std::max(1.0, std::fabs(context[d])),
            "%s: head %lld gives %a, expected %a", what.c_str(), static_cast<long long>(i),
            static_cast<double>(in.context[i * width + d]), context[d]);
  }
}

void test_attention(const Sizes& s) {
  const std::string what = "attention " + sizes({s.batch, s.tokens, s.heads, s.groups, s.rows, s.capacity, s.key_width, s.value_width, s.window});
  std::unique_ptr<Inputs> first;
  on_every_path([&](const Kernels& kernels, Place place) {
    auto in = std::make_unique<Inputs>(s, place);
    Random random(1);
    in_parts(random, attention_units(in->attention), [&](int64_t begin, int64_t end) { CHECK(kernels.attend(in->attention, begin, end), "memory"); });
    if (first) return check_same(in->context, first->context, kernels.name, what);
    check_near(*in, what);
    first = std::move(in);
  });
}

}  // namespace

int main() {
  for (int64_t tokens = 1; tokens <= 64; tokens += tokens < 20 ? 1 : 11)
    for (const int64_t window : {0, 5}) test_attention({1, tokens, 4, 2, tokens, 40, 1 + tokens * 7 % 70, 1 + tokens * 5 % 90, window, 0.0f});
  for (const int64_t width : {1, 3, 4, 7, 8, 15, 16, 17, 32, 33, 64, 65, 128}) {
    test_attention({2, 9, 3, 1, 9, 21, width, width, 0, 0.0f});
    test_attention({2, 3, 6, 2, 5, 37, width, 129 - width, 3, 30.0f});
    test_attention({2, 9, 3, 1, 9, 21, width, 129 - width, 5, 0.0f, true, false});
    for (const bool has_sinks : {false, true}) test_attention({2, 3, 6, 1, 5, 37, width, 129 - width, 0, 0.0f, has_sinks, true});
  }
  for (const int64_t capacity : {1, 2, 15, 16, 17, 31, 33, 200}) test_attention({2, 2, 1, 1, 3, capacity, 24, 20, 0, 0.0f});
  // more rows than scores are kept of, so that a later one can be the highest, and tokens on either side of a unit's end
  for (const int64_t tokens : {1, 5, 33, 70})
    for (const int64_t width : {48, 64}) {
      test_attention({1, tokens, 4, 2, tokens, 1100, width, 128, 0, 0.0f, width == 64});
      test_attention({2, tokens, 5, 1, tokens + 3, 560, width, 65, 530, 20.0f});
      test_attention({1, tokens, 12, 1, tokens, 1030, width - 40, 16, 0, 0.0f, false, true});
    }
  return 0;
}
