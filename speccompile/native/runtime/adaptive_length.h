// Adaptive draft length: choose the number of draft tokens with the highest measured speed, and stop drafting while
// autoregressive rounds are faster. Then retry after gaps that double, as long as trials lose at most a share of the
// generation's time, or a little of what drafting has gained before (runtime/rounds/adaptive_length.py).
//
// Costs are measured per number of decoding sequences: drafts pay with few sequences that do not pay with many. The draft
// length changes no token, only when tokens come.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "speedup_model.h"

namespace spc {

// Policy that is queried before every round and informed after it. A window is one token and the drafts after it.
class DraftLengthPolicy {
 public:
  virtual ~DraftLengthPolicy() = default;

  // Set the acceptance measured elsewhere, before anything is known here.
  virtual void expect(const MeasuredAcceptance& measured) = 0;
  // Set round times that `measured_times` returned in another process on this machine, before anything is known here.
  virtual void expect_times(const Json& times) = 0;
  // Return the costs of rounds, see `SpeedupModel::measured_times`; nullopt until this process has measured them.
  virtual std::optional<Json> measured_times() const = 0;
  // Return the estimated speedup of rounds of one sequence over `new_tokens` rounds without drafts. draft_lengths: drafts that
  // each round verified; new_tokens: tokens that they gave. nullopt if no round has drafts, and while the times are unknown.
  virtual std::optional<double> estimated_speedup(const std::vector<int64_t>& draft_lengths, int64_t new_tokens) const = 0;
  // Begin a generation with `prompt` tokens and at most `room` new ones. Return the first window width, like `next_width`:
  // it decides whether the drafter reads the prompt.
  virtual int begin(int64_t prompt, int64_t room) = 0;
  // Add a sequence to those that are decoding. Arguments as for `begin`.
  virtual void join(int64_t prompt, int64_t room) = 0;
  // Set the number of sequences of the following rounds.
  virtual void record_batch_size(int rows) = 0;
  // Return the maximum tokens of the next window; 1 means no drafts. lag: tokens that the drafter must catch up on first.
  virtual int next_width(int64_t lag) = 0;
  // Record the time of a round without drafts.
  virtual void record_autoregressive(std::optional<double> seconds) = 0;
  // Record the time to verify a window of this width; in a fused graph it includes drafting. accepted: number of accepted
  // drafts of every row that had any, for trees see `Acceptance::add`; without: number of rows without drafts.
  virtual void record_verify(int width, std::optional<double> seconds, const std::vector<int>& accepted, int without) = 0;
  // Record the time to draft for the next round.
  virtual void record_draft(std::optional<double> seconds) = 0;
  // Record the time of a catch-up of the drafter. lost: the part of it that autoregressive decoding would not have spent.
  virtual void record_catch_up(int64_t tokens, double seconds, double lost) = 0;
};

// Policy by measured time. Times and a little of the gain carry over to the next generation.
class AdaptiveDraftLength : public DraftLengthPolicy {
 public:
  // Arguments: see `SpeedupModel`.
  AdaptiveDraftLength(std::map<int, int> accepts, bool fused, int tree_depth = 0);

  void expect(const MeasuredAcceptance& measured) override;
  void expect_times(const Json& times) override { model_.expect_times(times); }
  std::optional<Json> measured_times() const override { return model_.measured_times(); }
  std::optional<double> estimated_speedup(const std::vector<int64_t>& draft_lengths, int64_t new_tokens) const override {
    return model_.estimated_speedup(draft_lengths, new_tokens);
  }
  int begin(int64_t prompt, int64_t room) override;
  void join(int64_t prompt, int64_t room) override;
  void record_batch_size(int rows) override;
  int next_width(int64_t lag) override;
  void record_autoregressive(std::optional<double> seconds) override;
  void record_verify(int width, std::optional<double> seconds, const std::vector<int>& accepted, int without) override;
  void record_draft(std::optional<double> seconds) override;
  void record_catch_up(int64_t tokens, double seconds, double lost) override;

 private:
  // Return whether to draft again after a gap: because it pays, or as a trial.
  bool resumes(int64_t lag);
  // Return the expected number of new tokens of the generation.
  double expected_tokens() const;
  // Return the seconds of a round without drafts.
  double autoregressive() const { return model_.times().autoregressive.typical; }
  double patience() const;
  double most_saved() const;
  // Return whether a trial may cost `price` seconds: that share of the expected time in any case, or what trials may.
  bool may_try(double price, double first_share) const;
  void add_loss(double seconds);

  SpeedupModel model_;
  int width_;
  bool paused_ = false, has_paused_ = false, tried_ = false, on_trial_ = false;
  int64_t gap_, waited_, since_decision_, since_autoregressive_ = 0;
  double max_new_tokens_ = 0, new_tokens_ = 0, speedup_ = 1;
  // Losses in seconds, negative for gains: in total, minus the trial budget of each generation; since drafting resumed;
  // and, never negative, since drafting last paid.
  double trial_loss_ = 0, loss_since_resume_ = 0, recent_loss_ = 0;
};

}  // namespace spc
