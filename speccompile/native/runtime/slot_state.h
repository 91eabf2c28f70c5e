// Copy of one batch slot's states to another slot, in the buffers of an engine (runtime/rounds/slot_state.py).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine.h"

namespace spc {

// Copies the states that have a line for each batch slot. Persistent states are not copied: they serve drafts of any text.
class SlotStateCopier {
 public:
  // graphs: the engine's graphs, which may differ from the manifest's.
  SlotStateCopier(Engine& engine, const std::vector<Graph>& graphs);
  void copy(int64_t source, int64_t slot) const;

 private:
  Engine& engine_;
  std::map<std::string, Shape> shapes_;  // by buffer
};

}  // namespace spc
