// Speedup of rounds with drafts over autoregressive rounds, from times and acceptance measured on this machine.
//
// With P(d) the share of rows that accept the draft at depth d, a round that verifies drafts up to depth D gives
// 1 + P(1) + .. + P(D) tokens. Drafting pays if this number divided by the round's time exceeds 1 divided by the time of an
// autoregressive round (Leviathan et al. 2023, section 3.3, with measured times instead of their cost coefficient).
//
// Sums have the order of runtime/rounds/speedup_model.py: equal times give equal decisions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "../json.h"
#include "acceptance_rate.h"

namespace spc {

// Seconds of the last nine runs, summarized by their lower quartile. Other load only adds time, and a minimum over a long
// history keeps falling.
class Times {
 public:
  void add(double seconds);
  // Assume `count` runs of this time until runs of this process are timed. held: use the time until `release`, whatever is
  // measured.
  void expect(double seconds, int64_t count, bool held = false);
  // Expect `share` of what `beside`, whose time is given once it is measured, takes longer than `expected`, unless runs were timed:
  // a round of a generation has a part on the host, in which runs at the opening of an engine had none.
  void follow(double beside, double expected, double share);
  // Use what was measured from now on.
  void release();
  // Return whether runs of this process were timed.
  bool is_measured() const { return known_ > 0; }

  double typical = 0;
  int64_t count = 0;

 private:
  static constexpr size_t kLast = 9;
  double last_[kLast] = {};
  size_t known_ = 0;
  bool is_held_ = false;
  double expected_ = 0;

  void summarize();
};

// Seconds of rounds with a given number of sequences. windows: width -> rounds that draft, up to their tokens; autoregressive:
// rounds without drafts; drafting: the drafts of a round.
struct RoundTimes {
  // accepts: see `SpeedupModel`; its widths count.
  explicit RoundTimes(const std::map<int, int>& accepts);

  // Return the times expected with `share` times as many sequences. A run's cost depends on its number of tokens, which a wider
  // window raises as well.
  RoundTimes expected(double share) const;

  std::map<int, Times> windows;
  Times autoregressive, drafting;

 private:
  // Return the seconds of a round of any width, on lines through the timed widths.
  double at(double width) const;
};

// Cost of rounds of every width on an engine, and their expected tokens in the current text.
class SpeedupModel {
 public:
  // drafts: width of a window -> drafts that it can accept, from {1: 0} on. fused: rounds draft as they verify, and the
  // times of `windows` hold both. tree_depth: of trees whose first nodes may be verified alone; 0 if there are none. Then `drafts`
  // has the number of each width, from {1: 0} on.
  SpeedupModel(std::map<int, int> drafts, bool fused, int tree_depth);
  SpeedupModel(const SpeedupModel&) = delete;
  SpeedupModel& operator=(const SpeedupModel&) = delete;

  // Set the number of sequences of the following rounds. Return whether it has changed. Unless all of its costs are measured,
  // estimate them from the nearest number of sequences.
  bool set_batch_size(int rows);
  // Return the costs of rounds of one sequence, in seconds, as JSON: `SpeedupModel.measured_times` in Python describes the
  // fields. nullopt until they were timed in this process.
  std::optional<Json> measured_times() const;
  // Start from a result of `measured_times`. Times that do not fit, for example of other widths, are ignored entirely.
  void expect_times(const Json& times);
  // Record the time of a round without drafts. Until there is one, expected times hold on both sides of a comparison: on a busy
  // machine, and in the first rounds of a process, rounds with drafts would seem slow beside the expected one without.
  void add_autoregressive(double seconds);
  // Record the time of a catch-up of the drafter.
  void add_reading(int64_t tokens, double seconds);
  // Return whether enough times of autoregressive rounds are known to compare with.
  bool is_based() const;
  // Return whether rounds with and without drafts can be compared.
  bool is_known() const;
  // Return the speedup at the best width, and this width: the current one unless another is clearly better.
  std::pair<double, int> best(int current) const;
  // Return the next width above this one, or the full width.
  int wider(int width) const;
  // See `DraftLengthPolicy`. Both sides have the times that were expected, or else those measured in this process, in which
  // rounds without drafts are few: a single slow one would show a speedup that is none.
  std::optional<double> estimated_speedup(const std::vector<int64_t>& draft_lengths, int64_t new_tokens) const;
  // Return the speedup over autoregressive rounds of a full window with the acceptance of all texts.
  double usual_gain() const;
  // Return the seconds lost by a round whose drafts are all rejected and for which the drafter reads `lag` tokens.
  double trial_cost(int64_t lag) const;

  // Times of rounds with the present number of sequences.
  RoundTimes& times() { return *times_; }
  const RoundTimes& times() const { return *times_; }
  int rows() const { return rows_; }

  const std::map<int, int> accepts;
  const int full;
  const bool is_tree;
  Acceptance acceptance;

 private:
  RoundTimes& costs_of(int rows);
  // Return whether rounds with and without drafts can be compared.
  bool knows(const RoundTimes& costs) const;
  // Return the seconds of rounds with drafts at every width, linearly interpolated between timed widths.
  std::map<int, double> seconds() const;
  std::map<int, double> seconds_of(const RoundTimes& costs) const;

  const bool fused_;
  Times reading_;
  std::list<std::pair<int, RoundTimes>> costs_;  // number of sequences -> times of such rounds; 1 comes first
  RoundTimes* times_ = nullptr;
  std::optional<RoundTimes> expected_;
  bool is_held_ = false;  // expected times of rounds of one sequence hold, see `add_autoregressive`
  int rows_ = 0;
};

}  // namespace spc
