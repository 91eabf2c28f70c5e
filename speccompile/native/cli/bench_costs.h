// Costs of a round: the graphs of a bundle timed by themselves, and the budget that follows (speccompile/measure/bench/costs.py,
// budget.py).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "../json.h"
#include "../runtime/bundle.h"
#include "bench_runs.h"

namespace spc::cli {

// Medians, in seconds. verify: by the window's width; a fused `step` counts as it at the decoding width. draft: nothing
// where there is none, or it is part of `step`. host: of a round beside its graphs.
struct GraphCosts {
  std::map<int64_t, double> verify;
  std::optional<double> draft;
  double host = 0;

  // A round that verifies a window of this width; with a draft where the window has room for one.
  double round_seconds(int64_t width) const { return verify.at(width) + (width > 1 ? draft.value_or(0) : 0) + host; }
};

// Time the bundle's graphs with `context` committed tokens in one row, over buffers of their own. Throws Error(kUsage) for a
// context that it cannot take.
GraphCosts measure_costs(const Bundle& bundle, int64_t context);

// Return the speed that the costs allow, and the share that speculative generations reached: the object of `bench --json`.
Json make_budget(const GraphCosts& costs, int64_t context, const Manifest& manifest, const Generations& runs);

}  // namespace spc::cli
