// Steps of a program of integers that move numbers, and sums along an axis.
#include <array>

#include "integer_run.h"

namespace speccompile {
namespace {

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
  size_t open = kMissingInput;
  for (size_t i = 0; i < shape.rank; ++i) {
    shape.sizes[i] = wanted.data[i] == 0 && i < x.shape.rank ? x.shape[i] : wanted.data[i];
    if (shape.sizes[i] == -1) open = i, shape.sizes[i] = 1;
  }
  if (open != kMissingInput && shape.count() > 0) shape.sizes[open] = x.shape.count() / shape.count();
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
  int64_t* const numbers = run.room(at.shape.count());
  Strides steps = strides_of(x.shape);
  const int64_t behind = std::exchange(steps[axis], 0);
  walk(at.shape, std::array<Strides, 1>{steps}, [&](int64_t i, const std::array<int64_t, 1>& from) {
    numbers[i] = x.data[from[0] + place_of(at.data[i], x.shape[axis]) * behind];
  });
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
  const Strides steps = strides_of(x.shape);
  int64_t start = 0;
  for (size_t i = 0; i < x.shape.rank; ++i) start += first[i] * steps[i];
  walk(shape, std::array<Strides, 1>{steps}, [&](int64_t i, const std::array<int64_t, 1>& from) { numbers[i] = x.data[start + from[0]]; });
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

constexpr IntegerOperator kOperators[] = {
    {"Shape", sizes, 1, 1, 2}, {"Identity", same, 1, 1, 0}, {"Unsqueeze", unsqueeze, 1, 1, 1}, {"Squeeze", squeeze, 1, 1, 0},
    {"Reshape", reshape, 2, 2, 0}, {"Expand", expand, 2, 2, 0}, {"Range", range, 3, 3, 0}, {"Concat", concat, 1, kMostIntegerValues, 1},
    {"GatherElements", gather_elements, 2, 2, 1}, {"Gather", gather, 2, 2, 1}, {"Slice", slice, 3, 5, 0},
    {"CumSum", cumulative_sum, 1, 1, 1}, {"ReduceSum", sum, 1, 1, 2},
};

}  // namespace

const IntegerOperator* shape_operator(const std::string& name) { return operator_named(kOperators, name); }

}  // namespace speccompile
