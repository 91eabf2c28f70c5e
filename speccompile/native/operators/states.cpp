#include "states.h"

#include <cstring>
#include <string>

#include "../kernels/choose.h"

namespace speccompile {
namespace {

constexpr int64_t kNumbersApart = 1 << 14;  // of a thread, at least: fewer are not worth another one

// Throw OperatorError unless there is a number of accepted tokens for each row of the batch, up to `tokens`.
void expect_counts(const Tensor& count, int64_t batch, int64_t tokens) {
  expect(count.shape().count() == batch, "the count", count.shape());
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t taken = count.data<int64_t>()[b];
    if (taken < 0 || taken > tokens)
      throw OperatorError("received the count " + std::to_string(taken) + ", expected 0 to " + std::to_string(tokens));
  }
}

// Return the inputs of a recurrence, which begin with the key at `first`. The others follow in their order.
Recurrence recurrence(const Context& context, size_t first, bool has_beta) {
  size_t next = first;
  const Tensor key = context.input(next++), value = context.input(next++), decay = context.input(next++);
  const Shape &k = key.shape(4, "the key"), &v = value.shape(4, "the value"), &d = decay.shape(4, "the decay");
  expect(k[1] > 0 && k[3] > 0, "the key", k);
  expect(v[0] == k[0] && v[1] % k[1] == 0 && v[2] == k[2], "the value", v);
  expect(d[0] == v[0] && d[1] == v[1] && d[2] == v[2] && (d[3] == 1 || d[3] == k[3]), "the decay", d);
  Recurrence r{};
  r.key = key.data<float>(), r.value = value.data<float>(), r.decay = decay.data<float>();
  r.batch = k[0], r.tokens = k[2], r.heads = v[1], r.groups = k[1], r.key_width = k[3], r.value_width = v[3], r.decay_width = d[3];
  if (has_beta) {
    const Tensor beta = context.input(next++);
    expect(beta.shape().count() == r.batch * r.heads * r.tokens, "the beta", beta.shape());
    r.beta = beta.data<float>();
  }
  const Tensor state = context.input(next++), length = context.input(next++);
  const Shape& s = state.shape(4, "the state");
  expect(s[0] == r.batch && s[1] == r.heads && s[2] == r.key_width && s[3] == r.value_width, "the state", s);
  expect(length.shape().count() == r.batch, "the length", length.shape());
  r.state = state.data<float>(), r.length = length.data<int64_t>();
  return r;
}

void run(const Context& context, const Recurrence& r) {
  const int64_t numbers = r.key_width * r.value_width * (r.tokens ? r.tokens : 1);
  context.parallel(r.batch * r.heads, 1 + kNumbersApart / (numbers ? numbers : 1),
                   [&](int64_t first, int64_t last) { return kernels().recur(r, first, last); });
}

void recur(Context& context, bool has_beta) {
  const Tensor query = context.input(0);
  const Shape& q = query.shape(4, "the query");
  Recurrence r = recurrence(context, 1, has_beta);
  expect(q[0] == r.batch && q[1] == r.groups && q[2] == r.tokens && q[3] == r.key_width, "the query", q);
  r.query = query.data<float>();
  r.context = context.output<float>(0, Shape{{r.batch, r.heads, r.tokens, r.value_width}, 4});
  run(context, r);
}

void advance(Context& context, bool has_beta) {
  Recurrence r = recurrence(context, 0, has_beta);
  const Tensor count = context.input(has_beta ? 6 : 5);
  expect_counts(count, r.batch, r.tokens);
  r.count = count.data<int64_t>();
  r.updated = context.output<float>(0, Shape{{r.batch, r.heads, r.key_width, r.value_width}, 4});
  run(context, r);
}

}  // namespace

void Convolve::compute(Context& context) const {
  const Tensor rows = context.input(0), state = context.input(1), weight = context.input(2), bias = context.input(3);
  const Shape &x = rows.shape(4, "the rows"), &s = state.shape(4, "the state"), &w = weight.shape(2, "the weight");
  expect(x[1] == 1, "the rows", x);
  expect(w[0] > 0 && w[1] == x[3], "the weight", w);
  expect(s[0] == x[0] && s[1] == 1 && s[2] == w[0] - 1 && s[3] == x[3], "the state", s);
  expect(bias.shape().count() == x[3], "the bias", bias.shape());
  const Convolution c{rows.data<float>(), state.data<float>(), weight.data<float>(), bias.data<float>(),
                      context.output<float>(0, x), x[0], x[2], x[3], w[0], is_silu};
  context.parallel(x[0] * x[2], 1 + kNumbersApart / (1 + x[3] * w[0]), [&](int64_t first, int64_t last) {
    kernels().convolve(c, first, last);
    return true;
  });
}

void Shift::compute(Context& context) const {
  const Tensor rows = context.input(0), state = context.input(1), length = context.input(2), count = context.input(3);
  const Shape &x = rows.shape(4, "the rows"), &s = state.shape(4, "the state");
  expect(x[1] == 1 && s[0] == x[0] && s[1] == 1 && s[3] == x[3], "the state", s);
  expect(length.shape().count() == x[0], "the length", length.shape());
  expect_counts(count, x[0], x[2]);
  float* updated = context.output<float>(0, s);
  const size_t row = static_cast<size_t>(x[3]) * sizeof(float);
  for (int64_t b = 0; b < x[0]; ++b) {
    const float *old_rows = state.data<float>() + b * s[2] * x[3], *new_rows = rows.data<float>() + b * x[2] * x[3];
    const int64_t taken = count.data<int64_t>()[b];
    const bool has_begun = length.data<int64_t>()[b] > 0 || taken == 0;
    for (int64_t i = 0; i < s[2]; ++i) {  // upwards: `updated` may be `state`, whose rows are read before they are overwritten
      float* to = updated + (b * s[2] + i) * x[3];
      const int64_t from = i + taken;
      if (from >= s[2]) std::memcpy(to, new_rows + (from - s[2]) * x[3], row);
      else if (has_begun) std::memmove(to, old_rows + from * x[3], row);
      else std::memset(to, 0, row);
    }
  }
}

void After::compute(Context& context) const {
  const Tensor count = context.input(0);
  const size_t bytes = static_cast<size_t>(count.shape().count()) * sizeof(int64_t);
  std::memcpy(context.output<int64_t>(0, count.shape()), count.data<int64_t>(), bytes);
}

void Recur::compute(Context& context) const { recur(context, false); }
void RecurDelta::compute(Context& context) const { recur(context, true); }
void Advance::compute(Context& context) const { advance(context, false); }
void AdvanceDelta::compute(Context& context) const { advance(context, true); }

}  // namespace speccompile
