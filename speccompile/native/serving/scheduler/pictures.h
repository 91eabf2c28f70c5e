// Pictures of sequences that wait: encoded before a sequence gets a batch slot, while others begin and run
// (serving/scheduler/pictures.py).
#pragma once

#include "../../images/media.h"
#include "slot_allocator.h"

namespace spc {

// One look at the waiting sequences, in their order: the pictures of the first that lacks some are being encoded. Those of others wait
// for it, so that no more than one picture is encoded at a time; sequences of text do not.
class AwaitedPictures {
 public:
  explicit AwaitedPictures(const SlotAllocator& slots) : slots_(slots) {}

  // Return whether a sequence needs pictures that are not encoded yet: none of those in the tokens that a slot holds. Throws Error(kEngine).
  bool lacks(const ScheduledSequence& served) {
    images::SequenceMedia* const media = served.row.media.get();
    if (!media) return false;
    if (first_) return true;
    if (media->prepare(slots_.longest_prefix(served), false)) return false;
    first_ = &served;
    served.request->begun = true;
    return true;
  }

  // Wait a moment for the picture that is being encoded. Throws Error(kEngine).
  void wait() const {
    if (first_) first_->row.media->prepare(slots_.longest_prefix(*first_), true);
  }

 private:
  const SlotAllocator& slots_;
  const ScheduledSequence* first_ = nullptr;
};

}  // namespace spc
