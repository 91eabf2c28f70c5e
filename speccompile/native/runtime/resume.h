// Number of tokens of a slot's content that a sequence goes on from (runtime/rounds/resume.py).
#pragma once

#include <cstdint>

#include "draft_controller.h"
#include "slots.h"

namespace spc {

// Components with recurrent states, which cannot go back.
struct Recurrent {
  bool target, drafter;
};

// Set a free slot's lengths to those of its content, and return the number of tokens with which a sequence goes on. Recurrent
// states of the target serve only a sequence that begins with all tokens; a drafter's are dropped unless all that they have read
// is kept.
int64_t resume_slot(Slot& slot, const SequenceState& row, const SlotContent& content, const DraftController& drafting,
                    const Recurrent& recurrent, bool speculative);

}  // namespace spc
