// What the host gives graphs that sample: settings once a generation, uniforms and the history in every round
// (runtime/sampling.py).
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

// The tokens of every penalized row, each once; the rest of its line repeats one of them. `width` is 1 while no row has a
// penalty, else a power of two or the capacity: few different shapes.
class PenaltyHistory {
 public:
  PenaltyHistory(Engine& engine, const Manifest& manifest);
  int64_t width() const { return lines_.shape[1]; }
  // The prompts of the penalized rows.
  void begin(const Rows& rows);
  // Take the new tokens of a row.
  void add(size_t index, const SequenceState& row);
  // Make room for what no longer fits.
  void widen();

 private:
  struct PenaltyTokens {
    std::vector<int64_t> tokens;  // in the order of their coming
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

// Writes the inputs of sampling for one batch at a time.
class SamplingInputs {
 public:
  SamplingInputs(Engine& engine, const Manifest& manifest);
  // The settings of every row, and its random numbers from the first on. drafting: whether rounds have drafts.
  void begin(const Rows& rows, bool drafting);
  // The random numbers of the next round of these rows, which all are active, and what has been said until now.
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

// Whether the round's graphs have an input of this name.
bool has_input(const Manifest& manifest, const std::string& name);

}  // namespace spc
