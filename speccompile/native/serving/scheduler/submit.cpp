// Functions of a scheduler on the threads that submit.
#include <utility>

#include "scheduler.h"

namespace spc {
namespace {

// Throw Error(kUsage) for a request with more sequences than one may have, or with a priority where the queue has none.
void check_terms(const Request& asked, const Terms& terms, const Limits& limits) {
  if (terms.priority && !limits.by_priority)
    throw Error(Kind::kUsage, "priority: received " + std::to_string(terms.priority) + ", but this service takes requests in the order of their arrival",
                "leave it out, or serve with --scheduling-policy priority (Limits.scheduling_policy)");
  const std::optional<Value>& count = asked.num_return_sequences.all;
  if (!count || !count->is_whole || count->whole <= static_cast<uint64_t>(limits.sequences)) return;
  throw Error(Kind::kUsage,
              "num_return_sequences: received " + count->repr() + ", expected at most " + std::to_string(limits.sequences) + ", the service's limit",
              "ask several times, or serve with larger limits (Limits.sequences)");
}

}  // namespace

std::shared_ptr<ServedRequest> Scheduler::submit(const Request& asked, const Terms& terms) {
  if (asked.n_prompts() != 1)
    throw Error(Kind::kUsage, "received " + std::to_string(asked.n_prompts()) + " prompts, expected one", "submit one request for each prompt");
  check_terms(asked, terms, limits_);
  auto [options, rows] = decoder_.make_sequences(asked, false);
  const auto request = std::make_shared<ServedRequest>(static_cast<int64_t>(rows.size()));
  const double now = clock_();
  const bool speculative = decoder_.can_draft() && !options.autoregressive;
  Terms own = terms;
  own.reuse = own.reuse && limits_.reuse;
  std::vector<Scheduled> sequences;
  for (size_t index = 0; index < rows.size(); ++index)
    sequences.push_back(std::make_shared<ScheduledSequence>(request, static_cast<int64_t>(index), std::move(rows[index]), speculative, options.adaptive, own, now));
  {
    const std::lock_guard<std::mutex> held(mutex_);
    refuse(*sequences[0]);
    waiting_.add(sequences);
  }
  changed_.notify_all();
  tell_queue();
  return request;
}

// Throw Error(kEngine) or OverloadedError if a request, whose first sequence this is, cannot be taken now. The lock is held.
void Scheduler::refuse(const ScheduledSequence& first) {
  if (failure_) {
    observer_.refused("failed");
    throw Error(Kind::kEngine, "the service has ended: " + failure_->message, "open the bundle again");
  }
  if (closing_) {
    observer_.refused("draining");
    throw OverloadedError("the service is closing: it takes no more requests", std::nullopt);
  }
  const char* const reason = waiting_.exceeded_limit(static_cast<int64_t>(first.row.prompt.size()), slots_.size() - running_);
  if (!reason || preempts(first)) return;
  observer_.refused(reason);
  const int64_t most = std::string(reason) == "requests" ? limits_.requests : limits_.tokens;
  throw OverloadedError(std::to_string(waiting_.requests()) + " requests with " + std::to_string(waiting_.tokens()) + " tokens wait already: expected at most " +
                            std::to_string(most) + " " + reason,
                        retry_after(waiting_.tokens()));
}

}  // namespace spc
