// Normalizations, gates and the rows of heads: against plain loops, and gates against the mathematical library.
#include "check.h"

namespace {

using namespace speccompile;

// Element i goes into lane i % 16; the lanes are added in halves.
template <class F>
float sum_in_lanes(int64_t count, F add) {
  float lanes[16] = {};
  for (int64_t i = 0; i < count; ++i) lanes[i % 16] = add(lanes[i % 16], i);
  for (int half = 8; half; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

// (x - mean) * scale * weight + bias, rounded after each.
void normalize_row(const float* x, const Normalization& n, float* y) {
  const float width = static_cast<float>(n.width);
  const float mean = n.subtracts_mean ? sum_in_lanes(n.width, [&](float sum, int64_t i) { return sum + x[i]; }) / width : 0.0f;
  const float square = sum_in_lanes(n.width, [&](float sum, int64_t i) { return std::fma(x[i] - mean, x[i] - mean, sum); }) / width;
  const float factor = 1.0f / std::sqrt(square + n.epsilon);
  for (int64_t i = 0; i < n.width; ++i) {
    y[i] = (x[i] - mean) * factor * n.weight[i];
    if (n.bias) y[i] += n.bias[i];
  }
}

void test_normalize(int64_t rows, int64_t width) {
  on_every_path([&](const Kernels& kernels, Place place) {
    Random random(static_cast<uint64_t>(rows * 1000 + width));
    Buffer<float> x(rows * width, place), residual(rows * width, place), weight(width, place), bias(width, place);
    for (Buffer<float>* each : {&x, &residual, &weight, &bias})
      for (int64_t i = 0; i < each->count; ++i) (*each)[i] = random.any_of_row(i / width + (each == &residual));
    for (const int form : {0, 1, 2, 3}) {  // with the mean, or with a residual whose sum is kept or is not
      Buffer<float> y(rows * width, place), sum(rows * width, place), expected(rows * width, place), sums(rows * width, place);
      const Normalization n{x.data,  form > 1 ? residual.data : nullptr, weight.data, form == 1 ? bias.data : nullptr, y.data,
                            form == 2 ? sum.data : nullptr, width, 1e-5f, form == 1};
      in_parts(random, rows, [&](int64_t first, int64_t last) { kernels.normalize(n, first, last); });
      for (int64_t i = 0; i < x.count; ++i) sums[i] = n.residual ? x[i] + residual[i] : x[i];
      for (int64_t row = 0; row < rows; ++row) normalize_row(sums.data + row * width, n, expected.data + row * width);
      check_same(y, expected, kernels.name, "normalization " + sizes({rows, width, form}));
      if (n.sum) check_same(sum, sums, kernels.name, "sum " + sizes({rows, width}));
    }
  });
}

void test_gate(int64_t rows, int64_t width) {
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    Buffer<float> first_found(rows * width, Place::kStart);
    bool is_first = true;
    on_every_path([&](const Kernels& kernels, Place place) {
      Random random(static_cast<uint64_t>(width));
      const int64_t gate_stride = width + 3, up_stride = width + 1;
      Buffer<float> gate(rows * gate_stride, place), up(rows * up_stride, place), y(rows * width, place);
      gate.fill([&] { return 20 * random.any(); });
      up.fill([&] { return random.any(); });
      const Gated g{gate.data + 3, up.data + 1, y.data, gate_stride, up_stride, width, activation};
      in_parts(random, rows, [&](int64_t first, int64_t last) { kernels.gate(g, first, last); });
      if (is_first) std::memcpy(first_found.data, y.data, static_cast<size_t>(rows * width) * sizeof(float));
      is_first = false;
      check_same(y, first_found, kernels.name, "gate " + sizes({rows, width}));
      for (int64_t i = 0; i < y.count; ++i) {
        const double x = g.gate[i / width * gate_stride + i % width], other = g.up[i / width * up_stride + i % width];
        if (!(std::fabs(x) < 40 && std::fabs(other) < 1e36)) continue;
        const double bent = std::tanh(0.797884560802865 * (x + 0.044715 * x * x * x));
        const double open = activation == Activation::kSilu ? 1 / (1 + std::exp(-x)) : (1 + bent) / 2;
        const double value = x * open * other;
        const double most = 2e-5 * std::fabs(value) + 1e-14 * std::fabs(other) + 1e-44;
        CHECK(std::fabs(static_cast<double>(y[i]) - value) <= most, "%s: gate of %a times %a is %a", kernels.name, x, other,
              static_cast<double>(y[i]));
      }
    });
  }
}

struct HeadSizes {
  int64_t batch, tokens, heads, groups, key_width, value_width, turned;
};

// One head of one token, by the angles of the token.
void make_head(const Heads& h, const float* x, const float* weight, int64_t place, float* y) {
  const Normalization n{x, nullptr, weight, nullptr, y, nullptr, h.key_width, h.epsilon, false};
  if (weight) normalize_row(x, n, y);
  if (!weight) std::memcpy(y, x, static_cast<size_t>(h.key_width) * sizeof *y);
  const int64_t half = h.turned / 2;
  for (int64_t i = 0; i < half; ++i) {
    const int64_t one = h.interleaved ? 2 * i : i, other = h.interleaved ? 2 * i + 1 : i + half;
    const float a = y[one], b = y[other], cosine = h.cosines[place * half + i], sine = h.sines[place * half + i];
    const float products[4] = {a * cosine, b * sine, b * cosine, a * sine};
    y[one] = products[0] - products[1];
    y[other] = products[2] + products[3];
  }
}

void test_heads(const HeadSizes& s, bool interleaved, bool normalized) {
  on_every_path([&](const Kernels& kernels, Place place) {
    Random random(static_cast<uint64_t>(s.tokens * 100 + s.key_width));
    const int64_t count = s.batch * s.tokens, stride = (s.heads + s.groups) * s.key_width + s.groups * s.value_width;
    Buffer<float> x(count * stride, place), weight(s.key_width, place);
    Buffer<float> cosines(count * s.turned / 2, place), sines(count * s.turned / 2, place);
    for (Buffer<float>* each : {&x, &cosines, &sines, &weight}) each->fill([&] { return random.any(); });
    Buffer<float> queries(count * s.heads * s.key_width, place);
    Buffer<float> keys(count * s.groups * s.key_width, place), values(count * s.groups * s.value_width, place);
    const float* own = normalized ? weight.data : nullptr;
    const float *key = x.data + s.heads * s.key_width, *value = key + s.groups * s.key_width;
    const Heads h{x.data, key, value, cosines.data, sines.data, own, own, queries.data, keys.data, values.data, s.batch, s.tokens, s.heads, s.groups,
                  s.key_width, s.value_width, s.turned, stride, stride, stride, 1e-5f, interleaved};
    in_parts(random, count, [&](int64_t first, int64_t last) { kernels.make_heads(h, first, last); });
    Buffer<float> wanted_queries(queries.count, place), wanted_keys(keys.count, place), wanted_values(values.count, place);
    for (int64_t at = 0; at < count; ++at) {
      for (int64_t head = 0; head < s.heads; ++head)
        make_head(h, x.data + at * stride + head * s.key_width, own, at,
                  wanted_queries.data + (at * s.heads + head) * s.key_width);
      for (int64_t group = 0; group < s.groups; ++group) {
        const int64_t row = (at / s.tokens * s.groups + group) * s.tokens + at % s.tokens;
        make_head(h, key + at * stride + group * s.key_width, own, at, wanted_keys.data + row * s.key_width);
        std::memcpy(wanted_values.data + row * s.value_width, value + at * stride + group * s.value_width,
                    static_cast<size_t>(s.value_width) * sizeof(float));
      }
    }
    const std::string what = "heads " + sizes({s.batch, s.tokens, s.heads, s.groups, s.key_width, s.value_width, s.turned});
    check_same(queries, wanted_queries, kernels.name, what);
    check_same(keys, wanted_keys, kernels.name, what);
    check_same(values, wanted_values, kernels.name, what);
  });
}

}  // namespace

int main() {
  for (int64_t width = 1; width <= 70; ++width) {
    test_normalize(3, width);
    test_gate(3, width);
  }
  test_normalize(64, 700);
  test_gate(64, 700);
  for (const bool interleaved : {false, true}) {
    for (const bool normalized : {false, true}) {
      for (int64_t width = 2; width <= 40; ++width)
        test_heads({2, 3, 4, 2, width, width % 7 + 1, width / 2 * 2}, interleaved, normalized);
      test_heads({1, 5, 3, 1, 64, 33, 16}, interleaved, normalized);
      test_heads({1, 2, 2, 2, 128, 64, 0}, interleaved, normalized);
    }
  }
  return 0;
}
