// One run of a program of integers, and what its steps share.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "integers.h"

namespace speccompile {

using Value = Integers::Value;
using Step = Integers::Step;
using Run = Integers::Run;

constexpr size_t kMissingInput = ~size_t{0};
constexpr size_t kMostIntegerValues = 4096;
constexpr int64_t kMostNumbers = int64_t{1} << 28;  // of a value

[[noreturn]] inline void refuse(const std::string& what) { throw OperatorError("Integers: " + what); }

inline Shape shape_of(std::initializer_list<int64_t> sizes) {
  Shape shape{{}, sizes.size()};
  std::copy(sizes.begin(), sizes.end(), shape.sizes);
  return shape;
}

// Return the axis counted from the front.
inline size_t axis_of(int64_t axis, size_t rank) {
  if (axis < 0) axis += static_cast<int64_t>(rank);
  if (axis < 0 || axis >= static_cast<int64_t>(rank)) refuse("received axis " + std::to_string(axis) + " of " + std::to_string(rank));
  return static_cast<size_t>(axis);
}

// Return the numbers of which a step along the axis skips so many, and those that lie before it.
inline std::pair<int64_t, int64_t> around(const Shape& shape, size_t axis) {
  int64_t before = 1, behind = 1;
  for (size_t i = 0; i < axis; ++i) before *= shape[i];
  for (size_t i = axis + 1; i < shape.rank; ++i) behind *= shape[i];
  return {before, behind};
}

inline Shape broadcast(const Shape& a, const Shape& b) {
  Shape shape{{}, std::max(a.rank, b.rank)};
  for (size_t i = 0; i < shape.rank; ++i) {  // from the last axis on
    const int64_t x = i < a.rank ? a[a.rank - 1 - i] : 1, y = i < b.rank ? b[b.rank - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) refuse("received the shapes " + describe(a) + " and " + describe(b) + ", which do not broadcast");
    shape.sizes[shape.rank - 1 - i] = x == 1 ? y : x;
  }
  return shape;
}

using Strides = std::array<int64_t, 8>;

// Return how many numbers a step along each axis skips.
inline Strides strides_of(const Shape& shape) {
  Strides strides{};
  int64_t stride = 1;
  for (size_t i = shape.rank; i-- > 0; stride *= shape[i]) strides[i] = stride;
  return strides;
}

// Calls f(number of the result, places of the values that it is made of), for all results in order.
template <size_t kCount, class F>
void walk(const Shape& shape, const std::array<Strides, kCount>& steps, F f) {
  std::array<int64_t, kCount> at{};
  std::array<int64_t, 8> place{};
  const int64_t count = shape.count(), row = shape.rank ? shape.last() : 1;
  const size_t rows = shape.rank ? shape.rank - 1 : 0;  // axes of them
  for (int64_t number = 0; number < count;) {
    std::array<int64_t, kCount> in_row = at;
    for (int64_t i = 0; i < row; ++i) {
      f(number++, in_row);
      for (size_t v = 0; v < kCount; ++v) in_row[v] += steps[v][rows];
    }
    for (size_t axis = rows; axis-- > 0;) {
      for (size_t v = 0; v < kCount; ++v) at[v] += steps[v][axis];
      if (++place[axis] < shape[axis]) break;
      for (size_t v = 0; v < kCount; ++v) at[v] -= steps[v][axis] * shape[axis];
      place[axis] = 0;
    }
  }
}

// Walks through values that broadcast to the shape.
template <size_t kCount, class F>
void for_each(const std::array<Value, kCount>& values, const Shape& shape, F f) {
  std::array<Strides, kCount> steps{};
  for (size_t v = 0; v < kCount; ++v) {
    const Shape& own = values[v].shape;
    const Strides strides = strides_of(own);
    for (size_t i = 0; i < own.rank; ++i) steps[v][shape.rank - own.rank + i] = own[i] == 1 ? 0 : strides[i];
  }
  walk(shape, steps, f);
}

// The values of one run. Small ones stand side by side in memory that costs nothing.
class Integers::Run {
 public:
  Run(const Integers& program, Context& node) : program_(program), node_(node) {
    values_.reserve(program.inputs_ + program.steps_.size());
    for (size_t i = 0; i < program.inputs_; ++i) values_.push_back(given(node.input(i)));
  }

  void compute() {
    for (const Step& step : program_.steps_) values_.push_back(step.compute(*this, step));
    for (size_t i = 0; i < program_.results_.size(); ++i) {
      const Value& value = values_[program_.results_[i]];
      std::copy_n(value.data, value.shape.count(), node_.output<int64_t>(i, value.shape));
    }
  }

  const Value& input(const Step& step, size_t index) const {
    if (!has(step, index)) refuse("received no input " + std::to_string(index));
    const Value& value = values_[step.inputs[index]];
    if (!value.data && value.shape.count()) refuse("received numbers of another type, expected int64 or bool");
    return value;
  }

  static bool has(const Step& step, size_t index) { return index < step.inputs.size() && step.inputs[index] != kMissingInput; }

  // The input's shape, whatever its type.
  const Shape& shape(const Step& step) const { return values_[step.inputs[0]].shape; }

  // The values of an input of at most one axis.
  std::vector<int64_t> list(const Step& step, size_t index) const {
    const Value& value = input(step, index);
    return {value.data, value.data + value.shape.count()};
  }

  int64_t* room(int64_t count) {
    if (count < 0 || count > kMostNumbers) refuse("received " + std::to_string(count) + " numbers for one value");
    const size_t numbers = static_cast<size_t>(count);
    if (numbers <= std::size(small_) - used_) return small_ + std::exchange(used_, used_ + numbers);
    large_.emplace_back(new int64_t[numbers]);
    return large_.back().get();
  }

 private:
  // An input of the node; without data where only its shape may be read.
  Value given(const Tensor& tensor) {
    if (tensor.type() == ort::kInt64) return {tensor.data<int64_t>(), tensor.shape()};
    if (tensor.type() != ort::kBool) return {nullptr, tensor.shape()};
    const int64_t count = tensor.shape().count();
    int64_t* const numbers = room(count);
    for (int64_t i = 0; i < count; ++i) numbers[i] = tensor.data<uint8_t>()[i] != 0;
    return {numbers, tensor.shape()};
  }

  const Integers& program_;
  Context& node_;
  std::vector<Value> values_;
  std::vector<std::unique_ptr<int64_t[]>> large_;
  size_t used_ = 0;
  int64_t small_[4096];
};

// An operator: how many inputs it has, and how many settings at least.
struct IntegerOperator {
  const char* name;
  Value (*compute)(Run& run, const Step& step);
  size_t least, most, settings;
};

// Return the operator on numbers, or on shapes and places, of that name; null if there is none.
const IntegerOperator* number_operator(const std::string& name);
const IntegerOperator* shape_operator(const std::string& name);

// The first with the name among some.
template <size_t kCount>
const IntegerOperator* operator_named(const IntegerOperator (&all)[kCount], const std::string& name) {
  const IntegerOperator* const found = std::find_if(all, all + kCount, [&](const IntegerOperator& each) { return name == each.name; });
  return found == all + kCount ? nullptr : found;
}

}  // namespace speccompile
