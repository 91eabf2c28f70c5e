// Acceptance of drafts on the prompts of a build's proof (speccompile/bundle/acceptance.py).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../json.h"

namespace spc {

// Counts over rounds of single rows. drafted: rounds that had drafts; tried, accepted: at each depth, drafts whose predecessors
// were accepted, and those of them that were accepted as well.
struct MeasuredAcceptance {
  int64_t rounds = 0, drafted = 0;
  std::vector<int64_t> tried, accepted;

  static MeasuredAcceptance from_json(const Json& data);
};

// Return the acceptance of an engine in a proof; nothing if it has none, as without prompts. Throws Error(kBundle).
std::optional<MeasuredAcceptance> measured(const Json& proof, const std::string& engine, int64_t depth);

}  // namespace spc
