// A finished generation, or one in progress, as callers see it (runtime/generation.py).
#pragma once

#include <optional>
#include <vector>

#include "bundle.h"
#include "generation.h"

namespace spc {

// Times of one generation in seconds, and its reused prompt tokens.
struct GenerationTimes {
  double seconds = 0, prefill = 0, verify = 0, draft = 0, queue = 0;
  std::vector<double> rounds;
  std::optional<double> first_token, estimated_speedup;
  int64_t cached_tokens = 0;
};

// Return the object of `generate --json`, and beside it further fields of a generation. `read` must have decoded the row.
Json generation_json(const Bundle& bundle, const SequenceState& row, const GenerationTimes& times, bool speculative);

}  // namespace spc
