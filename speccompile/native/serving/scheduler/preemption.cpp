// Preemption: a sequence that waits with a higher priority takes the batch slot of a running one (serving/scheduler/preemption.py).
#include <algorithm>

#include "pictures.h"
#include "scheduler.h"

namespace spc {

// Return whether a sequence can begin, after preempting another one of lower priority where that is needed.
bool Scheduler::has_room() {
  if (!slots_.is_full()) return !reading_ || !reading_->slot;
  if (!limits_.by_priority) return false;
  const std::vector<Scheduled> running = slots_.running();
  const ClientRows of_client = client_rows(running);
  std::vector<Scheduled> present;
  for (const Scheduled& served : running)
    if ((!reading_ || served == reading_) && can_go_on(*served)) present.push_back(served);  // before the end of a prefill no other begins
  Scheduled victim;
  AwaitedPictures pictures(slots_);
  {
    const std::lock_guard<std::mutex> held(mutex_);
    waiting_.first([&](const ScheduledSequence& first) {
      victim = victim_of(first, present, of_client);
      if (victim && pictures.lacks(first)) victim = nullptr;
      return victim != nullptr;
    });
  }
  if (victim) preempt(victim);
  return victim != nullptr;
}

// Return whether a new sequence gets the slot of a running one, which waits in its place. The queue exceeds its limit by at most one
// batch in this way. The lock is held: this is the thread that submits.
bool Scheduler::preempts(const ScheduledSequence& first) const {
  const int64_t free = slots_.size() - running_;
  if (!limits_.by_priority || waiting_.requests() >= free + limits_.requests + slots_.size()) return false;
  const ClientRows of_client = client_rows(occupants_);
  std::vector<Scheduled> present;
  for (const Scheduled& served : occupants_)
    if (can_go_on(*served)) present.push_back(served);
  const std::vector<Scheduled> ahead = waiting_.ahead_of(first);
  for (size_t place = static_cast<size_t>(free); place < ahead.size(); ++place)
    present.erase(std::remove(present.begin(), present.end(), victim_of(*ahead[place], present, of_client)), present.end());
  return victim_of(first, present, of_client) != nullptr;
}

// Tell the threads that submit which sequences have a slot. The lock is held.
void Scheduler::publish() {
  occupants_ = slots_.running();
  running_ = taken();
}

// Return client -> number of its slots.
Scheduler::ClientRows Scheduler::client_rows(const std::vector<Scheduled>& running) {
  ClientRows found;
  for (const Scheduled& served : running) ++found[served->terms.client];
  return found;
}

// Return whether the client of a sequence may have one more slot.
bool Scheduler::may_begin(const ScheduledSequence& served, const ClientRows& of_client) const {
  const auto found = of_client.find(served.terms.client);
  return (found == of_client.end() ? 0 : found->second) < limits_.client_rows.value_or(slots_.size());
}

// Return the sequence that loses its slot to `first`: of those with the lowest priority the one that came last, and only one of the
// same client where that has all its slots. Null if none has a lower priority.
Scheduled Scheduler::victim_of(const ScheduledSequence& first, const std::vector<Scheduled>& present, const ClientRows& of_client) const {
  const bool own_only = !may_begin(first, of_client);
  Scheduled found;
  for (const Scheduled& served : present) {
    if (served->terms.priority <= first.terms.priority || (own_only && served->terms.client != first.terms.client)) continue;
    if (!found || found->is_before(*served)) found = served;
  }
  return found;
}

// Return whether a sequence gets the same tokens after an interruption, which costs it the drafts of a round: not where its drafts
// are drawn, or where it accepts drafts that the target would not choose.
bool Scheduler::can_go_on(const ScheduledSequence& served) const {
  return !served.speculative || (decoder_.bundle->manifest().exact && loop_.drafting().allows_adaptive_length(served.row));
}

// Let a running sequence wait again. Its slot holds its text until another sequence takes it, and the folder of sessions may keep it
// for longer.
void Scheduler::preempt(const Scheduled& served) {
  if (served == reading_) reading_ = nullptr;
  slots_.release(*served, loop_.release(served->slot.value()).tokens);
  keep(*served, loop_.left);
  {
    const std::lock_guard<std::mutex> held(mutex_);
    served->slot.reset();
    waiting_.put_back(served);
    publish();
  }
  observer_.preempted();
}

}  // namespace spc
