// States of one batch slot, in the buffers of an engine: copied to another slot, read and written
// (runtime/rounds/slot_state.py).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine.h"

namespace spc {

// The states that have a line for each batch slot. Persistent states are none of them: they serve drafts of any text.
class SlotStates {
 public:
  // One state. line: shape of one slot's part of it.
  struct State {
    std::string buffer, dtype;
    Shape shape, line;

    size_t line_bytes() const { return static_cast<size_t>(product(line)) * item_size(dtype); }
  };

  // graphs: the engine's graphs, which may differ from the manifest's.
  SlotStates(Engine& engine, const std::vector<Graph>& graphs);
  // Return the states in the order in which inputs of the graphs first name them.
  const std::vector<State>& all() const { return states_; }
  // Return the numbers of a part of a slot's line. part: its shape, that of the line but for one shorter dimension, the first of
  // one and the second of three, of which it has the first numbers.
  std::string read(const State& state, int64_t slot, const Shape& part) const;
  // Write a part of a slot's line.
  void write(const State& state, int64_t slot, const Shape& part, std::string_view values) const;
  // Copy the lines of slot `source` to `slot`.
  void copy(int64_t source, int64_t slot) const;

 private:
  Engine& engine_;
  std::vector<State> states_;
};

}  // namespace spc
