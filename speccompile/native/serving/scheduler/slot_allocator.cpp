#include "slot_allocator.h"

#include <algorithm>
#include <tuple>

#include "../../runtime/slots.h"

namespace spc {

bool SlotAllocator::is_full() const {
  return std::all_of(entries_.begin(), entries_.end(), [](const SlotEntry& entry) { return entry.served != nullptr; });
}

std::vector<Scheduled> SlotAllocator::running() const {
  std::vector<Scheduled> found;
  for (const SlotEntry& entry : entries_)
    if (entry.served) found.push_back(entry.served);
  return found;
}

SlotAssignment SlotAllocator::choose(const ScheduledSequence& wanted) const {
  std::vector<int64_t> held;
  for (int64_t slot = 0; slot < size(); ++slot) held.push_back(cached_prefix_length(slot, wanted));
  const double least = kSimilarPrefix * static_cast<double>(wanted.row.size());
  const auto rank = [&](int64_t slot) {
    const int64_t length = held[static_cast<size_t>(slot)];
    return std::make_tuple(span(slot), static_cast<double>(length) >= least ? -length : 0, entries_[static_cast<size_t>(slot)].used);
  };
  int64_t chosen = -1;
  for (int64_t slot = 0; slot < size(); ++slot)
    if (!entries_[static_cast<size_t>(slot)].served && (chosen < 0 || rank(slot) < rank(chosen))) chosen = slot;
  const int64_t source = std::max_element(held.begin(), held.end()) - held.begin();
  const int64_t most = held[static_cast<size_t>(source)];
  SlotAssignment found{chosen, most, std::nullopt};
  if (most > held[static_cast<size_t>(chosen)]) found.source = source;
  return found;
}

int64_t SlotAllocator::longest_prefix(const ScheduledSequence& wanted) const {
  int64_t found = 0;
  for (int64_t slot = 0; slot < size(); ++slot) found = std::max(found, cached_prefix_length(slot, wanted));
  return found;
}

int64_t SlotAllocator::cached_prefix_length(int64_t slot, const ScheduledSequence& wanted) const {
  return usable_(slot, held(entries_[static_cast<size_t>(slot)], wanted));
}

// Return the number of tokens of a prompt, and of its sequence so far, that a slot holds and may share.
int64_t SlotAllocator::held(const SlotEntry& entry, const ScheduledSequence& wanted) const {
  const TokenIds before = wanted.cached_token_ids();
  if (!entry.served) {
    const bool shares = wanted.terms.reuse && entry.salt == wanted.sharing_salt() && entry.adapter == wanted.row.adapter_key;
    return shares ? common_prefix_length(entry.text, before) : 0;
  }
  const bool shares = entry.served->terms.reuse && wanted.terms.reuse && entry.served->shares_with(wanted);
  return shares || entry.served->request == wanted.request ? common_prefix_length(entry.served->cached_token_ids(), before) : 0;
}

void SlotAllocator::assign(int64_t slot, const Scheduled& served) {
  SlotEntry& entry = entries_[static_cast<size_t>(slot)];
  entry = SlotEntry();
  entry.served = served;
  served->slot = slot;
}

void SlotAllocator::release(ScheduledSequence& served, TokenIds text) {
  SlotEntry& entry = entries_[static_cast<size_t>(served.slot.value())];
  if (!served.terms.reuse) text.clear();
  entry = {nullptr, std::move(text), served.sharing_salt(), served.row.adapter_key, ++ended_};
}

void SlotAllocator::clear() {
  std::fill(entries_.begin(), entries_.end(), SlotEntry());
  ended_ = 0;
}

// Return the number of slots in the range of a round once this slot is occupied too.
int64_t SlotAllocator::span(int64_t slot) const {
  int64_t first = slot, last = slot;
  for (int64_t place = 0; place < size(); ++place) {
    if (!entries_[static_cast<size_t>(place)].served) continue;
    first = std::min(first, place);
    last = std::max(last, place);
  }
  return last - first + 1;
}

}  // namespace spc
