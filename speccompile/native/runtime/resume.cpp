#include "resume.h"

#include <algorithm>

namespace spc {

int64_t resume_slot(Slot& slot, const SequenceState& row, const SlotContent& content, const DraftController& drafting,
                    const Recurrent& recurrent, bool speculative) {
  if (content.adapter_key != row.adapter_key || content.source != row.source_key()) return 0;
  const int64_t size = static_cast<int64_t>(content.tokens.size());
  const int64_t reuse = std::min(common_prefix_length(content.tokens, row.identity()), row.size() - 1);
  slot.committed_length = size;
  slot.drafter_length = content.drafter_length;
  slot.written = content.written;
  if (recurrent.drafter && drafting.kept_length(slot, reuse) != slot.drafter_length) slot.drafter_length = 0;
  if (!recurrent.target) return reuse;
  const bool must_read = speculative && !drafting.catches_up_alone && drafting.kept_length(slot, reuse) < reuse;
  return reuse == size && !must_read ? reuse : 0;
}

}  // namespace spc
