// Parents of the draft tokens in a slot's window, for hosts that write an input for every node (runtime/rounds/draft_parents.py).
#pragma once

#include <cstdint>
#include <vector>

#include "engine.h"

namespace spc {

class DraftParents {
 public:
  DraftParents(Engine& engine, const Manifest& manifest);
  // Return the parents of a slot's nodes, -1 of the root.
  std::vector<int64_t> of(int64_t slot) const;

 private:
  const int64_t nodes_;
  std::vector<int64_t> constant_;   // of a chain or of a tree that is constant
  const int64_t* made_ = nullptr;  // int64 [B, nodes]: of trees that graphs make
};

}  // namespace spc
