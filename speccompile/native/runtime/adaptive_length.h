// How many drafts a round verifies: as many as are fastest by what rounds cost and bring, none where drafting does not
// pay. Then it is tried again after gaps that double, as long as trials lose no more than a share of the generation, or a
// little that drafting has won before (runtime/pace.py).
//
// Nothing here changes tokens: it decides when they come.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "speedup_model.h"

namespace spc {

// What is asked before every round, and told after it. A window is one token and the drafts behind it.
class DraftLengthPolicy {
 public:
  virtual ~DraftLengthPolicy() = default;

  // How far drafts came true elsewhere, before anything is known here.
  virtual void expect(const MeasuredAcceptance& measured) = 0;
  // A generation begins: tokens of its prompt, and that it may add. Returns what `choose` would: whether the drafter
  // reads the prompt.
  virtual int begin(int64_t prompt, int64_t room) = 0;
  // The most tokens of the next window; 1 for no drafts. lag: tokens that the drafter would first catch up on.
  virtual int next_width(int64_t lag) = 0;
  // A round without drafts took so long.
  virtual void record_autoregressive(double seconds) = 0;
  // A round took so long to verify a window of this width, or, where that is fused, also to draft. accepted: drafts, in
  // every row that had any; without: rows that had none.
  virtual void record_verify(int width, double seconds, const std::vector<int>& accepted, int without) = 0;
  // The drafts of the next round took so long.
  virtual void record_draft(double seconds) = 0;
  // The drafter took so long to read tokens; lost: how much of it would not have been spent without drafts.
  virtual void record_catch_up(int64_t tokens, double seconds, double lost) = 0;
};

// By the clock. Times and a little of what was won are kept for the next generation.
class AdaptiveDraftLength : public DraftLengthPolicy {
 public:
  // As `Speed`.
  AdaptiveDraftLength(std::map<int, int> accepts, bool fused);

  void expect(const MeasuredAcceptance& measured) override;
  int begin(int64_t prompt, int64_t room) override;
  int next_width(int64_t lag) override;
  void record_autoregressive(double seconds) override;
  void record_verify(int width, double seconds, const std::vector<int>& accepted, int without) override;
  void record_draft(double seconds) override;
  void record_catch_up(int64_t tokens, double seconds, double lost) override;

 private:
  // Whether to draft after a gap: because it pays again, or to see whether it would.
  bool resumes(int64_t lag);
  // Tokens that the generation is expected to have.
  double expected_tokens() const;
  double patience() const;
  double most_saved() const;
  // Seconds that trials may cost in the generation.
  double budget() const;
  void add_loss(double seconds);

  SpeedupModel model_;
  int width_;
  bool paused_ = false, tried_ = false, on_trial_ = false;
  int64_t gap_, waited_, since_autoregressive_ = 0;
  double max_new_tokens_ = 0, new_tokens_ = 0, speedup_ = 1;
  // Seconds, below zero where drafting has won: in all, from generation to generation less what trials may cost; since
  // it was resumed; and, never below zero, since it last paid.
  double trial_loss_ = 0, loss_since_resume_ = 0, recent_loss_ = 0;
};

}  // namespace spc
