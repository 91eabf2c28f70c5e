// The inputs `adjusted`, `biases` and `penalties`: what logit bias, frequency and presence penalty add to logits
// (runtime/rounds/logit_adjustments.py).
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "bound_graphs.h"
#include "draft_parents.h"
#include "slots.h"

namespace spc {

// Return the smallest power of two that is at least `count`: inputs have few widths, so that few shapes are run.
int64_t power_of_two(int64_t count);

// Tokens of a sequence whose logits change: those with a bias, and, with a penalty, the new ones.
class AdjustedTokens {
 public:
  // Inputs of a slot, [R, K] each: a line for every node of the window, zeros at first.
  struct Lines {
    int64_t* tokens;
    float *biases, *penalties;
    int64_t rows, width;
  };

  explicit AdjustedTokens(const SequenceState& row);
  // Count the tokens that are new since the last call. Return the number of adjusted tokens.
  int64_t update();
  // parents: of the nodes.
  void write(const Lines& lines, const int64_t* drafts, size_t count, const std::vector<int64_t>& parents) const;

 private:
  void write_drafts(const Lines& lines, std::vector<int64_t>& tokens, const int64_t* drafts, size_t count, const std::vector<int64_t>& parents) const;
  double penalty(int64_t count) const;

  const SequenceState& row_;
  const bool counts_;  // whether there are penalties
  std::vector<int64_t> tokens_, times_;             // adjusted tokens, and how often each is among the new ones
  std::unordered_map<int64_t, size_t> places_;  // token -> its place in a line
  size_t read_ = 0;                                 // new tokens that are counted
};

// Writes the inputs before every run of the target. At a node after a draft, the draft counts as generated: the target then chooses as
// it would without drafts.
class LogitAdjustments {
 public:
  LogitAdjustments(Engine& engine, const Manifest& manifest);
  // Begin a sequence. Its new tokens are counted from here on.
  void admit(int64_t slot, const SequenceState& row);
  void release(int64_t slot) { slots_.erase(slot); }
  // Return the width of the inputs: 1, or a power of two if one of the slots that take tokens of this run is adjusted.
  int64_t width(const SlotList& taking, int64_t logit_rows);
  // Write the lines of the slots that take tokens of a run; those of other slots are not used.
  void write(const VerifyPass& forward, const BoundGraphs& rounds, const SlotList& taking) const;

 private:
  Engine& engine_;
  const Manifest& manifest_;
  const int64_t most_;  // the largest width
  const DraftParents parents_;
  std::map<int64_t, AdjustedTokens> slots_;
};

}  // namespace spc
