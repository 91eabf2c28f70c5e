// How fast rounds are with drafts, against those without: from times measured here, and drafts that came true so far.
//
// With P(d) the share of rows that accept the draft at depth d, a round that verifies drafts up to depth D gives
// 1 + P(1) + .. + P(D) tokens. It pays where these, over its time, are more than one over the time of a round that
// verifies nothing (Leviathan et al. 2023, section 3.3, with measured times in place of their cost coefficient).
//
// The sums are those of runtime/speed.py in their order: equal times give equal decisions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "../bundle/acceptance.h"

namespace spc {

// Seconds of the last runs. Their lower quartile stands for them: what else goes on in a machine adds to a time, and the
// least of all would be the less, the longer ago the first of them was.
class Times {
 public:
  void add(double seconds);

  double typical = 0;
  int64_t count = 0;

 private:
  static constexpr size_t kLast = 9;
  double last_[kLast] = {};
};

// Drafts that were tried and accepted at each depth, of those whose predecessors were accepted; rows and rounds, all of
// them and those that had drafts. The last ones count most.
class AcceptanceCounts {
 public:
  // memory: rounds that count, the last of them most.
  AcceptanceCounts(int depth, double memory);
  // See `Acceptance::add`. drafts: accepted ones, in every row that had any.
  void add(const std::vector<int>& drafts, int limit, int without);
  void scale(double factor);

  std::vector<double> tried, accepted;
  double rows = 0, rows_with = 0, rounds = 0, rounds_with = 0;

 private:
  double memory_;
};

// Which share of drafts is accepted at each depth, of those whose predecessors were: in the text at hand, and where
// little is known of that, in all texts.
//
// A depth that was seldom reached is thought to be like the one before it.
class Acceptance {
 public:
  explicit Acceptance(int depth);

  // One round. accepted: drafts, in every row that had any; limit: how many a row could accept; without: rows that had
  // none.
  void add(const std::vector<int>& accepted, int limit, int without);
  // Before anything is known here this is: like rounds of other texts, LONG_MEMORY of them at most.
  void expect(const MeasuredAcceptance& measured);
  // Lets all that is known of the text count for so many rounds at most.
  void limit_weight(double rounds);
  // Expected tokens of a row that has drafts, if at most 0, 1, .. of them can be accepted.
  std::vector<double> tokens() const;
  // The share of rows that have drafts.
  double rows() const;
  // The share of rounds in which some row has drafts.
  double rounds() const;

 private:
  // What a round of any text counts.
  double weight() const;

  AcceptanceCounts here_, everywhere_;
};

// What rounds of every width cost on an engine, and bring in the text at hand.
class SpeedupModel {
 public:
  // drafts: width of a window -> drafts that it can accept, from {1: 0} on. fused: rounds draft as they verify, and the
  // times of `windows` hold both.
  SpeedupModel(std::map<int, int> drafts, bool fused);

  // The drafter has caught up.
  void add_reading(int64_t tokens, double seconds);
  // Whether there is something to compare with.
  bool is_based() const;
  // Whether rounds with and without drafts can be compared.
  bool is_known() const;
  // The speed at the best width, as a multiple of that without drafts, and the width; the current one unless another is
  // clearly better.
  std::pair<double, int> best(int current) const;
  // Seconds that are lost by a round whose drafts are all wrong, when the drafter reads `lag` tokens for it.
  double trial_cost(int64_t lag) const;

  const std::map<int, int> accepts;
  const int full;
  Acceptance acceptance;
  std::map<int, Times> windows;  // rounds that draft, up to their tokens
  Times autoregressive, drafting;

 private:
  // Of rounds that draft, at every width; between widths that were timed, on a line from one to the other.
  std::map<int, double> seconds() const;

  bool fused_;
  Times reading_;
};

}  // namespace spc
