// Steps of a program of integers that compute numbers one by one.
#include <array>

#include "integer_run.h"

namespace speccompile {
namespace {

template <class F>
Value two(Run& run, const Step& step, F f) {
  const std::array<Value, 2> values{run.input(step, 0), run.input(step, 1)};
  const auto& [a, b] = values;
  const Shape shape = broadcast(a.shape, b.shape);
  const int64_t count = shape.count(), x = a.shape.count(), y = b.shape.count();
  int64_t* const numbers = run.room(count);
  if ((x == count || x == 1) && (y == count || y == 1)) {
    for (int64_t i = 0; i < count; ++i) numbers[i] = f(a.data[x == 1 ? 0 : i], b.data[y == 1 ? 0 : i]);
  } else {
    for_each(values, shape, [&](int64_t i, const std::array<int64_t, 2>& at) { numbers[i] = f(values[0].data[at[0]], values[1].data[at[1]]); });
  }
  return {numbers, shape};
}

template <class F>
Value one(Run& run, const Step& step, F f) {
  const Value& x = run.input(step, 0);
  const int64_t count = x.shape.count();
  int64_t* const numbers = run.room(count);
  for (int64_t i = 0; i < count; ++i) numbers[i] = f(x.data[i]);
  return {numbers, x.shape};
}

int64_t wrapped(uint64_t number) { return static_cast<int64_t>(number); }  // overflows as ONNX Runtime's do

int64_t divisor(int64_t number) {
  if (!number) refuse("received a division by 0");
  return number;
}

Value add(Run& run, const Step& step) {
  return two(run, step, [](int64_t a, int64_t b) { return wrapped(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); });
}
Value sub(Run& run, const Step& step) {
  return two(run, step, [](int64_t a, int64_t b) { return wrapped(static_cast<uint64_t>(a) - static_cast<uint64_t>(b)); });
}
Value mul(Run& run, const Step& step) {
  return two(run, step, [](int64_t a, int64_t b) { return wrapped(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)); });
}
Value divide(Run& run, const Step& step) {
  return two(run, step, [](int64_t a, int64_t b) { return b == -1 ? wrapped(-static_cast<uint64_t>(a)) : a / divisor(b); });
}
// The remainder has the sign of the divisor.
Value remainder(Run& run, const Step& step) {
  return two(run, step, [](int64_t a, int64_t b) {
    const int64_t rest = b == -1 ? 0 : a % divisor(b);
    return rest && (rest < 0) != (b < 0) ? rest + b : rest;
  });
}
Value equal(Run& run, const Step& step) { return two(run, step, [](int64_t a, int64_t b) { return int64_t{a == b}; }); }
Value less(Run& run, const Step& step) { return two(run, step, [](int64_t a, int64_t b) { return int64_t{a < b}; }); }
Value less_or_equal(Run& run, const Step& step) { return two(run, step, [](int64_t a, int64_t b) { return int64_t{a <= b}; }); }
Value greater(Run& run, const Step& step) { return two(run, step, [](int64_t a, int64_t b) { return int64_t{a > b}; }); }
Value greater_or_equal(Run& run, const Step& step) { return two(run, step, [](int64_t a, int64_t b) { return int64_t{a >= b}; }); }
Value both(Run& run, const Step& step) { return two(run, step, [](int64_t a, int64_t b) { return a & b; }); }
Value either(Run& run, const Step& step) { return two(run, step, [](int64_t a, int64_t b) { return a | b; }); }
Value smaller(Run& run, const Step& step) { return two(run, step, [](int64_t a, int64_t b) { return std::min(a, b); }); }
Value larger(Run& run, const Step& step) { return two(run, step, [](int64_t a, int64_t b) { return std::max(a, b); }); }
Value negate(Run& run, const Step& step) { return one(run, step, [](int64_t a) { return int64_t{a == 0}; }); }

Value where(Run& run, const Step& step) {
  const std::array<Value, 3> values{run.input(step, 0), run.input(step, 1), run.input(step, 2)};
  const Shape shape = broadcast(values[0].shape, broadcast(values[1].shape, values[2].shape));
  int64_t* const numbers = run.room(shape.count());
  for_each(values, shape, [&](int64_t i, const std::array<int64_t, 3>& at) {
    numbers[i] = values[0].data[at[0]] ? values[1].data[at[1]] : values[2].data[at[2]];
  });
  return {numbers, shape};
}

// settings: 1 if booleans are wanted
Value cast(Run& run, const Step& step) {
  return step.settings.at(0) ? one(run, step, [](int64_t a) { return int64_t{a != 0}; }) : run.input(step, 0);
}

Value clip(Run& run, const Step& step) {
  const bool has_low = Run::has(step, 1), has_high = Run::has(step, 2);
  const Value low = has_low ? run.input(step, 1) : Value{}, high = has_high ? run.input(step, 2) : Value{};
  if ((has_low && low.shape.count() != 1) || (has_high && high.shape.count() != 1)) refuse("Clip: expected limits of one number");
  return one(run, step, [&](int64_t a) {
    const int64_t raised = has_low ? std::max(a, *low.data) : a;
    return has_high ? std::min(raised, *high.data) : raised;
  });
}

constexpr IntegerOperator kOperators[] = {
    {"Add", add, 2, 2, 0}, {"Sub", sub, 2, 2, 0}, {"Mul", mul, 2, 2, 0}, {"Div", divide, 2, 2, 0}, {"Mod", remainder, 2, 2, 0},
    {"Equal", equal, 2, 2, 0}, {"Less", less, 2, 2, 0}, {"LessOrEqual", less_or_equal, 2, 2, 0}, {"Greater", greater, 2, 2, 0},
    {"GreaterOrEqual", greater_or_equal, 2, 2, 0}, {"And", both, 2, 2, 0}, {"Or", either, 2, 2, 0}, {"Min", smaller, 2, 2, 0},
    {"Max", larger, 2, 2, 0}, {"Not", negate, 1, 1, 0}, {"Where", where, 3, 3, 0}, {"Cast", cast, 1, 1, 1}, {"Clip", clip, 1, 3, 0},
};

}  // namespace

const IntegerOperator* number_operator(const std::string& name) { return operator_named(kOperators, name); }

}  // namespace speccompile
