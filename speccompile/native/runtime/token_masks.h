// The input `allowed`: the tokens that may follow the nodes of a round (runtime/rounds/token_masks.py).
#pragma once

#include <cstdint>
#include <vector>

#include "bound_graphs.h"
#include "draft_parents.h"
#include "slots.h"

namespace spc {

class TokenMasks {
 public:
  TokenMasks(Engine& engine, const Manifest& manifest);

  // Return the width of the input: the vocabulary if a sequence that takes tokens of this run is constrained, else 1.
  int64_t width(const SlotList& taking) const;
  // Write the masks of the slots that take tokens of a run; those of other slots are not used. The drafts are known by then.
  void write(const VerifyPass& forward, const BoundGraphs& rounds, const SlotList& taking) const;

 private:
  Engine& engine_;
  const Manifest& manifest_;
  const DraftParents parents_;
  uint8_t* timed_ = nullptr;       // bool [B]: sequences that write times; null for a target without
};

}  // namespace spc
