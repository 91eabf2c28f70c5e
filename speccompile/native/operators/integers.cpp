#include "integers.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <sstream>
#include <utility>

namespace speccompile {
namespace {

using Value = Integers::Value;
using Step = Integers::Step;
using Run = Integers::Run;

constexpr size_t kMissing = ~size_t{0};
constexpr size_t kMostValues = 4096;
constexpr int64_t kMostNumbers = int64_t{1} << 28;  // of a value

[[noreturn]] void refuse(const std::string& what) { throw OperatorError("Integers: " + what); }

Shape shape_of(std::initializer_list<int64_t> sizes) {
  Shape shape{{}, sizes.size()};
  std::copy(sizes.begin(), sizes.end(), shape.sizes);
  return shape;
}

// Return the axis counted from the front.
size_t axis_of(int64_t axis, size_t rank) {
  if (axis < 0) axis += static_cast<int64_t>(rank);
  if (axis < 0 || axis >= static_cast<int64_t>(rank)) refuse("received axis " + std::to_string(axis) + " of " + std::to_string(rank));
  return static_cast<size_t>(axis);
}

// Return the numbers of which a step along the axis skips so many, and those that lie before it.
std::pair<int64_t, int64_t> around(const Shape& shape, size_t axis) {
  int64_t before = 1, behind = 1;
  for (size_t i = 0; i < axis; ++i) before *= shape[i];
  for (size_t i = axis + 1; i < shape.rank; ++i) behind *= shape[i];
  return {before, behind};
}

Shape broadcast(const Shape& a, const Shape& b) {
  Shape shape{{}, std::max(a.rank, b.rank)};
  for (size_t i = 0; i < shape.rank; ++i) {  // from the last axis on
    const int64_t x = i < a.rank ? a[a.rank - 1 - i] : 1, y = i < b.rank ? b[b.rank - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) refuse("received the shapes " + describe(a) + " and " + describe(b) + ", which do not broadcast");
    shape.sizes[shape.rank - 1 - i] = x == 1 ? y : x;
  }
  return shape;
}

// Calls f(number of the result, number of each input's value), for all results in order.
template <size_t kCount, class F>
void for_each(const std::array<Value, kCount>& values, const Shape& shape, F f) {
  std::array<std::array<int64_t, 8>, kCount> steps{};
  for (size_t v = 0; v < kCount; ++v) {
    int64_t step = 1;
    for (size_t i = 0; i < values[v].shape.rank; ++i) {
      const int64_t size = values[v].shape[values[v].shape.rank - 1 - i];
      steps[v][shape.rank - 1 - i] = size == 1 ? 0 : step;
      step *= size;
    }
  }
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

}  // namespace

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

  static bool has(const Step& step, size_t index) { return index < step.inputs.size() && step.inputs[index] != kMissing; }

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

// settings: start, end
Value sizes(Run& run, const Step& step) {
  const Shape& shape = run.shape(step);
  const int64_t rank = static_cast<int64_t>(shape.rank);
  const auto within = [&](int64_t place) { return std::clamp(place < 0 ? place + rank : place, int64_t{0}, rank); };
  const int64_t start = within(step.settings.at(0)), count = std::max(int64_t{0}, within(step.settings.at(1)) - start);
  int64_t* const numbers = run.room(count);
  std::copy_n(shape.sizes + start, count, numbers);
  return {numbers, shape_of({count})};
}

Value same(Run& run, const Step& step) { return run.input(step, 0); }

// settings: the new axes
Value unsqueeze(Run& run, const Step& step) {
  const Value& x = run.input(step, 0);
  const size_t rank = x.shape.rank + step.settings.size();
  if (rank > std::size(x.shape.sizes)) refuse("Unsqueeze: expected at most 8 axes");
  std::array<bool, 8> is_new{};
  for (const int64_t axis : step.settings) is_new[axis_of(axis, rank)] = true;
  Shape shape{{}, rank};
  for (size_t i = 0, from = 0; i < rank; ++i) shape.sizes[i] = is_new[i] ? 1 : from < x.shape.rank ? x.shape[from++] : 0;
  if (shape.count() != x.shape.count()) refuse("Unsqueeze: received an axis twice");
  return {x.data, shape};
}

// settings: the axes to leave out; all of size 1 if there are none
Value squeeze(Run& run, const Step& step) {
  const Value& x = run.input(step, 0);
  std::array<bool, 8> leaves{};
  for (const int64_t axis : step.settings) leaves[axis_of(axis, x.shape.rank)] = true;
  Shape shape{{}, 0};
  for (size_t i = 0; i < x.shape.rank; ++i)
    if (!(step.settings.empty() ? x.shape[i] == 1 : leaves[i])) shape.sizes[shape.rank++] = x.shape[i];
  if (shape.count() != x.shape.count()) refuse("Squeeze: received an axis of more than one");
  return {x.data, shape};
}

Value reshape(Run& run, const Step& step) {
  const Value &x = run.input(step, 0), &wanted = run.input(step, 1);
  const int64_t rank = wanted.shape.count();
  if (rank > static_cast<int64_t>(std::size(x.shape.sizes))) refuse("Reshape: expected at most 8 axes");
  Shape shape{{}, static_cast<size_t>(rank)};
  size_t open = kMissing;
  for (size_t i = 0; i < shape.rank; ++i) {
    shape.sizes[i] = wanted.data[i] == 0 && i < x.shape.rank ? x.shape[i] : wanted.data[i];
    if (shape.sizes[i] == -1) open = i, shape.sizes[i] = 1;
  }
  if (open != kMissing && shape.count() > 0) shape.sizes[open] = x.shape.count() / shape.count();
  if (shape.count() != x.shape.count()) refuse("Reshape: received the shape " + describe(x.shape) + " for " + describe(shape));
  return {x.data, shape};
}

Value expand(Run& run, const Step& step) {
  const Value &x = run.input(step, 0), &wanted = run.input(step, 1);
  if (wanted.shape.count() > static_cast<int64_t>(std::size(x.shape.sizes))) refuse("Expand: expected at most 8 axes");
  Shape asked{{}, static_cast<size_t>(wanted.shape.count())};
  std::copy_n(wanted.data, asked.rank, asked.sizes);
  const Shape shape = broadcast(x.shape, asked);
  if (shape.count() == x.shape.count()) return {x.data, shape};
  int64_t* const numbers = run.room(shape.count());
  for_each(std::array<Value, 1>{x}, shape, [&](int64_t i, const std::array<int64_t, 1>& at) { numbers[i] = x.data[at[0]]; });
  return {numbers, shape};
}

Value range(Run& run, const Step& step) {
  const int64_t start = run.list(step, 0).at(0), limit = run.list(step, 1).at(0), delta = run.list(step, 2).at(0);
  if (delta != 1) refuse("Range: received steps of " + std::to_string(delta) + ", expected 1");
  const int64_t count = std::max(int64_t{0}, limit - start);
  int64_t* const numbers = run.room(count);
  for (int64_t i = 0; i < count; ++i) numbers[i] = start + i;
  return {numbers, shape_of({count})};
}

// settings: axis
Value concat(Run& run, const Step& step) {
  Shape shape = run.input(step, 0).shape;
  const size_t axis = axis_of(step.settings.at(0), shape.rank);
  const auto [before, behind] = around(shape, axis);
  shape.sizes[axis] = 0;
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    Shape other = run.input(step, i).shape;
    if (other.rank != shape.rank) refuse("Concat: expected tensors of as many axes");
    shape.sizes[axis] += std::exchange(other.sizes[axis], 1);
    if (other.count() != before * behind) refuse("Concat: received the shape " + describe(other) + ", which does not fit the first");
  }
  int64_t* const numbers = run.room(shape.count());
  int64_t offset = 0;
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    const Value& part = run.input(step, i);
    const int64_t row = part.shape[axis] * behind;
    for (int64_t b = 0; b < before; ++b) std::copy_n(part.data + b * row, row, numbers + b * shape[axis] * behind + offset);
    offset += row;
  }
  return {numbers, shape};
}

int64_t place_of(int64_t index, int64_t size) {
  const int64_t place = index < 0 ? index + size : index;
  if (place < 0 || place >= size) refuse("received the index " + std::to_string(index) + " of " + std::to_string(size) + " numbers");
  return place;
}

// settings: axis
Value gather_elements(Run& run, const Step& step) {
  const Value &x = run.input(step, 0), &at = run.input(step, 1);
  const size_t axis = axis_of(step.settings.at(0), x.shape.rank);
  if (at.shape.rank != x.shape.rank) refuse("GatherElements: received the indices " + describe(at.shape) + " for " + describe(x.shape));
  for (size_t i = 0; i < x.shape.rank; ++i)
    if (i != axis && at.shape[i] > x.shape[i]) refuse("GatherElements: received the indices " + describe(at.shape) + " for " + describe(x.shape));
  const int64_t behind = around(x.shape, axis).second;
  int64_t* const numbers = run.room(at.shape.count());
  std::array<int64_t, 8> steps{}, place{};
  int64_t stride = 1;
  for (size_t i = x.shape.rank; i-- > 0; stride *= x.shape[i]) steps[i] = i == axis ? 0 : stride;
  const int64_t count = at.shape.count();
  for (int64_t i = 0, from = 0; i < count; ++i) {
    numbers[i] = x.data[from + place_of(at.data[i], x.shape[axis]) * behind];
    for (size_t other = at.shape.rank; other-- > 0;) {
      from += steps[other];
      if (++place[other] < at.shape[other]) break;
      from -= steps[other] * at.shape[other], place[other] = 0;
    }
  }
  return {numbers, at.shape};
}

// settings: axis
Value gather(Run& run, const Step& step) {
  const Value &x = run.input(step, 0), &at = run.input(step, 1);
  const size_t axis = axis_of(step.settings.at(0), x.shape.rank);
  const auto [before, behind] = around(x.shape, axis);
  Shape shape{{}, x.shape.rank - 1 + at.shape.rank};
  if (shape.rank > std::size(shape.sizes)) refuse("Gather: expected at most 8 axes");
  int64_t* to = std::copy_n(x.shape.sizes, axis, shape.sizes);
  to = std::copy_n(at.shape.sizes, at.shape.rank, to);
  std::copy(x.shape.sizes + axis + 1, x.shape.sizes + x.shape.rank, to);
  const int64_t count = at.shape.count(), size = x.shape[axis];
  int64_t* numbers = run.room(shape.count());
  const Value found{numbers, shape};
  for (int64_t b = 0; b < before; ++b)
    for (int64_t i = 0; i < count; ++i) numbers = std::copy_n(x.data + (b * size + place_of(at.data[i], size)) * behind, behind, numbers);
  return found;
}

// inputs: data, starts, ends, axes and steps, which are all 1
Value slice(Run& run, const Step& step) {
  const Value& x = run.input(step, 0);
  const std::vector<int64_t> starts = run.list(step, 1), ends = run.list(step, 2);
  Shape shape = x.shape;
  std::array<int64_t, 8> first{};
  for (size_t i = 0; i < starts.size(); ++i) {
    const size_t axis = axis_of(Run::has(step, 3) ? run.list(step, 3).at(i) : static_cast<int64_t>(i), x.shape.rank);
    if (Run::has(step, 4) && run.list(step, 4).at(i) != 1) refuse("Slice: expected steps of 1");
    const int64_t size = x.shape[axis];
    const auto within = [&](int64_t place) { return std::clamp(place < 0 ? place + size : place, int64_t{0}, size); };
    first[axis] = within(starts[i]);
    shape.sizes[axis] = std::max(int64_t{0}, within(ends.at(i)) - first[axis]);
  }
  if (shape.count() == x.shape.count()) return x;
  int64_t* const numbers = run.room(shape.count());
  std::array<int64_t, 8> steps{}, place{};
  int64_t stride = 1, from = 0;
  for (size_t i = x.shape.rank; i-- > 0; stride *= x.shape[i]) steps[i] = stride, from += first[i] * stride;
  const int64_t count = shape.count();
  for (int64_t i = 0; i < count; ++i) {
    numbers[i] = x.data[from];
    for (size_t axis = shape.rank; axis-- > 0;) {
      from += steps[axis];
      if (++place[axis] < shape[axis]) break;
      from -= steps[axis] * shape[axis], place[axis] = 0;
    }
  }
  return {numbers, shape};
}

// settings: axis
Value cumulative_sum(Run& run, const Step& step) {
  const Value& x = run.input(step, 0);
  const size_t axis = axis_of(step.settings.at(0), x.shape.rank);
  const auto [before, behind] = around(x.shape, axis);
  const int64_t row = x.shape[axis] * behind;
  int64_t* const numbers = run.room(x.shape.count());
  for (int64_t i = 0; i < before * row; ++i) numbers[i] = x.data[i] + (i % row < behind ? 0 : numbers[i - behind]);
  return {numbers, x.shape};
}

// settings: 1 if the axis stays, with size 1; the axis
Value sum(Run& run, const Step& step) {
  const Value& x = run.input(step, 0);
  const size_t axis = axis_of(step.settings.at(1), x.shape.rank);
  const auto [before, behind] = around(x.shape, axis);
  const int64_t size = x.shape[axis];
  int64_t* const numbers = run.room(before * behind);
  std::fill_n(numbers, before * behind, 0);
  for (int64_t b = 0; b < before; ++b)
    for (int64_t i = 0; i < size; ++i)
      for (int64_t j = 0; j < behind; ++j) numbers[b * behind + j] += x.data[(b * size + i) * behind + j];
  Shape shape{{}, 0};
  for (size_t i = 0; i < x.shape.rank; ++i)
    if (i != axis || step.settings[0]) shape.sizes[shape.rank++] = i == axis ? 1 : x.shape[i];
  return {numbers, shape};
}

// settings: rank, sizes, values
Value constant(Run&, const Step& step) {
  const size_t rank = static_cast<size_t>(step.settings.at(0));
  Shape shape{{}, rank};
  std::copy_n(step.settings.data() + 1, rank, shape.sizes);
  return {step.settings.data() + 1 + rank, shape};
}

struct Known {
  const char* name;
  Value (*compute)(Run& run, const Step& step);
  size_t least, most, settings;  // inputs, and how many settings it has at least
};

constexpr Known kKnown[] = {
    {"Add", add, 2, 2, 0}, {"Sub", sub, 2, 2, 0}, {"Mul", mul, 2, 2, 0}, {"Div", divide, 2, 2, 0}, {"Mod", remainder, 2, 2, 0}, {"Equal", equal, 2, 2, 0}, {"Less", less, 2, 2, 0},
    {"LessOrEqual", less_or_equal, 2, 2, 0}, {"Greater", greater, 2, 2, 0}, {"GreaterOrEqual", greater_or_equal, 2, 2, 0},
    {"And", both, 2, 2, 0}, {"Or", either, 2, 2, 0}, {"Min", smaller, 2, 2, 0}, {"Max", larger, 2, 2, 0}, {"Not", negate, 1, 1, 0},
    {"Where", where, 3, 3, 0}, {"Cast", cast, 1, 1, 1}, {"Clip", clip, 1, 3, 0}, {"Shape", sizes, 1, 1, 2}, {"Identity", same, 1, 1, 0},
    {"Unsqueeze", unsqueeze, 1, 1, 1}, {"Squeeze", squeeze, 1, 1, 0}, {"Reshape", reshape, 2, 2, 0}, {"Expand", expand, 2, 2, 0},
    {"Range", range, 3, 3, 0}, {"Concat", concat, 1, kMostValues, 1}, {"GatherElements", gather_elements, 2, 2, 1},
    {"Gather", gather, 2, 2, 1}, {"Slice", slice, 3, 5, 0}, {"CumSum", cumulative_sum, 1, 1, 1}, {"ReduceSum", sum, 1, 1, 2},
    {"Constant", constant, 0, 0, 1},
};

// Throws unless a constant has as many values as its sizes say.
void check_constant(const std::vector<int64_t>& settings) {
  const int64_t rank = settings[0], most = static_cast<int64_t>(settings.size()) - 1;
  int64_t count = 1;
  for (int64_t i = 0; rank >= 0 && rank <= std::min(most, int64_t{8}) && i < rank; ++i) {
    const int64_t size = settings[static_cast<size_t>(i) + 1];
    count = size < 0 || size > most || count > most ? -1 : count * size;
  }
  if (rank < 0 || rank > 8 || count != most - rank) refuse("received a constant whose values do not fit its sizes");
}

}  // namespace

Integers::Integers(const Info& info) : inputs_(static_cast<size_t>(info.integer("inputs"))) {
  if (inputs_ > kMostValues) refuse("received " + std::to_string(inputs_) + " inputs, expected at most " + std::to_string(kMostValues));
  std::istringstream lines(info.text("steps"));
  for (std::string line; std::getline(lines, line);) add_step(line);
  std::istringstream results(info.text("results"));
  for (size_t value; results >> value;) {
    if (value < inputs_ || value >= inputs_ + steps_.size()) refuse("results: received the number " + std::to_string(value) + ", expected one of a step");
    results_.push_back(value);
  }
}

void Integers::add_step(const std::string& line) {
  std::istringstream text(line);
  std::string name, word;
  text >> name;
  const Known* known = std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& each) { return name == each.name; });
  if (known == std::end(kKnown)) refuse("received the step \"" + name + "\", expected an operator that it knows");
  Step step{known->compute, {}, {}};
  while (text >> word && word != ";") {
    size_t value = kMissing;
    if (word != "-" && !(std::istringstream(word) >> value)) refuse(name + ": received \"" + word + "\", expected a number");
    if (word != "-" && value >= inputs_ + steps_.size()) refuse(name + ": received the number " + word + ", expected that of an earlier value");
    step.inputs.push_back(value);
  }
  for (int64_t setting; text >> setting;) step.settings.push_back(setting);
  if (step.inputs.size() < known->least || step.inputs.size() > known->most || step.settings.size() < known->settings)
    refuse(name + ": received " + std::to_string(step.inputs.size()) + " inputs and " + std::to_string(step.settings.size()) + " settings");
  if (known->compute == constant) check_constant(step.settings);
  if (steps_.size() >= kMostValues) refuse("expected at most " + std::to_string(kMostValues) + " steps");
  steps_.push_back(std::move(step));
}

void Integers::compute(Context& context) const { Run(*this, context).compute(); }

void Choose::compute(Context& context) const {
  const Tensor numbers = context.input(0);
  float* const to = context.output<float>(0, numbers.shape());
  const int64_t count = numbers.shape().count();
  for (int64_t i = 0; i < count; ++i) to[i] = numbers.data<int64_t>()[i] ? yes : no;
}

}  // namespace speccompile
