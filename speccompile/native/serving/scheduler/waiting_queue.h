// Queue of sequences that wait for a batch slot: those with a lower priority number first, then who came first (serving/scheduler/waiting_queue.py).
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "limits.h"
#include "scheduled.h"

namespace spc {

using Scheduled = std::shared_ptr<ScheduledSequence>;

// Sequences without a batch slot, in the order in which they get one. The caller ensures that one thread at a time uses it.
class WaitingQueue {
 public:
  explicit WaitingQueue(const Limits& limits) : limits_(limits) {}

  bool is_empty() const { return line_.empty(); }
  int64_t size() const { return static_cast<int64_t>(line_.size()); }
  // Return the number of requests none of whose sequences has had a slot, and of sequences that were preempted; and of the tokens
  // that these have to read.
  int64_t requests() const;
  int64_t tokens() const;
  // Return the limit that one more request with `tokens` prompt tokens would exceed, or null. free: free slots, which the first
  // requests get as soon as those before them are prefilled.
  const char* exceeded_limit(int64_t tokens, int64_t free) const;
  // Add all sequences of one request, behind those that have its priority.
  void add(const std::vector<Scheduled>& sequences);
  // Return the sequences that get a slot before one that has just come.
  std::vector<Scheduled> ahead_of(const ScheduledSequence& served) const;
  // Add a preempted sequence, before those with its priority that came later.
  void put_back(const Scheduled& served);
  // Return the first sequence that may begin, or null. `pop` removes it.
  Scheduled first(const std::function<bool(const ScheduledSequence&)>& may) const;
  Scheduled pop(const std::function<bool(const ScheduledSequence&)>& may);
  // Remove and return all sequences that need not wait any longer.
  std::vector<Scheduled> pop_expired(const std::function<bool(const ScheduledSequence&)>& is_over);

 private:
  const Limits& limits_;
  std::deque<Scheduled> line_;
};

}  // namespace spc
