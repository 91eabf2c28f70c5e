// Events of a service, for metrics (serving/scheduler/events.py). Calls come from the service's thread, or from the thread that
// submits; they must not block or throw.
#pragma once

#include <cstdint>
#include <vector>

#include "request.h"

namespace spc {

// Observer that does nothing. Subclasses override the events that they count.
class Observer {
 public:
  virtual ~Observer() = default;
  // A refused request, or one that waited for too long: `requests`, `tokens` (limits of the queue), `queue_seconds`, `draining`,
  // `failed` (the engine had failed before).
  virtual void refused(const char* /*reason*/) {}
  // The present numbers of waiting requests and of sequences that have a batch slot.
  virtual void queued(int64_t /*waiting*/, int64_t /*running*/) {}
  // A sequence has got a batch slot, after `queue_seconds`. cached_tokens: prompt tokens that need not be read.
  virtual void admitted(int64_t /*prompt_tokens*/, int64_t /*cached_tokens*/, double /*queue_seconds*/) {}
  // A sequence has lost its batch slot to one of higher priority, and waits again. No second call of `admitted` follows.
  virtual void preempted() {}
  // The time from the request to the first token of a sequence.
  virtual void first_token(double /*seconds*/) {}
  // A round gave a sequence `tokens` tokens, `seconds` after the previous ones.
  virtual void inter_token_latency(double /*seconds*/, int64_t /*tokens*/) {}
  // A round gave `tokens` new tokens. drafts, accepted: numbers for every slot that took part.
  virtual void round(int64_t /*tokens*/, const std::vector<int64_t>& /*drafts*/, const std::vector<int64_t>& /*accepted*/) {}
  // A step of the engine: prompt tokens read plus new tokens since the last call. used: share of the capacity of all slots that
  // running sequences fill.
  virtual void stepped(int64_t /*tokens*/, double /*used*/) {}
  // A sequence has ended for any reason except an error; a request with one.
  virtual void ended(const FinishedSequence& /*sequence*/) {}
  virtual void failed() {}
};

}  // namespace spc
