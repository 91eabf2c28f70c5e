// Acceptance rate of drafts at each depth, from the rounds of the current text and of all texts, or of windows of a tree by their
// width (runtime/rounds/acceptance_rate.py, runtime/rounds/tree_acceptance.py). Sums have the order of Python's.
#pragma once

#include <vector>

#include "../bundle/acceptance.h"

namespace spc {

// Counts of drafts tried and accepted at each depth after accepted predecessors, and of rows and rounds, in total and with
// drafts. Recent rounds weigh most: a round weighs `unit`, which grows, and all counts are multiples of it.
class AcceptanceCounts {
 public:
  // memory: number of rounds that count, with decaying weight. is_tree: counts are by width, see `Acceptance`.
  AcceptanceCounts(int size, double memory, bool is_tree);
  // See `Acceptance::add`.
  void add(const std::vector<int>& drafts, int limit, int without);
  void scale(double factor);

  std::vector<double> tried, accepted;
  double rows = 0, rows_with = 0, rounds = 0, rounds_with = 0, unit = 1;

 private:
  void add_chains(const std::vector<int>& accepted, int limit);
  void add_trees(const std::vector<int>& accepted, int limit);

  double growth_;
  bool is_tree_;
};

// Acceptance rate at each depth after accepted predecessors: of the current text, mixed with all texts while little is known
// of it.
//
// The prior of a rarely reached depth is the depth before it.
//
// Windows of a tree are counted by width instead: the accepted drafts of the narrowest, and for each wider one the factor to the
// window before it.
class Acceptance {
 public:
  explicit Acceptance(int depth);
  // Count windows of trees. widths: number of widths; nodes: drafts in the narrowest window; depth: of the tree.
  Acceptance(int widths, int nodes, int depth);

  // Add one round. accepted: number of accepted drafts of every row that had any; limit: maximum that a row could accept;
  // without: number of rows without drafts. Of trees: limit: number of widths up to the window's; accepted: for every row with
  // drafts as many numbers, of drafts that windows of these widths would have accepted.
  void add(const std::vector<int>& accepted, int limit, int without);
  // Set a prior before anything is known here: it counts like rounds of other texts, at most LONG_MEMORY of them.
  void expect(const MeasuredAcceptance& measured);
  // Limit the weight of what is known of the text to this number of rounds.
  void limit_weight(double rounds);
  // Let what is known of the text count half: it has gone on without drafts.
  void halve();
  // Return the expected tokens of a row with drafts if at most 0, 1, .. of them can be accepted.
  std::vector<double> tokens() const;
  // Return the same for a text of which nothing is known.
  std::vector<double> usual_tokens() const;
  // Return the share of rows that have drafts.
  double rows() const;
  // Return the share of rounds in which any row has drafts.
  double rounds() const;

 private:
  // Return the factor that takes counts of all texts to those of the current one: a round's weight over its unit.
  double weight() const;
  // Return the expected new tokens with at most 0, 1, .. accepted drafts, or with each width. unit: the weight of a round.
  std::vector<double> expected(double unit, const std::vector<double>& accepted, const std::vector<double>& tried) const;

  std::vector<double> prior_;  // of trees: the accepted drafts of the narrowest window, and each factor
  AcceptanceCounts here_, everywhere_;
};

}  // namespace spc
