// Costs of a round: the graphs of a bundle timed by themselves (speccompile/measure/bench/costs.py).
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "../runtime/bundle.h"

namespace spc::cli {

// Medians, in seconds, over `context` committed tokens. verify: by the window's width; a fused `step` counts as it at the decoding width. draft: nothing
// where there is none, or it is part of `step`. host: of a round beside its graphs.
struct GraphCosts {
  int64_t context = 0;
  std::map<int64_t, double> verify;
  std::optional<double> draft;
  double host = 0;

  // A round that verifies a window of this width; with a draft where the window has room for one.
  double round_seconds(int64_t width) const { return verify.at(width) + (width > 1 ? draft.value_or(0) : 0) + host; }
};

// Time the bundle's graphs with `context` committed tokens in one row, over buffers of their own. Throws Error(kUsage) for a
// context that it cannot take.
GraphCosts measure_costs(const Bundle& bundle, int64_t context);

}  // namespace spc::cli
