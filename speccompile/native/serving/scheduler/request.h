// Request to a service, as its client sees it (serving/scheduler/request.py).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "../../errors.h"
#include "../../runtime/logprobs.h"
#include "../../text/text.h"

namespace spc {

// A finished sequence: what it has until its end, and what it took. json: the object of `generate --json`.
struct FinishedSequence {
  std::string text, finish_reason;
  TokenIds token_ids;
  std::vector<double> logprobs;
  std::vector<BestTokens> top_logprobs;
  std::vector<int64_t> path_lengths, draft_lengths;
  int64_t prompt_tokens = 0, cached_tokens = 0;
  double seconds = 0, prefill_seconds = 0, verify_seconds = 0, draft_seconds = 0, queue_seconds = 0;
  std::optional<double> first_token_seconds;
  bool speculative = false;
  Json json;
};

// New output of one sequence of a request. text: that may be shown now; logprobs, top_logprobs: of these tokens, empty unless
// requested. finished: with its last delta. draft_tokens: number of draft tokens that the round of these tokens verified;
// accepted: number that it accepted, which are the first of these tokens.
struct OutputDelta {
  int64_t index = 0;
  std::string text;
  TokenIds token_ids;
  std::vector<double> logprobs;
  std::vector<BestTokens> top_logprobs;
  std::shared_ptr<const FinishedSequence> finished;
  int64_t draft_tokens = 0, accepted = 0;
};

// An error that a later request may not meet. retry_after: seconds; nullopt if this service will never take one.
class OverloadedError : public Error {
 public:
  OverloadedError(std::string message, std::optional<double> retry_after)
      : Error(Kind::kOverloaded, std::move(message)), retry_after(retry_after) {}

  std::optional<double> retry_after;
};

// Deltas of all sequences of one request, as they come. They are queued until they are read: a slow reader blocks no other client.
// Any thread may use it.
class ServedRequest {
 public:
  explicit ServedRequest(int64_t sequences) : sequences(sequences), open_(sequences) {}

  // End the request after the present round; its sequences end with the finish reason `cancelled`.
  void cancel() { cancelled_ = true; }
  bool is_cancelled() const { return cancelled_; }
  // Return whether the last delta, or the error, was taken.
  bool has_ended() const;
  // Return the next delta, or nullopt while there is none and after the last one. Throws the error that ended the request, after
  // the deltas that came before it.
  std::optional<OutputDelta> poll();
  // The same, but wait for a delta for at most `seconds`.
  std::optional<OutputDelta> wait(double seconds);
  // Call `wake` whenever there is something for `poll`, from the service's thread: it must not block, and may poll. It is called
  // now as well. Empty: call nobody; once this has returned, none that was there before is called any more.
  void on_ready(std::function<void()> wake);

  // For the service: deliver a delta, or an error, which ends the request.
  void deliver(OutputDelta delta);
  void deliver(std::shared_ptr<const OverloadedError> error);
  void deliver(std::shared_ptr<const Error> error);

  const int64_t sequences;
  // For the service: whether one of its sequences has had a batch slot.
  bool begun = false;

 private:
  std::optional<OutputDelta> take();
  void tell();

  mutable std::mutex mutex_;
  std::condition_variable came_;
  std::deque<OutputDelta> deltas_;
  std::function<void()> throw_;  // throws the error; empty without one
  std::recursive_mutex waking_;  // held while the listener is called
  std::function<void()> wake_;
  int64_t open_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace spc
