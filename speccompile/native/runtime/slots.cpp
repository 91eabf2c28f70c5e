#include "slots.h"

#include <algorithm>

namespace spc {

void Slot::admit(SequenceState& row, int64_t reuse, int64_t read, bool is_speculative, bool fixed) {
  sequence = &row;
  committed_length = prefill_position = reuse;
  drafter_length = read;
  speculative = is_speculative;
  fixed_draft_length = fixed;
  is_prefilled = has_drafts = lags_by_host_rounds = is_tracked = false;
}

Committed Slot::release() {
  TokenIds text = sequence->identity();
  committed_length = std::min(committed_length, static_cast<int64_t>(text.size()));
  drafter_length = std::min(drafter_length, committed_length);
  text.resize(static_cast<size_t>(committed_length));
  sequence = nullptr;
  is_prefilled = has_drafts = false;
  return {std::move(text), drafter_length};
}

void Slot::discard() {
  sequence = nullptr;
  is_prefilled = has_drafts = false;
  committed_length = 0;
}

int64_t common_prefix_length(const TokenIds& one, const TokenIds& other) {
  const auto shorter = static_cast<std::ptrdiff_t>(std::min(one.size(), other.size()));
  return std::mismatch(one.begin(), one.begin() + shorter, other.begin()).first - one.begin();
}

bool contains(const SlotList& slots, const Slot* slot) { return std::find(slots.begin(), slots.end(), slot) != slots.end(); }

Span slot_range(const SlotList& slots) {
  const auto [first, last] = std::minmax_element(slots.begin(), slots.end(), [](const Slot* one, const Slot* other) { return one->index < other->index; });
  return {(*first)->index, (*last)->index + 1};
}

std::vector<SlotList> group_by_length(const SlotList& slots) {
  std::vector<SlotList> found;
  for (Slot* const slot : slots) {
    const Slot* const last = found.empty() ? nullptr : found.back().back();
    if (last && slot->index == last->index + 1 && slot->sequence->size() == last->sequence->size())
      found.back().push_back(slot);
    else
      found.push_back({slot});
  }
  return found;
}

}  // namespace spc
