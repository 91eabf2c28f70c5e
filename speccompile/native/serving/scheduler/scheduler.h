// Scheduler: assign sequences to batch slots, and choose the engine's next work (serving/scheduler/scheduler.py).
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../../runtime/decoder.h"
#include "events.h"
#include "latency.h"
#include "limits.h"
#include "session_folder.h"
#include "slot_allocator.h"
#include "waiting_queue.h"

namespace spc {

// Takes requests from any thread; only the thread that owns the service calls `step`. A sequence waits, is prefilled in a batch
// slot, one sequence at a time, and decodes together with other sequences until it ends. By priority, a sequence may lose its slot to
// one of higher priority: it waits again, and then reads its prompt and its tokens so far, which gives the same tokens.
class Scheduler {
 public:
  using Now = std::function<double()>;

  // adapters: folders of adapters to load, by name. observer: outlives the scheduler.
  Scheduler(std::shared_ptr<const Bundle> bundle, const Limits& limits, Observer& observer, const std::map<std::string, std::string>& adapters, Now clock);

  // Submit a request with one prompt, without waiting for its turn. If it asks for more sequences than there are batch slots, they
  // run in turn. Throws Error(kPrompt) or Error(kUsage) for what the bundle cannot take, OverloadedError if the queue is full or
  // the service is closing, Error(kEngine) if it has failed.
  std::shared_ptr<ServedRequest> submit(const Request& asked, const Terms& terms);
  // Remove ended sequences, admit a waiting one, run a round of all decoding slots, and prefill prompts.
  void step();

  // Wait until there is work, or never will be. Return whether there is work.
  bool wait_for_work();
  // Take no more requests; with `cancels`, cancel the present ones with the next step.
  void drain(bool cancels);
  // End all requests with the engine's error, and take no more.
  void fail(const Error& error);

  // Number of requests without a batch slot, and of sequences that have one.
  int64_t waiting() const;
  int64_t running() const { return running_; }
  // Return the error that ended the service, null without one.
  std::shared_ptr<const Error> failure() const;
  bool is_idle() const;
  const Limits& limits() const { return limits_; }
  Decoder& decoder() { return decoder_; }
  // Wait until the texts for the folder of sessions are written.
  void close() { kept_.reset(); }

 private:
  // Seconds of a loop's parts before a run.
  using Parts = Seconds;
  using ClientRows = std::map<std::string, int64_t>;

  void refuse(const ScheduledSequence& first);
  void finish_expired();
  std::string end_of(const ScheduledSequence& served, double now) const;
  void admit();
  Scheduled next(const std::vector<Scheduled>& present);
  bool has_room();
  static ClientRows client_rows(const std::vector<Scheduled>& running);
  bool may_begin(const ScheduledSequence& served, const ClientRows& of_client) const;
  Scheduled victim_of(const ScheduledSequence& first, const std::vector<Scheduled>& present, const ClientRows& of_client) const;
  bool can_go_on(const ScheduledSequence& served) const;
  bool preempts(const ScheduledSequence& first) const;
  void publish();
  void preempt(const Scheduled& served);
  int64_t taken() const;
  // Return the number of sequences in the queue.
  int64_t queued() const {
    const std::lock_guard<std::mutex> held(mutex_);
    return waiting_.size();
  }
  void keep(const ScheduledSequence& served, const std::optional<SlotContent>& content);
  std::optional<int64_t> restored(const ScheduledSequence& served, const SlotAssignment& place);
  int64_t copied(const ScheduledSequence& served, const SlotAssignment& place);
  void decode();
  void read();
  int64_t prefill(std::optional<int64_t> most);
  void distribute(const Parts& before);
  void end(const Scheduled& served);
  std::shared_ptr<const FinishedSequence> finished(ScheduledSequence& served);
  void report();
  void tell_queue();
  double retry_after(int64_t waiting_tokens) const;

  const Limits limits_;
  Observer& observer_;
  const Now clock_;
  Decoder decoder_;
  DecodeLoop& loop_;
  SlotAllocator slots_;
  std::optional<KeptSessions> kept_;
  LatencyEstimates costs_;
  Scheduled reading_;  // the sequence in its prefill, or before it, while its file is read
  int64_t given_ = 0;  // tokens read and new ones since the last report

  // Shared with the threads that submit.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  WaitingQueue waiting_;
  std::vector<Scheduled> occupants_;  // sequences that have a slot
  bool closing_ = false;
  std::shared_ptr<const Error> failure_;
  std::atomic<bool> cancelled_{false};
  std::atomic<int64_t> running_{0};
  std::atomic<double> token_seconds_{0};  // of a prefill, by token
};

}  // namespace spc
