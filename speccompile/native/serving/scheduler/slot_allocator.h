// Batch slots of a bundle: the slot that a sequence gets, and the cached prefix of its prompt
// (serving/scheduler/slot_allocator.py).
//
// A slot whose sequence has ended keeps its cached tokens. The next sequence whose prompt has the same prefix continues from
// there: cache entries after the prefix are never read. The caches of other slots can be copied.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "waiting_queue.h"

namespace spc {

// Batch slot of a sequence. reuse: number of its prompt tokens that the slot holds, once the caches of slot `source` are copied
// to it, if there is one.
struct SlotAssignment {
  int64_t slot, reuse;
  std::optional<int64_t> source;
};

// All batch slots of a bundle.
class SlotAllocator {
 public:
  // (slot, tokens) -> number of the first tokens in a slot's caches that another sequence can reuse.
  using Usable = std::function<int64_t(int64_t, int64_t)>;

  SlotAllocator(int64_t count, Usable usable) : entries_(static_cast<size_t>(count)), usable_(std::move(usable)) {}

  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  bool is_full() const;
  // Sequences that have a slot, in the order of the slots.
  std::vector<Scheduled> running() const;
  // Return a free slot for a sequence, and the slot that holds the longest prefix of its prompt, to copy if it is another.
  //
  // Rounds run over the range from the first occupied slot to the last: the choice keeps it short. Among slots that are equal in
  // that, the longest prefix decides, then the least recent use.
  SlotAssignment choose(const ScheduledSequence& wanted) const;
  // Return the number of cached prompt tokens in a slot, 0 if nothing can be reused. The last prompt token is always read: it gives the next token.
  int64_t cached_prefix_length(int64_t slot, const ScheduledSequence& wanted) const;
  // Return the largest number of cached tokens of its prompt that a slot holds.
  int64_t longest_prefix(const ScheduledSequence& wanted) const;
  // Assign the slot to a sequence.
  void assign(int64_t slot, const Scheduled& served);
  // Free the slot of a sequence; its caches hold `text`.
  void release(ScheduledSequence& served, TokenIds text);
  // Free all slots, and forget what their caches hold.
  void clear();

 private:
  // served: the sequence that occupies the slot, or null. text: cached token ids of the last sequence, with its salt and adapter.
  // used: number of sequences that had ended at its end, for least-recently-used reuse.
  struct SlotEntry {
    Scheduled served;
    TokenIds text;
    std::string salt, adapter;
    int64_t used = 0;
  };

  int64_t held(const SlotEntry& entry, const ScheduledSequence& wanted) const;
  int64_t span(int64_t slot) const;

  std::vector<SlotEntry> entries_;
  Usable usable_;
  int64_t ended_ = 0;
};

}  // namespace spc
