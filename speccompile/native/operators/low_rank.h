// Adapters that are chosen as a graph runs.
#pragma once

#include "operator.h"

namespace speccompile {

// (y [B, T, N], x [B, T, K], a [S, r, K], b [S, r, N], adapter [B]) -> y + (x A^T) B of the slot of each row of the batch;
// y itself where that is slot 0
struct LowRank {
  static constexpr const char* kName = "LowRank";
  static constexpr std::array kInputs{ort::kFloat, ort::kFloat, ort::kFloat, ort::kFloat, ort::kInt64};
  static constexpr std::array kOutputs{ort::kFloat};
  explicit LowRank(const Info&) {}
  void compute(Context& context) const;
};

}  // namespace speccompile
