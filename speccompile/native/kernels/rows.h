// Operations on rows between products: normalization, gates, and the rows of heads.
#pragma once

#include <cstring>

#include "functions.h"
#include "kernels.h"
#include "sums.h"
#include SPECCOMPILE_LANES

namespace speccompile {
namespace SPECCOMPILE_PATH {

// y = (x - mean) * scale * weight + bias, in this order.
static void scale_row(const float* x, float mean, float factor, const Normalization& n, float* y) {
  const Vector middle = broadcast(mean), factors = broadcast(factor);
  for (int64_t i = 0; i < n.width; i += kTile) {
    const int64_t count = n.width - i;
    Lanes row = load_lanes(x + i, count);
    if (n.subtracts_mean) row = lanewise(row, [&](Vector v) { return subtract(v, middle); });
    row = lanewise(row, load_lanes(n.weight + i, count), [&](Vector v, Vector w) { return multiply(multiply(v, factors), w); });
    if (n.bias) row = lanewise(row, load_lanes(n.bias + i, count), [](Vector v, Vector w) { return add(v, w); });
    store_lanes(y + i, row, count);
  }
}

static float mean_of(const float* x, int64_t width) {
  Lanes sum = no_lanes();
  for (int64_t i = 0; i < width; i += kTile)
    sum = lanewise(sum, load_lanes(x + i, width - i), [](Vector v, Vector w) { return add(v, w); });
  return sum_of(sum) / static_cast<float>(width);
}

static float mean_square(const float* x, float mean, int64_t width) {
  const Vector middle = broadcast(mean);
  Lanes sum = no_lanes();
  int64_t i = 0;
  for (; i + kTile <= width; i += kTile) {
    const Lanes row = lanewise(load_lanes(x + i), [&](Vector v) { return subtract(v, middle); });
    add_product(sum, row, row);
  }
  if (i < width) {  // the lanes behind the row are zeros, not the mean
    float rest[kTile] = {};
    for (int64_t k = 0; i + k < width; ++k) rest[k] = x[i + k] - mean;
    add_product(sum, load_lanes(rest), load_lanes(rest));
  }
  return sum_of(sum) / static_cast<float>(width);
}

static void normalize(const Normalization& n, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; ++row) {
    const float* x = n.x + row * n.width;
    float* y = n.y + row * n.width;
    if (n.residual) {
      float* sum = n.sum ? n.sum + row * n.width : y;
      const float* other = n.residual + row * n.width;
      for (int64_t i = 0; i < n.width; i += kTile) {
        const Lanes both = lanewise(load_lanes(x + i, n.width - i), load_lanes(other + i, n.width - i),
                                    [](Vector v, Vector w) { return add(v, w); });
        store_lanes(sum + i, both, n.width - i);
      }
      x = sum;
    }
    const float mean = n.subtracts_mean ? mean_of(x, n.width) : 0.0f;
    const float factor = 1.0f / __builtin_sqrtf(mean_square(x, mean, n.width) + n.epsilon);
    scale_row(x, mean, factor, n, y);
  }
}

SPC_INLINE Vector activated(Activation activation, Vector x) {
  return activation == Activation::kSilu ? silu(x) : gelu_tanh(x);
}

static void gate(const Gated& g, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; ++row) {
    const float *gates = g.gate + row * g.gate_stride, *up = g.up + row * g.up_stride;
    float* y = g.y + row * g.width;
    for (int64_t i = 0; i < g.width; i += kTile) {
      const Lanes product = lanewise(load_lanes(gates + i, g.width - i), load_lanes(up + i, g.width - i),
                                     [&](Vector x, Vector v) { return multiply(activated(g.activation, x), v); });
      store_lanes(y + i, product, g.width - i);
    }
  }
}

static void softplus(const float* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; i += kTile)
    store_lanes(y + i, lanewise(load_lanes(x + i, count - i), [](Vector v) { return log_one_plus_exponential(v); }), count - i);
}

// The first `turned` columns of a head, turned by angles; the others as they are. y may be x.
static void turn(const Heads& h, const float* x, const float* cosines, const float* sines, int64_t width, float* y) {
  const int64_t half = h.turned / 2, apart = h.interleaved ? 1 : half, step = h.interleaved ? 2 : 1;
  int64_t i = 0;
  for (; !h.interleaved && i + kWidth <= half; i += kWidth) {
    const Vector a = load(x + i), b = load(x + half + i), cosine = load(cosines + i), sine = load(sines + i);
    store(y + i, subtract(multiply(a, cosine), multiply(b, sine)));
    store(y + half + i, add(multiply(b, cosine), multiply(a, sine)));
  }
  for (; i < half; ++i) {
    const float a = x[i * step], b = x[i * step + apart];
    y[i * step] = a * cosines[i] - b * sines[i];
    y[i * step + apart] = b * cosines[i] + a * sines[i];
  }
  if (x != y && width > h.turned) std::memcpy(y + h.turned, x + h.turned, static_cast<size_t>(width - h.turned) * sizeof *x);
}

static void make_head(const Heads& h, const float* x, const float* weight, int64_t place, float* y) {
  const float *cosines = h.cosines + place * h.turned / 2, *sines = h.sines + place * h.turned / 2;
  if (!weight) return turn(h, x, cosines, sines, h.key_width, y);
  const Normalization norm{x, nullptr, weight, nullptr, y, nullptr, h.key_width, h.epsilon, false};
  normalize(norm, 0, 1);
  turn(h, y, cosines, sines, h.key_width, y);  // every pair is read before it is written
}

static void make_heads(const Heads& h, int64_t first, int64_t last) {
  for (int64_t place = first; place < last; ++place) {
    const int64_t b = place / h.tokens, token = place % h.tokens;
    for (int64_t head = 0; head < h.heads; ++head) {
      const float* x = h.query + place * h.query_stride + head * h.key_width;
      make_head(h, x, h.query_weight, place, h.queries + (place * h.heads + head) * h.key_width);
    }
    for (int64_t group = 0; group < h.groups; ++group) {
      const int64_t row = (b * h.groups + group) * h.tokens + token;
      const float* x = h.key + place * h.key_stride + group * h.key_width;
      make_head(h, x, h.key_weight, place, h.keys + row * h.key_width);
      const float* value = h.value + place * h.value_stride + group * h.value_width;
      float* y = h.values + row * h.value_width;
      std::memcpy(y, value, static_cast<size_t>(h.value_width) * sizeof *y);
    }
  }
}

}  // namespace SPECCOMPILE_PATH
}  // namespace speccompile
