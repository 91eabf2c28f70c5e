#include "rows.h"

#include <string>

#include "../kernels/choose.h"
#include "../kernels/logarithm.h"

namespace speccompile {
namespace {

constexpr int64_t kNumbersApart = 1 << 14;  // less is not worth another thread

int64_t width_of(const Shape& shape) {
  if (shape.rank == 0 || shape.last() == 0) throw OperatorError("received x " + describe(shape) + ", expected rows of numbers");
  return shape.last();
}

void normalize(Context& context, Normalization n, const Shape& shape, const Tensor& weight) {
  n.width = width_of(shape);
  if (weight.shape().count() != n.width)
    throw OperatorError("received a weight " + describe(weight.shape()) + ", expected " + std::to_string(n.width) + " numbers");
  n.weight = weight.data<float>();
  context.parallel(shape.rows(), 1 + kNumbersApart / n.width, [&](int64_t first, int64_t last) {
    kernels().normalize(n, first, last);
    return true;
  });
}

void expect_same(const Shape& one, const Shape& other) {
  bool same = one.rank == other.rank && one.rank > 0;
  for (size_t i = 0; same && i < one.rank; ++i) same = one[i] == other[i];
  if (!same) throw OperatorError("received the shapes " + describe(one) + " and " + describe(other) + ", expected equal ones");
}

}  // namespace

void RmsNorm::compute(Context& context) const {
  const Tensor x = context.input(0);
  Normalization n{};
  n.x = x.data<float>(), n.y = context.output<float>(0, x.shape()), n.epsilon = epsilon;
  normalize(context, n, x.shape(), context.input(1));
}

void SkipRmsNorm::compute(Context& context) const {
  const Tensor x = context.input(0), residual = context.input(1);
  expect_same(x.shape(), residual.shape());
  Normalization n{};
  n.x = x.data<float>(), n.residual = residual.data<float>(), n.epsilon = epsilon;
  n.y = context.output<float>(0, x.shape()), n.sum = context.output<float>(1, x.shape());
  normalize(context, n, x.shape(), context.input(2));
}

void LayerNorm::compute(Context& context) const {
  const Tensor x = context.input(0), bias = context.input(2);
  if (bias.shape().count() != width_of(x.shape()))
    throw OperatorError("received a bias " + describe(bias.shape()) + ", expected " + std::to_string(x.shape().last()) + " numbers");
  Normalization n{};
  n.x = x.data<float>(), n.y = context.output<float>(0, x.shape()), n.bias = bias.data<float>();
  n.epsilon = epsilon, n.subtracts_mean = true;
  normalize(context, n, x.shape(), context.input(1));
}

void Softplus::compute(Context& context) const {
  const Tensor x = context.input(0);
  const float* numbers = x.data<float>();
  float* y = context.output<float>(0, x.shape());
  context.parallel(x.shape().count(), kNumbersApart, [&](int64_t first, int64_t last) {
    kernels().softplus(numbers + first, last - first, y + first);
    return true;
  });
}

void Log::compute(Context& context) const {
  const Tensor x = context.input(0);
  const float* numbers = x.data<float>();
  float* y = context.output<float>(0, x.shape());
  for (int64_t i = 0; i < x.shape().count(); ++i) y[i] = logarithm(numbers[i]);
}

Gate::Gate(const Info& info)
    : width(info.integer("width")), gate_offset(info.integer("gate_offset")), up_offset(info.integer("up_offset")) {
  if (width < 1 || gate_offset < 0 || up_offset < 0) throw OperatorError("a gate: expected columns, and where they begin");
}

void Gate::compute(Context& context, Activation activation) const {
  const Tensor gate = context.input(0), up = context.input(1);
  Shape shape = gate.shape();
  if (shape.rank == 0 || up.shape().rank == 0 || shape.rows() != up.shape().rows() || gate_offset + width > shape.last() || up_offset + width > up.shape().last())
    throw OperatorError("received a gate " + describe(shape) + " beside " + describe(up.shape()) + ", expected rows of " + std::to_string(width) +
                        " columns from " + std::to_string(gate_offset) + " and " + std::to_string(up_offset) + " on");
  Gated g{gate.data<float>() + gate_offset, up.data<float>() + up_offset, nullptr, shape.last(), up.shape().last(), width, activation};
  const int64_t rows = shape.rows();
  shape.sizes[shape.rank - 1] = width;
  g.y = context.output<float>(0, shape);
  context.parallel(rows, 1 + kNumbersApart / width, [&](int64_t first, int64_t last) {
    kernels().gate(g, first, last);
    return true;
  });
}

}  // namespace speccompile
