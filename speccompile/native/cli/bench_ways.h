// Statistics of a benchmark's generations, as the objects of `bench --json` (speccompile/measure/bench/mode.py, groups.py,
// acceptance.py).
#pragma once

#include <optional>
#include <vector>

#include "../bundle/manifest.h"
#include "../json.h"
#include "bench_runs.h"

namespace spc::cli {

double median(std::vector<double> values);
// Null for nothing.
std::optional<double> known_median(const std::vector<double>& values);
Json known(const std::optional<double>& value);

// All generations of one way, one list of repeats a prompt: rates, times, latencies and counts.
Json make_way(const std::vector<const Repeats*>& answers);
// Each group in the order of the prompts, then all of them; none for prompts that are no questions.
Json make_groups(const std::vector<PromptRuns>& cases);
// Every depth that a round of this bundle can accept; none where no round was run.
Json acceptance_by_depth(const std::vector<PromptRuns>& cases, const Manifest& manifest);

}  // namespace spc::cli
