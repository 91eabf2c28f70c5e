// Inputs of graphs that sample: settings once per generation, uniforms and penalty history in every round
// (runtime/rounds/sampling_inputs.py).
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_set>
#include <vector>

#include "engine.h"
#include "generation.h"
#include "random.h"

namespace spc {

using Rows = std::vector<SequenceState>;

// Distinct tokens of every penalized row, padded by repeating one of them. `width` is 1 while no row has a penalty, else a
// power of two or the capacity, which keeps the number of shapes small.
class PenaltyHistory {
 public:
  PenaltyHistory(Engine& engine, const Manifest& manifest);
  int64_t width() const { return lines_.shape[1]; }
  // Begin a batch with the prompts of the penalized rows.
  void begin(const Rows& rows);
  // Add the new tokens of a row.
  void add(size_t index, const SequenceState& row);
  // Widen the lines if tokens no longer fit.
  void widen();

 private:
  struct PenaltyTokens {
    std::vector<int64_t> tokens;  // in order of appearance
    std::unordered_set<int64_t> known;
    size_t read = 0;  // new tokens of the row

    bool add(int64_t token);
  };
  void lay_out();

  Engine& engine_;
  const int64_t batch_, most_;
  std::vector<std::optional<PenaltyTokens>> seen_;
  Array lines_;
};

// Writer of the sampling inputs of one batch at a time.
class SamplingInputs {
 public:
  SamplingInputs(Engine& engine, const Manifest& manifest);
  // Write the settings of every row and restart its random streams. drafting: whether rounds have drafts.
  void begin(const Rows& rows, bool drafting);
  // Write the random numbers of the next round of these active rows, and the penalty history.
  void write(const Rows& rows, const std::vector<size_t>& taking, int64_t logit_rows);

  PenaltyHistory history;

 private:
  struct DraftUniforms {
    Array array;
    Purpose purpose;
  };
  struct UniformStream {
    float* numbers;
    Uniforms stream;
  };
  void write_settings(const Rows& rows);

  Engine& engine_;
  const int64_t batch_, tokens_;
  std::vector<DraftUniforms> per_draft_;
  std::vector<std::vector<float>> new_tokens_;
  std::vector<std::vector<UniformStream>> streams_;
};

// Return whether the round's graphs have an input of this name.
bool has_input(const Manifest& manifest, const std::string& name);

}  // namespace spc
