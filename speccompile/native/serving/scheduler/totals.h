// Numbers of a service since its beginning.
#pragma once

#include <mutex>

#include "events.h"

namespace spc {

class Totals : public Observer {
 public:
  void submitted() { add(submitted_, 1); }
  void refused(const char* /*reason*/) override { add(refused_, 1); }
  void admitted(int64_t prompt_tokens, int64_t cached_tokens, double /*queue_seconds*/) override {
    add(prompt_tokens_, prompt_tokens);
    add(cached_tokens_, cached_tokens);
  }
  void preempted() override { add(preemptions_, 1); }
  void round(int64_t /*tokens*/, const std::vector<int64_t>& drafts, const std::vector<int64_t>& accepted) override {
    add(rounds_, static_cast<int64_t>(drafts.size()));
    for (const int64_t count : drafts) add(drafts_, count);
    for (const int64_t count : accepted) add(accepted_, count);
  }
  void ended(const FinishedSequence& sequence) override {
    add(sequence.finish_reason == finish::kCancelled ? cancelled_ : finished_, 1);
    add(new_tokens_, static_cast<int64_t>(sequence.token_ids.size()));
  }
  void failed() override { add(failed_, 1); }

  Json to_json(int64_t waiting, int64_t running) const {
    const std::lock_guard<std::mutex> held(mutex_);
    return Json::Object{{"waiting", waiting},
                        {"running", running},
                        {"submitted", submitted_},
                        {"refused", refused_},
                        {"finished", finished_},
                        {"cancelled", cancelled_},
                        {"failed", failed_},
                        {"prompt_tokens", prompt_tokens_},
                        {"cached_tokens", cached_tokens_},
                        {"new_tokens", new_tokens_},
                        {"rounds", rounds_},
                        {"draft_tokens", drafts_},
                        {"accepted_tokens", accepted_},
                        {"preemptions", preemptions_}};
  }

 private:
  void add(int64_t& number, int64_t count) {
    const std::lock_guard<std::mutex> held(mutex_);
    number += count;
  }

  mutable std::mutex mutex_;
  int64_t submitted_ = 0, refused_ = 0, finished_ = 0, cancelled_ = 0, failed_ = 0, prompt_tokens_ = 0, cached_tokens_ = 0, new_tokens_ = 0,
          rounds_ = 0, drafts_ = 0, accepted_ = 0, preemptions_ = 0;
};

}  // namespace spc
