#include "slot_state.h"

#include <algorithm>
#include <cstring>

#include "../words.h"

namespace spc {
namespace {

// Runs of bytes that are whole in a part of a line: their number, and the bytes of each in the part and in the line.
struct Runs {
  size_t count, part, line;
};

Runs runs_of(const SlotStates::State& state, const Shape& part) {
  const size_t item = item_size(state.dtype), count = part.size() == 3 ? static_cast<size_t>(part[0]) : 1;
  const auto bytes = [&](const Shape& shape) { return static_cast<size_t>(product(shape)) * item / std::max<size_t>(count, 1); };
  return {count, bytes(part), bytes(state.line)};
}

}  // namespace

SlotStates::SlotStates(Engine& engine, const std::vector<Graph>& graphs) : engine_(engine) {
  for (const Graph& graph : graphs)
    for (const Tensor& tensor : graph.inputs) {
      if (tensor.role != role::kState || starts_with(tensor.buffer, kPersistentPrefix) || starts_with(tensor.buffer, kOutOfPlacePrefix)) continue;
      if (std::any_of(states_.begin(), states_.end(), [&](const State& each) { return each.buffer == tensor.buffer; })) continue;
      const Shape shape = tensor.concrete_shape({});
      states_.push_back({tensor.buffer, tensor.dtype, shape, Shape(shape.begin() + 1, shape.end())});
    }
}

std::string SlotStates::read(const State& state, int64_t slot, const Shape& part) const {
  const Runs runs = runs_of(state, part);
  const char* const line = static_cast<const char*>(engine_.host_view(state.buffer, state.shape).data) + static_cast<size_t>(slot) * state.line_bytes();
  std::string found;
  found.reserve(runs.count * runs.part);
  for (size_t i = 0; i < runs.count; ++i) found.append(line + i * runs.line, runs.part);
  return found;
}

void SlotStates::write(const State& state, int64_t slot, const Shape& part, std::string_view values) const {
  const Runs runs = runs_of(state, part);
  const Array held = engine_.host_view(state.buffer, state.shape);
  char* const line = static_cast<char*>(held.data) + static_cast<size_t>(slot) * state.line_bytes();
  for (size_t i = 0; i < runs.count && runs.part; ++i) std::memcpy(line + i * runs.line, values.data() + i * runs.part, runs.part);
  engine_.write_state(state.buffer, state.shape, held.data);  // the view may be a copy of a device buffer
}

void SlotStates::copy(int64_t source, int64_t slot) const {
  for (const State& state : states_) write(state, slot, state.line, read(state, source, state.line));
}

}  // namespace spc
