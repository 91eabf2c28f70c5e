// A whole benchmark of a bundle. `speccompile bench BUNDLE --measured FILE` reports on its JSON (speccompile/measure/bench/measured.py).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../json.h"
#include "bench_costs.h"
#include "bench_runs.h"
#include "common.h"

namespace spc::cli {

// bandwidth: null for engines that are not on the processor. differences: first tokens that differ between the modes; nothing
// where drafts are drawn, or without a drafter.
struct Measurements {
  std::shared_ptr<const Bundle> bundle;
  Json options, memory, bandwidth;
  std::vector<PromptRuns> cases;
  GraphCosts costs;
  std::optional<std::vector<Divergence>> differences;
};

// Open a bundle, generate for every question both ways, and measure what bounds them.
Measurements measure_all(const Arguments& given);
// Return the object of `bench --json`.
Json to_json(const Measurements& measured);
// Return a short report as lines without the last newline.
std::string write_table(const Measurements& measured);

}  // namespace spc::cli
