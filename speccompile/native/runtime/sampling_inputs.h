// Host inputs of graphs that sample: settings once per sequence, uniforms, the penalty history and adjustments of logits in every
// round (runtime/rounds/sampling_inputs.py).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine.h"
#include "logit_adjustments.h"
#include "random.h"
#include "slots.h"

namespace spc {

// Tokens subject to the repetition penalty: the distinct tokens of every penalized sequence. The rest of a line repeats one of
// them.
//
// A run without penalized sequences reads lines of one token. Other runs read lines of a power of two or of the capacity, so
// that few shapes occur.
class PenaltyHistory {
 public:
  PenaltyHistory(Engine& engine, const Manifest& manifest);
  // Begin a penalized sequence with its first tokens.
  void admit(int64_t slot, const SequenceState& row);
  void release(int64_t slot);
  // Add the new tokens of a sequence.
  void add(int64_t slot, const SequenceState& row);
  // Write the lines of these slots, and return their width.
  int64_t write(const Span& rows);

 private:
  struct PenaltyTokens {
    std::vector<int64_t> tokens;  // in order of appearance
    std::unordered_set<int64_t> known;
    int64_t length = 0;  // tokens of the sequence that are included

    void add(const SequenceState& row);
  };

  Engine& engine_;
  const int64_t batch_, most_;
  std::vector<std::optional<PenaltyTokens>> seen_;           // by slot
  std::map<std::pair<int64_t, int64_t>, size_t> written_;  // slot and width -> number of tokens that the line holds
};

// Writer of the inputs for sampling.
class SamplingInputs {
 public:
  SamplingInputs(Engine& engine, const Manifest& manifest);
  // Write the settings of a sequence, and start its random numbers. drafting: whether its rounds have drafts.
  void admit(int64_t slot, const SequenceState& row, bool drafting);
  // Reset the slot's settings after its sequence has left.
  void release(int64_t slot);
  // Write the random numbers of the next run, for the sequences that take a token from it; other sequences draw nothing. Write
  // the history of `rows` too, and return its width.
  int64_t write(const Span& rows, const SlotList& taking, int64_t logit_rows);
  // Return the width of the adjustments of logits in a run from which these slots take tokens.
  int64_t adjusted_width(const SlotList& taking, int64_t logit_rows) { return adjustments_ ? adjustments_->width(taking, logit_rows) : 1; }
  // Write the adjustments of the run: see LogitAdjustments::write.
  void adjust(const VerifyPass& forward, const BoundGraphs& rounds, const SlotList& taking) {
    if (adjustments_) adjustments_->write(forward, rounds, taking);
  }

 private:
  // A setting of every slot [B], float32 or int64.
  struct SettingInput {
    const SamplingOption& option;
    Array array;
  };
  struct DraftUniforms {
    Array array;
    Purpose purpose;
  };
  struct UniformStream {
    float* numbers;
    Uniforms stream;
  };
  void set(int64_t slot, const SamplingParams& sampling);

  Engine& engine_;
  const int64_t batch_, tokens_;
  PenaltyHistory history_;
  std::optional<LogitAdjustments> adjustments_;
  std::vector<SettingInput> settings_;
  std::vector<DraftUniforms> per_draft_;
  std::vector<std::vector<float>> new_tokens_;  // by slot
  std::vector<std::vector<UniformStream>> streams_;
};

// Return whether the round's graphs have an input of this name.
bool has_input(const Manifest& manifest, const std::string& name);

}  // namespace spc
